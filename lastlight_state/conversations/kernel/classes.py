"""The numbers of message classes: a class gets its number in the transaction of the first message that has it.

A store remembers numbers only after their commit, so a message that is rolled back leaves no number behind.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations.rows import MessageTypeRow
from lastlight_state.conversations.tables import TYPES
from lastlight_state.conversations.words import UNKNOWN_CLASS, UNKNOWN_TYPE
from lastlight_state.db.indexes import AmongFew
from lastlight_state.db.listed import as_list, listed
from lastlight_state.db.statements import bind, number, prepared
from lastlight_state.db.unit import Unit

_c = TYPES.c
_LOCK = "conversation_message_types"

_KNOWN = prepared(
    sa.select(_c.type_id, _c.lion_class).where(
        AmongFew(_c.lion_class, sa.select(member_of(listed("names").c.value, "name")))
    ),
    MessageTypeRow,
)
_ADD = prepared(
    sa.insert(TYPES)
    .from_select(
        ["type_id", "lion_class"],
        sa.select(sa.func.max(_c.type_id) + number(1), bind("lion_class", _c.lion_class)),
        include_defaults=False,
    )
    .returning(_c.type_id)
)


class KnownClasses:
    """The numbers that a store has learned."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {UNKNOWN_CLASS: UNKNOWN_TYPE}


def numbers_of(unit: Unit, known: KnownClasses, names: Iterable[str]) -> dict[str, int]:
    """The number of each class. New ones are given the next numbers, by one unit at a time."""
    found = {name: known.numbers.get(name) for name in names}
    missing = sorted(name for name, type_id in found.items() if type_id is None)
    if missing:
        learned = _stored(unit, missing)
        if len(learned) < len(missing):
            unit.named_lock(_LOCK)
            learned = _stored(unit, missing)
            learned |= {name: unit.value(_ADD, {"lion_class": name}) for name in missing if name not in learned}
        unit.after_commit(lambda: known.numbers.update(learned))
        found |= learned
    return {name: type_id for name, type_id in found.items() if type_id is not None}


def _stored(unit: Unit, names: Iterable[str]) -> dict[str, int]:
    rows = unit.rows(_KNOWN, {"names": as_list([{"name": name} for name in names])})
    return {row["lion_class"]: row["type_id"] for row in rows}
