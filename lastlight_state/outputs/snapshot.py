"""Snapshots: the input and all outputs of a run at one moment. This is what a resume runs on.

Where the database answers over a network, everything travels in one statement: the registry, the input, and the rows
of every table as lists of texts. The statement is made for the tables that this store knows of; it brings the registry
along, and when that shows others, it is made anew and run again. Elsewhere each table is read by a statement of its
own, all in one snapshot of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.db import reconcile, valid
from lastlight_state.db.columns import parse_time
from lastlight_state.db.statements import UNREADABLE, Statement, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import BackendError, CorruptData, InvalidValue, LostRace, PayloadTooLarge
from lastlight_state.outputs import inputs, words
from lastlight_state.outputs.catalog import registry
from lastlight_state.outputs.catalog.definitions import Definitions
from lastlight_state.outputs.catalog.registry import Registered
from lastlight_state.outputs.catalog.targets import Targeted, gone
from lastlight_state.outputs.records import Output, RunInput, RunSnapshot
from lastlight_state.outputs.results import rows
from lastlight_state.outputs.results.statements import statements_of
from lastlight_state.outputs.table import OutputTable
from lastlight_state.outputs.tables import REGISTRY
from lastlight_state.outputs.values import jsonable

T = TypeVar("T")

#: How often the statement is made anew because tables were registered meanwhile.
_ATTEMPTS = 5

#: What the rows of a packed statement are, where they are not of the table of that number.
_REGISTRY, _INPUT = -2, -1
_STAMP = ("key", "table_name", "kind", "signature", "model_digest", "created_at", "updated_at", "columns")
_TIMES = ("created_at", "updated_at")

Found = dict[str, tuple[Output[Any], ...]]


class Known:
    """The registry as this store has last seen it, and the statement that was made for it."""

    def __init__(self) -> None:
        self.latest: tuple[tuple[Any, ...], tuple[Registered, ...], Statement | None] = ((), (), None)


class Snapshot(Targeted):
    """``store.outputs.snapshot``"""

    def load(
        self,
        run_id: str,
        *,
        targets: Iterable[OutputTable[Any] | str] | None = None,
        max_bytes: int = words.SNAPSHOT,
    ) -> RunSnapshot:
        """The run's input and outputs, all of one moment, every registered key included.

        An unknown run has no input and no rows. ``targets`` narrows to some tables. Raises `SchemaMismatch` for a
        registered table that is gone, and `PayloadTooLarge` naming the largest table past ``max_bytes``.
        """
        sought = valid.sought("run_id", run_id)
        limit = valid.number("max_bytes", max_bytes, least=1)
        wanted = None if targets is None else frozenset(self._target(target).key for target in _several(targets))
        load = self._one_by_one if self._backend.packed([REGISTRY.c.key]) is None else self._at_once
        given, tables, found = load(sought, wanted)
        _refuse_large(tables, found, limit)
        return RunSnapshot(run_id, given, _by_both_names(tables, found))

    def _one_by_one(
        self, run_id: str, wanted: frozenset[str] | None
    ) -> tuple[RunInput | None, list[OutputTable[Any]], Found]:
        tables: list[OutputTable[Any]] = []

        def read(unit: Unit) -> tuple[RunInput | None, Found]:
            tables[:] = self._handles(unit.all(Registered, registry.ALL), wanted)
            given = unit.find(RunInput, inputs.CURRENT, {"run_id": run_id})
            return given, {table.key: _rows_of(unit, table, run_id) for table in tables}

        given, found = self._meeting_gone(lambda: self._viewing(read), tables)
        return given, tables, found

    def _at_once(
        self, run_id: str, wanted: frozenset[str] | None
    ) -> tuple[RunInput | None, list[OutputTable[Any]], Found]:
        known = self._remember(Known)
        for _ in range(_ATTEMPTS):
            seen, registered, statement = known.latest
            statement = statement or self._statement(registered)
            tables = [found.handle() for found in registered]
            packs = self._meeting_gone(partial(self._packs, statement, run_id), tables)
            stamps = tuple(tuple(pack["data"]) for pack in packs if pack["source"] == _REGISTRY)
            if stamps == seen:
                return self._unpacked(packs, registered, run_id, wanted)
            now_registered = tuple(map(_registered, stamps))
            known.latest = (stamps, now_registered, self._statement(now_registered))
        raise LostRace(f"output tables were registered {_ATTEMPTS} times while the snapshot was read")

    def _packs(self, statement: Statement, run_id: str) -> list[dict[str, Any]]:
        return self._reading(lambda unit: unit.rows(statement, {"run_id": run_id}))

    def _statement(self, registered: Sequence[Registered]) -> Statement:
        current = inputs.CURRENT.element.subquery()  # type: ignore[attr-defined]
        parts = [
            self._packed(_REGISTRY, [REGISTRY.c[name] for name in _STAMP]),
            self._packed(_INPUT, list(current.c)),
        ]
        for i, found in enumerate(registered):
            rows_of_run = statements_of(found.handle()).of_run.subquery()
            parts.append(self._packed(i, list(rows_of_run.c)))
        return prepared(sa.union_all(*parts))

    def _packed(self, source: int, columns: Sequence[Any]) -> sa.Select[Any]:
        packed = self._backend.packed(columns)
        assert packed is not None  # noqa: S101 - asked before
        return sa.select(sa.literal_column(str(source), sa.Integer).label("source"), packed.label("data"))

    def _unpacked(
        self,
        packs: Sequence[Mapping[str, Any]],
        registered: Sequence[Registered],
        run_id: str,
        wanted: frozenset[str] | None,
    ) -> tuple[RunInput | None, list[OutputTable[Any]], Found]:
        given = next((_input(pack["data"]) for pack in packs if pack["source"] == _INPUT), None)
        tables = self._handles(registered, None)
        rows_of: dict[int, list[Output[Any]]] = {}
        for pack in packs:
            if pack["source"] >= 0 and (wanted is None or tables[pack["source"]].key in wanted):
                row = _row(registered[pack["source"]], pack["data"])
                rows_of.setdefault(pack["source"], []).append(rows.output(tables[pack["source"]], row))
        shown = [table for table in tables if wanted is None or table.key in wanted]
        return given, shown, {table.key: _ordered(rows_of.get(i, ())) for i, table in enumerate(tables)}

    def _handles(self, registered: Sequence[Registered], wanted: frozenset[str] | None) -> list[OutputTable[Any]]:
        """What this process has defined, and the registry's word for the rest."""
        definitions = self._remember(Definitions)
        return [
            definitions.of_key(found.key) or found.handle()
            for found in registered
            if wanted is None or found.key in wanted
        ]

    def _meeting_gone(self, read: Callable[[], T], tables: Sequence[OutputTable[Any]]) -> T:
        """What ``read`` returns. Raises `SchemaMismatch` where it failed because a table is physically gone."""
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
            raise gone(missing.key, missing.table_name) from error


def _several(targets: Any) -> Iterable[Any]:
    if isinstance(targets, str | OutputTable):
        raise InvalidValue("targets", "must be a list of targets")
    found: Iterable[Any] = targets
    return found


def _rows_of(unit: Unit, table: OutputTable[Any], run_id: str) -> tuple[Output[Any], ...]:
    found = unit.rows(statements_of(table).in_run, {"run_id": run_id})
    return _ordered([rows.output(table, row) for row in found])


def _ordered(found: Iterable[Output[Any]]) -> tuple[Output[Any], ...]:
    return tuple(sorted(found, key=lambda row: (row.node_id, row.iteration)))


def _by_both_names(tables: Sequence[OutputTable[Any]], found: Found) -> Found:
    """The same tuple under the key and under the table's name."""
    return {name: found[table.key] for table in tables for name in (table.key, table.table_name)}


def _registered(stamp: tuple[Any, ...]) -> Registered:
    row = dict(zip(_STAMP, stamp, strict=True))
    times = {name: parse_time(codec.decode(row[name])) for name in _TIMES}
    return Registered.of({**row, **times, "columns": codec.decode(row["columns"])})


def _input(texts: Sequence[Any]) -> RunInput:
    row = dict(zip((column.name for column in inputs.FULL), texts, strict=True))
    created = parse_time(codec.decode(row["created_at"]))
    changed = {"revision": int(row["revision"]), "created_at": created, "payload": codec.decode(row["payload"])}
    return RunInput.of({**row, **changed})


def _row(registered: Registered, texts: Sequence[Any]) -> dict[str, Any]:
    """The row that a list of texts stands for. Raises `CorruptData` where one cannot be read."""
    table = registered.handle()
    names = [column.name for column in statements_of(table).of_run.selected_columns]
    tokens = {column.name: column.type for column in registered.columns}
    row: dict[str, Any] = {}
    for name, text in zip(names, texts, strict=True):
        try:
            row[name] = None if text is None else _READ[tokens.get(name, "integer")](text)
        except UNREADABLE as error:
            raise CorruptData(registered.table_name, tuple(texts[:3]), name) from error
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
    "json": codec.decode,
    "blob": lambda text: bytes.fromhex(text.removeprefix("\\x")),
}


def _refuse_large(tables: Sequence[OutputTable[Any]], found: Found, limit: int) -> None:
    sizes = {table.table_name: _size(table, found[table.key]) for table in tables}
    total = sum(sizes.values())
    if total > limit:
        largest = max(sizes, key=lambda name: sizes[name])
        raise PayloadTooLarge(largest, limit=limit, actual=total, hint="name fewer targets, or page with results.load")


def _size(table: OutputTable[Any], found: Sequence[Output[Any]]) -> int:
    tokens = {column.field: column.type for column in table.domain}
    return sum(
        len(
            codec.encode_sound(
                row.data
                if table.is_payload
                else {name: jsonable(tokens[name], value) for name, value in row.data.items()}
            )
        )
        for row in found
    )
