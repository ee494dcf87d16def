"""Erases a tenant: the objects that this library created in its schema, and its files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.engine import Connection

from lastlight_state.backends.base import Backend
from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.errors import Conflict, NotFound
from lastlight_state.files.jsonl.files import translate_errors
from lastlight_state.migrations import drift
from lastlight_state.migrations.failures import translated_errors as of_driver
from lastlight_state.settings import Settings

_OUTPUTS = "SELECT table_name FROM output_tables WHERE kind <> 'custom'"


def erase(backend: Backend, settings: Settings, lock_timeout: float) -> int:
    """Drop the backend's schema and delete the tenant's files. Return the number of files.

    The files are deleted before the commit. If the call is interrupted in between, the tenant can be erased again.
    """
    with of_driver(backend), backend.migration(lock_timeout) as connection:
        if not _has(connection, VERSION_TABLE):  # erased by another caller; taking the lock has created an empty schema
            raise NotFound("tenant", str(backend.schema))
        _refuse_columns_of_others(backend, connection)
        backend.drop_schema(connection, _kinds(backend, connection))
        return _remove_files(settings)


def files_of(settings: Settings) -> int:
    """Return the number of files in the directories of these settings."""
    return sum(len(files) for root in _roots(settings) for _, _, files in os.walk(root))


def _has(connection: Connection, table: str) -> bool:
    return connection.scalar(text("SELECT to_regclass(:name)"), {"name": table}) is not None


def _kinds(backend: Backend, connection: Connection) -> Mapping[str, Collection[str]]:
    """Return the names of all objects that this library creates in a schema, by kind. Output tables are included."""
    made: dict[str, set[str]] = {"table": {VERSION_TABLE}}
    if _has(connection, "output_tables"):
        made["table"].update(connection.scalars(text(_OUTPUTS)))
    for kind, name, _ in drift.promised_entries(backend.name):
        if kind in ("table", "view", "function"):
            made.setdefault(kind, set()).add(name)
    return made


def _refuse_columns_of_others(backend: Backend, connection: Connection) -> None:
    """Raise `Conflict` ``not_ours`` if this library's tables have columns that other programs added."""
    known = {
        *drift.promised_entries(backend.name),
        ("table", VERSION_TABLE, ""),
        ("column", VERSION_TABLE, "version_num"),
    }
    tables = {table for kind, table, _ in known if kind == "table"}
    added = [entry for entry in backend.shape(connection) if entry[0] == "column" and entry[1] in tables]
    found = sorted(drift.words_for(entry) for entry in added if entry not in known)
    if found:
        told = f"tables of the schema {backend.schema!r} have columns that are not this library's: {'; '.join(found)}"
        raise Conflict(told, code="not_ours", problems=tuple(found))


def _remove_files(settings: Settings) -> int:
    found = files_of(settings)
    for root in _roots(settings):
        with translate_errors(root), suppress(FileNotFoundError):
            shutil.rmtree(root)
    for folder in (settings.state_dir, settings.run_logs):
        with suppress(OSError):  # other files of the tenant remain in it
            folder.rmdir()
    return found


def _roots(settings: Settings) -> tuple[Path, ...]:
    return *settings.line_directories, settings.mailboxes
