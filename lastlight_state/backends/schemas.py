"""What a database with several schemas is asked about them: which are ours, and backends that share connections."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

from lastlight_state.errors import NotSupported, StateError


class Schemas:
    """The part of `lastlight_state.backends.base.Backend` that knows the schemas of a database."""

    name: str
    #: Whether the connections belong to another backend, which closes them.
    borrows = False

    def beside(self, schema: str, *, read_only: bool = False) -> Self:
        """Return a backend of another schema over the same connections. To close it closes none of them."""
        raise self._without_schemas()

    def meet_server(self) -> None:
        """Take note of what the server is, before any schema is looked at. Raises `NotSupported`."""
        raise self._without_schemas()

    def schemas_with(self, table: str) -> Sequence[str]:
        """Return the schemas in which a table of this name may be read, in their order."""
        raise self._without_schemas()

    def sizes_of(self, schemas: Collection[str]) -> Mapping[str, int]:
        """Return the bytes of the tables of these schemas, with indexes and large values."""
        raise self._without_schemas()

    def rows_of(
        self, statements: Sequence[str], values: Mapping[str, Any]
    ) -> tuple[list[Any], Mapping[str, StateError]]:
        """Return the rows of these statements, which a connection plans once, and the errors of those that failed."""
        raise self._without_schemas()

    def is_empty(self) -> bool:
        """Return whether the backend's schema holds nothing, or is not there."""
        raise self._without_schemas()

    def drop_schema(self, connection: Any, kinds: Mapping[str, Collection[str]]) -> None:
        """Remove the schema of the backend with what ``kinds`` names in it: tables, views, functions without arguments.

        Raises `Conflict` ``not_ours`` if anything else is in it, or refers to it from elsewhere; then nothing is gone.
        """
        raise self._without_schemas()

    def move_schema(self, host: str, port: int) -> None:
        """Move the schema of the backend to another server of the database, while it is used."""
        raise self._without_schemas()

    def _without_schemas(self) -> NotSupported:
        return NotSupported(f"{self.name} has no schemas: give each tenant a database of its own")
