"""Files of snapshots, which are always read and replaced as a whole.

A snapshot is written under a temporary name, synced to disk, and renamed to its path. At every moment the path leads to
the whole old snapshot or to the whole new one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import chain, count
from math import isfinite
from pathlib import Path
from typing import Any

from lastlight_state.codec import dump_line, load_line
from lastlight_state.db.rows.records import Page, Record
from lastlight_state.errors import CorruptData, InvalidValue, PayloadTooLarge
from lastlight_state.files.jsonl import files
from lastlight_state.files.run_log import paths
from lastlight_state.files.run_log.fields import JsonObject, Messages, Open, Text, Time, Whole
from lastlight_state.files.run_log.reading import newer
from lastlight_state.files.run_log.records import build_record
from lastlight_state.files.run_log.storage import write_new

# Snapshots of sessions, and what lists tell of them.


class SessionState(Open):
    """The snapshot from which a session resumes. Fields that are not declared here are kept.

    If ``updated_at`` is None, `States.put` sets it. ``run_id`` is the last run, ``invoke_seq`` the last invocation.
    """

    schema_version: Any = 1  # newer files may have any value
    session_id: Text
    updated_at: Time = None
    run_id: Text | None = None
    invoke_seq: Whole | None = None
    messages: Messages
    meta: JsonObject | None = None


class SessionEntry(Record):
    """A session in a list. ``problem`` is why its snapshot cannot be read; then most other fields are empty.

    ``last_user_message`` has at most 500 characters.
    """

    session_id: str
    updated_at: datetime | None
    run_id: str | None = None
    invoke_seq: int | None = None
    message_count: int | None = None
    last_user_message: str | None = None
    workspace_root: str | None = None
    size_bytes: int
    problem: str | None = None


class SessionPage(Page[SessionEntry]):
    """A page of sessions."""


MAX_BYTES = 64 * 1024 * 1024
_MOST_DEPTH = 500
#: The two halves of a surrogate pair as escapes, which are read as one character.
_PAIR = re.compile(rb"(?<!\\)(?:\\\\)*\\ud[89ab][0-9a-f]{2}\\ud[c-f]")


def load(path: Path, session_id: str) -> SessionState | None:
    """Read the snapshot in a file, or return None if there is no file.

    Raises `CorruptData` with the reason, `NewerSchema`, `BackendUnavailable`.
    """
    try:
        descriptor = files.opened_file(path, os.O_RDONLY, base=files.ROOT)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        if os.path.isdir(path):  # noqa: PTH112 - never raises
            raise _corrupt(session_id, "is a directory") from None
        raise files.failure(error, path) from error
    return parse_state(data, session_id)


def parse_state(data: bytes, session_id: str) -> SessionState:
    """Parse the bytes of a file as a snapshot. Raises as `load`."""
    try:
        value = load_line(data, keep_halves=True)
    except ValueError:
        raise _corrupt(session_id, "is not JSON") from None
    return state_of(value, session_id)


def state_of(value: Any, session_id: str) -> SessionState:
    """Convert a JSON value to a snapshot. Raises as `load`."""
    if not isinstance(value, dict):
        raise _corrupt(session_id, "is not an object")
    version = value.get("schema_version", paths.VERSION)
    if type(version) is int and version > paths.VERSION:
        raise newer(f"session state {session_id}", version)
    try:
        state = build_record(SessionState, value)
    except InvalidValue as error:
        raise _corrupt(session_id, f"does not fit: {error}") from None
    if state.session_id != session_id:
        raise _corrupt(session_id, "is of another session")
    return state


def encode_state(state: SessionState) -> bytes:
    """Return the bytes in which a snapshot is stored.

    Raises `InvalidValue` for values that would be read back differently, and `PayloadTooLarge`.
    """
    value = state.to_json()
    for where, number in _floats(value, "state"):
        if not isfinite(number):
            raise InvalidValue(where, "expected a finite number, got NaN or infinity")
    data = dump_line(value, where="state")
    if b"\\ud" in data and _PAIR.search(data):
        raise InvalidValue("state", "two halves of a surrogate pair stand together: expected the one character")
    if len(data) > MAX_BYTES:
        raise PayloadTooLarge("state", limit=MAX_BYTES, actual=len(data))
    return data


def replace(path: Path, data: bytes) -> None:
    """Replace the file's content by these bytes. The caller holds the session's lock, and has made the directory.

    Raises `BackendUnavailable`.
    """
    temporary = f".{path.name}.tmp"
    try:
        with files.open_directory(path.parent, base=files.ROOT) as (held, _):
            with suppress(FileNotFoundError):  # left by a killed put
                os.unlink(temporary, dir_fd=held)
            try:
                write_new(held, temporary, data)
                os.rename(temporary, path.name, src_dir_fd=held, dst_dir_fd=held)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=held)
                raise
            files.sync(held)
    except OSError as error:
        raise files.failure(error, path) from error


def set_aside(path: Path, suffix: str) -> None:
    """Rename a damaged snapshot to a free name. The caller holds the session's lock.

    Raises `BackendUnavailable`.
    """
    try:
        with files.open_directory(path.parent, base=files.ROOT) as (held, _):
            os.rename(path.name, _free(held, path.name + suffix), src_dir_fd=held, dst_dir_fd=held)
    except OSError as error:
        raise files.failure(error, path) from error


def remove(path: Path) -> bool:
    """Delete the snapshot. Returns True if there was one. Raises `BackendUnavailable`."""
    try:
        with files.open_directory(path.parent, base=files.ROOT) as (held, _):
            os.unlink(path.name, dir_fd=held)
            files.sync(held)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise files.failure(error, path) from error
    return True


def _free(held: int, name: str) -> str:
    """Return the name if no file in the directory has it, else the name with the first free number from 2 on."""
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(free for free in names if not _is_there(held, free))


def _is_there(held: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=held, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _floats(root: JsonObject, where: str) -> Iterator[tuple[str, float]]:
    """Yield the floats in a value, with their paths.

    Cycles, and values that are not JSON, are left for the encoder to refuse.
    """
    stack: list[tuple[str, Any, int]] = [(where, root, 0)]
    while stack:
        path, value, depth = stack.pop()
        if isinstance(value, float):
            yield path, value
        elif depth > _MOST_DEPTH:
            continue
        elif isinstance(value, dict):
            stack += [(f"{path}.{key}"[:200], child, depth + 1) for key, child in value.items()]
        elif isinstance(value, list | tuple):
            stack += [(f"{path}[{index}]", child, depth + 1) for index, child in enumerate(value)]


def _corrupt(session_id: str, problem: str) -> CorruptData:
    return CorruptData("session_state", session_id, "file", problem=problem)
