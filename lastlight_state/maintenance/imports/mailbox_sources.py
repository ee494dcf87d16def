"""Reads the two files of another program's mailbox in one snapshot, and checks them.

Missing columns are added to the copy, and attachments are copied byte for byte with their times. A mailbox appears
complete or not at all. A mailbox below the store's own root is adopted in place. An existing mailbox is never
overwritten: the import is refused if the existing mailbox is not a copy of this source, or if the source has changed
since it was copied.

These faults fail only their unit: damage, a trigger, a missing table or column of messages, an unsafe name, and a link
in place of a folder or database. Links among attachments and other files are left out and counted. So are message
numbers of the other side, and tables and columns that this library never reads.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.backends.base import Options
from lastlight_state.db import reconcile
from lastlight_state.errors import InvalidValue, UnsafePath
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.folder import INBOUND_DB, OUTBOUND_DB, is_regular
from lastlight_state.files.mailbox.shared import files, pair
from lastlight_state.files.mailbox.shared.queries import BothFiles, OtherSide
from lastlight_state.maintenance.imports import foreign
from lastlight_state.maintenance.imports.foreign import Foreign, damaged_source, quote_name, readable

#: Options for a file that this process does not have open. Use `SHARED` for a file in use: reading the head of a file
#: and closing it would drop the locks of its other connections.
AT_REST = Options(read_only=True, glance=True, across_mounts=True, foreign=True)
SHARED = Options(read_only=True, across_mounts=True, foreign=True)

#: The tables of each file. The agent's file is opened first: messages that it acknowledges are then in the host's file.
DECLARED = {OUTBOUND_DB: models.OUTBOUND, INBOUND_DB: models.INBOUND}
#: The table of messages that each file must have, unless the file has no table at all.
_MESSAGES = {OUTBOUND_DB: models.MESSAGES_OUT, INBOUND_DB: models.MESSAGES_IN}
#: The table with this library's own notes, and the default for rows without a name of their series.
_NOTES, _SERIES = models.IN_META.name, {(models.MESSAGES_IN.name, "series_id"): 'COALESCE("series_id", "id")'}
_OBJECTS = "SELECT type, name, sql FROM sqlite_master WHERE substr(name, 1, 7) <> 'sqlite_' ORDER BY name"

#: Columns by table, in the order of the file.
Shape: TypeAlias = dict[str, list[str]]
#: The open files of a mailbox, by name.
Files: TypeAlias = Mapping[str, Foreign]


@dataclass(frozen=True)
class Contents:
    """The contents of a mailbox's files: columns, checksums of rows, message counts, and counts for ``noticed``."""

    shapes: dict[str, Shape]
    sums: dict[str, str]
    rows: Counter[str]
    noticed: Counter[str]


@contextmanager
def open_files(folder: Path, options: Options) -> Iterator[Files]:
    """Open the files of a session's folder, each in one snapshot. The agent's file may be missing.

    Raises `Conflict` ``damaged_source`` if a file is unreadable or was written meanwhile, and `UnsafePath` for a link.
    """
    with ExitStack() as stack:
        found = {}
        for name in DECLARED:
            if name == INBOUND_DB or os.path.lexists(folder / name):
                found[name] = stack.enter_context(_open_one(folder / name, options))
        yield found
        for file in found.values():
            file.confirm()


@contextmanager
def _open_one(path: Path, options: Options) -> Iterator[Foreign]:
    if not is_regular(path):
        raise UnsafePath(str(path), "expected a regular file")
    with ExitStack() as stack:
        with readable(path.name):
            file = stack.enter_context(foreign.open_file(path, options, follow=False))
        yield file


def contents(files: Files) -> Contents:
    """Return the contents of the files. Raises `Conflict` ``damaged_source``, and `InvalidValue` for unusable files."""
    with readable("a file of the mailbox"):
        shapes = {name: _shape(name, file) for name, file in files.items()}
        rows, noticed = Counter[str](), _noticed_counts(files, shapes)
        sums = {name: file_checksum(file, shapes[name], rows) for name, file in files.items()}
    return Contents(shapes, sums, +Counter({table.name: rows[table.name] for table in _MESSAGES.values()}), noticed)


def file_checksum(file: Foreign, shape: Shape, counted: Counter[str] | None = None) -> str:
    """Return a checksum text. It is equal for files with the same rows in any order.

    The number of rows in each table is added to ``counted``.
    """
    found = {}
    for table, columns in shape.items():
        if table != _NOTES:
            number, total = _sum(file, table, columns)
            found[table] = [columns, number, format(total, "x")]
            if counted is not None:
                counted[table] += number
    return codec.encode_sound(found).decode()


def _shape(name: str, file: Foreign) -> Shape:
    """Return the tables and columns of a file.

    Raises an error if the file is damaged or does not belong to a mailbox.
    """
    objects = [(kind, table) for kind, table, _ in file.read(_OBJECTS)]
    damage = file.unit.backend.damages(file.unit, deep=True)
    if damage:
        raise damaged_source(name, damage[0])
    triggers = [table for kind, table in objects if kind == "trigger"]
    if triggers:
        raise InvalidValue(name, f"has a trigger: {triggers[0]!r:.80}")
    found = {table: file.columns(table) for kind, table in objects if kind == "table"}
    messages = _MESSAGES[name]
    if found and messages.name not in found:
        raise InvalidValue(name, f"has no table {messages.name}")
    _refuse_differing(name, file, messages)
    return found


def _refuse_differing(name: str, file: Foreign, messages: sa.Table) -> None:
    declared = DECLARED[name]
    for table, there in sorted(files.present(file.unit, declared).items()):
        for difference in reconcile.differences(declared.tables[table], there, file.unit.backend.dialect):
            raise InvalidValue(name, str(difference))
        for column in reconcile.missing_columns(declared.tables[table], there) if table == messages.name else ():
            if not column.nullable and column.server_default is None:
                raise InvalidValue(name, f"{table} has no column {column.name}")


def _noticed_counts(files: Files, shapes: dict[str, Shape]) -> Counter[str]:
    """Return counts of violations of the mailbox rules, and of tables and columns that are copied but never read."""
    found = Counter[str]()
    for name, tables in shapes.items():
        declared = DECLARED[name].tables
        found["other_tables"] += len(tables.keys() - declared.keys())
        found["other_columns"] += sum(
            len(set(columns) - set(declared[table].columns.keys()))
            for table, columns in tables.items()
            if table in declared
        )
    ours = files[INBOUND_DB].unit
    look = OtherSide(files[OUTBOUND_DB].unit if OUTBOUND_DB in files else ours)
    found["findings"] = sum(1 for _ in pair.findings(BothFiles(models.INBOUND, ours, look)))
    return +found


def _sum(file: Foreign, table: str, columns: list[str]) -> tuple[int, int]:
    """Return the number of rows and the sum of their digests.

    Values are compared as bytes together with their types.
    """
    values = [_SERIES.get((table, column), quote_name(column)) for column in columns]
    listed = ", ".join(f"typeof({value}), CAST({value} AS BLOB)" for value in values)
    number = total = 0
    for row in file.read(f"SELECT {listed} FROM {quote_name(table)}"):
        seen = hashlib.sha256()
        for kind, value in zip(row[::2], row[1::2], strict=True):
            seen.update(f"{kind}:{len(value or b'')}:".encode())
            seen.update(value or b"")
        number, total = number + 1, (total + int.from_bytes(seen.digest())) % 2**256
    return number, total
