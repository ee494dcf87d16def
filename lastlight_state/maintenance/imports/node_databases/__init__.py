"""Reads the database of the second original system: its runs, each with all rows that belong to it.

Milliseconds become times, and states and statuses become the library's words. A waiting run is paused; its question, or
its node's timer or signal, tells what the run waits for. Some statuses of versions of 2026 have no equivalent
(``waiting-quota``, ``waiting-bound``, ``bound-stale``, ``paused``, ``stalled``). Such a run is paused, and its context
keeps the word under ``status``; such a node is pending, and is counted.

Events, signals and frames keep their numbers, and frames their encoding. Tool calls are numbered within the run.
Attempts and approvals get ids such as ``<run>:<node>:<iteration>``, for an attempt followed by its number. If one
scorer gave several scores for an attempt, the last is current. The usage of an attempt is stored in the counts and cost
of its execution, and completely in the execution's details.

The next fire of a cron is computed anew, and the cron does not fire for missed times. Rows of tasks' outputs are stored
in output tables that are defined in this store. Rows of other output tables are counted, and are imported once their
table is defined. An open question of an ended run is cancelled, and counted. A live run that nobody continued in this
store is updated from its source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from lastlight_state.clock import iso_text
from lastlight_state.conversations import checks, similarity
from lastlight_state.conversations.tables import NAMESPACES, VECTORS
from lastlight_state.db import valid
from lastlight_state.db.rows.statements import bind, statement_of
from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, InvalidValue
from lastlight_state.keys import compose_key
from lastlight_state.maintenance.imports import cells, foreign, origins, pieces, servers
from lastlight_state.maintenance.imports.cells import Row
from lastlight_state.maintenance.imports.foreign import Foreign, digest, unit_name
from lastlight_state.maintenance.imports.node_databases import known, units
from lastlight_state.maintenance.imports.node_databases.source_rows import SourceRow, Terms, moment
from lastlight_state.maintenance.imports.pieces import (
    STORED,
    ImportTarget,
    ImportUnit,
    Kind,
    Place,
    SourceUnit,
    UnitLookup,
    key_of,
)
from lastlight_state.maintenance.imports.row_pieces import Growth, Row as Placed, RowDraft, RowPiece, change
from lastlight_state.outputs import models as outputs
from lastlight_state.outputs.models import CACHE
from lastlight_state.schedules.crons.definitions import pattern
from lastlight_state.schedules.models import SCHEDULES, UNPLANNED

# Rows that belong to no run: crons, entries of the cache, and chunks of text with their embeddings, each one unit.

_NAME = cells.name(256)
_CRON, _CHUNK = limits_of(SCHEDULES), limits_of(VECTORS)
_ZONE = "UTC"
_PLAN = ["next_run_at", "planned_with"]

#: Makes a unit's rows for our tables, by table, with the head's table last.
Made = Callable[[Terms, Row], dict[str, list[Row]]]


def piece(source: Foreign, row: Row, kind: str, made: Made, into: ImportTarget) -> ImportUnit:
    """Return a unit that consists of a single row of the source."""
    source.confirm()
    terms = Terms(into.settings.limits, lenient=into.lenient)
    given = made(terms, units.scope_row(into, kind, row))
    *_, head = given
    [first] = given[head]
    key = compose_key(*(str(first[name]) for name in _KEYS[head]), by=":")
    draft = RowDraft((kind, key), head, digest(row), given, terms.noticed, is_alone=True)
    return (ChunkPiece if head == "vectors" else RowPiece)(draft, _GROWTHS, into)


_BEGUN = statement_of(
    sa.select(NAMESPACES.c.created_at).where(NAMESPACES.c.namespace == bind("namespace", NAMESPACES.c.namespace))
)


class ChunkPiece(RowPiece):
    """A chunk of text with its embedding. Its namespace belongs to the source that created the namespace.

    The ledger has the time when the namespace was created. A namespace that was removed in this store and created again
    counts as another namespace.
    """

    def compare(self, look: UnitLookup) -> tuple[str, Counter[str], Counter[str]]:
        """Return the outcome of the unit, the number of rows to add by table, and counts for ``noticed``."""
        [head] = self.draft.given[str(NAMESPACES.name)]
        namespace = head["namespace"]
        self._space = replace(look, key=key_of((str(NAMESPACES.name), namespace)))
        known, begun = pieces.known_digest(self._space), look.view.value(_BEGUN, {"namespace": namespace})
        self._began = iso_text(head["created_at"] if begun is None else begun)
        if pieces.is_same(look, self):
            return super().compare(look)
        if begun is None and known is not None and not look.revives:
            return "pruned", Counter(), Counter()
        if begun is not None and (known != self._began or not origins.is_of_file(self._space)):
            problem = (
                f"is of the namespace {namespace!r:.200}, which is here, and not from this source: a scope keeps both"
            )
            pieces.refuse_other(self, problem)
        return self._plan_namespace(look, head, super().compare(look))

    def _plan_namespace(
        self, look: UnitLookup, head: Placed, done: tuple[str, Counter[str], Counter[str]]
    ) -> tuple[str, Counter[str], Counter[str]]:
        """Return the outcome of the unit after earlier units of a dry run.

        Only the first such unit creates the namespace.
        """
        spaces, found = look.planned[str(NAMESPACES.name)], done[0]
        if found in STORED and spaces.setdefault(head["namespace"], head) is not head:
            if head["dimensions"] != spaces[head["namespace"]]["dimensions"]:
                problem = "is stored already with another dimensions"
                raise AlreadyExists(str(NAMESPACES.name), head["namespace"], problem=problem, fields=("dimensions",))
            del done[1][str(NAMESPACES.name)]
        return done

    def store(self, view: Unit, outcome: str) -> None:
        """Add or change the chunk, and record which source its namespace belongs to."""
        super().store(view, outcome)
        target = ("vector_namespace", self.draft.given[str(NAMESPACES.name)][0]["namespace"])
        pieces.note_unit(self._space, target, self._began, "imported", self._into.now)


def cron(terms: Terms, row: Row) -> dict[str, list[Row]]:
    """Convert a cron of the source to the library's row.

    The next search for due crons computes its next fire, so that the cron does not fire for missed times.
    """
    found = SourceRow(terms, "_smithers_cron", row, "cron_id", adapts=True)
    created = found.must("created_at_ms", moment)
    enabled = found.may("enabled", cells.flag)
    terms.noticed["enabled_unknown"] += enabled is None
    terms.noticed["next_run_at_ms_left"] += row.get("next_run_at_ms") is not None
    made = {
        "name": found.must("cron_id", cells.name(_CRON.name)),
        "pattern": found.must("pattern", lambda where, value: pattern(value, _ZONE, parsed=False, where=where)),
        "timezone": _ZONE,
        "target_kind": "workflow",
        "target": found.must("workflow_path", cells.name(_CRON.target)),
        "enabled": enabled is True,
        "created_at": created,
        "updated_at": created,
        "last_run_at": found.may("last_run_at_ms", moment),
        "next_run_at": created if enabled else None,
        "planned_with": UNPLANNED if enabled else None,
        "error_json": found.json("error_json", _CRON.error_json),
    }
    return {"cron_schedules": [{**made, "payload": found.add_adapted({}, _CRON.payload)}]}


def cache_row(terms: Terms, row: Row) -> dict[str, list[Row]]:
    """Convert a cached result to a row of the cache. The key stays unchanged."""
    found = SourceRow(terms, "_smithers_cache", row, "cache_key")
    for name in ("tools_sig", "jj_pointer"):
        terms.noticed[f"{name}_left"] += row.get(name) is not None
    table = found.must("output_table", _NAME)
    made = {
        "cache_key": found.must("cache_key", _NAME),
        **{name: found.must(name, _NAME) for name in ("workflow_name", "node_id")},
        "output_key": table,
        "table_name": table,
        "schema_signature": found.must("schema_sig", _NAME),
        "agent_signature": found.may("agent_sig", _NAME),
        "created_at": found.must("created_at_ms", moment),
        "payload": found.json("payload_json", outputs.ROW),
    }
    return {"output_cache": [made]}


def vector(terms: Terms, row: Row) -> dict[str, list[Row]]:
    """Return rows for a chunk of text with its embedding, and for the namespace, which its first chunk creates."""
    found = SourceRow(terms, "_smithers_vectors", row, "id", adapts=True)
    embedding = found.must("embedding", checks.vector)
    dimensions = len(embedding) // 4
    if found.must("dimensions", valid.number) != dimensions:
        raise InvalidValue(f"_smithers_vectors {row['id']!s:.80}.dimensions", f"the embedding has {dimensions} numbers")
    namespace, created = found.must("namespace", _NAME), found.must("created_at_ms", moment)
    made = {
        "namespace": namespace,
        "id": found.must("id", _NAME),
        "document_id": found.may("document_id", _NAME),
        "chunk_index": found.may("chunk_index", valid.number) or 0,
        "dimensions": dimensions,
        "norm": similarity.norm(similarity.unpack(embedding)),
        "created_at": created,
        "embedding": embedding,
        "content": found.must("content", cells.text(_CHUNK.content)),
    }
    metadata = found.json("metadata_json", _CHUNK.chunk_metadata, dict) or {}
    head = {"namespace": namespace, "dimensions": dimensions, "created_at": created}
    return {
        "vector_namespaces": [head],
        "vectors": [{**made, "chunk_metadata": found.add_adapted(metadata, _CHUNK.chunk_metadata)}],
    }


def _cron_is_open(stored: Placed, row: Placed) -> bool:
    """True if the cron has neither changed nor fired in this store."""
    return stored["last_fire_id"] is None and bool(stored["updated_at"] == row["updated_at"])


def _change_cron(
    view: Unit, _into: ImportTarget, growth: Growth, stored: Placed, row: Placed, names: list[str]
) -> None:
    """Update a cron. Its next fire is computed anew if its pattern or ``enabled`` changes."""
    plan = _PLAN if {"pattern", "enabled"} & set(names) else []
    change(view, growth, SCHEDULES, stored, row, [*names, *plan])


_KEYS = {str(table.name): [column.name for column in table.primary_key] for table in (SCHEDULES, CACHE, VECTORS)}
_GROWTHS: dict[str, Growth] = {
    "cron_schedules": Growth(
        _cron_is_open, frozenset(), ("updated_at", "last_fire_id"), frozenset(_PLAN), _change_cron
    ),
    "output_cache": Growth(
        lambda stored, row: bool(stored["created_at"] <= row["created_at"]), frozenset(), ("created_at",)
    ),
    "vectors": Growth(lambda stored, _: stored["updated_at"] is None, frozenset(), ("updated_at",)),
    str(NAMESPACES.name): Growth(lambda _stored, _row: False, frozenset({"dimensions"}), (), frozenset({"created_at"})),
}
#: The tables of such rows: their order, the kind of record that a row becomes, and the function that converts it.
APART: dict[str, tuple[str, str, Made]] = {
    "_smithers_cron": ("cron_id", "cron", cron),
    "_smithers_cache": ("cache_key", "output_cache", cache_row),
    "_smithers_vectors": ("created_at_ms, id", "vector", vector),
}


_PREFIX = "_smithers_"
_RUNS = f"{_PREFIX}runs"
#: Finds rows whose run is missing or not named.
_OF_NO_RUN = f"run_id IS NULL OR run_id NOT IN (SELECT run_id FROM {_RUNS})"
#: The columns that the table of runs has in every version.
_COLUMNS = {_RUNS: "run_id workflow_name status created_at_ms"}
#: The tables that are read, and the table of schema versions, which has no data.
_READ = {_RUNS, f"{_PREFIX}schema_migrations", *units.OF_RUNS, *APART}


def found_at(place: Place) -> bool:
    """True if a place has a database of that system.

    The library's own databases are told apart by their version table.
    """
    if isinstance(place, Path):
        return foreign.holds(place, _is_known)
    with servers.open_source(place) as source:
        return _is_known(source)


def _is_known(source: Foreign) -> bool:
    return foreign.has(source, _COLUMNS) and not source.columns(VERSION_TABLE)


def parts(place: Place) -> Generator[SourceUnit]:
    """Yield the runs of a database, the oldest first, then the rows that belong to no run."""
    with servers.open_source(place) as source:
        if not _is_known(source):
            raise Conflict(f"{str(place)!r:.200} has not the table {_RUNS}", code="unknown_source")
        yield from _runs(source)
        yield from _apart(source)
        yield from _elsewhere(source)
        for part in foreign.unknown(source, known.COLUMNS):
            yield replace(part, key=part.key.removeprefix(_PREFIX))


def _runs(source: Foreign) -> Iterator[SourceUnit]:
    seen = set()
    left = [name for name in _unread_tables(source) if "run_id" in source.columns(name)]
    outputs = _outputs(source)
    for row in source.rows(_RUNS, "ORDER BY created_at_ms, run_id"):
        seen.add(row["run_id"])
        yield SourceUnit(unit_name("runs", row["run_id"]), partial(units.piece, source, row, left, outputs))
    named = {one for table in units.OF_RUNS for one in source.values(table, "run_id")}
    for missing in sorted(named - seen, key=repr):
        yield SourceUnit(unit_name("missing_runs", missing), _without_run)


def _apart(source: Foreign) -> Iterator[SourceUnit]:
    """Yield crons, cache entries and chunks of text as units."""
    for table, (order, kind, made) in APART.items():
        for row in source.rows(table, f"ORDER BY {order}"):
            name = unit_name(table.removeprefix(_PREFIX), row[order.rpartition(" ")[2]])
            yield SourceUnit(name, partial(piece, source, row, kind, made))


def _elsewhere(source: Foreign) -> Iterator[SourceUnit]:
    """Yield, by table, the number of rows that belong to no run and cannot be stored."""
    for table in _unread_tables(source):
        condition = _OF_NO_RUN if "run_id" in source.columns(table) else "true"
        for part in foreign.unstored_rows(source, table, condition):
            yield replace(part, key=table.removeprefix(_PREFIX))


def _outputs(source: Foreign) -> list[str]:
    """Return the tables of tasks' outputs. The source names them by its schemas."""
    return [
        name
        for name in source.tables()
        if not name.startswith(_PREFIX) and {"run_id", "node_id"} <= set(source.columns(name))
    ]


def _unread_tables(source: Foreign) -> list[str]:
    """Return the tables of that system that are never read."""
    return [name for name in source.tables() if name.startswith(_PREFIX) and name not in _READ]


def _without_run(_: ImportTarget) -> ImportUnit:
    raise InvalidValue("run_id", f"must be the id of a row of {_RUNS}")


#: The kind of source.
KIND = Kind(
    "smithers-db",
    f"a SQLite file with the table {_RUNS}, or a Postgres schema",
    found_at,
    parts,
    on_servers=True,
    has_names=True,
)
