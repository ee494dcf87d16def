"""What the exchange holds of a person: an inbox, memberships in channels, and the name beside what others have."""

from __future__ import annotations

from collections import Counter

import sqlalchemy as sa

from lastlight_state.conversations.tables import DELIVERIES, INBOXES, MEMBERS
from lastlight_state.db import columns
from lastlight_state.db.declarations import forgotten, names
from lastlight_state.db.keyed import KeyRow
from lastlight_state.db.statements import prepared
from lastlight_state.db.unit import Unit

_d = DELIVERIES.c
_other = DELIVERIES.alias("other")
_person = sa.bindparam("person", type_=columns.Text)

#: The messages that were delivered to nobody but the person.
DELIVERED = prepared(
    sa.select(_d.message_id.label("key"))
    .where(
        _d.owner == _person,
        ~sa.exists().where(_other.c.message_id == _d.message_id, _other.c.owner != _person),
    )
    .order_by(_d.message_id),
    KeyRow,
)
_LOCK = prepared(sa.select(INBOXES.c.owner).where(INBOXES.c.owner == _person).with_for_update())
#: What bears the person's name as its key, in the order in which it goes.
_OWN = {DELIVERIES: _d.owner, INBOXES: INBOXES.c.owner, MEMBERS: MEMBERS.c.member}
_COUNT = {
    str(table.name): prepared(sa.select(sa.func.count()).select_from(table).where(name == _person))
    for table, name in _OWN.items()
}
_REMOVE = {str(table.name): prepared(sa.delete(table).where(name == _person)) for table, name in _OWN.items()}
#: Finds them by a scan: a person is erased rarely.
_UNNAME = prepared(
    sa.update(DELIVERIES)
    .where(sa.or_(*(column == _person for column in names(DELIVERIES))))
    .values(forgotten(DELIVERIES, _person))
)


def counted(unit: Unit, person: str) -> Counter[str]:
    """Return how many rows `forget` would remove, by table."""
    return +Counter({table: unit.value(statement, {"person": person}) for table, statement in _COUNT.items()})


def forget(unit: Unit, person: str) -> Counter[str]:
    """Remove the person's inbox and memberships, and the name from what others have; the rows removed, by table.

    All in the transaction of the unit, however many deliveries there are.
    """
    values = {"person": person}
    unit.row(_LOCK, values)
    unit.change(_UNNAME, values)
    return +Counter({table: unit.change(statement, values) for table, statement in _REMOVE.items()})
