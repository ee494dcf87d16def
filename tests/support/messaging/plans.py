"""How a database would run a statement of this domain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastlight_state.db.rows.statements import Statement
from lastlight_state.testing import Database

_EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN (COSTS OFF)"}


class Plans:
    """The plans of statements that get these values."""

    def __init__(self, database: Database, values: Mapping[str, Any]) -> None:
        self._database = database
        self._raw = database.raw()
        self.backend = database.open().backend
        self._values = values
        self._has_begun = False

    def set(self, name: str, value: str) -> None:
        """Change a setting of Postgres' planner. Citus passes it on inside a transaction, if it is told to."""
        if not self._has_begun:
            self._has_begun = True
            self._raw.execute("BEGIN")
            self._raw.execute("SET LOCAL citus.propagate_set_commands = 'local'")
        self._raw.execute(f"SET LOCAL {name} = {value}")

    def of(self, statement: Statement[Any], values: Mapping[str, Any] | None = None) -> str:
        """The plan as text, in the words of the product."""
        compiled = statement.on(self.backend)
        parameters = compiled.parameters({**self._values, **(values or {})})
        rows = self._raw.execute(f"{_EXPLAIN[self._database.name]} {compiled.sql}", parameters).fetchall()
        return "\n".join(str(row[-1]) for row in rows)


def excess(plan: str) -> list[str]:
    """The signs that a plan reads more than it shows."""
    return [sign for sign in ("Sort", "TEMP B-TREE", "Seq Scan", "Bitmap") if sign in plan]
