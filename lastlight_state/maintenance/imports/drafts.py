"""A session of a source, as the readers of sessions give it to the import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lastlight_state.conversations.arguments import NewMessage, Reason, SessionTree


@dataclass(frozen=True)
class Change:
    """A change of status: to what, when, and why. ``started_at`` is when what has the status began, if it is told.

    ``texts`` are values of the reason that were refused, by field, for a lenient import to keep.
    """

    status: str
    at: datetime
    why: Reason
    started_at: datetime | None = None
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Draft:
    """A session to store: its tree, and the messages that no branch has.

    ``digest`` tells whether the source is as it was at the last import. ``updated_at`` is its last sign of life.
    ``history`` has the statuses of the session, the oldest first, and ``branch_statuses`` those of its branches.
    """

    tree: SessionTree
    digest: str
    updated_at: datetime
    loose: tuple[NewMessage, ...] = ()
    noticed: Counter[str] = field(default_factory=Counter)
    history: tuple[Change, ...] = ()
    branch_statuses: Mapping[str, Change] = field(default_factory=dict)
