"""Copies batches of rows from the source to the target, and records the progress with each batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Backend, Options
from lastlight_state.backends.waiting import Retry
from lastlight_state.clock import Clock
from lastlight_state.db import reconcile
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.repository import Context
from lastlight_state.db.rows.statements import bind, statement_of
from lastlight_state.db.rows.writes import upsert
from lastlight_state.db.schema.base import table_of
from lastlight_state.db.units.permits import permit_deletion
from lastlight_state.db.units.scope import StoreScope
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import BackendUnavailable, Conflict, InvalidValue, SchemaMismatch
from lastlight_state.maintenance.copy.contents import conversion
from lastlight_state.maintenance.copy.tables import SEEDED, Row, Subject, batches
from lastlight_state.metrics import Metrics
from lastlight_state.migrations import migrate, read_state, verify
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.outputs.catalog.definitions import ALL
from lastlight_state.receipts import Receipt, steps
from lastlight_state.receipts.models import CopyProgressModel, State
from lastlight_state.settings import Settings

# Opens the target of a copy, and refuses a database that is not empty or has another schema.

#: The states of receipts whose copies have not ended.
UNFINISHED: tuple[State, ...] = ("running", "interrupted")


@contextmanager
def open_context(
    url: str | Path, schema: str | None, settings: Settings, clock: Clock, *, read_only: bool
) -> Iterator[Context]:
    """Open a context for the database of a URL, even if its schema is outdated or missing."""
    options = Options(
        schema=schema,
        read_only=read_only,
        glance=read_only,
        durability=settings.durability,
        busy_timeout=settings.busy_timeout,
        queue_timeout=settings.queue_timeout,
        pool_timeout=settings.pool_timeout,
    )
    with closing(open_backend(url, options)) as backend:
        backend.metrics = Metrics()
        scope = StoreScope(backend, Retry(backend.metrics, settings.retry_seconds, backend.lock_seconds))
        yield Context(scope, clock, settings, Listeners(backend.metrics))


def is_empty(backend: Backend) -> bool:
    """True if no revision has been applied yet, or the database file is missing."""
    return not backend.exists or read_state(backend).state == "empty"


def refuse_same(source: Unit, target: Unit) -> None:
    """Raise `InvalidValue` if source and target are the same database, or if the target is a database in memory."""
    theirs = target.backend.identity(target)
    if theirs is None:
        raise InvalidValue("target", "must not be a database in memory: it would not stay")
    if theirs == source.backend.identity(source):
        raise InvalidValue("target", "must be another database than the source")


def prepare(source: Backend, target: Backend, *, migrated: bool) -> None:
    """Check that source and target have one schema; with ``migrated``, create the schema in an empty target.

    Raises the errors of `verify`, and `SchemaMismatch`.
    """
    if migrated and is_empty(target):
        migrate(target)
    verify(source)
    verify(target)
    refuse_unlike(source, target)


def refuse_unlike(source: Backend, target: Backend) -> None:
    """Raise `SchemaMismatch` if the schemas have different revisions."""
    revisions = read_state(source).revision, read_state(target).revision
    if revisions[0] != revisions[1]:
        raise SchemaMismatch(f"the source is at revision {revisions[0]}, the target at {revisions[1]}: migrate one")


def refuse_filled(unit: Unit, subjects: Sequence[Subject]) -> None:
    """Raise `Conflict` for a target that has rows, naming every table with rows."""
    names = {*METADATA.tables} | set(reconcile.existing_tables(unit, [subject.name for subject in subjects]))
    tables = [subject for subject in subjects if subject.name in names]
    counts = {subject.name: unit.value(statement_of(_count(subject.table))) for subject in tables}
    filled = {name: count for name, count in counts.items() if count != SEEDED.get(name, 0)}
    if filled:
        told = ", ".join(f"{name} ({count} rows)" for name, count in sorted(filled.items()))
        raise Conflict(f"the target is not empty: {told}", code="target_not_empty", tables=filled)


def refuse_other_outputs(unit: Unit, outputs: Sequence[sa.Table]) -> None:
    """Raise `Conflict` if the target has output tables that differ from the source's declarations."""
    there = reconcile.present(unit, [str(table.name) for table in outputs])
    problems = [str(one) for table in outputs if table.name in there for one in _unlike(unit, table, there[table.name])]
    if problems:
        told = "; ".join(problems)
        raise Conflict(f"the target has other output tables: {told}", code="target_differs", problems=problems)


def _unlike(unit: Unit, table: sa.Table, found: reconcile.PresentTable) -> Iterator[object]:
    yield from reconcile.differences(table, found, unit.backend.dialect)
    for name in found.columns:
        if name not in table.columns:
            yield f"{table.name}.{name}: is no column of the source"


def _count(table: sa.Table) -> sa.Select[Any]:
    return sa.select(sa.func.count()).select_from(table)


_PROGRESS = table_of(CopyProgressModel)
_CHANGING = ("rows", "done", "last_key")
_KEY_BYTES = 64 * 1024

_REACHED = statement_of(
    sa.select(_PROGRESS).where(_PROGRESS.c.receipt_id == bind("receipt_id", _PROGRESS.c.receipt_id))
)
_REACH = statement_of(
    upsert(
        _PROGRESS,
        ("receipt_id", "table_name", *_CHANGING),
        key=("receipt_id", "table_name"),
        replacing=lambda row: {name: row[name] for name in _CHANGING},
    )
)


class Place:
    """The progress of a table's copy: the number of rows so far, the last row's key, and True if the table is done."""

    def __init__(self, rows: int = 0, after: list[Any] | None = None, *, done: bool = False) -> None:
        self.rows = rows
        self.after = after
        self.done = done


class Transfer:
    """A copy in progress. ``receipt`` is the receipt in the target after its last step; ``given`` is from `numbers`."""

    def __init__(
        self, source: Unit, target: Context, receipt: Receipt, most: int, given: Mapping[str, int | None]
    ) -> None:
        self._source = source
        self._given = given
        self._write = target.scope.write
        self._now = target.clock.now
        self._location = target.scope.backend.location
        self._most = most
        self.receipt = receipt

    def places(self) -> dict[str, Place]:
        """Return the progress of each table's copy, by name."""
        found = self._write(lambda unit: unit.rows(_REACHED, {"receipt_id": self.receipt.id}))
        return {row["table_name"]: Place(row["rows"], row["last_key"], done=row["done"]) for row in found}

    def copy(self, subject: Subject, place: Place) -> Iterator[int]:
        """Copy the rest of a table. Yields the number of copied rows after each batch."""
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
            with permit_deletion(unit, self.receipt.id):  # permits words that this version does not know
                unit.backend.load(unit, subject.name, subject.names, convert(rows))
            if place.done and subject.numbered_column is not None:
                unit.backend.advance(unit, subject.name, subject.numbered_column, self._given[subject.name])
            unit.row(_REACH, {"receipt_id": self.receipt.id, "table_name": subject.name, **_place_values(place)})
            counts = {**self.receipt.counts, subject.name: place.rows}
            return steps.step(unit, self.receipt, counts=counts, cursor=None, at=self._now())

        try:
            self.receipt = self._write(work)
        except BackendUnavailable as error:  # above all a full disk: the error must name the target
            raise BackendUnavailable(f"the target {self._location}: {error}", **error.details) from error

    def _keys(self, subject: Subject) -> list[list[Any]]:
        statement = statement_of(sa.select(*subject.order))
        return self._write(lambda unit: [list(row.values()) for row in unit.rows(statement)])


def numbers(source: Unit, subjects: Iterable[Subject]) -> dict[str, int | None]:
    """Return the highest number that was generated for each table, even for a row since pruned.

    It is never used again.
    """
    found = [(subject.name, subject.numbered_column) for subject in subjects if subject.numbered_column is not None]
    return {name: source.backend.last_number(source, name, column) for name, column in found}


def output_tables(unit: Unit) -> list[sa.Table]:
    """Return the registered output tables, ordered by name."""
    tables = [found.handle().table for found in unit.rows(ALL)]
    return sorted(tables, key=lambda table: table.name)


def make_tables(unit: Unit, tables: Sequence[sa.Table]) -> None:
    """Create the output tables that the target lacks."""
    there = reconcile.present(unit, [table.name for table in tables])
    for table in tables:
        for statement in reconcile.additions(table, there.get(table.name), unit.backend):
            unit.control(statement)


def _place_values(place: Place) -> dict[str, Any]:
    # A key may be a person's name. It is needed only until the table is done.
    key = None if place.after is None or place.done else codec.encode("last_key", place.after, max_bytes=_KEY_BYTES)
    return {"rows": place.rows, "done": place.done, "last_key": key}
