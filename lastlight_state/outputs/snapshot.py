"""Snapshots: the input and all outputs of a run at one moment. A resumed run starts from its snapshot.

If the database is reached over a network, one statement reads everything: the registry, the input, and the rows of
every table as lists of texts. The statement is built for the tables that this store knows. If the registry in its
result lists other tables, the statement is built anew and run again. For a local database, one statement reads each
table, all in one snapshot of the database. In both cases the database adds up the sizes first: if the sum exceeds the
limit, no row's content is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.backends.base import Backend
from lastlight_state.db import reconcile, valid
from lastlight_state.db.rows.compiled import Compiled
from lastlight_state.db.rows.parameters import UNREADABLE
from lastlight_state.db.rows.shapes import SHAPES
from lastlight_state.db.rows.statements import Row, Shaped, Statement, number
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.columns import parse_time
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import BackendError, CorruptData, InvalidValue, LostRace, PayloadTooLarge
from lastlight_state.outputs import inputs, models, results
from lastlight_state.outputs.catalog import definitions
from lastlight_state.outputs.catalog.definitions import Definitions, Registered, Targeted, missing_table
from lastlight_state.outputs.models import REGISTRY
from lastlight_state.outputs.records import Output, RunInput, RunSnapshot
from lastlight_state.outputs.results.statements import statements_of
from lastlight_state.outputs.table import OutputTable

# Packed rows: one statement brings the registry, the input and every table, as lists of texts.

#: Sources of packed rows. Other rows have the number of their table as their source.
REGISTRY_ROWS, INPUT_ROWS = -2, -1
STAMP = ("key", "table_name", "kind", "signature", "model_digest", "created_at", "updated_at", "columns")
_TIMES = ("created_at", "updated_at")


class RegistrySnapshot:
    """The registry as this store last read it."""

    def __init__(self, stamps: tuple[Any, ...] = ()) -> None:
        self.stamps = stamps
        self.registered = tuple(map(_read_stamp, stamps))
        #: Handles with every column in the registry, whatever this process has defined.
        self.handles = tuple(found.handle() for found in self.registered)


class RegistryCache:
    """A store's last snapshot of the registry, and the untyped handles that were made from its rows."""

    def __init__(self) -> None:
        self.latest = RegistrySnapshot()
        self._untyped: dict[str, tuple[Registered, OutputTable[Any]]] = {}

    def handle(self, found: Registered) -> OutputTable[Any]:
        """Return the untyped handle of a registry row. A new handle is made if the row has changed."""
        kept = self._untyped.get(found.key)
        if kept is None or kept[0] != found:
            kept = self._untyped[found.key] = found, found.handle()
        return kept[1]


def _read_stamp(stamp: tuple[Any, ...]) -> Registered:
    row = dict(zip(STAMP, stamp, strict=True))
    times = {name: parse_time(codec.decode(row[name])) for name in _TIMES}
    values: Any = {**row, **times, "columns": codec.decode(row["columns"])}
    return Registered.of(values)


def input_of(texts: Sequence[Any]) -> RunInput:
    row = dict(zip((column.name for column in inputs.FULL), texts, strict=True))
    created = parse_time(codec.decode(row["created_at"]))
    changed = {"revision": int(row["revision"]), "created_at": created, "payload": codec.decode_jsonb(row["payload"])}
    values: Any = {**row, **changed}
    return RunInput.of(values)


def row_of(table: OutputTable[Any], texts: Sequence[Any]) -> Row:
    """Convert a list of texts to the row that it represents. Raises `CorruptData` for a text that cannot be parsed."""
    row: Row = {}
    for (name, token), text in zip(statements_of(table).shown_columns, texts, strict=True):
        try:
            row[name] = None if text is None else _READ[token](text)
        except UNREADABLE as error:
            raise CorruptData(table.table_name, tuple(row.values())[:3], name) from error
    return row


def _time(text: str) -> datetime:
    return parse_time(codec.decode(text))


_READ: dict[str, Callable[[str], Any]] = {
    "text": str,
    "integer": int,
    "real": float,
    "boolean": lambda text: text == "true",
    "decimal": Decimal,
    "timestamp": _time,
    "json": codec.decode_jsonb,
    "blob": lambda text: bytes.fromhex(text.removeprefix("\\x")),
}


def within_the_limit(packs: sa.CTE) -> sa.Select[Any]:
    """Return the SELECT of all packed rows with sizes.

    Contents are included only if all tables together fit the limit.
    """
    of_a_table = packs.c.source >= number(0)
    total = sa.select(sa.func.coalesce(sa.func.sum(packs.c.size), number(0))).where(of_a_table).scalar_subquery()
    few = sa.or_(~of_a_table, total <= sa.bindparam("max_bytes", type_=columns.Integer))
    return sa.select(packs.c.source, sa.case((few, packs.c.data)).label("data"), packs.c.size)


#: Rows of a table as one list of texts: of which table, the list, and its size.
Pack = tuple[int, Any, int]


def sizes_of(packs: Sequence[Pack], seen: RegistrySnapshot) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for source, _, size in packs:
        if source >= 0:
            sizes[seen.handles[source].table_name] += size
    return dict(sizes)


def _statement(seen: RegistrySnapshot, wanted: frozenset[str] | None) -> Statement[Pack]:
    """Return the statement that brings the registry, the input, and the rows of the tables that are asked for."""
    shape = seen, wanted
    found: Statement[Pack] = SHAPES.get(shape) or SHAPES.put(
        shape, Shaped(shape, partial(_compile_packs, seen, wanted), row=tuple)
    )
    return found


def _compile_packs(seen: RegistrySnapshot, wanted: frozenset[str] | None, backend: Backend) -> Compiled:
    current = inputs.CURRENT.element.subquery()  # type: ignore[attr-defined]
    parts = [
        _pack_select(backend, REGISTRY_ROWS, [REGISTRY.c[name] for name in STAMP]),
        _pack_select(backend, INPUT_ROWS, list(current.c)),
    ]
    for i, table in enumerate(seen.handles):
        if wanted is None or table.key in wanted:
            parts.append(_pack_select(backend, i, list(statements_of(table).of_run.subquery().c)))
    return Compiled(within_the_limit(sa.union_all(*parts).cte("packs")), backend)


def _pack_select(backend: Backend, source: int, columns: Sequence[Any]) -> sa.Select[Any]:
    packed = backend.pack_columns(columns)
    assert packed is not None  # noqa: S101 - asked before
    of = sa.literal_column(str(source), sa.Integer).label("source")
    return sa.select(of, packed.label("data"), backend.packed_size(packed).label("size"))


T = TypeVar("T")

#: How often the statement is made anew because tables were registered in between.
_ATTEMPTS = 5

Found = dict[str, tuple[Output[Any], ...]]


class Snapshot(Targeted):
    """``store.outputs.snapshot``: read the input and all outputs of a run at one moment."""

    def load(
        self,
        run_id: str,
        *,
        targets: Iterable[OutputTable[Any] | str] | None = None,
        max_bytes: int = models.SNAPSHOT,
    ) -> RunSnapshot:
        """Return the run's input and outputs at one moment, with an entry for every registered key.

        An unknown run has no input and no rows. ``targets`` restricts the snapshot to some tables. Raises
        `SchemaMismatch` for a registered table that was dropped. Raises `PayloadTooLarge`, naming the largest table, if
        all rows together exceed ``max_bytes``.
        """
        sought = valid.lookup_text("run_id", run_id)
        limit = valid.number("max_bytes", max_bytes, least=1)
        wanted = None if targets is None else frozenset(self._target(target).key for target in _several(targets))
        load = self._one_by_one if self._backend.pack_columns([REGISTRY.c.key]) is None else self._at_once
        given, tables, found = load(sought, wanted, limit)
        return RunSnapshot(run_id, given, _by_both_names(tables, found))

    def _one_by_one(
        self, run_id: str, wanted: frozenset[str] | None, limit: int
    ) -> tuple[RunInput | None, list[OutputTable[Any]], Found]:
        tables: list[OutputTable[Any]] = []

        def read(unit: Unit) -> tuple[RunInput | None, Found]:
            tables[:] = self._handles(unit.rows(definitions.ALL), wanted)
            sizes = {table.table_name: unit.value(statements_of(table).size, {"run_id": run_id}) for table in tables}
            _refuse_large(limit, sizes)
            given = unit.row(inputs.CURRENT, {"run_id": run_id})
            return given, {table.key: _rows_of(unit, table, run_id) for table in tables}

        given, found = self._meeting_gone(lambda: self._viewing(read), tables)
        return given, tables, found

    def _at_once(
        self, run_id: str, wanted: frozenset[str] | None, limit: int
    ) -> tuple[RunInput | None, list[OutputTable[Any]], Found]:
        known = self._remember(RegistryCache)
        for _ in range(_ATTEMPTS):
            seen = known.latest
            statement = _statement(seen, wanted)
            packs = self._meeting_gone(partial(self._packs, statement, run_id, limit), seen.handles)
            stamps = tuple(tuple(data) for source, data, _ in packs if source == REGISTRY_ROWS)
            if stamps == seen.stamps:
                return self._unpack(packs, seen, wanted, limit)
            known.latest = RegistrySnapshot(stamps)
        raise LostRace(f"output tables were registered {_ATTEMPTS} times while the snapshot was read")

    def _packs(self, statement: Statement[Pack], run_id: str, limit: int) -> list[Pack]:
        return self._reading(lambda unit: unit.rows(statement, {"run_id": run_id, "max_bytes": limit}))

    def _unpack(
        self, packs: Sequence[Pack], seen: RegistrySnapshot, wanted: frozenset[str] | None, limit: int
    ) -> tuple[RunInput | None, list[OutputTable[Any]], Found]:
        _refuse_large(limit, sizes_of(packs, seen))
        given = next((input_of(data) for source, data, _ in packs if source == INPUT_ROWS), None)
        tables = self._handles(seen.registered, None)
        rows_of: dict[int, list[Output[Any]]] = {}
        for source, data, _ in packs:
            if source >= 0:
                row = row_of(seen.handles[source], data)
                rows_of.setdefault(source, []).append(results.output(tables[source], row))
        shown = [table for table in tables if wanted is None or table.key in wanted]
        return given, shown, {table.key: _sort_outputs(rows_of.get(i, ())) for i, table in enumerate(tables)}

    def _handles(self, registered: Sequence[Registered], wanted: frozenset[str] | None) -> list[OutputTable[Any]]:
        """Return the handles of registered tables: the defined ones of this store, and untyped ones for all others.

        If ``wanted`` is given, only tables with these keys are returned.
        """
        definitions, known = self._remember(Definitions), self._remember(RegistryCache)
        return [
            definitions.of_key(found.key) or known.handle(found)
            for found in registered
            if wanted is None or found.key in wanted
        ]

    def _meeting_gone(self, read: Callable[[], T], tables: Sequence[OutputTable[Any]]) -> T:
        """Return the result of ``read()``.

        If it failed because a table was dropped, raises `SchemaMismatch` instead.
        """
        try:
            return read()
        except BackendError as error:
            if type(error) is not BackendError:
                raise
            names = [table.table_name for table in tables]
            there = self._viewing(lambda unit: frozenset(reconcile.present(unit, names)))
            missing = next((table for table in tables if table.table_name not in there), None)
            if missing is None:
                raise
            raise missing_table(missing.key, missing.table_name) from error


def _several(targets: Any) -> Iterable[Any]:
    if isinstance(targets, str | OutputTable):
        raise InvalidValue("targets", "must be a list of targets")
    found: Iterable[Any] = targets
    return found


def _rows_of(unit: Unit, table: OutputTable[Any], run_id: str) -> tuple[Output[Any], ...]:
    found = unit.rows(statements_of(table).in_run, {"run_id": run_id})
    return _sort_outputs([results.output(table, row) for row in found])


def _sort_outputs(found: Iterable[Output[Any]]) -> tuple[Output[Any], ...]:
    return tuple(sorted(found, key=lambda row: (row.node_id, row.iteration)))


def _by_both_names(tables: Sequence[OutputTable[Any]], found: Found) -> Found:
    """Return each table's tuple of rows under its key and under its table name."""
    return {name: found[table.key] for table in tables for name in (table.key, table.table_name)}


def _refuse_large(limit: int, sizes: Mapping[str, int]) -> None:
    if sum(sizes.values()) > limit:
        largest = max(sizes, key=lambda name: sizes[name])
        hint = "name fewer targets, or page with results.load"
        raise PayloadTooLarge(largest, limit=limit, actual=sum(sizes.values()), hint=hint)
