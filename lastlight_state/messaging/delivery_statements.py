"""The statements of `deliveries`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.statements import Family, Row, Statement, bind, prepared
from lastlight_state.messaging.message_checks import Draft
from lastlight_state.messaging.message_statements import COLUMNS, NEWEST_HERE, counting
from lastlight_state.messaging.rows import MessagingMessageRow
from lastlight_state.messaging.tables import MESSAGES, SESSIONS, THIS_SESSION

#: The columns that a draft gives.
DRAFT = ("role", "content", "timestamp", "platform_message_id")

COUNT = prepared(counting(sa.bindparam("added", type_=sa.Integer), THIS_SESSION))
LOCK = prepared(sa.select(SESSIONS.c.id).where(THIS_SESSION).with_for_update(key_share=True))
LOCK_HERE = prepared(sa.select(SESSIONS.c.id).where(*NEWEST_HERE).with_for_update(key_share=True))

_session_id = bind("session_id", MESSAGES.c.session_id)


def _insert_unless_there(positions: Sequence[sa.BindParameter[Any]]) -> Any:
    """Return one INSERT for many drafts that are not stored yet. It sees what was committed before it began."""
    columns = [MESSAGES.c[name] for name in DRAFT]
    drafts = (
        sa.values(sa.column("position", sa.Integer), *(sa.column(c.name, c.type) for c in columns), name="drafts")
        .data([(position, *(bind(f"{c.name}_{i}", c) for c in columns)) for i, position in enumerate(positions)])
        .cte("drafts")
    )
    stored = MESSAGES.alias("stored")
    is_stored = sa.exists().where(
        stored.c.session_id == _session_id,
        stored.c.platform_message_id == drafts.c.platform_message_id,
        stored.c.role == drafts.c.role,
    )
    return (
        sa.insert(MESSAGES)
        .from_select(
            ["session_id", *DRAFT],
            sa.select(_session_id, *(drafts.c[name] for name in DRAFT))
            .where(drafts.c.role.is_not(None), ~is_stored)
            .order_by(drafts.c.position),
            include_defaults=False,
        )
        .returning(*COLUMNS)
    )


def _insert_and_count(positions: Sequence[sa.BindParameter[Any]]) -> Any:
    """The INSERT together with the UPDATE that counts, for databases that allow both in one statement."""
    made = _insert_unless_there(positions).cte("made")
    many = sa.select(sa.func.count()).select_from(made).scalar_subquery()
    counted = counting(many, THIS_SESSION, sa.exists(sa.select(made.c.id))).cte("counted")
    return sa.select(*made.c).add_cte(counted)


_INSERT = Family("position", _insert_unless_there, MessagingMessageRow)
_INSERT_AND_COUNT = Family("position", _insert_and_count, MessagingMessageRow)


def insert_unless_there(
    drafts: Sequence[Draft], *, counted: bool = False
) -> tuple[Statement[MessagingMessageRow], Row]:
    """The statement that inserts these drafts in their order, and its parameters.

    The caller adds ``session_id``, and ``at`` if the statement also counts.
    """
    statement, values = (_INSERT_AND_COUNT if counted else _INSERT).of(range(len(drafts)))
    for position in range(len(values)):
        draft = dict(drafts[position]) if position < len(drafts) else {}
        for name in DRAFT:
            values[f"{name}_{position}"] = draft.get(name)
    return statement, values


STORED = Family(
    "platform_id",
    lambda platform_ids: (
        sa.select(*COLUMNS)
        .where(MESSAGES.c.session_id == _session_id, MESSAGES.c.platform_message_id.in_(platform_ids))
        .order_by(MESSAGES.c.id)
    ),
    MessagingMessageRow,
)
