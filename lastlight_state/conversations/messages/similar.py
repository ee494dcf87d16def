"""Similarity search over messages' embeddings: over all messages, one message order, or one branch's history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NotRequired, TypeAlias

import sqlalchemy as sa

from lastlight_state.conversations import words
from lastlight_state.conversations.arguments import Within
from lastlight_state.conversations.records import MessageHit
from lastlight_state.conversations.shared import branching, searching, storing
from lastlight_state.conversations.tables import LINKS, MESSAGES, PROGRESSIONS, SESSIONS
from lastlight_state.db import valid
from lastlight_state.db.rows.statements import Statement, bind, statement_of
from lastlight_state.db.rows.writes import as_list, cache_statements
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue


class Scanned(searching.ComparedRow):
    """What a search reads of a message; the position of one that an order links."""

    ord: NotRequired[int]


_m, _l, _p, _s = MESSAGES.c, LINKS.c, PROGRESSIONS.c, SESSIONS.c

_FILTERS = {
    "role": _m.role == bind("role", _m.role),
    "model": _m.embedding_model == bind("model", _m.embedding_model),
}
#: An order, and the positions of its own links.
_Span: TypeAlias = tuple[str, int, int]
_ORDER: Statement[_Span] = statement_of(
    sa.select(_p.id, _p.start_ord, _p.next_ord).where(_p.id == bind("progression_id", _p.id)), tuple
)
_POOL: Statement[_Span] = statement_of(
    sa.select(_p.id, _p.start_ord, _p.next_ord)
    .select_from(SESSIONS.join(PROGRESSIONS, _p.id == _s.progression_id))
    .where(_s.id == bind("session_id", _s.id)),
    tuple,
)


def place(where: str, within: Any) -> tuple[str, str] | None:
    """Check the scope of a search. Return the name and value of the one field that is set; None means all messages."""
    if within is None:
        return None
    given = [one for one in vars(valid.argument_group(where, within, Within)).items() if one[1] is not None]
    if len(given) != 1:
        raise InvalidValue(where, "expected exactly one of session_id, branch_id and progression_id")
    [(name, value)] = given
    return name, valid.lookup_text(f"{where}.{name}", value)


def nearest_messages(
    unit: Unit, at: tuple[str, str] | None, given: Mapping[str, Any], asked: searching.SearchRequest
) -> list[MessageHit]:
    """Return the messages nearest to the query, with contents. An unreadable message is logged and left out."""
    best = searching.best_matches(_streams(unit, at, given, asked), asked)
    ids = as_list([{"id": key} for key, _ in best])
    rows = unit.readable_rows(storing.MANY, {"ids": ids})[0] if best else []
    messages = {message.id: message for message in rows}
    return [MessageHit.of({"message": messages[key], "score": score}) for key, score in best if key in messages]


def _streams(
    unit: Unit, at: tuple[str, str] | None, given: Mapping[str, Any], asked: searching.SearchRequest
) -> Iterator[Iterator[list[Scanned]]]:
    names = frozenset(name for name, value in given.items() if value is not None)
    if at is None:
        read = partial(unit.rows_or_errors, scan(names, linked=False))
        yield searching.batches(read, dict(given), {"id": ""}, asked.query)
        return
    read = partial(unit.rows_or_errors, scan(names, linked=True))
    for one in _segments(unit, *at):
        values = {**given, "progression_id": one.progression_id, "until": one.until}
        yield searching.batches(read, values, {"ord": one.start - 1}, asked.query)


def _segments(unit: Unit, name: str, key: str) -> list[branching.Segment]:
    """Return the segments of message orders that a search reads. Raises `NotFound` for an unknown scope."""
    if name == "branch_id":
        return branching.line_of(unit, key)
    statement, kind = (_POOL, words.SESSION) if name == "session_id" else (_ORDER, words.PROGRESSION)
    row = unit.row(statement, {name: key})
    if row is None:
        raise valid.not_found(kind, key)
    return [branching.Segment("", *row)]


@cache_statements
def scan(names: frozenset[str], *, linked: bool) -> Statement[Scanned]:
    """Return a statement that reads ids and embeddings in batches, with the named filters.

    With ``linked``, it reads the messages of a message order by position; otherwise all messages by id.
    """
    key: Any = _l.ord if linked else _m.id
    shown = [_m.id, _l.ord, _m.embedding] if linked else [_m.id, _m.embedding]
    conditions = [_m.embedding.is_not(None), key > bind(f"after_{key.name}", key)]
    conditions += [_FILTERS[name] for name in sorted(names)]
    select = sa.select(*shown)
    if linked:
        conditions += [_l.progression_id == bind("progression_id", _l.progression_id), _l.ord < bind("until", _l.ord)]
        select = select.select_from(LINKS.join(MESSAGES, _m.id == _l.message_id))
    limit = sa.bindparam("limit", type_=sa.Integer)
    return statement_of(select.where(*conditions).order_by(key).limit(limit), Scanned)
