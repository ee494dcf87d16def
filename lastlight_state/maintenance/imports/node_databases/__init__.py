"""Reads the database of the second original system: its runs, each with all that belongs to it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from lastlight_state.db.base import VERSION_TABLE
from lastlight_state.errors import Conflict, InvalidValue
from lastlight_state.maintenance.imports import foreign, servers
from lastlight_state.maintenance.imports.foreign import Foreign, unit_name
from lastlight_state.maintenance.imports.node_databases import apart, units
from lastlight_state.maintenance.imports.node_databases.apart import APART
from lastlight_state.maintenance.imports.pieces import Into, Kind, Part, Piece, Place

_PREFIX = "_smithers_"
_RUNS = f"{_PREFIX}runs"
#: The columns that the table of runs has in every version.
_COLUMNS = {_RUNS: "run_id workflow_name status created_at_ms"}
#: The tables that are read, and the one about the schema of the source, which says nothing of what it did.
_READ = {_RUNS, f"{_PREFIX}schema_migrations", *units.OF_RUNS, *APART}


def found_at(place: Place) -> bool:
    """Whether this is a database of that system. One of ours has a version."""
    if isinstance(place, Path):
        return foreign.holds(place, _is_known)
    with servers.opened(place) as source:
        return _is_known(source)


def _is_known(source: Foreign) -> bool:
    return foreign.has(source, _COLUMNS) and not source.columns(VERSION_TABLE)


def parts(place: Place) -> Generator[Part]:
    """The runs of a database, the oldest first, and what belongs to none."""
    with servers.opened(place) as source:
        if not _is_known(source):
            raise Conflict(f"{str(place)!r:.200} has not the table {_RUNS}", code="unknown_source")
        yield from _runs(source)
        yield from _apart(source)
        yield from _elsewhere(source)


def _runs(source: Foreign) -> Iterator[Part]:
    known = set()
    left = [name for name in _left(source) if "run_id" in source.columns(name)]
    outputs = _outputs(source)
    for row in source.rows(_RUNS, "ORDER BY created_at_ms, run_id"):
        known.add(row["run_id"])
        yield Part(unit_name("runs", row["run_id"]), partial(units.piece, source, row, left, outputs))
    named = {one for table in units.OF_RUNS for one in source.values(table, "run_id")}
    for missing in sorted(named - known, key=repr):
        yield Part(unit_name("missing_runs", missing), _without_run)


def _apart(source: Foreign) -> Iterator[Part]:
    """Return what belongs to no run."""
    for table, (order, kind, made) in APART.items():
        for row in source.rows(table, f"ORDER BY {order}"):
            name = unit_name(table.removeprefix(_PREFIX), row[order.rpartition(" ")[2]])
            yield Part(name, partial(apart.piece, source, row, kind, made))


def _elsewhere(source: Foreign) -> Iterator[Part]:
    """The rows of no run that have no place here, counted by table."""
    for table in _left(source):
        condition = "run_id IS NULL" if "run_id" in source.columns(table) else "true"
        for part in foreign.counted(source, table, condition):
            yield replace(part, key=table.removeprefix(_PREFIX))


def _outputs(source: Foreign) -> list[str]:
    """The tables of what tasks produced: they have the names that their schemas gave them."""
    return [
        name
        for name in source.tables()
        if not name.startswith(_PREFIX) and {"run_id", "node_id"} <= set(source.columns(name))
    ]


def _left(source: Foreign) -> list[str]:
    """The tables of that system which are not read."""
    return [name for name in source.tables() if name.startswith(_PREFIX) and name not in _READ]


def _without_run(_: Into) -> Piece:
    raise InvalidValue("run_id", f"must be the id of a row of {_RUNS}")


#: The kind of source.
KIND = Kind(
    "smithers-db", f"a SQLite file with the table {_RUNS}, or a Postgres schema", found_at, parts, on_servers=True
)
