"""The rows of a table by their keys: the next ones, those that there are, and those that nobody else has locked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.keyed import KeyRow, family, rows
from lastlight_state.db.statements import bind, number, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.maintenance.prune.sweeps.sweep import LOOK, Terms


class Keys:
    """The keys of one table."""

    def __init__(self, key: sa.Column[Any]) -> None:
        found = sa.select(key.label("key"))
        self.walk = prepared(found.where(key > bind("after", key)).order_by(key).limit(number(LOOK)), KeyRow)
        self.known = family(lambda keys: found.where(key.in_(keys)), KeyRow)
        self.lock = family(
            lambda keys: found.where(key.in_(keys)).order_by(key).with_for_update(skip_locked=True), KeyRow
        )

    def next(self, unit: Unit, terms: Terms, after: str | None) -> tuple[list[str], str | None]:
        """Return the next keys after one, and the last of them unless they are the last of all."""
        since = after or ""
        if terms["ids"] is None:
            keys = [row["key"] for row in unit.rows(self.walk, {"after": since})]
        else:
            keys = [key for key in terms["ids"] if key > since][:LOOK]
        return keys, keys[-1] if len(keys) == LOOK else None

    def among(self, unit: Unit, keys: Iterable[str]) -> set[str]:
        """Return those of these keys that a row has."""
        return {row["key"] for row in rows(unit, self.known, keys)}

    def locked(self, unit: Unit, keys: Iterable[str]) -> list[str]:
        """Return those of these keys whose rows nobody has locked; they are locked until the unit ends."""
        return [row["key"] for row in rows(unit, self.lock, keys)]
