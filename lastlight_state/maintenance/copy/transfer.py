"""The transfer itself: batches of rows from the source to the target, each with the place that the copy has reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.db import reconcile
from lastlight_state.db.base import table_of
from lastlight_state.db.repository import Context
from lastlight_state.db.statements import bind, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.db.upserts import upsert
from lastlight_state.errors import BackendUnavailable
from lastlight_state.maintenance.copy.conversion import conversion
from lastlight_state.maintenance.copy.subjects import SEEDED, Row, Subject, batches
from lastlight_state.outputs.catalog.registry import ALL, Registered
from lastlight_state.receipts import Receipt, steps
from lastlight_state.receipts.models import CopyProgressModel

_PROGRESS = table_of(CopyProgressModel)
_CHANGING = ("rows", "done", "last_key")
_KEY_BYTES = 64 * 1024

_REACHED = prepared(sa.select(_PROGRESS).where(_PROGRESS.c.receipt_id == bind("receipt_id", _PROGRESS.c.receipt_id)))
_REACH = prepared(
    upsert(
        _PROGRESS,
        ("receipt_id", "table_name", *_CHANGING),
        key=("receipt_id", "table_name"),
        replacing=lambda row: {name: row[name] for name in _CHANGING},
    )
)


class Place:
    """How far a table is copied: the rows so far, the key of the last one, and whether that was all."""

    def __init__(self, rows: int = 0, after: list[Any] | None = None, *, done: bool = False) -> None:
        self.rows = rows
        self.after = after
        self.done = done


class Transfer:
    """A copy under way: ``receipt`` is that of the target, as its last step left it. ``given`` is of `numbers`."""

    def __init__(
        self, source: Unit, target: Context, receipt: Receipt, most: int, given: Mapping[str, int | None]
    ) -> None:
        self._source = source
        self._given = given
        self._write = target.scope.writing
        self._now = target.clock.now
        self._location = target.scope.backend.location
        self._most = most
        self.receipt = receipt

    def places(self) -> dict[str, Place]:
        """Return how far each table has come."""
        found = self._write(lambda unit: unit.rows(_REACHED, {"receipt_id": self.receipt.id}))
        return {row["table_name"]: Place(row["rows"], row["last_key"], done=row["done"]) for row in found}

    def copy(self, subject: Subject, place: Place) -> Iterator[int]:
        """Copy the rest of a table. Gives the number of its rows after each batch."""
        known = self._keys(subject) if subject.name in SEEDED else []
        for batch in batches(subject.stream(self._source, place.after), self._most):
            place.rows += len(batch)
            place.after = subject.key(batch[-1])
            self._put(subject, [row for row in batch if subject.key(row) not in known] if known else batch, place)
            yield place.rows
        place.done = True
        self._put(subject, (), place)
        yield place.rows

    def _put(self, subject: Subject, rows: Sequence[Row], place: Place) -> None:
        def work(unit: Unit) -> Receipt:
            convert = conversion(subject, self._source.backend, unit.backend)
            unit.backend.load(unit.checkout, subject.name, subject.names, convert(rows))
            if place.done and subject.numbered is not None:
                unit.backend.advance(unit.checkout, subject.name, subject.numbered, self._given[subject.name])
            unit.row(_REACH, {"receipt_id": self.receipt.id, "table_name": subject.name, **_stored(place)})
            counts = {**self.receipt.counts, subject.name: place.rows}
            return steps.step(unit, self.receipt, counts=counts, cursor=None, at=self._now())

        try:
            self.receipt = self._write(work)
        except BackendUnavailable as error:  # a full disk, above all: it is not the source's
            raise BackendUnavailable(f"the target {self._location}: {error}", **error.details) from error

    def _keys(self, subject: Subject) -> list[list[Any]]:
        statement = prepared(sa.select(*subject.order))
        return self._write(lambda unit: [list(row.values()) for row in unit.rows(statement)])


def numbers(source: Unit, subjects: Iterable[Subject]) -> dict[str, int | None]:
    """The last number that each table has given, perhaps to a row that was pruned: no row gets it again."""
    found = [(subject.name, subject.numbered) for subject in subjects if subject.numbered is not None]
    return {name: source.backend.given(source.checkout, name, column) for name, column in found}


def output_tables(unit: Unit) -> list[sa.Table]:
    """The output tables that the registry knows, in the order of their names."""
    tables = [Registered.of(row).handle().table for row in unit.rows(ALL)]
    return sorted(tables, key=lambda table: table.name)


def make_tables(unit: Unit, tables: Sequence[sa.Table]) -> None:
    """Make the output tables that the target lacks."""
    there = reconcile.present(unit, [table.name for table in tables])
    for table in tables:
        for statement in reconcile.additions(table, there.get(table.name), unit.backend):
            unit.plain(statement)


def _stored(place: Place) -> dict[str, Any]:
    # A key may be a person's name, and is needed only until the table is done.
    key = None if place.after is None or place.done else codec.encode("last_key", place.after, max_bytes=_KEY_BYTES)
    return {"rows": place.rows, "done": place.done, "last_key": key}
