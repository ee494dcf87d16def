"""How a database runs a statement, as its planner says."""

from __future__ import annotations

import re
from contextlib import closing
from datetime import timedelta
from typing import Any

from lastlight_state import StateStore
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import Statement
from lastlight_state.testing import Database

#: Ranges whose rows are put in one order. Each has a limit of its own. Postgres 18 says that sorts are switched off.
_MERGED = re.compile(r"Sort  \([^\n]*\n(?: *Disabled: true\n)? *Sort Key: [^\n]*\n *->  Append  [^\n]*\n *->  Limit")
#: The end of a name of a shard's index, on Citus.
_SHARD = re.compile(r"_1\d{5}\b")
_NO_TABLE = ("INDEX", "anon", "(subquery", "CONSTANT ROW")


class Plan:
    """The steps of a plan, one text a line."""

    def __init__(self, lines: list[str], name: str) -> None:
        self.text = _SHARD.sub("", "\n".join(lines))
        self._name = name

    @property
    def sorts_the_table(self) -> bool:
        """Whether rows are sorted that an index could have given in order. Merging ranges, or sorting the rows of one
        instant, is no sort of the table."""
        if self._name == "postgresql":
            text = _MERGED.sub("", self.text)
            return re.search(r"(?<!Incremental )Sort  \(", text) is not None
        return "USE TEMP B-TREE FOR ORDER BY" in self.text and "MERGE" not in self.text

    @property
    def scans_the_table(self) -> bool:
        """Whether rows are read in no order at all."""
        if self._name == "postgresql":
            return "Seq Scan" in self.text
        return any(
            line.startswith("SCAN ") and not any(word in line for word in _NO_TABLE) for line in self.text.splitlines()
        )

    def __repr__(self) -> str:
        return self.text


def plan_of(
    database: Database, store: StateStore, statement: Statement[Any], values: dict[str, Any], *, in_order: bool = False
) -> Plan:
    """The plan of a statement with these parameters.

    ``in_order`` asks for the plan on a table of any size: on Postgres the ways that pay for small ones alone are
    switched off. On SQLite there are no statistics that could tell the sizes.
    """
    compiled = statement.on(store.backend)
    explain = "EXPLAIN QUERY PLAN " if database.name == "sqlite" else "EXPLAIN "
    with closing(database.raw()) as raw:  # a test asks for many plans, and all workers share the server's connections
        if in_order and database.name == "postgresql":
            raw.execute("BEGIN")
            raw.execute("SET LOCAL citus.propagate_set_commands = 'local'")  # a name that means nothing without Citus
            for way in ("seqscan", "hashjoin", "mergejoin", "sort", "bitmapscan"):
                raw.execute(f"SET LOCAL enable_{way} = off")
            _make_scans_dear(raw)
        rows = raw.execute(explain + compiled.sql, compiled.parameters(values)).fetchall()
    return Plan([str(row[-1]) for row in rows], database.name)


def _make_scans_dear(raw: Any) -> None:
    """Give every row that is read a cost a hundred times the usual one, on servers that need it.

    From version 18 on, switching a way off adds nothing to its cost. Of the two forms of an EXISTS the planner then
    takes the one that reads a small table whole. A table that was analyzed while it was empty costs nothing at any
    price: a test must fill it first.
    """
    [(version,)] = raw.execute("SELECT current_setting('server_version_num')::int").fetchall()
    if version >= 180_000:
        raw.execute("SET LOCAL cpu_tuple_cost = 1")
        raw.execute("SET LOCAL cpu_index_tuple_cost = 0.5")


def plan_of_page(
    database: Database,
    store: StateStore,
    listing: Listing[Any],
    chosen: dict[str, Any],
    *,
    paged: bool = False,
    in_order: bool = True,
) -> Plan:
    """The plan of a page of a list with these filters."""
    now = database.clock.now()
    first = now + timedelta(seconds=50) if listing.orders_by_time else "x"
    values: dict[str, Any] = {"now": now, "after_0": first, "after_1": "x"}
    for name, value in chosen.items():
        several = value if isinstance(value, list) else [value]
        values |= {name: value} | {f"{name}_{i}": several[min(i, len(several) - 1)] for i in range(50)}
    return plan_of(database, store, listing.statement(chosen, paged=paged), values, in_order=in_order)


def sql_of_page(store: StateStore, listing: Listing[Any], chosen: dict[str, Any], *, paged: bool = False) -> str:
    """The SQL of a page of a list."""
    return listing.statement(chosen, paged=paged).on(store.backend).sql


def columns_of_rows(
    database: Database, store: StateStore, statement: Statement[Any], values: dict[str, Any]
) -> set[str]:
    """The columns of executions that SQLite takes from the table's rows, and not from an index, for this statement."""
    raw = database.raw()
    [(root,)] = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'executions'").fetchall()
    names = [row[1] for row in raw.execute("PRAGMA table_info(executions)").fetchall()]
    compiled = statement.on(store.backend)
    code = raw.execute(f"EXPLAIN {compiled.sql}", compiled.parameters(values)).fetchall()
    cursors = {step[2] for step in code if step[1] == "OpenRead" and step[3] == root}
    return {names[step[3]] for step in code if step[1] == "Column" and step[2] in cursors}
