"""Empties messages of conversations: content, embedding and extra are removed; row, position and recorded size stay."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.backends.sql.expressions import bytes_of
from lastlight_state.clock import iso_text
from lastlight_state.conversations.shared.references import HOLDERS, OWNERS, POINTING, PROTECTIONS
from lastlight_state.conversations.tables import BRANCHES, MESSAGES, NAMESPACES, SESSIONS, VECTORS
from lastlight_state.conversations.words import REDACTED, is_redacted
from lastlight_state.db.lists.filters import chunks as some, family, first_column, rows
from lastlight_state.db.rows.records import Record
from lastlight_state.db.rows.statements import Family, Row, Values, bind, statement_of
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.declarations import contents, empty_values
from lastlight_state.db.units.unit import Unit

# Chunks of messages, branches and sessions repeat their texts. They are removed when the texts are emptied.


_b, _n, _v = BRANCHES.c, NAMESPACES.c, VECTORS.c

_within = _v.namespace == bind("namespace", _v.namespace)
_SPACES = statement_of(sa.select(_n.namespace).order_by(_n.namespace))
#: Finds the chunks of these keys in a namespace, with their owners: a chunk's document, or the row with the chunk's id.
FOUND: Family[tuple[str, str]] = family(
    lambda keys: sa.union_all(
        sa.select(_v.id, _v.document_id.label("of")).where(_within, _v.document_id.in_(keys)),
        sa.select(_v.id, _v.id).where(_within, _v.id.in_(keys), _v.document_id.is_(None)),
    ),
    tuple,
)
REMOVE = family(lambda keys: sa.delete(VECTORS).where(_within, _v.id.in_(keys)))
BRANCHES_OF = family(lambda keys: sa.select(_b.id).where(_b.session_id.in_(keys)))


def with_chunks(unit: Unit, keys: Iterable[str]) -> set[str]:
    """Return those of these messages, branches and sessions that have chunks."""
    return {of for _, _, of in _find_chunks(unit, keys)}


def count_chunks(unit: Unit, keys: Iterable[str]) -> int:
    """Return how many chunks `remove` would remove."""
    return sum(1 for _ in _find_chunks(unit, keys))


def remove(unit: Unit, keys: Iterable[str]) -> int:
    """Remove the chunks of these messages, branches and sessions. Returns the number of chunks."""
    found: dict[str, list[str]] = {}
    for namespace, key, _ in _find_chunks(unit, keys):
        found.setdefault(namespace, []).append(key)
    return sum(_remove_chunks(unit, namespace, few) for namespace in found for few in some(found[namespace]))


def places(unit: Unit, sessions: Iterable[str]) -> set[str]:
    """Return the ids that may own chunks besides messages: these sessions and their branches."""
    given = set(sessions)
    return given.union(first_column(unit, BRANCHES_OF, given))


def _find_chunks(unit: Unit, keys: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the namespace, id and owner of each chunk. Searches by namespace, because the indexes begin with it."""
    given = list(some(keys))
    for namespace in unit.values(_SPACES) if given else ():
        for few in given:
            statement, values = FOUND.of(few)
            for key, of in unit.rows(statement, {**values, "namespace": namespace}):
                yield namespace, key, of


def _remove_chunks(unit: Unit, namespace: str, ids: list[str]) -> int:
    statement, values = REMOVE.of(ids)
    return unit.change(statement, {**values, "namespace": namespace})


# Records of redactions and erasures.


class RedactPlan(Record):
    """The plan of a redaction. Nothing is written for a plan.

    ``counts`` are rows by table: messages to empty, and their chunks to remove. ``bytes`` is the size of the contents.
    ``protected`` is the number of messages that stay unchanged, by reason.
    """

    counts: Mapping[str, int]
    bytes: int
    protected: Mapping[str, int]


class ErasePlan(RedactPlan):
    """The plan of an erasure. Nothing is written for a plan.

    ``counts`` are rows by table. Messages, executions and changes of status are emptied. The person's name is removed
    from sessions and branches. Chunks, threads of checkpoints, states and rows of chat connectors are removed.

    ``agent_sessions`` are the agent's own sessions behind the person's chats and sessions, at most 500: their log files
    are not changed.
    """

    agent_sessions: tuple[str, ...]


# The policy of a redaction, as callers give it.


@dataclass(frozen=True)
class RedactPolicy:
    """The policy of a redaction: it applies to messages that meet all the given conditions.

    ``older_than`` is the age since a message was created. ``session_id`` names a session whose orders have the message,
    ``message_ids`` at most 500 messages. One of the three must be given. ``roles`` narrows the selection.
    """

    older_than: timedelta | None = None
    roles: Sequence[str] | None = None
    session_id: str | None = None
    message_ids: Sequence[str] | None = None


class FullMessage(NamedTuple):
    """A message without its content. ``marked`` is the content if it begins like an emptied one."""

    id: str
    created_at: datetime
    role: str
    sender: str | None
    recipient: str | None
    bytes: int
    marked: str | None


_m, _s = MESSAGES.c, SESSIONS.c

_text = sa.cast(_m.content, sa.Text)
#: The content if it begins like an emptied one, else None.
_marked = sa.case((_text.like(sa.literal_column(f"'{{\"{REDACTED}\":%'", columns.Text)), _text)).label("marked")

_SHOWN = (_m.id, _m.created_at, _m.role, _m.sender, _m.recipient, bytes_of(_m.content).label("bytes"), _marked)
_EMPTY = statement_of(
    sa.update(MESSAGES)
    .where(_m.id == bind("id", _m.id))
    .values(
        **empty_values(contents(MESSAGES, but=("content",), redacted=True)),
        content=sa.bindparam("content", type_=columns.Json),  # never sealed, so that the mark can be found
        embedding_model=sa.null(),
        revision=_m.revision + 1,
        revised_at=bind("at", _m.created_at),
    )
)
#: A session by ``key``: its ``user``, and the conditions under which its messages are left alone.
_OWNERS = family(
    lambda keys: sa.select(
        _s.id.label("key"), _s.user, *(condition.label(reason) for reason, condition in PROTECTIONS.items())
    ).where(_s.id.in_(keys))
)


def _full(keys: Any) -> sa.Select[Any]:
    return sa.select(*_SHOWN).where(_m.id.in_(keys)).order_by(_m.id)


_LOCK_OWNERS = family(lambda keys: sa.select(_s.id).where(_s.id.in_(keys)).order_by(_s.id).with_for_update(read=True))
FULL, LOCK_FULL = family(_full, FullMessage), family(lambda keys: _full(keys).with_for_update(), FullMessage)


def full(unit: Unit, ids: Collection[str], *, locked: bool) -> list[FullMessage]:
    """Return those of these messages that are not emptied yet, without their contents.

    With ``locked``, until the unit ends, no other call can change the messages, or start or hold a session that
    contains one.
    """
    if locked:
        list(rows(unit, _LOCK_OWNERS, _owners(unit, ids)))
    found = rows(unit, LOCK_FULL if locked else FULL, ids)
    return [row for row in found if not _is_emptied(row.marked)]


def _is_emptied(text: str | None) -> bool:
    """True if a content is exactly what `empty` writes."""
    try:
        value = None if text is None else codec.decode(text)
    except ValueError:
        return False
    return is_redacted(value)


def holders(unit: Unit, ids: Collection[str]) -> dict[str, list[Row]]:
    """Return the sessions that have each of these messages, with their user and whether they are left alone."""
    found = _owners(unit, ids)
    holding: dict[str, list[Row]] = {key: [] for key in ids}
    for row in rows(unit, _OWNERS, found):
        for key in found[row["key"]]:
            holding[key].append(row)
    return holding


def _owners(unit: Unit, ids: Collection[str]) -> dict[str, set[str]]:
    """Return the ids of the sessions that contain these messages, each with the ids of its messages."""
    orders: dict[str, set[str]] = {}
    for message, order in rows(unit, HOLDERS, ids):
        orders.setdefault(order, set()).add(message)
    found: dict[str, set[str]] = {}
    for order, owner in rows(unit, OWNERS, orders):
        found.setdefault(owner, set()).update(orders[order])
    for message, owner in rows(unit, POINTING, ids):
        found.setdefault(owner, set()).add(message)
    return found


def reason(sessions: Sequence[Values], reasons: Iterable[str] = PROTECTIONS) -> str | None:
    """Return the reason why a message in these sessions must stay unchanged, or None if there is none."""
    return next((name for name in reasons for row in sessions if row.get(name)), None)


def empty(unit: Unit, found: Iterable[FullMessage], at: datetime) -> None:
    """Replace the contents of these messages by a mark that states the time and the number of bytes."""
    for row in found:
        mark = {REDACTED: {"at": iso_text(at), "original_bytes": row.bytes}}
        unit.change(_EMPTY, {"id": row.id, "content": codec.encode_sound(mark).decode(), "at": at})
