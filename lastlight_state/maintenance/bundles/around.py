"""What belongs to the messages of a session beside its orders: deliveries, inboxes, memberships and chunks of text.

A chunk belongs to what its document is, and without a document to what has its id: a message, a branch or the session.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations.tables import DELIVERIES, INBOXES, MEMBERS, NAMESPACES, VECTORS
from lastlight_state.db.keyed import family, rows
from lastlight_state.db.statements import Family
from lastlight_state.db.unit import Unit
from lastlight_state.maintenance.copy.subjects import Subject

_d, _v, _n = DELIVERIES.c, VECTORS.c, NAMESPACES.c

#: The tables of these rows.
TABLES = (INBOXES, DELIVERIES, MEMBERS, NAMESPACES, VECTORS)

_DELIVERED = family(lambda keys: sa.select(_d.message_id).where(_d.owner.in_(keys)))
_OWNERS = family(lambda keys: sa.select(_d.owner).where(_d.message_id.in_(keys)).distinct())
#: By namespaces, of which there are few, because the indexes of chunks begin with them.
_CHUNKS = NAMESPACES.join(VECTORS, _v.namespace == _n.namespace)


def _about(keys: Any) -> sa.ColumnElement[bool]:
    return sa.or_(_v.document_id.in_(keys), sa.and_(_v.document_id.is_(None), _v.id.in_(keys)))


_SPACES = family(lambda keys: sa.select(_n.namespace).select_from(_CHUNKS).where(_about(keys)).distinct())
#: The chunks of these messages, branches and sessions.
CHUNKS = family(
    lambda keys: sa.select(*_v).select_from(_CHUNKS).where(_about(keys)).order_by(*Subject(VECTORS).sorting)
)


def delivered(unit: Unit, owners: Iterable[str]) -> set[str]:
    """Return the messages in the inboxes of these owners."""
    return _values(unit, _DELIVERED, owners)


def inboxes(unit: Unit, owners: Iterable[str], messages: Iterable[str]) -> set[str]:
    """Return the inboxes of these owners, and those in which these messages are."""
    return _values(unit, _OWNERS, messages) | set(owners)


def namespaces(unit: Unit, keys: Iterable[str]) -> set[str]:
    """Return the namespaces with chunks of these messages, branches and sessions."""
    return _values(unit, _SPACES, keys)


def _values(unit: Unit, statements: Family, keys: Iterable[str]) -> set[str]:
    return {value for row in rows(unit, statements, keys) for value in row.values()}
