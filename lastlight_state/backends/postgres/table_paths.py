"""Find out which tables the names in a caller's transaction mean, for a store whose statements name no schema."""

from __future__ import annotations

from typing import Any

import psycopg

from lastlight_state.backends.base import Checkout, Mode
from lastlight_state.backends.postgres.driver import translate
from lastlight_state.errors import MisuseError

_SCHEMAS = "SELECT current_schemas(true)"
#: Finds a table of the library that is in the store's search path, but not in the connection's.
_HIDDEN = """
    SELECT nspname, relname FROM (
        SELECT DISTINCT ON (c.relname) c.oid, n.nspname, c.relname
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = ANY (%s) AND c.relkind IN ('r', 'p') AND c.relname ~ %s
        ORDER BY c.relname, array_position(%s::name[], n.nspname)
    ) AS ours WHERE NOT pg_table_is_visible(oid) ORDER BY relname LIMIT 1
"""
#: The number of callers' search paths that are remembered as leading to the store's tables.
_KEPT = 64


class TablePaths:
    """The part of the backend that compares search paths: the store's own and those of callers' connections."""

    schema: str | None
    _own_path: list[str] | None = None
    _alike: set[tuple[str, ...]]

    def learn_path(self, driver: Any) -> None:
        """Read the search path that new connections of the store's engine have."""
        [own] = driver.execute(_SCHEMAS).fetchone()
        self._own_path = [name for name in own if not name.startswith("pg_temp_")]
        self._alike = {tuple(self._own_path)}

    def refuse_other_tables(self, checkout: Checkout, names: str) -> None:
        if self.schema is not None:
            return
        try:
            if self._own_path is None:
                with Checkout(Mode.READ, self) as own:  # type: ignore[arg-type]
                    self.learn_path(own.driver)
            self._compare(checkout.driver, names)
        except psycopg.Error as error:
            raise translate(error) from error

    def _compare(self, driver: Any, names: str) -> None:
        [found] = driver.execute(_SCHEMAS).fetchone()
        theirs = tuple(found)
        if theirs in self._alike:
            return
        hidden = driver.execute(_HIDDEN, (self._own_path, names, self._own_path)).fetchone()
        if hidden is not None:
            schema, table = hidden
            raise MisuseError(
                f"connection= leads to other tables than the store: {table!r} is not that of the schema {schema!r}, by"
                f" its search_path and temporary tables ({', '.join(theirs)}); open the store with schema={schema!r}"
            )
        # Temporary tables come and go, so a path with them is not remembered.
        if not any(name.startswith("pg_temp_") for name in theirs) and len(self._alike) < _KEPT:
            self._alike.add(theirs)
