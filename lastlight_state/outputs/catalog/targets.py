"""How a call finds its output table: by a handle, or by a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lastlight_state.db import reconcile, valid
from lastlight_state.db.repository import Repository
from lastlight_state.errors import BackendError, InvalidValue, MisuseError, SchemaMismatch
from lastlight_state.outputs import words
from lastlight_state.outputs.catalog import registry
from lastlight_state.outputs.catalog.definitions import Definitions
from lastlight_state.outputs.catalog.registry import Registered
from lastlight_state.outputs.table import OutputTable

T = TypeVar("T")


class Targeted(Repository):
    """A repository whose methods take a *target*: a handle or a key."""

    def _target(self, target: Any) -> OutputTable[Any]:
        """The handle. A key that this process has not defined is looked up in the registry. Raises `NotFound`."""
        if isinstance(target, OutputTable):
            return target
        if type(target) is not str:
            raise InvalidValue("target", f"must be an OutputTable or a key, not {type(target).__name__}")
        known = self._remember(Definitions).named(target)
        if known is not None:
            return known
        found = self._find(Registered.of, registry.FIND, {"name": valid.sought("target", target)})
        if found is None:
            raise valid.not_found(words.OUTPUT_TABLE, target)
        return found.handle()

    def _writable(self, target: Any) -> OutputTable[Any]:
        """The handle, which knows what may be written. Raises `MisuseError` for a key that only others defined."""
        table = self._target(target)
        if not table.writable:
            raise MisuseError(f"output {table.key!r} is not defined in this process: define it with its model first")
        return table

    def _there(self, table: OutputTable[Any], call: Callable[[], T]) -> T:
        """What ``call`` returns. Raises `SchemaMismatch` where it failed because the table is physically gone."""
        try:
            return call()
        except BackendError as error:
            self._refuse_gone(table, error)
            raise

    def _refuse_gone(self, table: OutputTable[Any], error: BackendError) -> None:
        """Raise `SchemaMismatch` where the table is physically gone, which may be why a call failed."""
        if type(error) is not BackendError:
            return
        if not self._viewing(lambda unit: reconcile.present(unit, [table.table_name])):
            raise gone(table.key, table.table_name) from error


def gone(key: str, table_name: str) -> SchemaMismatch:
    """The error for a registered table that the database no longer has: nothing is guessed in place of its rows."""
    return SchemaMismatch(
        f"the table {table_name!r} of output {key!r} is not in the database",
        differences=[f"table {table_name}: missing"],
    )
