"""A statement compiled for one backend: the driver's text, and the converters of its parameters and columns."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

from lastlight_state.backends.base import Backend
from lastlight_state.db.rows import batches
from lastlight_state.db.rows.batches import Batches, Cell
from lastlight_state.db.rows.parameters import UNREADABLE, Bound, BuildOne, Convert, Gather, KnownTypes, builders
from lastlight_state.db.schema import columns, sealing
from lastlight_state.errors import CorruptData
from lastlight_state.locks import Lock

Row = dict[str, Any]

#: What a compiled statement takes in bytes beside its text: itself, each parameter, each column of its rows.
_SMALLEST, _PARAMETER, _COLUMN = 8_000, 450, 900

#: The most backend keys for which a statement is kept compiled. A key is a database kind, a schema and a codec.
MOST_KEPT = 16


class Compiled:
    """A statement compiled for one backend's driver. It converts stored rows to dicts of Python values."""

    __slots__ = (
        "_batches",
        "_build",
        "_cells",
        "_dialect",
        "_sealed_parameters",
        "_table",
        "bound",
        "in_binary",
        "parameters",
        "row",
        "size",
        "sql",
    )

    def __init__(self, element: sa.Executable, backend: Backend) -> None:
        self._table = batches.table_of(element)
        self._dialect = dialect = backend.dialect
        name = backend.schema_in_texts
        schema = {"schema_translate_map": {None: name}, "render_schema_translate": True} if name else {}
        compiled = element.compile(dialect=dialect, **schema)  # type: ignore[attr-defined]
        if compiled.post_compile_params or compiled.literal_execute_params:
            raise TypeError(f"write constants with constant() and lists with Family, not as values: {compiled}")
        self.sql: str = str(compiled)
        order = tuple(compiled.positiontup or compiled.bind_names.values())
        types = {name: bind.type for bind, name in compiled.bind_names.items()}
        kinds = {name: _variant(kind, dialect) for name, kind in types.items()}
        entries = compiled._result_columns
        #: The types of the parameters whose values a codec seals.
        self._sealed_parameters = {name: kind for name, kind in kinds.items() if sealing.binding_of(kind)}
        converters: dict[str, Convert | sealing.Keyed] = {}
        for bind, name in compiled.bind_names.items():
            convert = bind.type.dialect_impl(dialect).bind_processor(dialect)
            if convert is not None and not isinstance(kinds[name], columns.JSON_TYPES):
                converters[name] = convert
        self.bound = Bound(
            order, types, converters, _constants(compiled), bool(compiled.positional), compiled.bindtemplate
        )
        #: Whether rows are fetched in binary format, in which a byte takes one byte and not two.
        self.in_binary = backend.bytes_in_binary and any(isinstance(entry.type, columns.BYTES) for entry in entries)
        self._cells: tuple[Cell, ...] = tuple(batches.cell(entry, dialect, backend.sealing) for entry in entries)
        self._use(backend.sealing)
        #: An estimate of the bytes that this takes, without the statement that it was compiled from.
        self.size = _SMALLEST + 2 * len(self.sql) + _PARAMETER * len(order) + _COLUMN * len(self._cells)

    @property
    def seals(self) -> bool:
        """True if a codec seals the values of a parameter or column."""
        return bool(self._sealed_parameters) or any(cell.sealed is not None for cell in self._cells)

    def sealed_by(self, sealed: sealing.Sealing | None) -> Compiled:
        """Return the same statement with the converters of another codec. Nothing is compiled."""
        if not self.seals:
            return self
        other = copy(self)
        other._cells = tuple(batches.reseal_cell(cell, self._dialect, sealed) for cell in self._cells)
        other._use(sealed)
        return other

    def rewritten(self, sql: str, parameters: Gather) -> Compiled:
        """Return a copy of the statement with another text and other parameters. Its rows are read in the same way."""
        other = copy(self)
        other.sql, other.parameters, other.size = sql, parameters, len(sql)
        return other

    def _use(self, sealed: sealing.Sealing | None) -> None:
        """Make the functions that convert parameters and rows, for a store with this codec."""
        writing = sealing.plain_writing if sealed is None else sealed.sealer_of
        own = {
            name: convert for name, kind in self._sealed_parameters.items() if (convert := writing(kind)) is not None
        }
        self.bound = self.bound._replace(converters={**self.bound.converters, **own})
        self._batches: Batches | None = None
        #: The driver's parameters of values by name. Raises `InvalidValue` for one that is wrong.
        self.parameters: Gather = self.bound.gather()
        self._cells = batches.place_keys(self._cells)
        #: One stored row as Python values by column name. Raises `CorruptData` where one cannot be read.
        self.row: BuildOne
        self.row, self._build = builders(
            self.names,
            {cell.name: cell.convert for cell in self._cells if cell.convert is not None},
            KnownTypes([cell.types for cell in self._cells]),
            self._damage,
            {cell.name: cell.places for cell in self._cells if cell.places},
        )

    @property
    def names(self) -> list[str]:
        """Return the names of the columns in a row."""
        return [cell.name for cell in self._cells]

    @property
    def batches(self) -> Batches:
        """Return the object that converts the parameters of many rows. It is made at its first use."""
        if self._batches is None:
            self._batches = Batches(self.bound.order, self.bound.types, self.bound.converters)
        return self._batches

    def rows(self, found: Sequence[Sequence[Any]]) -> list[Row]:
        """Return stored rows as `row` gives them. Raises the error of a row that cannot be read."""
        try:
            return self._build(found)
        except UNREADABLE as error:
            raise self._damage(found) from error

    def readable(self, found: Sequence[Sequence[Any]]) -> list[Row | CorruptData]:
        """Return stored rows as `row` gives them, with an error in place of each row that cannot be read."""
        try:
            return [*self._build(found)]
        except UNREADABLE:
            return [self._row_or_damage(row) for row in found]

    def key(self, row: Sequence[Any], names: Sequence[str]) -> list[Any] | None:
        """Return a stored row's values of these columns. Return None if one of them cannot be read."""
        values = {cell.name: (cell, value) for cell, value in zip(self._cells, row, strict=True)}
        try:
            return [None if values[name][1] is None else values[name][0].read(values[name][1], row) for name in names]
        except UNREADABLE:
            return None

    def _row_or_damage(self, row: Sequence[Any]) -> Row | CorruptData:
        try:
            return self.row(row)
        except CorruptData as damage:
            return damage

    def _damage(self, found: Sequence[Sequence[Any]]) -> CorruptData:
        return batches.damage(self._cells, found, UNREADABLE, self._table)


def _constants(compiled: SQLCompiler) -> dict[str, Any]:
    """Return the values in the statement itself. They are converted with the parameters at each use."""
    return {name: bind.effective_value for bind, name in compiled.bind_names.items() if not bind.required}


def _variant(kind: TypeEngine[Any], dialect: Dialect) -> TypeEngine[Any]:
    return kind._variant_mapping.get(dialect.name, kind)


#: A statement compiled for several backends, by their keys.
Kept: TypeAlias = dict[tuple[Any, ...], Compiled]

_keep_lock = Lock()


def alike(of: Kept, backend: Backend) -> Compiled | None:
    """Return the statement as compiled for a backend that differs from this one at most in its codec, or None."""
    place = backend.key[:-1]
    return next((compiled for key, compiled in of.copy().items() if key[:-1] == place), None)


def keep(of: Kept, backend: Backend, compiled: Compiled) -> list[Compiled]:
    """Keep a compiled statement by the backend's key. Return the oldest, which are dropped, if there are too many."""
    with _keep_lock:
        of[backend.key] = compiled
        return [of.pop(next(iter(of))) for _ in range(len(of) - MOST_KEPT)]
