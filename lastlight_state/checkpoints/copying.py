"""Copies threads.

Rows are copied inside the database, or, if they must be decrypted, read and sealed again for the copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.checkpoints.models import CHECKPOINTS
from lastlight_state.checkpoints.statements import TABLES, of_thread
from lastlight_state.db.rows.statements import Row, Statement, bind, number, statement_of
from lastlight_state.db.schema import columns, sealing
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import SealedValue

#: Most rows that are read and decrypted in one batch.
_TOGETHER = 50
#: Most bytes of a sealed value's header, which comes before the encrypted data.
_MOST_HEAD = len(sealing.BOUND_BYTES) + 1 + sealing.MOST_ID


def thread(unit: Unit, thread_id: str, target_id: str) -> int:
    """Copy all rows of a locked thread to an empty thread. Return the number of its checkpoints.

    Raises `SealedValue` for a value that must be sealed again but cannot be opened.
    """
    opened: sealing.Sealing | None = unit.backend.sealing
    if opened is not None and opened.binds:
        for kind in _KINDS:
            for rows in kind.batches(unit, thread_id, target_id):  # a batch is read whole before it is inserted
                unit.insert(kind.table, kind.insert, rows)
        return int(unit.value(_COUNT, {"thread_id": target_id}))
    for kind in _KINDS:
        kind.refuse_bound(unit, thread_id)
    *_, copied = [unit.change(kind.copy, {"thread_id": thread_id, "target_id": target_id}) for kind in _KINDS]
    return copied


class _Kind:
    """A table with rows of threads, and the statements that copy its rows."""

    def __init__(self, table: sa.Table) -> None:
        self.table = table
        self._key = [column for column in table.primary_key if column.name != "thread_id"]
        self._json = [column.name for column in table.columns if isinstance(column.type, columns.BinaryJson)]
        shown = [bind("target_id", one) if one.name == "thread_id" else one for one in table.columns]
        found = sa.select(*shown).where(of_thread(table))
        names = [one.name for one in table.columns]
        self.copy: Statement = statement_of(sa.insert(table).from_select(names, found, include_defaults=False))
        values = {one.name: bind(one.name, one) for one in table.columns}
        self.insert: Statement = statement_of(sa.insert(table).values(values))
        every = sa.select(*table.columns).where(of_thread(table)).order_by(*self._key).limit(number(_TOGETHER))
        after = sa.tuple_(*self._key) > sa.tuple_(*(bind(f"after_{one.name}", one) for one in self._key))
        self._walks: dict[bool, Statement] = {False: statement_of(every), True: statement_of(every.where(after))}
        head = sa.func.substr(table.c.body, number(1), number(len(sealing.BOUND_BYTES)), type_=columns.Bytes)
        beginning = sa.func.substr(table.c.body, number(1), number(_MOST_HEAD), type_=columns.Bytes).label("beginning")
        self._bound: Statement = statement_of(
            sa.select(*self._key, beginning)
            .where(of_thread(table), head == sa.bindparam("head", type_=columns.Bytes))
            .limit(number(1))
        )

    def batches(self, unit: Unit, thread_id: str, target_id: str) -> Iterator[list[Row]]:
        """Yield the rows of a thread in batches. The target thread's id replaces the thread's own."""
        given: Row = {"thread_id": thread_id}
        while found := unit.rows(self._walks["after_namespace" in given], given):
            yield [{**row, **self._texts(row), "thread_id": target_id} for row in found]
            given = {"thread_id": thread_id, **{f"after_{one.name}": found[-1][one.name] for one in self._key}}

    def _texts(self, row: Row) -> Row:
        return {name: codec.encode_sound(row[name]).decode() for name in self._json if row[name] is not None}

    def refuse_bound(self, unit: Unit, thread_id: str) -> None:
        """Raise `SealedValue` if a sealed value is bound to its thread, because a copy of it could not be opened."""
        found = unit.row(self._bound, {"thread_id": thread_id, "head": sealing.BOUND_BYTES})
        if found is not None:
            beginning = sealing.envelope(found.pop("beginning"))
            raise SealedValue(
                "is bound to its thread: a store with its codec copies it",
                key_id="" if beginning is None else beginning.key_id,
                table=str(self.table.name),
                key=(thread_id, *found.values()),
                column="body",
            )


_KINDS = [_Kind(table) for table in TABLES]
_COUNT: Statement[Any] = statement_of(sa.select(sa.func.count()).select_from(CHECKPOINTS).where(of_thread(CHECKPOINTS)))
