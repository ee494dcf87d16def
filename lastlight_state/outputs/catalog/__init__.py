"""The catalog: an output schema, given as a pydantic model, becomes a table.

A definition adds missing tables and columns and changes nothing else. Several processes may define the same table at
once: each reads the database again while it holds a named lock. Table, columns and registry row are committed in one
transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from lastlight_state.db import reconcile, valid
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.scope import StoreScope
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import MisuseError, NotMigrated, ReservedName
from lastlight_state.outputs import column_types, models
from lastlight_state.outputs.catalog import definitions, plans
from lastlight_state.outputs.catalog.definitions import DefinitionRequest, Definitions, refuse_collisions
from lastlight_state.outputs.catalog.plans import attach_request, checked_names, request_of
from lastlight_state.outputs.models import REGISTRY
from lastlight_state.outputs.records import OutputPlan, OutputTableSummary
from lastlight_state.outputs.shapes import OutputColumn
from lastlight_state.outputs.table import OutputTable

_LIMITS = limits_of(REGISTRY)

M = TypeVar("M")

_log = logging.getLogger("lastlight_state.outputs")


class Catalog(Repository):
    """``store.outputs.catalog``: define output tables, and list the registered ones."""

    def define(
        self, key: str, model: type[M], *, table: str | None = None, max_bytes: int | None = None
    ) -> OutputTable[M]:
        """Create the output table for a model, or add its missing columns. Returns the table's handle.

        The key is an ASCII letter, followed by ASCII letters, digits and underscores, 48 characters at most; ``input``
        and ``inputs`` are refused. Each field is a column. A model whose only field is ``payload``, a root model and
        any other type give a table with the one column ``payload``. ``table`` names the table; the default is the key
        in snake case. ``max_bytes`` limits a row (1 MiB by default, at most 16). Repeating the same definition runs no
        statement.

        Raises `SchemaMismatch` listing every change that is not an addition, and for a key that this store has defined
        differently: a definition is final while the process runs. Raises `ReservedName` for tables of the library and
        of tools, for names like those of indexes (``idx_``, ``uq_``, ``pk_``), and for fields named like bookkeeping
        columns. Raises `AlreadyExists` or `InvalidValue` for names and types, `MisuseError` inside a transaction, and
        `NotMigrated` listing what is missing if the store may not migrate.
        """
        self._refuse_transaction()
        [made] = self._define_tables([self._wish(key, model, table, max_bytes)])
        return made

    def define_all(self, models: Mapping[str, Any]) -> dict[str, OutputTable[Any]]:
        """Define many outputs, all or none, while holding one lock. Returns their handles by key."""
        self._refuse_transaction()
        wishes = [self._wish(key, model, None, None) for key, model in models.items()]
        return {handle.key: handle for handle in self._define_tables(wishes)}

    def attach(self, key: str, table: Any, *, model: type[M] | None = None) -> OutputTable[M]:
        """Return the handle of your own table, a SQLAlchemy ``Table`` or declarative class. The table is never altered.

        The table needs ``run_id``, ``node_id`` and a unique key over them. For tasks in a loop it needs ``iteration``
        too, also in the key. Without ``model``, values are checked only against the table's columns. Raises
        `SchemaMismatch` listing what is missing.
        """
        self._refuse_transaction()
        wish = attach_request(column_types.key(key), table, model)
        known = self._remember(Definitions).earlier_handle(wish.made)
        if known is not None:
            return known
        names = [(handle.key, handle.table_name) for handle in self._remember(Definitions)]
        refuse_collisions(wish.made, names)
        registered = self._viewing(lambda unit: plans.attachable(unit, wish))
        if registered is None or registered.signature != wish.made.signature:
            now = self._now()
            self._writing(lambda unit: plans.attach(unit, wish, now), repeatable=True)
        return self._remember(Definitions).keep(wish.made)

    def get(self, name: str) -> OutputTable[Any]:
        """Return the handle with this key or table name. If this process has not defined it, the handle is untyped.

        An untyped handle can read, but not write. Raises `NotFound`.
        """
        found = self._remember(Definitions).of_name(name)
        if found is not None:
            return found
        values = {"name": valid.lookup_text("name", name)}
        return self._get_row(definitions.FIND, values, kind=models.OUTPUT_TABLE, key=name).handle()

    def entry(self, name: str) -> OutputTableSummary:
        """Return the registry's entry for this key or table name. Raises `NotFound`."""
        values = {"name": valid.lookup_text("name", name)}
        return self._get_row(definitions.ENTRY, values, kind=models.OUTPUT_TABLE, key=name)

    def list(self, *, limit: int = 50, page_token: str | None = None) -> Page[OutputTableSummary]:
        """Return a page of the registered tables, by key."""
        return self._page(definitions.LIST, None, limit, page_token)

    def plan(self, key: str, model: Any, *, table: str | None = None) -> OutputPlan:
        """Return the plan of a `define` call, with SQL statements to apply it by hand. Writes nothing."""
        wish, now = self._wish(key, model, table, None), self._now()
        [steps] = self._viewing(lambda unit: plans.all_steps(unit, [wish], now))
        return steps.record()

    def _define_tables(self, wishes: Sequence[DefinitionRequest]) -> Sequence[OutputTable[Any]]:
        definitions = self._remember(Definitions)
        done = [definitions.earlier_handle(wish.made) for wish in wishes]
        if all(done):
            return [handle for handle in done if handle is not None]
        for wish in wishes:
            refuse_collisions(wish.made, [(handle.key, handle.table_name) for handle in definitions])
            refuse_collisions(wish.made, [(other.key, other.table_name) for other in wishes])
        columns = self._complete_tables(wishes)
        return [definitions.keep(_log_extra_columns(_handle(wish, columns[wish.key]))) for wish in wishes]

    def _complete_tables(self, wishes: Sequence[DefinitionRequest]) -> dict[str, tuple[OutputColumn, ...]]:
        """Return the columns that each table has, after what was missing has been added."""
        registered = {found.key: found for found in self._list_rows(definitions.ALL)}
        others = [(found.key, found.table_name) for found in registered.values()]
        for wish in wishes:
            refuse_collisions(wish.made, others)
        if all(plans.is_complete(wish, registered.get(wish.key)) for wish in wishes):
            return {wish.key: registered[wish.key].columns for wish in wishes}
        now = self._now()
        if not self._may_define():
            self._refuse_incomplete(self._viewing(lambda unit: plans.all_steps(unit, wishes, now)))
        found = self._writing(lambda unit: _reconcile_tables(unit, wishes, now), repeatable=True)
        for steps in found:
            for warning in steps.warnings:
                _log.warning("%s", warning)
        return {steps.wish.key: steps.columns for steps in found}

    def _may_define(self) -> bool:
        chosen = self._settings.migrate
        return not self._settings.read_only and (self._backend.migrates_on_open if chosen is None else chosen)

    def _refuse_incomplete(self, found: Sequence[plans.Steps]) -> None:
        missing = []
        for steps in found:
            steps.refuse_differences()
            if steps.create:
                missing.append(f"table {steps.wish.table_name}")
            missing += [f"column {steps.wish.table_name}.{name}" for name in steps.add]
            if not steps.create and not steps.add and steps.sql:
                missing.append(f"registry row of {steps.wish.key}")
        command = self._backend.command("outputs", "apply", "package.module:NAME")
        raise NotMigrated(found=None, head="the definitions of this process", command=command, missing=missing)

    def _refuse_transaction(self) -> None:
        if not isinstance(self._scope, StoreScope):
            raise MisuseError("definitions change tables: define outputs on the store, before the transaction or view")

    def _wish(self, key: Any, model: Any, table: Any, max_bytes: Any) -> DefinitionRequest:
        checked, name = checked_names(key, table)
        if column_types.is_reserved(name):
            free = self._free_name(name, checked)
            called = getattr(model, "__name__", "")
            called = called if called.isidentifier() else "Model"
            raise ReservedName(
                "table",
                f'{name!r} is kept for the library; name another one: define("{checked}", {called}, table="{free}")',
                suggestion=free,
            )
        return request_of(checked, name, model, max_bytes)

    def _free_name(self, table: str, key: str) -> str:
        """Return a table name that is unused in both the registry and the database."""
        candidates = [
            f"task_{table}"[: _LIMITS.table_name - 4],
            *(f"task_{table}"[: _LIMITS.table_name - 4] + f"_{n}" for n in range(2, 100)),
        ]

        def first_free(unit: Unit) -> str:
            taken = {key, *reconcile.present(unit, candidates)}
            for found in unit.rows(definitions.ALL):
                taken |= {found.key, found.table_name}
            return next(name for name in candidates if name not in taken)

        return self._viewing(first_free)


def _reconcile_tables(unit: Unit, wishes: Sequence[DefinitionRequest], now: Any) -> list[plans.Steps]:
    """Take the named lock, plan again, and apply the steps. Returns the steps."""
    unit.named_lock("outputs")
    unit.backend.limit_ddl_waits(unit)
    found = plans.all_steps(unit, wishes, now)
    for steps in found:
        plans.carry_out(unit, steps)
    return found


def _handle(wish: DefinitionRequest, columns: tuple[Any, ...]) -> OutputTable[Any]:
    return definitions.with_extras(wish.made, columns)


def _log_extra_columns(handle: OutputTable[Any]) -> OutputTable[Any]:
    if handle.extra_columns:
        columns = ", ".join(handle.extra_columns)
        _log.info("output %s: columns that its model lacks stay as they are: %s", handle.key, columns)
    return handle
