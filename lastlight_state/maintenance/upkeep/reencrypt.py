"""``store.maintenance.reencrypt``: encrypts stored values with the current key of the store's codec.

Use it to start using a codec with a full database, or to replace a key. Values that are encrypted with the current key
already are not written, so that another call continues an interrupted one. Nothing else in the rows changes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa

from lastlight_state import codec, progress
from lastlight_state.db import valid
from lastlight_state.db.lists.pages import KeyedRows, Window, damaged_row, keyed_rows, window
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.parameters import UNREADABLE
from lastlight_state.db.rows.records import DamagedRow, Record
from lastlight_state.db.rows.statements import Row, Statement, bind, statement_of
from lastlight_state.db.schema import sealing
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import CorruptData, MisuseError, SealedValue
from lastlight_state.migrations.metadata import METADATA

#: The most rows of one transaction, and how many unreadable rows a result names.
MOST_ROWS, NAMED = 10_000, 100


class Reencrypted(Record):
    """The result of a call: ``counts`` has the numbers of newly encrypted rows by table.

    ``unopened`` counts the values that could not be decrypted, by the id of the missing key. Under the empty id, it
    counts unencrypted values that are refused. ``damaged`` names the first 100 rows with such values, and rows that
    cannot be read at all. ``complete`` is False if there are such rows, or if the call stopped before the end.
    """

    counts: Mapping[str, int]
    complete: bool
    unopened: Mapping[str, int]
    damaged: tuple[DamagedRow, ...]


class _Batch(NamedTuple):
    """The result of a batch: its last key (None at the end), how many rows were encrypted, and errors of other rows."""

    last: list[Any] | None
    changed: int
    errors: list[CorruptData]


class _Left(NamedTuple):
    """The values that could not be encrypted: their number by key id, and the first rows with such values."""

    unopened: Counter[str]
    damaged: list[DamagedRow]

    def add(self, errors: Sequence[CorruptData]) -> None:
        self.unopened.update(error.key_id for error in errors if isinstance(error, SealedValue))
        self.damaged.extend(map(damaged_row, errors[: max(NAMED - len(self.damaged), 0)]))

    def result(self, counts: Counter[str], *, stopped: bool) -> Reencrypted:
        complete = not stopped and not self.damaged
        return Reencrypted(
            counts=dict(+counts), complete=complete, unopened=dict(self.unopened), damaged=tuple(self.damaged)
        )


class Reencrypt(Repository):
    """Encrypts stored values with the codec's current key: ``store.maintenance.reencrypt``."""

    def plan(self, *, batch_rows: int = 50) -> Mapping[str, int]:
        """Return how many rows are not encrypted with the current key, by table: plain rows, and rows of other keys.

        Reads every row that may be encrypted, in batches. Raises `MisuseError` in a store without a codec.
        """
        opened, key_id, many = self._sealing(), self._sealing().key_id(), _rows_of(batch_rows)
        found: Counter[str] = Counter()
        for table in TABLES:
            for rows in _walk(partial(self._next, table, many=many)):
                found[table.name] += sum(_is_stale(table, row, opened, key_id) for row in rows)
        return dict(+found)

    def run(self, *, batch_rows: int = 50, time_limit: float | None = None) -> Reencrypted:
        """Encrypt all values that are not encrypted with the current key, in transactions of ``batch_rows`` rows.

        Writers continue meanwhile; the call waits for rows that they have locked. After ``time_limit`` seconds it stops
        after the next transaction, and the same call does the rest. A value that the codec cannot decrypt stays
        unchanged, and the result names it: give the codec the old key as well. Raises `MisuseError` in a store without
        a codec.
        """
        opened, many = self._sealing(), _rows_of(batch_rows)
        key_id = opened.key_id()
        until = None if time_limit is None else time.monotonic() + valid.seconds("time_limit", time_limit)
        counts, left = Counter[str](), _Left(Counter(), [])
        for table in TABLES:
            for number, batch in enumerate(self._batches(table, many, opened, key_id), 1):
                progress.tell(f"sealing {table.name}", number * many)
                counts[table.name] += batch.changed
                left.add(batch.errors)
                if batch.changed and until is not None and time.monotonic() >= until:
                    return left.result(counts, stopped=True)
        return left.result(counts, stopped=False)

    def _sealing(self) -> sealing.Sealing:
        found: sealing.Sealing | None = self._backend.sealing
        if found is None:
            raise MisuseError("the store was opened without a codec: StateStore.open(..., codec=...)")
        return found

    def _next(self, table: Sealed, after: list[Any] | None, *, many: int) -> Window[Row]:
        return self._reading(lambda unit: table.next(unit, after, many, locked=False))

    def _batches(self, table: Sealed, many: int, opened: sealing.Sealing, key_id: str) -> Iterator[_Batch]:
        """Yield the result of each batch. A batch that has no values to encrypt is skipped without a lock."""
        after: list[Any] | None = None

        def work(unit: Unit) -> _Batch:
            rows, last = table.next(unit, after, many, locked=True)
            changed, errors = 0, []
            for row in rows:
                if not _is_stale(table, row, opened, key_id):
                    continue
                found = table.errors(row, opened)
                errors += found
                if not found and not isinstance(row, CorruptData):
                    table.seal(unit, row, opened, key_id)
                    changed += 1
            return _Batch(last, changed, errors)

        while True:
            rows, last = self._next(table, after, many=many)
            batch = _Batch(last, 0, [])
            if any(_is_stale(table, row, opened, key_id) for row in rows):
                batch = self._writing(work, repeatable=True)
            yield batch
            if batch.last is None:
                return
            after = batch.last


class Sealed:
    """A table with encrypted columns, read in the order of its key."""

    def __init__(self, table: sa.Table, bindings: Mapping[str, sealing.Binding]) -> None:
        self.name = str(table.name)
        self._bindings = bindings
        key = [*table.primary_key]
        self._key = [column.name for column in key]
        bound = dict.fromkeys([*self._key, *(name for binding in bindings.values() for name in binding.keys)])
        stored = [sa.type_coerce(table.c[name], sealing.plain(table.c[name].type)).label(name) for name in bindings]
        every = sa.select(*(table.c[name] for name in bound), *stored).order_by(*key)
        every = every.limit(sa.bindparam("many", type_=sa.Integer()))
        later = every.where(sa.tuple_(*key) > sa.tuple_(*(bind(f"after_{one.name}", one) for one in key)))
        self._walks = {
            (is_later, locked): statement_of(walk.with_for_update(of=table) if locked else walk)
            for is_later, walk in ((False, every), (True, later))
            for locked in (False, True)
        }
        here = sa.and_(*(one == bind(one.name, one) for one in key))
        self._updates: dict[str, Statement[Row]] = {
            name: statement_of(sa.update(table).where(here).values({name: bind("sealed", table.c[name])}))
            for name in bindings
        }

    def next(self, unit: Unit, after: Sequence[Any] | None, many: int, *, locked: bool) -> Window[Row]:
        """Return the next rows after a key, with their values as stored."""
        at = {} if after is None else {f"after_{name}": value for name, value in zip(self._key, after, strict=True)}
        statement = self._walks[after is not None, locked]

        def read(size: int) -> KeyedRows[Row]:
            return keyed_rows(unit.rows_or_errors(statement, {**at, "many": size}), self._key)

        return window(read, many)

    def stale(self, row: Row, opened: sealing.Sealing, key_id: str) -> list[str]:
        """Return the columns of a row that are not encrypted with the current key.

        Redacted values are left out: they stay plain.
        """
        return [
            name
            for name, binding in self._bindings.items()
            if row[name] is not None
            and not binding.stays_plain(row[name])
            and not _is_current(opened, row[name], key_id)
        ]

    def errors(self, row: Row | CorruptData, opened: sealing.Sealing) -> list[CorruptData]:
        """Return an error for each value of a row that cannot be decrypted."""
        if isinstance(row, CorruptData):
            return [row]
        found: list[CorruptData] = []
        key = tuple(row[name] for name in self._key)
        place = self.name, key[0] if len(key) == 1 else key
        for name, binding in self._bindings.items():
            try:
                if row[name] is not None:
                    opened.value(row[name], binding, [row[one] for one in binding.keys])
            except SealedValue as error:
                found.append(error.of(*place, name))
            except UNREADABLE:
                found.append(CorruptData(*place, name))
        return found

    def seal(self, unit: Unit, row: Row, opened: sealing.Sealing, key_id: str) -> None:
        """Encrypt the columns of a row that are not encrypted with the current key."""
        for name in self.stale(row, opened, key_id):
            binding = self._bindings[name]
            value = opened.value(row[name], binding, [row[one] for one in binding.keys])
            plain = value if isinstance(value, bytes) else codec.encode_sound(value).decode()
            unit.change(self._updates[name], {**row, "sealed": plain})


def _is_stale(table: Sealed, row: Row | CorruptData, opened: sealing.Sealing, key_id: str) -> bool:
    return isinstance(row, CorruptData) or bool(table.stale(row, opened, key_id))


def _is_current(opened: sealing.Sealing, value: Any, key_id: str) -> bool:
    try:
        return opened.is_current(value, key_id)
    except ValueError:  # a damaged envelope
        return False


def _walk(next_after: Callable[[list[Any] | None], Window[Row]]) -> Iterator[Sequence[Row | CorruptData]]:
    rows, last = next_after(None)
    yield rows
    while last is not None:
        rows, last = next_after(last)
        yield rows


def unopened_values(unit: Unit, opened: sealing.Sealing, many: int) -> Iterator[tuple[Sealed, CorruptData]]:
    """Yield the values that a codec cannot decrypt, and the rows that cannot be read. Decrypts every stored value."""
    for table in TABLES:
        for rows in _walk(lambda after, table=table: table.next(unit, after, many, locked=False)):  # type: ignore[misc]
            for row in rows:
                yield from ((table, error) for error in table.errors(row, opened))


def _rows_of(given: int) -> int:
    return valid.number("batch_rows", given, least=1, most=MOST_ROWS)


def _bindings(table: sa.Table) -> dict[str, sealing.Binding]:
    found = {column.name: sealing.binding_of(column.type) for column in table.columns}
    return {name: binding for name, binding in found.items() if binding is not None}


TABLES = tuple(
    Sealed(table, bindings) for _, table in sorted(METADATA.tables.items()) if (bindings := _bindings(table))
)
