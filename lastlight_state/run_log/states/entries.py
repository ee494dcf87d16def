"""Snapshots as lists show them."""

from __future__ import annotations

import posixpath
from typing import Any

from lastlight_state.clock import of_file
from lastlight_state.db.valid import identifier
from lastlight_state.errors import StateError
from lastlight_state.run_log import words
from lastlight_state.run_log.parts import JsonObject
from lastlight_state.run_log.runs.heads import parts_text
from lastlight_state.run_log.states import files
from lastlight_state.run_log.states.records import SessionEntry, SessionState
from lastlight_state.run_log.tree import StateFile

_TEXT = 500
_PATH_BYTES = 4096


def normal(where: str, path: str) -> str:
    """An absolute path without needless parts: ``/a/b/`` is ``/a/b``. Raises `InvalidValue`."""
    return posixpath.normpath(identifier(where, path, _PATH_BYTES))


def entry_of(file: StateFile) -> SessionEntry | None:
    """The snapshot as lists show it; one that cannot be read with its ``problem``. None if it has vanished."""
    try:
        state = files.load(file.path, file.session_id)
    except StateError as error:
        changed = of_file(file.changed_ns)
        return SessionEntry(
            session_id=file.session_id, updated_at=changed, size_bytes=file.size, problem=str(error)[:_TEXT]
        )
    return None if state is None else _entry(file, state)


def _entry(file: StateFile, state: SessionState) -> SessionEntry:
    return SessionEntry(
        session_id=file.session_id,
        updated_at=state.updated_at,
        run_id=state.run_id,
        invoke_seq=state.invoke_seq,
        message_count=len(state.messages),
        last_user_message=_last_user_message(state.messages),
        workspace_root=workspace_of(state.meta),
        size_bytes=file.size,
    )


def workspace_of(meta: JsonObject | None) -> str | None:
    """The workspace root that a snapshot names, as a normal path; None without one."""
    for name in (words.WORKSPACE, words.FOREIGN_WORKSPACE):
        root = (meta or {}).get(name)
        if isinstance(root, str) and root.startswith("/"):
            return posixpath.normpath(root)
    return None


def _last_user_message(messages: tuple[JsonObject, ...]) -> str | None:
    for message in reversed(messages):
        text = _text_of(message.get("content")) if message.get("role") == "user" else None
        if text:
            return text[:_TEXT]
    return None


def _text_of(content: Any) -> str | None:
    if isinstance(content, str):
        return content
    return parts_text(content) if isinstance(content, list) else None
