"""The records that readers of sessions pass to the import, and the statements for imported sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import sqlalchemy as sa

from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations.arguments import NewMessage, Reason, SessionTree
from lastlight_state.conversations.records import Branch, Message
from lastlight_state.conversations.shared import branching, storing
from lastlight_state.conversations.tables import BRANCHES, MESSAGES, PROGRESSIONS, SESSIONS, TRANSITIONS
from lastlight_state.db.rows.statements import bind, statement_of
from lastlight_state.db.rows.writes import elements_table
from lastlight_state.db.schema.indexes import AmongFew
from lastlight_state.maintenance.imports import brought

# Statements of imported sessions.


class StoredBranch(NamedTuple):
    """A stored branch: its session, its order of messages, and where it was forked."""

    id: str
    session_id: str
    progression_id: str
    forked_at_ord: int | None


_s, _b = SESSIONS.c, BRANCHES.c

_changed_at = bind("at", _s.updated_at)
#: Raises a session's ``updated_at`` to the time of appended rows. It never lowers the time.
TOUCH = statement_of(
    sa.update(SESSIONS)
    .where(_s.id == bind("session_id", _s.id), _s.updated_at < _changed_at)
    .values(updated_at=_changed_at)
    .returning(_s.id)
)
HEADS = statement_of(
    sa.select(_b.id, _b.session_id, _b.progression_id, _b.forked_at_ord).where(
        AmongFew(_b.id, sa.select(member_of(elements_table("ids").c.value, "id")))
    ),
    StoredBranch,
)
ORDERS_THERE = statement_of(
    sa.select(PROGRESSIONS.c.id).where(
        AmongFew(PROGRESSIONS.c.id, sa.select(member_of(elements_table("ids").c.value, "id")))
    )
)
MESSAGES_THERE = statement_of(
    sa.select(*storing.COLUMNS).where(
        AmongFew(MESSAGES.c.id, sa.select(member_of(elements_table("ids").c.value, "id")))
    ),
    Message,
)
ORDER_VERSION = statement_of(
    sa.select(PROGRESSIONS.c.version).where(PROGRESSIONS.c.id == bind("id", PROGRESSIONS.c.id))
)
#: Finds the stored changes of status with these ids, and their sessions.
CHANGES_THERE = statement_of(
    sa.select(TRANSITIONS.c.id, TRANSITIONS.c.session_id).where(
        AmongFew(TRANSITIONS.c.id, sa.select(member_of(elements_table("ids").c.value, "id")))
    )
)
BRANCHES_OF = statement_of(
    sa.select(*branching.COLUMNS).where(_b.session_id == bind("session_id", _b.session_id)), Branch
)


# The versions that an import leaves of a session. They show the next import what has changed here since.

#: Returns whether a source file gave a message number up to the given one after the given time.
GaveLater: TypeAlias = Callable[[int, datetime], bool]

#: The version recorded for a part that differs from the source since before this import. No row has this version.
DIFFERS = -1


@dataclass(frozen=True)
class ImportedVersions:
    """The versions that the last import left: of the session, of its status history, and of its orders by id.

    ``version`` and ``seq`` are None if an older version of this library imported the session. ``source`` has the
    source's orders by branch id, and the order of all messages under the empty name. ``at`` is the time of the source's
    last sign of life. ``folder`` is the mark of a `Folder` and the latest time in it.
    """

    digest: str
    version: int | None = None
    seq: int | None = None
    orders: Mapping[str, int] = field(default_factory=dict)
    source: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    at: str = ""
    folder: Sequence[str] = ()

    @classmethod
    def of(cls, noted: str | None) -> ImportedVersions:
        """Parse the versions from a line of the ledger."""
        return cls((noted or "").partition(" ")[0], **brought.told_by(noted))

    def text(self) -> str:
        """Return these versions as a line of the ledger."""
        told = {"version": self.version, "seq": self.seq, "orders": dict(self.orders), "source": dict(self.source)}
        return brought.line(self.digest, {**told, "at": self.at, **({"folder": self.folder} if self.folder else {})})


@dataclass(frozen=True)
class Change:
    """A change of a session's or branch's status: the new status, when and why.

    ``started_at`` is when that session or branch began, if the source states it. ``texts`` has the refused values of
    the reason by field, which a lenient import stores. ``id`` is the id of the change in the source, if it has one.
    """

    status: str
    at: datetime
    why: Reason
    started_at: datetime | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True)
class Pool:
    """The order of all messages of a session in its source, with the first and last id that the source states."""

    ids: tuple[str, ...]
    first: str | None = None
    last: str | None = None


@dataclass(frozen=True)
class Folder:
    """The folder from which a session was read. A copy of this folder next to it would contain the same session id.

    ``mark`` is a digest of the folder's name. ``told`` is the latest time in its files, as text. ``stands`` returns
    whether a folder with a given mark still exists next to it.
    """

    mark: str
    told: str
    stands: Callable[[str], bool]


@dataclass(frozen=True)
class Draft:
    """A session to store: its tree, and as ``loose`` the messages that are in no branch.

    ``digest`` shows whether the source has changed since the last import. ``updated_at`` is the session's last change.
    ``history`` has the statuses of the session, the oldest first, and ``branch_statuses`` those of its branches.
    ``pool`` is the order of all messages, None if the source keeps none. A source with a ``pool`` has one row for each
    message, even if several sessions share it. ``begun`` has the creation times of orders by order id. ``gave_later``
    is set if ids consist of names and numbers, which another source may use, too. Then stored messages do not change,
    and new ones are appended.
    """

    tree: SessionTree
    digest: str
    updated_at: datetime
    loose: tuple[NewMessage, ...] = ()
    noticed: Counter[str] = field(default_factory=Counter)
    history: tuple[Change, ...] = ()
    branch_statuses: Mapping[str, Change] = field(default_factory=dict)
    pool: Pool | None = None
    begun: Mapping[str, Any] = field(default_factory=dict)
    gave_later: GaveLater | None = None
    folder: Folder | None = None
