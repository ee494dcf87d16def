"""Reads tables of other programs on a Postgres server, in one snapshot. Never writes to them.

Values are converted to the form of the same program's SQLite file: JSON and times are text, and bools are 0 and 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from lastlight_state import codec
from lastlight_state.backends import open_backend, urls
from lastlight_state.backends.base import Mode, Options
from lastlight_state.db.units.unit import Unit
from lastlight_state.maintenance.imports import foreign
from lastlight_state.maintenance.imports.foreign import Foreign, Row, damaged_source, quote_name
from lastlight_state.maintenance.imports.pieces import Place, Server

_READ_ONLY = Options(read_only=True, pool_size=1)
_TABLES = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') ORDER BY c.relname COLLATE "C"
"""
_COLUMNS = """
SELECT a.attname, t.typname FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_type t ON t.oid = a.atttypid
WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND c.relname = ? AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_MOMENT = """to_char({}, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
#: The types that are read as they are. Types without an entry here are read as text.
_PLAIN = ("text", "varchar", "int2", "int4", "int8", "float4", "float8", "bytea")
_READ_AS = {
    **dict.fromkeys(_PLAIN, "{}"),
    "bool": "{}::int",
    "numeric": "{}::float8",
    "timestamp": _MOMENT,
    "timestamptz": _MOMENT.format("{} AT TIME ZONE 'UTC'"),
}
#: Matches a quoted name, a placeholder for a value, or a percent sign.
_MARK = re.compile(r'"(?:[^"]|"")*"|\?|%')


class ServerTables(Foreign):
    """The tables of another program on a server, in the first schema of the role's search path. Views are not read."""

    def __init__(self, unit: Unit) -> None:
        super().__init__(unit)
        self._types: dict[str, dict[str, str]] = {}
        self._numbers = count()

    def tables(self) -> list[str]:
        """Return the names of the tables, in order."""
        return [name for (name,) in self.read(_TABLES)]

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table in their order, or an empty list if there is no such table."""
        if table not in self._types:
            self._types[table] = dict(self.read(_COLUMNS, (table,)))  # type: ignore[arg-type]
        return list(self._types[table])

    def rows(self, table: str, rest: str = "", given: Sequence[Any] = ()) -> Iterator[Row]:
        """Yield the rows of a table with all columns. ``rest`` ends the SELECT, and ``given`` has its parameters."""
        names = self.columns(table)
        if not names:
            return
        types = self._types[table]
        listed = ", ".join(_READ_AS.get(types[name], "{}::text").format(quote_name(name)) for name in names)
        for values in self.read(f"SELECT {listed} FROM {quote_name(table)} {rest}", given):
            yield dict(zip(names, values, strict=True))

    def among(self, table: str, column: str, keys: Sequence[Any]) -> Iterator[Row]:
        """Yield the rows that have one of these texts in a column."""
        return self.rows(table, f"WHERE {quote_name(column)} = ANY(?)", (list(keys),))

    def confirm(self) -> None:
        """Do nothing, because writers do not disturb a snapshot of a server."""

    def read(self, sql: str, given: Sequence[Any] = ()) -> Iterator[Sequence[Any]]:
        """Yield the rows of a SELECT in batches. Raises `Conflict` ``damaged_source`` if the rows cannot be read."""
        for value in given:
            if isinstance(value, str):
                codec.check_text("a name or id of the source", value)
        backend = self.unit.backend
        try:
            with self.unit.driver.cursor(f"import_{next(self._numbers)}") as cursor:
                yield from cursor.execute(_MARK.sub(_convert_mark, sql), tuple(given))
        except backend.driver_errors as error:
            raise damaged_source("the source", backend.translate(error)) from error


def open_source(place: Place) -> AbstractContextManager[Foreign]:
    """Open a file or the tables of a server for reading, in one snapshot."""
    return _open_server(place) if isinstance(place, Server) else foreign.open_file(place)


@contextmanager
def _open_server(server: Server) -> Iterator[Foreign]:
    with closing(open_backend(server.url, _READ_ONLY)) as backend, Unit(Mode.SNAPSHOT, backend) as unit:
        yield ServerTables(unit)


def place_of(given: str | Path) -> Place:
    """Return the place that a path or the URL of a database names."""
    if not isinstance(given, str) or "://" not in given:
        return Path(given)
    file = urls.file_of(given)
    return Server(given, urls.redact_url(given)) if file is None else file


def _convert_mark(found: re.Match[str]) -> str:
    return "%s" if found[0] == "?" else found[0].replace("%", "%%")
