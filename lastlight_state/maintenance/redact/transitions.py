"""Histories of sessions and branches: who changed a status and what was said of it is emptied, the change stays."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from lastlight_state.conversations.kernel.references import PROTECTIONS
from lastlight_state.conversations.tables import BRANCHES, SESSIONS, TRANSITIONS
from lastlight_state.db import columns
from lastlight_state.db.declarations import contents, emptied
from lastlight_state.db.keyed import KeyRow, chunks, family
from lastlight_state.db.statements import prepared
from lastlight_state.db.unit import Unit

_t, _s, _b = TRANSITIONS.c, SESSIONS.c, BRANCHES.c
_person = sa.bindparam("person", type_=columns.Text)

_SAID = contents(TRANSITIONS)
_is_full = sa.or_(*(column.is_not(None) for column in _SAID))
_is_free = ~sa.exists().where(_s.id == _t.session_id, PROTECTIONS["held"])
_EMPTIED = emptied(_SAID)

_OWN = sa.exists().where(_s.id == _t.session_id, _s.user == _person)
_BRANCHED = sa.exists().where(_b.id == _t.branch_id, _b.user == _person)
_OF = prepared(
    sa.select(_t.id.label("key"))
    .where(_is_full, _is_free, sa.or_(_t.actor == _person, _OWN, _BRANCHED))
    .order_by(_t.id),
    KeyRow,
)
_EMPTY = family(lambda keys: sa.update(TRANSITIONS).where(_t.id.in_(keys), _is_full, _is_free).values(_EMPTIED))
_EMPTY_OF = family(lambda keys: sa.update(TRANSITIONS).where(_t.session_id.in_(keys), _is_full).values(_EMPTIED))


def of(unit: Unit, person: str) -> list[str]:
    """Return the person's changes, and those of the person's sessions and branches, of which anything was said."""
    return [row["key"] for row in unit.rows(_OF, {"person": person})]


def empty(unit: Unit, ids: Collection[str]) -> int:
    """Empty what was said of these changes, but for those of held sessions; of how many there was anything."""
    return sum(unit.change(*_EMPTY.of(some)) for some in chunks(ids))


def empty_of(unit: Unit, sessions: Collection[str]) -> int:
    """Empty what was said of all changes of these sessions, which are locked and not held; of how many it was said."""
    return sum(unit.change(*_EMPTY_OF.of(some)) for some in chunks(sessions))
