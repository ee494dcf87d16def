"""Relationships between models of different domains: both directions, read only, and never loaded by accident."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement
from sqlalchemy.orm import InstrumentedAttribute, foreign, relationship

from lastlight_state.db.base import Base, table_of

#: No session writes through one, and none reads unless a query says how, as by ``selectinload``.
_READ: dict[str, Any] = {"viewonly": True, "lazy": "raise"}


def owns(
    many: str,
    child: type[Base],
    one: str,
    key: InstrumentedAttribute[Any],
    refers: InstrumentedAttribute[Any],
    order: InstrumentedAttribute[Any] | None = None,
) -> None:
    """Give the owner of ``key`` its children, in their order, and each child its owner.

    The order is that of ``order``, and then of the child's key.
    """
    condition = key == foreign(refers)
    ordered = [*([] if order is None else [order]), *table_of(child).primary_key]
    setattr(key.class_, many, relationship(child, primaryjoin=condition, order_by=ordered, **_READ))
    setattr(child, one, relationship(key.class_, primaryjoin=condition, remote_side=key, **_READ))


def leads_to(name: str, found: type[Base], condition: ColumnElement[bool], *, at: type[Base]) -> None:
    """Give a model the one row of another that a condition finds."""
    key = table_of(found).primary_key
    setattr(at, name, relationship(found, primaryjoin=condition, foreign_keys=[*key], uselist=False, **_READ))


def ordered_by(many: str, holder: Any, message: Any, link: Any) -> None:
    """Give the holder of an order of messages those messages, in that order."""
    setattr(
        holder,
        many,
        relationship(
            message,
            secondary=table_of(link),
            primaryjoin=holder.progression_id == foreign(link.progression_id),
            secondaryjoin=message.id == foreign(link.message_id),
            order_by=link.ord,
            **_READ,
        ),
    )
