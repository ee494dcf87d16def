"""The database that a copy fills: opened, and refused where it is not an empty one of the same schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Backend, Options
from lastlight_state.backends.retry import Retry
from lastlight_state.clock import Clock
from lastlight_state.db import reconcile
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.repository import Context
from lastlight_state.db.scope import StoreScope
from lastlight_state.db.statements import prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict, InvalidValue, SchemaMismatch
from lastlight_state.maintenance.copy.subjects import SEEDED, Subject
from lastlight_state.metrics import Metrics
from lastlight_state.migrations import migrate, read_state, verify
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.receipts.words import State
from lastlight_state.settings import Settings

#: The receipts of copies that have not ended.
UNFINISHED: tuple[State, ...] = ("running", "interrupted")


@contextmanager
def opened(
    url: str | Path, schema: str | None, settings: Settings, clock: Clock, *, read_only: bool
) -> Iterator[Context]:
    """A context on the database of a URL, whatever the state of its schema."""
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
    """Whether nothing is migrated in it yet, or there is no such file."""
    return not backend.exists or read_state(backend).state == "empty"


def refuse_same(source: Unit, target: Unit) -> None:
    """Raise if both are the same tables, or if those of the target are gone with the connection to them."""
    theirs = target.backend.identity(target.checkout)
    if theirs is None:
        raise InvalidValue("target", "must be a database that stays")
    if theirs == source.backend.identity(source.checkout):
        raise InvalidValue("target", "must be another database than the source")


def prepare(source: Backend, target: Backend, *, migrated: bool) -> None:
    """Check that both have the same schema; ``migrated``: make it in an empty target. Raises as `verify`."""
    if migrated and is_empty(target):
        migrate(target)
    verify(source)
    verify(target)
    refuse_unlike(source, target)


def refuse_unlike(source: Backend, target: Backend) -> None:
    """Raise if the schemas are of different revisions."""
    revisions = read_state(source).revision, read_state(target).revision
    if revisions[0] != revisions[1]:
        raise SchemaMismatch(f"the source is at revision {revisions[0]}, the target at {revisions[1]}: migrate one")


def refuse_filled(unit: Unit, subjects: Sequence[Subject]) -> None:
    """Raise for a target that holds anything, naming every table with rows."""
    names = {*METADATA.tables} | set(reconcile.existing(unit, [subject.name for subject in subjects]))
    tables = [subject for subject in subjects if subject.name in names]
    counts = {subject.name: unit.value(prepared(_count(subject.table))) for subject in tables}
    filled = {name: count for name, count in counts.items() if count != SEEDED.get(name, 0)}
    if filled:
        told = ", ".join(f"{name} ({count} rows)" for name, count in sorted(filled.items()))
        raise Conflict(f"the target is not empty: {told}", code="target_not_empty", tables=filled)


def refuse_other_outputs(unit: Unit, outputs: Sequence[sa.Table]) -> None:
    """Raise for an output table that was left in the target and is not as the source declares it."""
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
