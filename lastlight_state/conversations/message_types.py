"""Message classes: each class name that a runtime gives its messages has a number. Number 0 means no class."""

from __future__ import annotations

import builtins

import sqlalchemy as sa

from lastlight_state.conversations import words
from lastlight_state.conversations.records import MessageType
from lastlight_state.conversations.shared.storing import KnownClasses, numbers_of
from lastlight_state.conversations.tables import TYPES
from lastlight_state.db import valid
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.statements import bind, every_column_of, number, statement_of
from lastlight_state.db.schema.declarations import limits_of

_LIMITS = limits_of(TYPES)

_c = TYPES.c

GET = statement_of(sa.select(_c.lion_class).where(_c.type_id == bind("type_id", _c.type_id)))
FIND = statement_of(sa.select(_c.type_id).where(_c.lion_class == bind("lion_class", _c.lion_class)))
ALL = statement_of(
    sa.select(*every_column_of(MessageType, TYPES)).order_by(_c.type_id).limit(number(words.MANY)), MessageType
)


class MessageTypes(Repository):
    """``store.conversations.message_types``"""

    def resolve(self, lion_class: str | None) -> int:
        """Return the number of a message class, and assign one to a new class. None and ``""`` have number 0."""
        if lion_class is None or lion_class == "":
            return words.UNKNOWN_TYPE
        name = valid.identifier("lion_class", lion_class, _LIMITS.lion_class)
        known = self._remember(KnownClasses)
        found = known.numbers.get(name)
        if found is not None:
            return found
        return self._writing(lambda unit: numbers_of(unit, known, [name])[name], repeatable=True)

    def name(self, type_id: int) -> str:
        """Return the name of the message class with this number. Raises `NotFound`."""
        found: str | None = self._value(GET, {"type_id": valid.number("type_id", type_id)})
        if found is None:
            raise valid.not_found(words.MESSAGE_TYPE, type_id)
        return found

    def find(self, lion_class: str) -> int | None:
        """Return the number of a message class, or None if the class has no number."""
        found: int | None = self._value(FIND, {"lion_class": valid.lookup_text("lion_class", lion_class)})
        return found

    def list(self) -> builtins.list[MessageType]:
        """Return all classes, at most 10,000, by their numbers."""
        return self._list_rows(ALL)
