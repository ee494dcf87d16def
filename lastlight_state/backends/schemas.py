"""Questions about the schemas of a database: which are the library's, and backends that share connections."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

from lastlight_state.errors import NotSupported, StateError


class Schemas:
    """The part of `lastlight_state.backends.base.Backend` that knows the schemas of a database."""

    name: str
    #: True if the connections belong to another backend, which closes them.
    borrows = False

    def beside(self, schema: str, *, read_only: bool = False) -> Self:
        """Return a backend of another schema over the same connections. Closing it closes none of them."""
        raise self._without_schemas()

    def meet_server(self) -> None:
        """Record the server's product, before any schema is read. Raises `NotSupported`."""
        raise self._without_schemas()

    def schemas_with(self, table: str) -> Sequence[str]:
        """Return the names of the schemas in which a table of this name may be read, sorted."""
        raise self._without_schemas()

    def sizes_of(self, schemas: Collection[str]) -> Mapping[str, int]:
        """Return the bytes of the tables of these schemas, with indexes and large values."""
        raise self._without_schemas()

    def rows_of(
        self, statements: Sequence[str], values: Mapping[str, Any]
    ) -> tuple[list[Any], Mapping[str, StateError]]:
        """Return the rows of these statements, planned once per connection, and the errors of those that failed."""
        raise self._without_schemas()

    def is_empty(self) -> bool:
        """True if the backend's schema is empty or does not exist."""
        raise self._without_schemas()

    def drop_schema(self, connection: Any, kinds: Mapping[str, Collection[str]]) -> None:
        """Remove the schema with objects of these ``kinds``: tables, views, functions without arguments.

        Raises `Conflict` ``not_ours`` if the schema holds anything else, or if another schema refers to it. Then
        nothing is removed.
        """
        raise self._without_schemas()

    def move_schema(self, host: str, port: int) -> None:
        """Move the backend's schema to another server of the database, while it is in use."""
        raise self._without_schemas()

    def _without_schemas(self) -> NotSupported:
        return NotSupported(f"{self.name} has no schemas: give each tenant a database of its own")
