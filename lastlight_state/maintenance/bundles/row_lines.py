"""Converts rows to lines of JSON, which are the same on every database, and converts lines to rows.

A message's class is written by its name, because each database numbers the classes itself.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.conversations.tables import MESSAGES
from lastlight_state.db.schema import columns
from lastlight_state.errors import AlreadyExists
from lastlight_state.files.agent_log.paths import LOG_SUFFIX, RAW, SUBAGENTS, is_safe_id
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.files import make_directory, translate_errors
from lastlight_state.maintenance.backup.copies import whole
from lastlight_state.maintenance.backup.restoring import LINES
from lastlight_state.maintenance.bundles.archive import OpenBundle, damaged_bundle, link
from lastlight_state.maintenance.bundles.records import BundlePart
from lastlight_state.maintenance.copy.contents import canonical
from lastlight_state.maintenance.copy.tables import DEPTHS, is_json
from lastlight_state.settings import Settings
from lastlight_state.special_files import open_binary

# Log files of bundles: finds those of agents' sessions, and puts them where a store looks for them. Files are written
# under temporary names before the rows, and renamed after the commit.

_CHUNK = 1024 * 1024
#: Suffixes of files that are no part of a log: unfinished files and locks.
UNFINISHED = (".tmp", ".lock")
#: The temporary path of a written file, and its final path.
Staged = tuple[Path, Path]
#: A log of a bundle that is missing here: its part, its name here, and its path.
Missing = tuple[BundlePart, str, Path]


def log_files(settings: Settings, session_ids: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield the log files of these agent sessions in a fixed order, each with its name in a bundle."""
    root = settings.agent_sessions
    for session_id in sorted({one for one in session_ids if is_safe_id(one)}):
        inner = (f"{session_id}/{folder}/*" for folder in (RAW, SUBAGENTS))
        for pattern in (session_id + LOG_SUFFIX, *inner):
            for path in sorted(root.glob(f"projects/*/{pattern}")):
                if path.is_file() and not path.is_symlink() and not path.name.endswith(UNFINISHED):
                    yield f"{LINES[0]}/{path.relative_to(root).as_posix()}", path


def session_of(name: str) -> str | None:
    """Return the id of the agent's session whose log has this name in a bundle, or None for any other name."""
    if not name.startswith(f"{LINES[0]}/"):
        return None
    _, _, session, *rest = PurePosixPath(name).relative_to(LINES[0]).parts
    if rest:
        return session
    return session.removesuffix(LOG_SUFFIX) if session.endswith(LOG_SUFFIX) else None


def content(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file that may be written meanwhile.

    A line file is read up to the end of its last whole line. Yields nothing if the file no longer exists.
    """
    with suppress(FileNotFoundError), open_binary(path) as file:
        left = file.seek(0, os.SEEK_END)
        if path.name.endswith(LOG_SUFFIX):
            left = whole(path, left)
        file.seek(0)
        while chunk := file.read(min(left, _CHUNK)):
            left -= len(chunk)
            yield chunk


def missing_logs(
    settings: Settings, bundle: OpenBundle, *, keeps: bool, renamed: Callable[[str], str]
) -> list[Missing]:
    """Return the logs that are not stored yet.

    Raises `AlreadyExists` for a log with other contents, unless ``keeps``.
    """
    roots = dict(zip(LINES, settings.line_directories, strict=True))
    wanted: list[Missing] = []
    for part in bundle.logs:
        name = renamed(part.name)
        inside = next(inside for inside in LINES if name.startswith(f"{inside}/"))
        path = roots[inside] / name.removeprefix(f"{inside}/")
        if any(files.component_problem(step) for step in path.relative_to(roots[inside]).parts):
            raise damaged_bundle(part.name, "is not the name of a log")
        if not os.path.lexists(path):
            wanted.append((part, name, path))
        elif not keeps and not _is_equal(path, part):
            raise AlreadyExists("file", str(path), problem="is there with other contents")
    return wanted


@contextmanager
def staged_logs(settings: Settings, bundle: OpenBundle, wanted: Sequence[Missing]) -> Iterator[list[Staged]]:
    """Write these logs under temporary names, which are removed when the ``with`` block ends."""
    made: list[Staged] = []
    with translate_errors(settings.state_dir):
        try:
            for part, _, path in wanted:
                base = next(root for root in settings.line_directories if path.is_relative_to(root))
                make_directory(base)
                make_directory(path.parent, base=base)
                made.append((path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.tmp"), path))
                _write(made[-1][0], bundle.chunks(part))
            yield made
        finally:
            for temporary, _ in made:
                with suppress(FileNotFoundError):
                    temporary.unlink()


def put(made: Sequence[Staged]) -> None:
    """Link the temporary files to their final names."""
    for temporary, path in made:
        link(temporary, path)


def _write(path: Path, chunks: Iterable[bytes]) -> None:
    with path.open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def _is_equal(path: Path, part: BundlePart) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != part.size_bytes:
        return False
    with open_binary(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == part.sha256


Row = dict[str, Any]

#: The column whose numbers differ between databases.
CLASS = MESSAGES.c.lion_class

_READ: tuple[tuple[type, type, Callable[[Any], Any]], ...] = (
    (columns.UtcTimestamp, str, columns.parse_time),
    (sa.LargeBinary, str, bytes.fromhex),
    (columns.RawBytes, str, bytes.fromhex),
    (columns.ExactNumeric, str, Decimal),
    (columns.Float64, object, float),
    (sa.Integer, int, lambda number: number),
    (sa.Text, str, str),
)


def line_of(row: Row) -> bytes:
    """Return a row as a line of JSON. A decimal keeps all its digits, such as ``19.90``."""
    return canonical({name: _digits(value) for name, value in row.items()}) + b"\n"


def row_of(table: sa.Table, line: bytes) -> Row:
    """Return the row of a line. Raises ValueError if the line is not a row of the table."""
    row = codec.decode(line)
    if not isinstance(row, dict) or not row:
        raise ValueError("expected an object")
    if unknown := sorted(row.keys() - set(table.columns.keys())):
        raise ValueError(f"unknown column {unknown[0]!r:.80}")
    if lacking := [name for name in _needed_columns(table) if row.get(name) is None]:
        raise ValueError(f"lacks the column {lacking[0]}")
    try:
        canonical(row)  # rows are compared in this form
    except (TypeError, RecursionError) as error:
        raise ValueError("nested too deeply") from error
    return {name: _value(table.c[name], value) for name, value in row.items()}


def refuse_nulls(table: sa.Table, row: Row) -> None:
    """Raise ValueError if a row lacks a value that must not be NULL.

    In a JSON column, JSON's null counts as a value.
    """
    for column in table.columns:
        name = column.name
        has_value = row[name] is not None or is_json(column) if name in row else column.server_default is not None
        if not (column.nullable or has_value):
            raise ValueError(f"lacks the column {name}")


def _needed_columns(table: sa.Table) -> Iterator[str]:
    """Yield the columns that every line must contain: the key, the sort column, and a message's class."""
    yield from (column.name for column in table.primary_key)
    if table.name in DEPTHS:
        yield DEPTHS[table.name]
    if table is MESSAGES:
        yield CLASS.name


def _value(column: sa.Column[Any], value: Any) -> Any:
    if value is None:
        return value
    if column is CLASS:
        return _read(column.name, value, str, str)
    for kind, written, read in _READ:
        if isinstance(column.type, kind):
            return _read(column.name, value, written, read)
    if not _has_shape(column, value):
        raise ValueError(f"{column.name}: JSON of another shape")
    return value


def _has_shape(column: sa.Column[Any], value: Any) -> bool:
    """True if a JSON value has the type of its column: an object, a list, or any value."""
    return isinstance(value, column.info.get("shape", object))


def _read(name: str, value: Any, written: type, read: Callable[[Any], Any]) -> Any:
    if not isinstance(value, written) or (read is float and type(value) not in (int, float)) or _is_odd(value, written):
        raise ValueError(f"{name}: a value of another type")
    try:
        return read(value)
    except (ValueError, ArithmeticError) as error:
        raise ValueError(f"{name}: not such a value") from error


def _is_odd(value: Any, written: type) -> bool:
    """True if an integer cannot be stored, because it is a bool or a number beyond 64 bits."""
    return written is int and (isinstance(value, bool) or not -(2**63) <= value < 2**63)


def _digits(value: Any) -> Any:
    return format(value, "f") if value.__class__ is Decimal else value


def translate_classes(rows: list[Row], names: Mapping[Any, Any]) -> list[Row]:
    """Return the rows with each class number replaced by the class name, or the reverse, as ``names`` maps them."""
    return [{**row, CLASS.name: names[row[CLASS.name]]} for row in rows]
