"""The definitions that a store has made so far, and those that a caller asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from lastlight_state.db.reconcile import Difference
from lastlight_state.errors import AlreadyExists, SchemaMismatch
from lastlight_state.outputs import words
from lastlight_state.outputs.shapes import OutputColumn, Shape
from lastlight_state.outputs.table import OutputTable


@dataclass(frozen=True)
class Wish:
    """A definition that a caller asks for. ``made`` is the handle that it would get on a database without extras."""

    made: OutputTable[Any]
    shape: Shape | None
    json_schema: Any

    @property
    def key(self) -> str:
        return self.made.key

    @property
    def table_name(self) -> str:
        return self.made.table_name


class Definitions:
    """The handles of one store by key. Threads may share it: a handle is added in one step, and never changed."""

    def __init__(self) -> None:
        self._by_key: dict[str, OutputTable[Any]] = {}

    def __iter__(self) -> Iterator[OutputTable[Any]]:
        return iter(tuple(self._by_key.values()))

    def of_key(self, key: str) -> OutputTable[Any] | None:
        """The handle of this key, or None."""
        return self._by_key.get(key)

    def named(self, name: str) -> OutputTable[Any] | None:
        """The handle of this key or table name, or None."""
        found = self._by_key.get(name)
        return found or next((handle for handle in self if handle.table_name == name), None)

    def keep(self, handle: OutputTable[Any]) -> OutputTable[Any]:
        """The handle that this key has from now on: the first one that was kept, perhaps by another thread.

        Raises `SchemaMismatch` when that one describes something else.
        """
        self._by_key.setdefault(handle.key, handle)
        return self.same(handle) or handle

    def same(self, wished: OutputTable[Any]) -> OutputTable[Any] | None:
        """The handle of a definition that was made before, None for a new one.

        Raises `SchemaMismatch` when the key has another definition: it is final while the process runs.
        """
        known = self._by_key.get(wished.key)
        if known is None:
            return None
        found = tuple(_changes(known, wished))
        if found:
            raise SchemaMismatch(
                f"output {wished.key!r} is defined differently in this process; a definition is final: restart needed",
                differences=found,
            )
        return known


def refuse_collisions(wished: OutputTable[Any], others: Iterable[tuple[str, str]]) -> None:
    """Refuse a key or table name that another definition has as its key or table name: `AlreadyExists` naming it."""
    for key, table_name in others:
        if key == wished.key:
            continue
        if table_name == wished.table_name:
            raise AlreadyExists(
                words.OUTPUT_TABLE, wished.key, problem=f"would share the table {table_name!r} of {key!r}", owner=key
            )
        if key == wished.table_name or table_name == wished.key:
            raise AlreadyExists(
                words.OUTPUT_TABLE,
                wished.key,
                problem=f"(table {wished.table_name!r}) could be taken for {key!r} (table {table_name!r})",
                owner=key,
            )


def column_differences(
    table: str, wished: Iterable[OutputColumn], known: Iterable[OutputColumn]
) -> Iterator[Difference]:
    """The columns that both have, with different types."""
    there = {column.name: column for column in known}
    for column in wished:
        found = there.get(column.name)
        if found is not None and found.type != column.type:
            yield Difference(table, column.name, "type", column.type, found.type)


def _changes(known: OutputTable[Any], wished: OutputTable[Any]) -> Iterator[Difference]:
    table = known.table_name
    for what in ("table_name", "kind", "max_bytes"):
        before, after = getattr(known, what), getattr(wished, what)
        if before != after:
            yield Difference(table, None, what, str(before), str(after))
    if known.signature != wished.signature:
        yield from column_differences(table, wished.columns, known.columns)
        yield from _presence(table, wished, known)
    if known.model_digest != wished.model_digest:
        yield Difference(table, None, "validation", str(known.model_digest), str(wished.model_digest))


def _presence(table: str, wished: OutputTable[Any], known: OutputTable[Any]) -> Iterator[Difference]:
    before, after = ({column.name for column in handle.columns} for handle in (known, wished))
    for name in sorted(before - after):
        yield Difference(table, name, "column", "defined", "not in the model")
    for name in sorted(after - before):
        yield Difference(table, name, "column", "not defined", "in the model")
