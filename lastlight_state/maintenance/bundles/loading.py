"""Loads the missing rows of a bundle into a database, or counts them for a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from lastlight_state import progress
from lastlight_state.conversations.shared.storing import KnownClasses, numbers_of
from lastlight_state.conversations.tables import (
    BRANCHES,
    CHANGES,
    DELIVERIES,
    INBOXES,
    LINKS,
    MEMBERS,
    MESSAGES,
    NAMESPACES,
    PROGRESSIONS,
    SESSIONS,
    TRANSITIONS,
    VECTORS,
)
from lastlight_state.db import reconcile
from lastlight_state.db.units.permits import permit_deletion
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, InvalidValue, NewerSchema
from lastlight_state.ids import new_id
from lastlight_state.maintenance.bundles import incoming_rows, row_lines, selection
from lastlight_state.maintenance.bundles.archive import OpenBundle, damaged_bundle
from lastlight_state.maintenance.bundles.incoming_rows import (
    References,
    Renaming,
    refuse_taken_keys,
    refuse_unknown_words,
)
from lastlight_state.maintenance.bundles.records import OnConflict
from lastlight_state.maintenance.copy import row_merge
from lastlight_state.maintenance.copy.tables import DEPTHS, subjects
from lastlight_state.maintenance.copy.transfer import make_tables, output_tables
from lastlight_state.maintenance.shared.run_tables import RUN_TABLES
from lastlight_state.migrations.scripts import revisions, was_never_released
from lastlight_state.outputs import column_types
from lastlight_state.outputs.catalog.definitions import ALL, Registered
from lastlight_state.outputs.models import REGISTRY
from lastlight_state.receipts import Receipt
from lastlight_state.settings import Settings
from lastlight_state.workflows.tables import EXECUTIONS, RUNS

#: How many rows are compared and inserted together.
_ROWS = 500

#: Tables whose stored rows are never changed by a load.
_LIVING = (INBOXES, MEMBERS, NAMESPACES, VECTORS)

#: The column with the run's id, by table of a run's rows. Output tables have ``run_id``.
_OWNER = {column.table.name: column.name for column in (RUNS.c.id, *RUN_TABLES)}
#: The column with the session's id, by table of a session's rows.
_SESSION = {
    column.table.name: column.name
    for column in (SESSIONS.c.id, BRANCHES.c.session_id, TRANSITIONS.c.session_id, CHANGES.c.session_id)
}


class Loading:
    """A load of one bundle: its rows and the names of its logs, under their own ids or under new ids (`OnConflict`)."""

    def __init__(
        self,
        bundle: OpenBundle,
        known: KnownClasses,
        on_conflict: OnConflict,
        now: datetime,
        *,
        allow_unknown_words: bool = False,
        cut_off: Receipt | None = None,
    ) -> None:
        self._bundle = bundle
        #: Whether the rows were stored by an interrupted load, which this load finishes.
        self.is_stored = cut_off is not None
        #: The seed of the new ids.
        self.seed: str = new_id() if cut_off is None else cut_off.policy["seed"]
        self._allow_unknown_words = allow_unknown_words
        self._ids: dict[str, frozenset[str]] = {}
        self._known = known
        self._keeps = on_conflict == "skip" or self.is_stored
        self.kind, self._id = bundle.bundle.kind, bundle.bundle.id
        is_copy = on_conflict == "new_ids"
        self._renaming = Renaming(bundle.tables, self._rows, self._members, now, self.seed) if is_copy else None

    @property
    def id(self) -> str:
        """Return the id under which the run or session of the bundle is stored."""
        series = "run" if self.kind == "run" else "talk"
        return self._id if self._renaming is None else self._renaming.id(series, self._id)

    def missing_logs(self, settings: Settings) -> list[row_lines.Missing]:
        """Return the logs that are not stored yet. Raises `Conflict` for a log that does not belong to the bundle."""
        self._refuse_other_logs()
        renamed = (lambda name: name) if self._renaming is None else self._renaming.log
        return row_lines.missing_logs(settings, self._bundle, keeps=self._keeps, renamed=renamed)

    def count_rows(self, view: Unit) -> Counter[str]:
        """Return how many rows `store` would add, by table. Raises if `store` cannot add the bundle.

        Does everything that `store` does, except the write.
        """
        self._refuse_nameless()
        references = References(view)
        added: Counter[str] = Counter()
        held: set[str] = set()
        new = {table.name for table in self._new_outputs(view)}
        for table, rows in self._batches(view):
            references.confirm(table, rows)
            refuse_taken_keys(view, table, rows)
            if not self._allow_unknown_words:
                refuse_unknown_words(table, rows)
            lacking: Sequence[row_merge.Row] = rows
            if table.name not in new:
                given = self._prepare_rows(view, table, rows, lambda names: selection.classes(view, names), held)
                lacking = row_merge.missing_rows(view, given, keeps=self._keeps_of(table)).get(table.name, ())
            row_merge.check_insert(view, table, lacking)
            added[table.name] += len(lacking)
        return +added

    def store(self, unit: Unit) -> Counter[str]:
        """Add the missing rows, and return their number by table.

        Raises `AlreadyExists` if a row is stored with other values.
        """
        added: Counter[str] = Counter()
        held: set[str] = set()
        outputs = self._new_outputs(unit)
        for table, rows in self._batches(unit):
            given = self._prepare_rows(unit, table, rows, lambda names: numbers_of(unit, self._known, names), held)
            with permit_deletion(unit) if self._allow_unknown_words else nullcontext():
                added += row_merge.insert_missing(unit, given, keeps=self._keeps_of(table))
            progress.tell("loading", added.total())
            if table is INBOXES:
                incoming_rows.raise_numbers(unit, rows)
            if table is REGISTRY:
                make_tables(unit, outputs)
        if self._keeps:
            incoming_rows.raise_counters(unit, [self._id, *self._context("sessions")])
        return added

    def _prepare_rows(
        self,
        unit: Unit,
        table: sa.Table,
        rows: list[row_lines.Row],
        numbers: Callable[[set[str]], dict[str, int]],
        held: set[str],
    ) -> dict[str, list[row_lines.Row]]:
        """Return the rows in the form in which they can be stored, with the number that this database gives each class.

        ``held`` collects the orders that were stored before: a bundle adds no message to such an order.
        """
        if table is PROGRESSIONS:
            held |= incoming_rows.stored_orders(unit, rows)
        if table is LINKS:
            rows = incoming_rows.new_links(unit, rows, held, keeps=self._keeps)
        if table is MESSAGES:
            rows = row_lines.translate_classes(rows, numbers({str(row.get(row_lines.CLASS.name)) for row in rows}))
        return {table.name: incoming_rows.storable_rows(unit, table, rows, keeps=self._keeps)}

    def _batches(self, unit: Unit) -> Iterator[tuple[sa.Table, list[row_lines.Row]]]:
        """Yield the rows of every table, in the order of foreign keys.

        Registry entries come before rows of output tables.
        """
        outputs = [*output_tables(unit), *self._new_outputs(unit)]
        found = {subject.name: subject.table for subject in subjects(outputs)}
        allowed = selection.TABLES[self.kind] | ({table.name for table in outputs} if self.kind == "run" else set())
        if unknown := sorted(self._bundle.tables.keys() - (allowed & found.keys())):
            raise damaged_bundle(f"rows/{unknown[0]}.jsonl", "is not a table of such a bundle")
        for name in (name for name in found if name in self._bundle.tables):
            rows = list(self._rows(found[name])) if name in DEPTHS else None
            for batch in [rows] if rows else self._together(found[name]):
                yield found[name], batch if self._renaming is None else self._renaming.rows(found[name], batch)

    def _together(self, table: sa.Table) -> Iterator[list[row_lines.Row]]:
        batch: list[row_lines.Row] = []
        for row in self._rows(table):
            batch.append(row)
            if len(batch) == _ROWS:
                yield batch
                batch = []
        if batch:
            yield batch

    def _rows(self, table: sa.Table) -> Iterator[row_lines.Row]:
        part = self._bundle.tables[table.name]
        for number, line in enumerate(self._bundle.lines(part), 1):
            try:
                row = row_lines.row_of(table, line)
                self._refuse_other(table, row)
                row_lines.refuse_nulls(table, row)
            except ValueError as error:
                raise damaged_bundle(part.name, f"line {number}: {error}") from error
            yield row

    def _refuse_nameless(self) -> None:
        """Raise `Conflict` if the bundle lacks the run or session that it is named after."""
        table = RUNS if self.kind == "run" else SESSIONS
        if self._id not in self._ids_of(table):
            raise damaged_bundle(f"rows/{table.name}.jsonl", f"has not the {self.kind} {self._id!r:.80}")

    def _refuse_other(self, table: sa.Table, row: row_lines.Row) -> None:
        """Raise ValueError for a row that does not belong to the run or session of the bundle."""
        if self.kind == "run" and table is not REGISTRY and row.get(_OWNER.get(table.name, "run_id")) != self._id:
            raise ValueError(f"does not belong to the run {self._id!r:.80}")
        if table.name in _SESSION:
            self._refuse_unnamed(row.get(_SESSION[table.name]), {self._id, *self._context("sessions")})
        if table is PROGRESSIONS:
            self._refuse_unnamed(row.get("id"), self._owned_orders)
        if table is LINKS:
            self._refuse_unnamed(row.get("progression_id"), self._ids_of(PROGRESSIONS))
        if table is MEMBERS:
            self._refuse_unnamed(row.get("member"), self._members)
        if table is DELIVERIES:
            self._refuse_unnamed(row.get("message_id"), self._ids_of(MESSAGES))

    def _refuse_other_logs(self) -> None:
        """Raise `Conflict` for a log of an agent's session that no row names."""
        naming = (EXECUTIONS.c.session_id, SESSIONS.c.agent_session_id) if self._bundle.logs else ()
        named = {row.get(column.name) for column in naming for row in self._rows_of(column.table)} - {None}
        for part in self._bundle.logs:
            if row_lines.session_of(part.name) not in named:
                raise damaged_bundle(part.name, f"does not belong to the {self.kind} {self._id!r:.80}")

    def _refuse_unnamed(self, found: object, allowed: Collection[str]) -> None:
        if found not in allowed:
            raise ValueError(f"does not belong to the session {self._id!r:.80}")

    @cached_property
    def _members(self) -> frozenset[str]:
        """Return the ids that may be members of a channel: those of the session and its branches."""
        return self._ids_of(BRANCHES) | {self._id}

    @cached_property
    def _owned_orders(self) -> frozenset[str]:
        """Return the ids of the orders that the bundle's sessions and branches own."""
        return frozenset(
            str(row.get("progression_id")) for table in (SESSIONS, BRANCHES) for row in self._rows_of(table)
        )

    def _ids_of(self, table: sa.Table) -> frozenset[str]:
        if table.name not in self._ids:
            self._ids[table.name] = frozenset(str(row.get("id")) for row in self._rows_of(table))
        return self._ids[table.name]

    def _rows_of(self, table: sa.Table) -> Iterator[row_lines.Row]:
        return self._rows(table) if table.name in self._bundle.tables else iter(())

    def _context(self, name: str) -> tuple[str, ...]:
        return self._bundle.bundle.context.get(name, ())

    def _keeps_of(self, table: sa.Table) -> bool:
        """True if stored rows of the table stay, even if the bundle has other values."""
        return self._keeps or table is REGISTRY or table in _LIVING

    def _new_outputs(self, view: Unit) -> list[sa.Table]:
        """Return the output tables that are registered in the bundle, but not in the database."""
        if REGISTRY.name not in self._bundle.tables:
            return []
        rows = list(self._rows(REGISTRY))
        there = {found.key: found.table_name for found in view.rows(ALL)}
        for row in rows:
            if there.get(row.get("key", ""), row.get("table_name")) != row.get("table_name"):
                raise AlreadyExists(REGISTRY.name, row["key"], problem="is registered with another table")
        made = [_handle(row) for row in rows if row.get("key") not in there]
        for name in reconcile.existing_tables(view, [table.name for table in made]):
            raise Conflict(f"the table {name} is there and is not registered as an output table", code="collision")
        return made


def refuse_newer(revision: str) -> None:
    """Raise `NewerSchema` for a schema revision that this version does not know.

    Revisions from before the first release are older, and are accepted.
    """
    known = revisions()
    if revision not in known and not was_never_released(revision):
        raise NewerSchema(found=revision[:40], head=known[-1], min_reader="", what="the bundle")


def _handle(row: row_lines.Row) -> sa.Table:
    """Return the output table of a registry row. The row is checked, because anybody may have written the bundle."""
    part = f"rows/{REGISTRY.name}.jsonl"
    try:
        values: Any = dict(row)
        found = Registered.of(values)
        for name in (found.table_name, *(column.name for column in found.columns)):
            column_types.any_table_name("name", name)
        if column_types.is_reserved(found.table_name):
            raise damaged_bundle(part, f"must not make the table {found.table_name}")
        table = found.handle().table
    except (InvalidValue, TypeError, KeyError, sa.exc.ArgumentError) as error:
        raise damaged_bundle(part, f"does not describe an output table: {error}") from error
    if "node_id" not in table.c:
        raise damaged_bundle(part, "does not describe an output table: it has no column node_id")
    return table
