"""Queries about the schemas of a database: which of them are the library's. Also backends that share connections."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

from lastlight_state.errors import NotSupported, StateError


class Schemas:
    """The part of `lastlight_state.backends.base.Backend` that handles the schemas of a database."""

    name: str
    #: True if the connections belong to another backend, which closes them.
    borrows = False

    def beside(self, schema: str, *, read_only: bool = False) -> Self:
        """Return a backend of another schema over the same connections. Closing it closes no connection."""
        raise self._without_schemas()

    def meet_server(self) -> None:
        """Identify the server's product, before any schema is read.

        Raises `NotSupported` for a product that cannot be used.
        """
        raise self._without_schemas()

    def schemas_with(self, table: str) -> Sequence[str]:
        """Return the names of the schemas in which a table of this name may be read, sorted."""
        raise self._without_schemas()

    def sizes_of(self, schemas: Collection[str]) -> Mapping[str, int]:
        """Return the bytes used by the tables of these schemas, including indexes and large values."""
        raise self._without_schemas()

    def rows_of(
        self, statements: Sequence[str], values: Mapping[str, Any]
    ) -> tuple[list[Any], Mapping[str, StateError]]:
        """Run these statements, planned once per connection.

        Return their rows, and the errors of the statements that failed.
        """
        raise self._without_schemas()

    def is_empty(self) -> bool:
        """True if the backend's schema is empty or does not exist."""
        raise self._without_schemas()

    def drop_schema(self, connection: Any, kinds: Mapping[str, Collection[str]]) -> None:
        """Drop the schema and its objects of these ``kinds``: tables, views, functions without arguments.

        Raises `Conflict` ``not_ours`` if the schema contains anything else, or if another schema refers to it. Then
        nothing is dropped.
        """
        raise self._without_schemas()

    def move_schema(self, host: str, port: int) -> None:
        """Move the backend's schema to another server of the database, while it is in use."""
        raise self._without_schemas()

    def _without_schemas(self) -> NotSupported:
        return NotSupported(f"{self.name} has no schemas: give each tenant a database of its own")
