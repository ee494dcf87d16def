"""The statements of messages: lists, and what holds a message."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations import checks
from lastlight_state.conversations.arguments import MessageFilter
from lastlight_state.conversations.kernel.storing import SUMMARY
from lastlight_state.conversations.shown import MessageSummaryRow, UseRow
from lastlight_state.conversations.tables import BRANCHES, LINKS, MESSAGES, SESSIONS, TYPES
from lastlight_state.db import columns, valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import Row, bind, number, prepared

_MOST, _TYPE = limits_of(MESSAGES), limits_of(TYPES)
_NAMES = checks.of(MESSAGES, "sender", "recipient", "channel")

_c = MESSAGES.c

#: Stands for the position of a pointer, which has none. Below every position.
NO_ORD = -1

_class = sa.select(TYPES.c.type_id).where(TYPES.c.lion_class == bind("lion_class", TYPES.c.lion_class))

LIST = Listing(
    "messages",
    SUMMARY,
    row=MessageSummaryRow,
    order=(_c.created_at, _c.id),
    filters={
        **{name: _c[name] == bind(name, _c[name]) for name in ("sender", "recipient", "channel")},
        "lion_class": _c.lion_class == _class.scalar_subquery(),
        "since": _c.created_at >= bind("since", _c.created_at),
        "until": _c.created_at < bind("until", _c.created_at),
    },
    spread={"roles": _c.role},
    walked=("roles",),
)

THERE = prepared(sa.select(_c.id).where(_c.id == bind("id", _c.id)))
EMBED = prepared(
    sa.update(MESSAGES)
    .where(_c.id == bind("id", _c.id))
    .values({name: bind(name, _c[name]) for name in ("embedding", "embedding_model")})
)


def filters(where: MessageFilter | None) -> Row:
    """Return the filters of a list, by name."""
    asked = MessageFilter() if where is None else valid.group("where", where, MessageFilter)
    roles = None if asked.roles is None else valid.several("where.roles", asked.roles)
    return {
        **checks.fields("where", asked, _NAMES),
        "lion_class": checks.name("where.lion_class", asked.lion_class, _TYPE.lion_class),
        "roles": None if roles is None else [valid.identifier("where.roles", one, _MOST.role) for one in roles],
        "since": checks.optional_time("where.since", asked.since),
        "until": checks.optional_time("where.until", asked.until),
    }


def _pointing(kind: str, table: sa.Table, column: str) -> sa.Select[Any]:
    return sa.select(_word(kind), table.c.id.label("id"), number(NO_ORD).label("ord")).where(
        table.c[column] == bind("message_id", table.c[column])
    )


def _word(kind: str) -> Any:
    return sa.literal_column(f"'{kind}'", columns.Text).label("kind")


def _uses() -> Any:
    """Return what holds a message, each found by an index."""
    links = sa.select(_word("progression"), LINKS.c.progression_id.label("id"), LINKS.c.ord.label("ord")).where(
        LINKS.c.message_id == bind("message_id", LINKS.c.message_id)
    )
    held = sa.union_all(
        links,
        _pointing("system_msg", BRANCHES, "system_msg_id"),
        _pointing("first_msg", SESSIONS, "first_msg_id"),
        _pointing("last_msg", SESSIONS, "last_msg_id"),
    ).subquery("held")
    order = (columns.in_code_points(held.c.kind), columns.in_code_points(held.c.id), held.c.ord)
    after = sa.tuple_(*order) > sa.tuple_(
        bind("after_kind", held.c.kind), bind("after_id", held.c.id), bind("after_ord", LINKS.c.ord)
    )
    return sa.select(*held.c).where(after).order_by(*order).limit(sa.bindparam("limit", type_=sa.Integer))


USES = prepared(_uses(), UseRow)
