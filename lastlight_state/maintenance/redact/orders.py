"""Orders of a person's sessions and branches: their names and metadata are emptied, their links stay."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations.kernel.references import PROTECTIONS
from lastlight_state.conversations.tables import BRANCHES, PROGRESSIONS, SESSIONS
from lastlight_state.db import columns
from lastlight_state.db.declarations import contents, emptied
from lastlight_state.db.keyed import chunks, family
from lastlight_state.db.statements import prepared
from lastlight_state.db.unit import Unit

_p, _s, _b = PROGRESSIONS.c, SESSIONS.c, BRANCHES.c
_person = sa.bindparam("person", type_=columns.Text)

_TEXTS = contents(PROGRESSIONS)
_is_full = sa.or_(*(column.is_not(None) for column in _TEXTS))
_is_held = PROTECTIONS["held"]
#: An order stays as it is where a session has it that is held or another person's.
_stays = sa.exists().where(_s.progression_id == _p.id, sa.or_(_s.user != _person, _is_held))

_branch_orders = sa.select(_b.progression_id).join_from(BRANCHES, SESSIONS, _s.id == _b.session_id).where(~_is_held)
_of_person = sa.union(
    sa.select(_s.progression_id).where(_s.user == _person),
    _branch_orders.where(sa.or_(_b.user == _person, sa.and_(_b.user.is_(None), _s.user == _person))),
)
_COUNT = prepared(sa.select(sa.func.count()).select_from(PROGRESSIONS).where(_p.id.in_(_of_person), _is_full, ~_stays))


def _empty(of: Any) -> sa.Update:
    return sa.update(PROGRESSIONS).where(_p.id.in_(of), _is_full, ~_stays).values(emptied(_TEXTS))


_EMPTY_OF_SESSIONS = family(
    lambda keys: _empty(
        sa.union(
            sa.select(_s.progression_id).where(_s.id.in_(keys), _s.user == _person),
            _branch_orders.where(_s.id.in_(keys), sa.or_(_b.user == _person, _b.user.is_(None))),
        )
    )
)
_EMPTY_OF_BRANCHES = family(lambda keys: _empty(_branch_orders.where(_b.id.in_(keys), _b.user == _person)))


def counted(unit: Unit, person: str) -> int:
    """Return how many orders `empty_of_sessions` and `empty_of_branches` would empty together."""
    found: int = unit.value(_COUNT, {"person": person})
    return found


def empty_of_sessions(unit: Unit, sessions: Collection[str], person: str) -> int:
    """Empty the orders of these sessions of the person, and of their branches that are not another user's."""
    return _run(unit, _EMPTY_OF_SESSIONS, sessions, person)


def empty_of_branches(unit: Unit, branches: Collection[str], person: str) -> int:
    """Empty the orders of these branches of the person."""
    return _run(unit, _EMPTY_OF_BRANCHES, branches, person)


def _run(unit: Unit, statements: Any, keys: Collection[str], person: str) -> int:
    count = 0
    for some in chunks(keys):
        statement, values = statements.of(some)
        count += unit.change(statement, {**values, "person": person})
    return count
