"""Finds and empties a person's rows other than messages: inboxes, threads, states, histories, orders, executions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lastlight_state.checkpoints import removal
from lastlight_state.checkpoints.models import THREADS
from lastlight_state.checkpoints.statements import TABLES
from lastlight_state.conversations.shared.references import PROTECTIONS
from lastlight_state.conversations.tables import (
    BRANCHES,
    DELIVERIES,
    INBOXES,
    MEMBERS,
    PROGRESSIONS,
    SESSIONS,
    TRANSITIONS,
)
from lastlight_state.db.lists.filters import chunks, family, first_column
from lastlight_state.db.rows.statements import statement_of
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.declarations import contents, empty_values, names, values_without_person
from lastlight_state.db.units.unit import Unit
from lastlight_state.messaging.models import SESSIONS as CHATS
from lastlight_state.receipts import Receipt
from lastlight_state.states.models import STATES
from lastlight_state.workflows.tables import EXECUTIONS

# Rows of a person in the exchange: an inbox, memberships in channels, and the name in others' deliveries.

_d = DELIVERIES.c
_other = DELIVERIES.alias("other")
_person = sa.bindparam("person", type_=columns.Text)

#: Finds the messages that were delivered only to the person.
DELIVERED = statement_of(
    sa.select(_d.message_id.label("key"))
    .where(
        _d.owner == _person,
        ~sa.exists().where(_other.c.message_id == _d.message_id, _other.c.owner != _person),
    )
    .order_by(_d.message_id)
)
_LOCK = statement_of(sa.select(INBOXES.c.owner).where(INBOXES.c.owner == _person).with_for_update())
#: The columns with the person's name as a key, in the order in which rows are deleted.
_OWN = {DELIVERIES: _d.owner, INBOXES: INBOXES.c.owner, MEMBERS: MEMBERS.c.member}
_COUNT = {
    str(table.name): statement_of(sa.select(sa.func.count()).select_from(table).where(name == _person))
    for table, name in _OWN.items()
}
_REMOVE = {str(table.name): statement_of(sa.delete(table).where(name == _person)) for table, name in _OWN.items()}
#: Finds the rows by a scan, because erasing is rare.
_UNNAME = statement_of(
    sa.update(DELIVERIES)
    .where(sa.or_(*(column == _person for column in names(DELIVERIES))))
    .values(values_without_person(DELIVERIES, _person))
)


def count_inboxes(unit: Unit, person: str) -> Counter[str]:
    """Return how many rows `forget_in_inboxes` would remove, by table."""
    return +Counter({table: unit.value(statement, {"person": person}) for table, statement in _COUNT.items()})


def forget_in_inboxes(unit: Unit, person: str) -> Counter[str]:
    """Remove the person's inbox and memberships, and the person's name from others' deliveries. Returns rows by table.

    Everything is done in one transaction, however many deliveries there are.
    """
    values = {"person": person}
    unit.row(_LOCK, values)
    unit.change(_UNNAME, values)
    return +Counter({table: unit.change(statement, values) for table, statement in _REMOVE.items()})


# A person's threads of checkpoints and states are removed completely, because this library cannot read their contents.

_thread_c = THREADS.c


#: Finds the rows by a scan, because erasing is rare.
_THREAD_OWN = statement_of(sa.select(_thread_c.id.label("key")).where(_thread_c.user == _person).order_by(_thread_c.id))
_THREAD_LOCK = family(
    lambda keys: (
        sa.select(_thread_c.id)
        .where(_thread_c.id.in_(keys), _thread_c.user == _person)
        .order_by(_thread_c.id)
        .with_for_update()
    )
)
_OWN_STATES = statement_of(sa.select(STATES.c.id.label("key")).where(STATES.c.user == _person).order_by(STATES.c.id))
_REMOVE_STATES = family(lambda keys: sa.delete(STATES).where(STATES.c.id.in_(keys), STATES.c.user == _person))
_THREAD_COUNT = {
    str(table.name): family(
        lambda keys, table=table: sa.select(sa.func.count().label("rows")).where(table.c.thread_id.in_(keys))
    )
    for table in TABLES
}


def threads_of(unit: Unit, person: str) -> list[str]:
    """Return the ids of a person's threads."""
    return unit.values(_THREAD_OWN, {"person": person})


def count_threads(unit: Unit, ids: Collection[str]) -> Counter[str]:
    """Return how many rows these threads have, by table."""
    found = Counter({table: sum(first_column(unit, count, ids)) for table, count in _THREAD_COUNT.items()})
    found[str(THREADS.name)] = len(ids)
    return +found


def remove_threads(person: str, key: str, unit: Unit, _receipt: Receipt, _at: datetime) -> Counter[str]:
    """Remove a thread and all its rows, if it still belongs to the person. Returns the rows by table."""
    removed: Counter[str] = Counter()
    for thread_id in list(first_column(unit, _THREAD_LOCK, [key], {"person": person})):
        removed += removal.thread(unit, thread_id)
    return removed


def states_of(unit: Unit, person: str) -> list[str]:
    """Return the ids of a person's states, expired ones too."""
    return unit.values(_OWN_STATES, {"person": person})


def remove_states(person: str, keys: Collection[str], unit: Unit, _receipt: Receipt, _at: datetime) -> Counter[str]:
    """Remove the states with these keys that still belong to the person. Returns the rows by table."""
    statement, named = _REMOVE_STATES.of(list(keys))
    return Counter({str(STATES.name): unit.change(statement, {**named, "person": person})})


# Histories of sessions and branches: a change's actor and texts are emptied, and the change stays.

_t, _transition_s, _b = TRANSITIONS.c, SESSIONS.c, BRANCHES.c


_SAID = contents(TRANSITIONS)
_transition_is_full = sa.or_(*(column.is_not(None) for column in _SAID))
_is_free = ~sa.exists().where(_transition_s.id == _t.session_id, PROTECTIONS["held"])
_EMPTIED = empty_values(_SAID)

_TRANSITION_OWN = sa.exists().where(_transition_s.id == _t.session_id, _transition_s.user == _person)
_BRANCHED = sa.exists().where(_b.id == _t.branch_id, _b.user == _person)
_OF = statement_of(
    sa.select(_t.id.label("key"))
    .where(_transition_is_full, _is_free, sa.or_(_t.actor == _person, _TRANSITION_OWN, _BRANCHED))
    .order_by(_t.id)
)
_EMPTY = family(
    lambda keys: sa.update(TRANSITIONS).where(_t.id.in_(keys), _transition_is_full, _is_free).values(_EMPTIED)
)
_EMPTY_OF = family(
    lambda keys: sa.update(TRANSITIONS).where(_t.session_id.in_(keys), _transition_is_full).values(_EMPTIED)
)


def transitions_of(unit: Unit, person: str) -> list[str]:
    """Return the ids of status changes by the person, or of the person's sessions and branches, that have texts."""
    return unit.values(_OF, {"person": person})


def empty_transitions(unit: Unit, ids: Collection[str]) -> int:
    """Empty the texts of these status changes, except those of held sessions. Returns how many had texts."""
    return sum(unit.change(*_EMPTY.of(some)) for some in chunks(ids))


def empty_transitions_of(unit: Unit, sessions: Collection[str]) -> int:
    """Empty the texts of all status changes of these locked sessions. Returns how many had texts."""
    return sum(unit.change(*_EMPTY_OF.of(some)) for some in chunks(sessions))


# Orders of a person's sessions and branches: their names and metadata are emptied, their links stay.

_p, _order_s, _order_b = PROGRESSIONS.c, SESSIONS.c, BRANCHES.c


_ORDER_TEXTS = contents(PROGRESSIONS)
_order_is_full = sa.or_(*(column.is_not(None) for column in _ORDER_TEXTS))
_is_held = PROTECTIONS["held"]
#: Selects orders to leave alone: a held session or another person's session has the order.
_stays = sa.exists().where(_order_s.progression_id == _p.id, sa.or_(_order_s.user != _person, _is_held))

_branch_orders = (
    sa.select(_order_b.progression_id)
    .join_from(BRANCHES, SESSIONS, _order_s.id == _order_b.session_id)
    .where(~_is_held)
)
_of_person = sa.union(
    sa.select(_order_s.progression_id).where(_order_s.user == _person),
    _branch_orders.where(sa.or_(_order_b.user == _person, sa.and_(_order_b.user.is_(None), _order_s.user == _person))),
)
_ORDER_COUNT = statement_of(
    sa.select(sa.func.count()).select_from(PROGRESSIONS).where(_p.id.in_(_of_person), _order_is_full, ~_stays)
)


def _empty(of: Any) -> sa.Update:
    return sa.update(PROGRESSIONS).where(_p.id.in_(of), _order_is_full, ~_stays).values(empty_values(_ORDER_TEXTS))


_EMPTY_OF_SESSIONS = family(
    lambda keys: _empty(
        sa.union(
            sa.select(_order_s.progression_id).where(_order_s.id.in_(keys), _order_s.user == _person),
            _branch_orders.where(_order_s.id.in_(keys), sa.or_(_order_b.user == _person, _order_b.user.is_(None))),
        )
    )
)
_EMPTY_OF_BRANCHES = family(lambda keys: _empty(_branch_orders.where(_order_b.id.in_(keys), _order_b.user == _person)))


def count_orders(unit: Unit, person: str) -> int:
    """Return how many orders `empty_session_orders` and `empty_branch_orders` would empty, in total."""
    found: int = unit.value(_ORDER_COUNT, {"person": person})
    return found


def empty_session_orders(unit: Unit, sessions: Collection[str], person: str) -> int:
    """Empty the orders of these sessions of the person and of their branches. Branches of another user are left out."""
    return _run(unit, _EMPTY_OF_SESSIONS, sessions, person)


def empty_branch_orders(unit: Unit, branches: Collection[str], person: str) -> int:
    """Empty the orders of these branches of the person."""
    return _run(unit, _EMPTY_OF_BRANCHES, branches, person)


def _run(unit: Unit, statements: Any, keys: Collection[str], person: str) -> int:
    count = 0
    for some in chunks(keys):
        statement, values = statements.of(some)
        count += unit.change(statement, {**values, "person": person})
    return count


_e, _c, _s = EXECUTIONS.c, CHATS.c, SESSIONS.c


#: The columns with texts by the agent, to it or about it.
_TEXTS = contents(EXECUTIONS)
_is_full = sa.or_(*(column.is_not(None) for column in _TEXTS))

FULL = family(lambda keys: sa.select(_e.id).where(_e.session_id.in_(keys), _e.session_id.is_not(None), _is_full))
EMPTY = family(
    lambda keys: (
        sa.update(EXECUTIONS)
        .where(_e.session_id.in_(keys), _e.session_id.is_not(None), _is_full)
        .values(empty_values(_TEXTS))
    )
)
#: Finds which of these agent sessions are also behind other people's chats or sessions.
OTHERS = family(
    lambda keys: sa.union(
        sa.select(_c.agent_session_id.label("key")).where(_c.agent_session_id.in_(keys), _c.user_id != _person),
        sa.select(_s.agent_session_id).where(_s.agent_session_id.in_(keys), _s.user != _person),
    )
)


def own_executions(unit: Unit, agent_sessions: Collection[str], person: str) -> set[str]:
    """Return those of these agent sessions that belong to no chat or session of another user."""
    others: set[str] = set()
    for some in chunks(agent_sessions):
        statement, values = OTHERS.of(some)
        others.update(unit.values(statement, {**values, "person": person}))
    return set(agent_sessions) - others


def count_executions(unit: Unit, agent_sessions: Collection[str]) -> int:
    """Return how many executions `empty_executions` would change."""
    return sum(1 for _ in first_column(unit, FULL, agent_sessions))


def empty_executions(unit: Unit, agent_sessions: Collection[str]) -> int:
    """Empty the texts of the executions of these agent sessions. Returns how many executions had texts."""
    return sum(unit.change(*EMPTY.of(some)) for some in chunks(agent_sessions))
