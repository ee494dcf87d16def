"""How a database would run a statement of ours: its plan, and on SQLite the columns that it takes from the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastlight_state.db.statements import Statement
from lastlight_state.store import StateStore
from lastlight_state.testing.databases import Database


def plan_of(database: Database, store: StateStore, statement: Statement, values: Mapping[str, Any]) -> str:
    """The plan as text, in the words of the product."""
    return "\n".join(str(row[-1]) for row in _explained(database, store, statement, values, _SAY[database.name]))


def row_columns_read(
    database: Database, store: StateStore, statement: Statement, values: Mapping[str, Any], table: str
) -> set[str]:
    """The columns that SQLite takes from the table's rows, not from an index, when it runs the statement."""
    [(root,)] = database.raw().execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchall()
    names = [row[1] for row in database.raw().execute(f"PRAGMA table_info({table})").fetchall()]
    code = _explained(database, store, statement, values, "EXPLAIN")
    cursors = {step[2] for step in code if step[1] == "OpenRead" and step[3] == root}
    return {names[step[3]] for step in code if step[1] == "Column" and step[2] in cursors}


_SAY = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN (COSTS OFF)"}


def _explained(
    database: Database, store: StateStore, statement: Statement, values: Mapping[str, Any], say: str
) -> list[Any]:
    compiled = statement.on(store.backend)
    rows: list[Any] = database.raw().execute(f"{say} {compiled.sql}", compiled.parameters(values)).fetchall()
    return rows
