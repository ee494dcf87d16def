"""Reads SQLite files of other programs in one snapshot. Never writes to them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from lastlight_state import codec
from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Mode, Options
from lastlight_state.backends.facts import Unreadable
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import BackendError, BackendUnavailable, Conflict, InvalidValue, StateError
from lastlight_state.files.jsonl import files
from lastlight_state.maintenance.imports.pieces import ImportTarget, ImportUnit, SourceUnit
from lastlight_state.special_files import open_binary

# Copies bytes of a source file: reads them in blocks, and checks them by their digest.

_BLOCK = 1024 * 1024


def blocks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the next ``size`` bytes of a file, in blocks."""
    while block := file.read(min(size, _BLOCK)):
        size -= len(block)
        yield block


def range_digest(file: BinaryIO, size: int) -> str:
    """Return the SHA-256 of the next ``size`` bytes of a file, in hex."""
    seen = hashlib.sha256()
    for block in blocks(file, size):
        seen.update(block)
    return seen.hexdigest()


def copy(file: BinaryIO, to: BinaryIO, begin: int, size: int, expected: str) -> None:
    """Copy the bytes from ``begin`` up to ``size``.

    Raises `Conflict` ``damaged_source`` if the file changes meanwhile.
    """
    if range_digest(file, size) != expected:
        raise Conflict("the source was changed while it was read: import it again", code="damaged_source")
    file.seek(begin)
    to.writelines(blocks(file, size - begin))


class SourceWritten(Conflict):
    """Raised if a source file was written while it was read as a file that no process writes."""


Row = dict[str, Any]

#: Linux' FS_IOC_GETVERSION.
_GENERATION = 0x80087601
#: How often to look at a file that other programs write.
_LOOKS = 20
_MAGIC = b"SQLite format 3\0"
#: Finds real tables. Views and virtual tables have no pages, whatever their names.
_TABLES = "FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
_COLUMNS = (
    "SELECT x.name FROM sqlite_master m, pragma_table_info(m.name) x"
    " WHERE m.type = 'table' AND m.rootpage > 0 AND m.name = ? COLLATE NOCASE ORDER BY x.cid"
)
#: Options to read a file that nobody uses. Reading leaves no other file beside it.
_AT_REST = Options(read_only=True, glance=True, foreign=True)


class Foreign:
    """An open SQLite file of another program."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self._columns: dict[str, list[str]] = {}

    def tables(self) -> list[str]:
        """Return the names of the tables, in order."""
        return [name for (name,) in self.read(f"SELECT name {_TABLES} ORDER BY name", ())]

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table in their order, or an empty list if there is no such table."""
        if table not in self._columns:
            found = self.read(_COLUMNS, (table,))
            self._columns[table] = [name for (name,) in found]
        return self._columns[table]

    def rows(self, table: str, rest: str = "", given: Sequence[Any] = ()) -> Iterator[Row]:
        """Yield the rows of a table with all columns. ``rest`` ends the SELECT, and ``given`` has its parameters.

        Raises `Conflict` ``damaged_source`` if the table cannot be read.
        """
        names = self.columns(table)
        if not names:
            return
        listed = ", ".join(quote_name(name) for name in names)
        for values in self.read(f"SELECT {listed} FROM {quote_name(table)} {rest}", given):
            yield dict(zip(names, values, strict=True))

    def among(self, table: str, column: str, keys: Sequence[Any]) -> Iterator[Row]:
        """Return the rows that have one of these texts in a column.

        Raises `InvalidValue` for a key that is not text.
        """
        for key in keys:
            if not isinstance(key, str):
                raise InvalidValue(f"{table}.{column}", f"expected text, got {type(key).__name__}")
            codec.check_text(f"{table}.{column}", key)
        listed = codec.encode_sound(list(keys)).decode()
        return self.rows(table, f"WHERE {quote_name(column)} IN (SELECT value FROM json_each(?))", (listed,))

    def values(self, table: str, column: str) -> Iterator[Any]:
        """Yield the distinct values of a column in order, without NULL. If there is no such column, yield nothing."""
        if column in self.columns(table):
            name = quote_name(column)
            for (value,) in self.read(
                f"SELECT DISTINCT {name} FROM {quote_name(table)} WHERE {name} IS NOT NULL ORDER BY {name}", ()
            ):
                yield value

    def count(self, table: str, column: str, key: Any) -> int:
        """Return how many rows have this value in a column."""
        statement = f"SELECT count(1) FROM {quote_name(table)} WHERE {quote_name(column)} = ?"
        return int(next(iter(self.read(statement, (key,))))[0])

    def confirm(self) -> None:
        """Raise `Conflict` ``damaged_source`` if another program has written the file since it was opened."""
        if self.unit.backend.is_disturbed:
            raise SourceWritten("the source was written while it was read: import it again", code="damaged_source")

    def read(self, sql: str, given: Sequence[Any] = ()) -> Iterator[Sequence[Any]]:
        """Yield the rows of a SELECT. Bytes that are not UTF-8 become lone surrogates, which every check refuses.

        Raises `Conflict` ``damaged_source`` if the source cannot be read, and `InvalidValue` if a name or parameter is
        not UTF-8.
        """
        for text in (sql, *given):
            if isinstance(text, str):
                codec.check_text("a name or id of the source", text)
        try:
            for row in self.unit.backend.stream(self.unit, sql, given, ()):
                yield [_escape_value(value) for value in row] if Unreadable in map(type, row) else row
        except StateError as error:
            self.confirm()
            raise damaged_source("the source", error) from error


@contextmanager
def open_file(path: Path, options: Options = _AT_REST, *, follow: bool = True) -> Iterator[Foreign]:
    """Open a file for reading, in one snapshot.

    Pass ``follow=False`` for a file inside a folder that the caller named: then a link in its place is refused.
    """
    with (
        closing(open_backend(files.real(path) if follow else path.absolute(), options)) as backend,
        Unit(Mode.SNAPSHOT, backend) as unit,
    ):
        yield Foreign(unit)


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Raise database errors of a source as `Conflict` ``damaged_source``, so that only the unit being read fails."""
    try:
        yield
    except BackendError as error:
        raise damaged_source(name, error) from error


def damaged_source(name: str, problem: object) -> Conflict:
    """Return the error for a source, or for one of its files, that cannot be read."""
    return Conflict(f"{name} cannot be read: {problem}", code="damaged_source")


def has(source: Foreign, tables: Mapping[str, str]) -> bool:
    """True if a source has these tables with these columns. ``tables`` has each table's columns in one text."""
    return all(set(columns.split()) <= set(source.columns(table)) for table, columns in tables.items())


def holds(path: Path, is_known: Callable[[Foreign], bool]) -> bool:
    """True if a path is a SQLite file that ``is_known`` accepts. Retries if the file is written meanwhile."""
    if not is_sqlite(path):
        return False
    for tries_left in reversed(range(_LOOKS)):
        try:
            with open_file(path) as source:
                if is_known(source):
                    return True
                source.confirm()
                return False
        except (SourceWritten, BackendUnavailable):
            if not tries_left:
                raise
    return False


def unread_tables(source: Foreign, read: Collection[str]) -> Iterator[SourceUnit]:
    """Yield a part with the number of rows for each table that has rows and is not in ``read``."""
    for name in source.tables():
        if name not in read and not name.startswith("sqlite_"):
            yield from unstored_rows(source, name)


def unstored_rows(source: Foreign, table: str, condition: str = "true") -> Iterator[SourceUnit]:
    """Yield a part with the number of a table's rows that cannot be stored, if there are any.

    If the table cannot be read, the part is a unit that fails.
    """
    try:
        [(count,)] = source.read(f"SELECT count(1) FROM {quote_name(table)} WHERE {condition}")
    except StateError as error:
        yield SourceUnit(table, partial(_raise_error, error))
    else:
        if count:
            yield SourceUnit(table, None, left=int(count))


def unknown(source: Foreign, known: Mapping[str, Collection[str]]) -> Iterator[SourceUnit]:
    """Yield a part for each unknown column of these tables that has values, with the number of rows that have one."""
    for table, columns in known.items():
        for name in source.columns(table):
            if name not in columns:
                for part in unstored_rows(source, table, f"{quote_name(name)} IS NOT NULL"):
                    yield replace(part, key=f"{table}.{name}")


def _raise_error(error: StateError, _: ImportTarget) -> ImportUnit:
    raise error


def unit_name(table: str, key: Any) -> str:
    """Return the name of a unit: the table, and the key of the unit's first row."""
    return f"{table}/{key_text(key)}"


def key_text(key: Any) -> str:
    """Return the key of a row as printable text.

    For a key that is not text, the type is visible: 5 differs from ``"5"``.
    """
    if isinstance(key, str):
        return key.encode("utf-8", "backslashreplace").decode()
    return f"{key!r:.200} ({type(key).__name__})"


def digest(found: Any) -> str:
    """Return a digest of the rows that were read."""
    return hashlib.sha256(repr(found).encode("utf-8", "surrogateescape")).hexdigest()


def identity(path: Path) -> list[int]:
    """Return four numbers that identify the SQLite file at a path; or an empty list if there is no such file.

    They are the file's inode, the inode's generation, the file's count of changes, and a flag. The flag is 1 for a file
    with a write-ahead log, for which few changes are counted, else 0. A file system may use an inode again for another
    file; then the generation increases, if the file system has generations.
    """
    if not is_sqlite(path):
        return []
    with open_binary(path) as file:
        descriptor, generation = file.fileno(), bytes(8)
        with suppress(OSError):
            generation = fcntl.ioctl(descriptor, _GENERATION, generation)
        number = os.fstat(descriptor).st_ino
        head = file.read(28)
        counted, is_wal = int.from_bytes(head[24:]), b"\2" in head[18:20]
        return [number, int.from_bytes(generation[:4], sys.byteorder), counted, int(is_wal)]


def is_sqlite(path: Path) -> bool:
    """True if a path is a SQLite file."""
    if not files.is_file(path):
        return False
    with open_binary(path) as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _escape_value(value: Any) -> Any:
    return value.raw.decode("utf-8", "surrogateescape") if isinstance(value, Unreadable) else value


def quote_name(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'
