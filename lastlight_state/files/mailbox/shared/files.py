"""The two files of a mailbox, as one side opens them: its own file for writing, the other side's for reading.

Each call opens a file, runs one unit and closes it: an open connection would keep a reader from seeing changes across a
mount.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.sql.elements import quoted_name

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Mode, Options
from lastlight_state.backends.facts import FORBIDDEN
from lastlight_state.backends.waiting import Deadline, Retry
from lastlight_state.db import reconcile
from lastlight_state.db.reconcile import PresentColumn, PresentTable
from lastlight_state.db.rows.statements import Statement, bind, statement_of
from lastlight_state.db.units.scope import StoreScope
from lastlight_state.db.units.unit import Unit, Work
from lastlight_state.errors import BackendUnavailable, Conflict, CorruptData, NotFound
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.folder import Place, is_regular
from lastlight_state.files.mailbox.models import LAYOUT, MAILBOX
from lastlight_state.files.mailbox.shared import queries
from lastlight_state.files.mailbox.shared.queries import OtherSide
from lastlight_state.metrics import Metrics
from lastlight_state.settings import Settings

# Completes the shape of a side's own file: adds declared tables, columns and indexes, removes nothing.
#
# Files of the original program have fewer columns, and some were left half-way by a program that died. Each step checks
# for itself, and all are one transaction. There are no numbered revisions: a new column must have a constant default or
# permit NULL.

_log = logging.getLogger("lastlight_state.files.mailbox")

_SAVEPOINT = "lastlight_index"
_SERIES = models.MESSAGES_IN.c.series_id
_UNNAMED = statement_of(sa.select(models.MESSAGES_IN.c.id).where(_SERIES.is_(None)).limit(sa.literal_column("1")))
_NAME_SERIES = statement_of(
    sa.update(models.MESSAGES_IN).where(_SERIES.is_(None)).values(series_id=models.MESSAGES_IN.c.id)
)
_HIGHEST = statement_of(
    sa.select(sa.func.max(models.MESSAGES_IN.c.seq)).where(
        sa.func.typeof(models.MESSAGES_IN.c.seq) == sa.literal_column("'integer'")
    )
)


class ColumnFacts(NamedTuple):
    """The facts of a column from SQLite."""

    name: str
    type: str
    dflt_value: str | None
    pk: int
    notnull: int


_KIND, _NAME = sa.column("type", sa.Text), sa.column("name", sa.Text)
#: The tables, views and indexes of a file.
_OBJECTS: Statement[tuple[str, str]] = statement_of(
    sa.select(_KIND, _NAME).select_from(sa.table("sqlite_master")), tuple
)
_FACTS: list[sa.ColumnElement[Any]] = [
    *(_NAME, _KIND, sa.column("dflt_value", sa.Text), sa.column("pk", sa.Integer)),
    sa.column(quoted_name("notnull", quote=True), sa.Integer),
]
_COLUMNS = statement_of(sa.select(*_FACTS).select_from(sa.func.pragma_table_info(bind("table", _NAME))), ColumnFacts)


def is_complete(unit: Unit, declared: sa.MetaData) -> bool:
    """True if the file has all tables, columns and indexes.

    Reads each table's columns once, and takes no write lock.
    """
    for table in declared.sorted_tables:
        names = unit.backend.column_names(unit, table.name)
        if not names.issuperset(column.name for column in table.columns):
            return False
    wanted = {str(index.name) for table in declared.tables.values() for index in table.indexes} - _LOOSE
    if not _names_of_kind(unit, "index") >= wanted or queries.find(unit, declared, "layout") is None:
        return False
    return declared is not models.INBOUND or unit.value(_UNNAMED) is None


def complete(unit: Unit, declared: sa.MetaData) -> None:
    """Add the tables, columns and indexes that the file lacks. Call this in a transaction that holds the write lock."""
    found = present(unit, declared)
    for table in declared.sorted_tables:
        for statement in reconcile.additions(table, found.get(table.name), unit.backend):
            _add(unit, statement)
    if declared is models.INBOUND:
        unit.change(_NAME_SERIES)
    if queries.find(unit, declared, "layout") is None:
        queries.put(unit, declared, "layout", LAYOUT)
        if declared is models.INBOUND:
            queries.put(unit, declared, "adopted_seq", str(unit.value(_HIGHEST) or 0))


def present(unit: Unit, declared: sa.MetaData) -> dict[str, PresentTable]:
    """Return the declared tables that exist in the file, with all their indexes. Reflection would omit some indexes."""
    tables, indexes = _names_of_kind(unit, "table"), frozenset(_names_of_kind(unit, "index"))
    found = {}
    for name in declared.tables.keys() & (tables | _names_of_kind(unit, "view")):
        rows = unit.rows(_COLUMNS, {"table": name})
        columns = {row.name: _present(row) for row in rows}
        key = tuple(row.name for row in sorted(rows, key=lambda row: int(row.pk)) if row.pk)
        found[name] = PresentTable(name, name in tables, columns, key, frozenset(), indexes)
    return found


def _present(row: ColumnFacts) -> PresentColumn:
    has_default = row.dflt_value is not None
    return PresentColumn(row.name, row.type.upper(), nullable=not row.notnull, has_default=has_default)


def _names_of_kind(unit: Unit, kind: str) -> set[str]:
    """Return the names of the tables, views or indexes of the file."""
    return {name for found, name in unit.rows(_OBJECTS) if found == kind}


def _add(unit: Unit, statement: str) -> None:
    """Run a statement that adds a table, column or index. Skips a unique index that stored rows violate."""
    if not statement.startswith("CREATE UNIQUE INDEX"):
        unit.control(statement)
        return
    unit.control(f"SAVEPOINT {_SAVEPOINT}")
    try:
        unit.control(statement)
    except Conflict:
        unit.undo_to(_SAVEPOINT)
        _log.warning("an index is left out, because stored messages contradict it: %s", statement)
    else:
        unit.control(f"RELEASE SAVEPOINT {_SAVEPOINT}")


#: Indexes that a file may lack, because its rows contradict them.
_LOOSE = frozenset({str(models.LIVE_SERIES.name)})


T = TypeVar("T")

#: The most seconds for a read of the other side's file, if `busy_timeout` is not less.
LEAST_SECONDS = 1.0


class OwnFile(StoreScope):
    """The file that this side writes. Missing tables and columns are added before the first use.

    ``admit`` is called at the beginning of each writing unit, and may raise to refuse it.
    """

    def __init__(self, place: Place, path: Path, settings: Settings, declared: sa.MetaData, metrics: Metrics) -> None:
        backend = open_backend(path, _options(settings, read_only=settings.read_only))
        backend.metrics = metrics
        super().__init__(backend, Retry(metrics, settings.retry_seconds, backend.lock_seconds))
        self.admit: Callable[[Unit], object] = _admit_all
        #: For an agent's file: the message up to which old acknowledgements were checked. None: none checked yet.
        self.tidied_to: str | None = None
        self._place = place
        self._path = path
        self._declared = declared
        self._settings = settings
        #: True once the file is known to be complete.
        self.is_ready = settings.read_only

    def write(self, work: Work[T], *, repeatable: bool = False) -> T:
        return super().write(lambda unit: self._admit_and_run(unit, work), repeatable=repeatable)

    one_statement = write

    def open_unit(self, mode: Mode, label: str | None = None) -> Unit:
        self.make_ready()
        return super().open_unit(mode, label)

    def make_ready(self) -> None:
        """Add the tables and columns that the file lacks.

        Raises `NotFound`, and `CorruptData` if it is not a database.
        """
        if self.is_ready:
            return
        if not is_regular(self._path):
            raise NotFound(MAILBOX, self._place.key)
        try:
            with deadline(self._settings):
                if not super()._run(Mode.SNAPSHOT, lambda unit: is_complete(unit, self._declared), repeatable=True):
                    super()._run(Mode.WRITE, lambda unit: complete(unit, self._declared), repeatable=False)
        except BackendUnavailable as error:
            raise unsound(error, self._place, self._path) from error
        self.is_ready = True

    def _run(self, mode: Mode, work: Work[T], *, repeatable: bool, shares: bool = True) -> T:
        with deadline(self._settings):
            self.make_ready()
            return super()._run(mode, work, repeatable=repeatable, shares=shares)

    def _admit_and_run(self, unit: Unit, work: Work[T]) -> T:
        self.admit(unit)
        return work(unit)


class OtherFile:
    """The file that the other side writes."""

    def __init__(self, place: Place, path: Path, settings: Settings, metrics: Metrics) -> None:
        options = replace(_options(settings, read_only=True), read_seconds=max(settings.busy_timeout, LEAST_SECONDS))
        backend = open_backend(path, options)
        backend.metrics = metrics
        self.scope = StoreScope(backend, Retry(metrics, settings.retry_seconds, backend.lock_seconds))
        self._place = place
        self._path = path

    def look(self, work: Callable[[OtherSide], T]) -> T:
        """Run ``work`` on a snapshot of the file.

        Raises `NotFound` if the file is missing, `CorruptData` if the file is not a database, and `BackendUnavailable`.
        """
        if not is_regular(self._path):
            raise NotFound(MAILBOX, self._place.key, reason=f"it has no {self._path.name}")
        try:
            return self.scope.view(lambda unit: work(OtherSide(unit)))
        except BackendUnavailable as error:
            raise unsound(error, self._place, self._path) from error

    def look_if_sound(self, work: Callable[[OtherSide], T], otherwise: T) -> T:
        """Run ``work`` as `look` does.

        If the file is missing or damaged, that is logged, and ``otherwise`` is returned.
        """
        try:
            return self.look(work)
        except (NotFound, CorruptData) as error:
            _log.warning("going on without the other side's file: %s", error)
            self.scope.metrics.count("mailbox_lone_numbers")
            return otherwise


def deadline(settings: Settings) -> Deadline:
    """Return the deadline for all waits of one call: on both files, and over all units and retries."""
    return Deadline(_most_seconds(settings.retry_seconds, settings.busy_timeout))


@lru_cache(maxsize=64)
def _most_seconds(retry_seconds: float | None, busy_timeout: float) -> float:
    return Retry(Metrics(), retry_seconds, busy_timeout).most_seconds


def unsound(error: BackendUnavailable, place: Place, path: Path) -> BackendUnavailable | CorruptData:
    """Return the error to raise for a file that cannot be read: `CorruptData` if the file is not an intact database."""
    reason = error.details.get("reason")
    if reason == FORBIDDEN:
        return CorruptData(MAILBOX, place.key, path.name, problem=str(error))
    if reason != "not_a_database":
        return error
    return CorruptData(MAILBOX, place.key, path.name, problem="is not a sound SQLite database")


def _options(settings: Settings, *, read_only: bool) -> Options:
    return Options(
        read_only=read_only,
        across_mounts=True,
        busy_timeout=settings.busy_timeout,
        queue_timeout=settings.queue_timeout,
    )


def _admit_all(unit: Unit) -> None:
    """Admit every unit, without any check."""
