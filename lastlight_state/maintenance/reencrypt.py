"""``store.maintenance.reencrypt``: brings what is stored under the key with which the store's codec seals now.

It is how a codec is switched on for a full database, and how a key is replaced: cells that are sealed with that key
already are left alone, so that doing it again goes on where it was interrupted. Rows stay as they are but for that.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.conversations.tables import MESSAGES
from lastlight_state.db import valid
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Record
from lastlight_state.db.rows.statements import Row, Statement, bind, prepared
from lastlight_state.db.schema import sealing
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import MisuseError
from lastlight_state.maintenance.redact.messages import MARK
from lastlight_state.migrations.metadata import METADATA

#: The most rows of one transaction.
MOST_ROWS = 10_000


class Reencrypted(Record):
    """The result of a call: ``counts`` are rows by table. ``complete`` is False where it stopped before the end."""

    counts: Mapping[str, int]
    complete: bool


class Reencrypt(Repository):
    """``store.maintenance.reencrypt``"""

    def plan(self, *, batch_rows: int = 50) -> Mapping[str, int]:
        """Return how many rows are not under the present key, by table: plain ones, and those of other keys.

        Reads every row that may be sealed, some at a time. Raises as `run`.
        """
        key_id, many = self._key_id(), _rows_of(batch_rows)
        found: Counter[str] = Counter()
        for table in TABLES:
            for rows in self._batches(table, many):
                found[table.name] += sum(bool(table.stale(row, key_id)) for row in rows)
        return dict(+found)

    def run(self, *, batch_rows: int = 50, time_limit: float | None = None) -> Reencrypted:
        """Seal what is not under the present key, in short transactions of ``batch_rows`` rows, which are held at once.

        Writers go on meanwhile; a row that one of them has locked is waited for. After ``time_limit`` seconds it stops
        behind the next transaction, and the same call does the rest. Raises `MisuseError` in a store without a codec,
        and `SealedValue` for a value that the codec cannot open: give it the old key as well.
        """
        key_id, many = self._key_id(), _rows_of(batch_rows)
        until = None if time_limit is None else time.monotonic() + valid.seconds("time_limit", time_limit)
        counts: Counter[str] = Counter()
        for table in TABLES:
            for changed in self._changed_rows(table, many, key_id):
                counts[table.name] += changed
                if changed and until is not None and time.monotonic() >= until:
                    return Reencrypted(counts=dict(+counts), complete=False)
        return Reencrypted(counts=dict(+counts), complete=True)

    def _key_id(self) -> str:
        found: sealing.Sealing | None = self._backend.sealing
        if found is None:
            raise MisuseError("the store was opened without a codec: StateStore.open(..., codec=...)")
        return found.key_id()

    def _batches(self, table: Sealed, many: int) -> Iterator[list[Row]]:
        after: Row | None = None
        while rows := self._next(table, after, many):
            yield rows
            after = rows[-1]

    def _next(self, table: Sealed, after: Row | None, many: int) -> list[Row]:
        return self._reading(lambda unit: table.next(unit, after, many, locked=False))

    def _changed_rows(self, table: Sealed, many: int, key_id: str) -> Iterator[int]:
        """Yield how many rows each transaction has sealed. What needs none is passed over without a lock."""
        after: Row | None = None

        def work(unit: Unit) -> tuple[Row | None, int]:
            rows, opened = table.next(unit, after, many, locked=True), unit.backend.sealing
            stale = [(row, names) for row in rows if (names := table.stale(row, key_id))]
            for row, names in stale:
                table.seal(unit, row, names, opened)
            return rows[-1] if rows else after, len(stale)

        while rows := self._next(table, after, many):
            changed = 0
            if any(table.stale(row, key_id) for row in rows):
                after, changed = self._writing(work, repeatable=True)
            else:
                after = rows[-1]
            yield changed


class Sealed:
    """A table with columns that are sealed, walked in the order of its key."""

    def __init__(self, table: sa.Table, names: Sequence[str]) -> None:
        self.name = str(table.name)
        self._names = names
        self._columns = {name: table.c[name] for name in names}
        key = [*table.primary_key]
        self._key = [column.name for column in key]
        stored = [sa.type_coerce(table.c[name], sealing.plain(table.c[name].type)).label(name) for name in names]
        every = sa.select(*key, *stored).order_by(*key).limit(sa.bindparam("many", type_=sa.Integer()))
        later = every.where(sa.tuple_(*key) > sa.tuple_(*(bind(f"after_{one.name}", one) for one in key)))
        self._walks = {
            (is_later, locked): prepared(walk.with_for_update(of=table) if locked else walk)
            for is_later, walk in ((False, every), (True, later))
            for locked in (False, True)
        }
        here = sa.and_(*(one == bind(one.name, one) for one in key))
        self._updates: dict[str, Statement[Row]] = {
            name: prepared(sa.update(table).where(here).values({name: bind("sealed", table.c[name])})) for name in names
        }

    def next(self, unit: Unit, after: Row | None, many: int, *, locked: bool) -> list[Row]:
        """Return the next rows, their values as they are stored."""
        at = {} if after is None else {f"after_{name}": after[name] for name in self._key}
        return unit.rows(self._walks[after is not None, locked], {**at, "many": many})

    def stale(self, row: Row, key_id: str) -> list[str]:
        """Return the columns of a stored row that are not under this key. What was redacted stays plain."""
        return [
            name
            for name in self._names
            if row[name] is not None and sealing.key_of(row[name]) != key_id and not _is_redacted(self.name, row[name])
        ]

    def seal(self, unit: Unit, row: Row, names: Sequence[str], opened: sealing.Sealing) -> None:
        """Seal these columns of a stored row."""
        for name in names:
            value = row[name]
            if isinstance(value, bytes):
                plain: Any = opened.bytes_value(value)
            else:
                plain = codec.encode_sound(opened.json_value(value)).decode()
            unit.change(self._updates[name], {**{key: row[key] for key in self._key}, "sealed": plain})


def _is_redacted(table: str, value: Any) -> bool:
    return table == MESSAGES.name and value.__class__ is dict and [*value] == [MARK]


def _rows_of(given: int) -> int:
    return valid.number("batch_rows", given, least=1, most=MOST_ROWS)


TABLES = tuple(
    Sealed(table, names)
    for _, table in sorted(METADATA.tables.items())
    if (names := [column.name for column in table.columns if sealing.is_sealable(column.type)])
)
