"""Imported snapshots of sessions: how one is read in either layout, compared with the stored one, and put."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from lastlight_state.clock import of_file, to_millis
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, InvalidValue, PayloadTooLarge, UnsafePath
from lastlight_state.jsonl import places
from lastlight_state.maintenance.imports import ledger
from lastlight_state.maintenance.imports.foreign import Foreign, Row
from lastlight_state.maintenance.imports.lenient import decoded
from lastlight_state.maintenance.imports.pieces import Into, Look
from lastlight_state.maintenance.imports.run_logs import target_tree
from lastlight_state.run_log import RunLog, SessionState, paths, words
from lastlight_state.run_log.states import check, files, refuse_backwards
from lastlight_state.run_log.tree import RunTree

#: The database of the later layout, its table, and the folder of the messages.
INDEX, TABLE, MESSAGES = "state.db", "session_state", "messages"
#: What changes with every save, or only grows.
_MOVES_ON = ("updated_at", "run_id", "invoke_seq", "messages")
#: The columns of the later layout that say what the messages and the field ``meta`` say, too.
_DERIVED = ("message_count", "last_user_message", "workspace_root")
_FIELDS = ("schema_version", "session_id", "updated_at", "run_id", "invoke_seq")

_READ = (*_FIELDS, "meta_json", *_DERIVED)


class StatePiece:
    """The snapshot of a session. One that tells no time is of when its source was changed."""

    kept: Sequence[str] = ()

    def __init__(self, given: SessionState, tree: RunTree, noticed: Counter[str], changed: datetime) -> None:
        noticed["updated_at_approximate"] += given.updated_at is None
        self._at = given.updated_at or to_millis(changed)
        state = given.model_copy(update={"updated_at": self._at})
        check(state)
        self._state, self._tree, self._noticed = state, tree, noticed
        self._based_on: datetime | None = None  # when the stored one was saved, once it was compared
        self.target = (words.STATE, state.session_id)
        self.digest = hashlib.sha256(files.encoded(state)).hexdigest()

    def compared(self, look: Look) -> tuple[str, Counter[str], Counter[str]]:
        """Return what happens with it.

        Raises `StaleVersion` for one that is older than the stored one, and `AlreadyExists` where the stored one says
        what this one does not.
        """
        before = ledger.known(look)
        if before == self.digest and os.path.lexists(self._path):
            return "unchanged", Counter(), self._noticed
        stored = files.load(self._path, self._state.session_id)
        self._based_on = None if stored is None else stored.updated_at
        outcome = "imported" if stored is None or stored.to_json() == self._state.to_json() else "grown"
        if stored is not None:
            refuse_backwards(self._state, stored)
            if not self._continues(stored, before):
                raise AlreadyExists(*self.target, problem="is stored with other messages or fields")
        return outcome, Counter(session_states=1), self._noticed

    def store(self, _: Unit, __: str) -> None:
        """Put it, with the time of its last change. Raises `StaleVersion` for one that was saved meanwhile."""
        RunLog(self._tree.root).states.put(self._state, based_on=self._based_on)
        os.utime(self._path, (self._at.timestamp(),) * 2, follow_symlinks=False)

    def _continues(self, stored: SessionState, before: str | None) -> bool:
        """Whether the stored one is as it was imported, or this one has all that it has.

        One that a killed import put is not in the ledger.
        """
        if before == hashlib.sha256(files.encoded(stored)).hexdigest():
            return True
        kept, given = stored.to_json(), self._state.to_json()
        is_longer = self._state.messages[: len(stored.messages)] == stored.messages
        others = kept.keys() - set(_MOVES_ON)
        return is_longer and all(kept[name] in (None, given.get(name)) for name in others)

    @property
    def _path(self) -> Path:
        return self._tree.state_path(self._state.session_id)


def single(file: Path, into: Into) -> StatePiece:
    """A snapshot of the older layout: one file."""
    tree, noticed = target_tree(file, into), Counter[str]()
    session_id = paths.checked_id("session_id", file.name.removesuffix(paths.STATE_SUFFIX))
    data, changed = _read(file)
    state = files.state_of(decoded(paths.STATE, data, noticed if into.lenient else None), session_id)
    return StatePiece(state, tree, noticed, changed)


def indexed(home: RunTree, source: Foreign, row: Row, into: Into) -> StatePiece:
    """A snapshot of the later layout: a row, and a file of messages, which is missing where there are none."""
    messages_folder = home.sessions / MESSAGES
    tree, noticed = target_tree(messages_folder, into), Counter[str]()
    session_id = paths.checked_id("session_id", row["session_id"])
    adapts = noticed if into.lenient else None
    value = {name: row[name] for name in _FIELDS if row.get(name) is not None}
    noticed.update(f"{name}_left" for name, told in row.items() if name not in _READ and told is not None)
    if row.get("meta_json") is not None:
        value["meta"] = decoded("meta_json", row["meta_json"], adapts)
    try:
        data, changed = _read(messages_folder / f"{session_id}{paths.LOG_SUFFIX}")
    except FileNotFoundError:
        index = home.sessions / INDEX
        data, changed = b"", _changed(index.stat())
    value["messages"] = _messages(data, noticed, adapts)
    source.confirm()
    return StatePiece(files.state_of(value, session_id), tree, noticed, changed)


def _messages(data: bytes, noticed: Counter[str], adapts: Counter[str] | None) -> list[Any]:
    """The messages of whole lines. What stands behind the last one is left out and counted, if it is not whole."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    found = []
    for i, line in enumerate(lines):
        try:
            found.append(decoded(f"{MESSAGES}[{i}]", line, adapts))
        except InvalidValue:
            if i + 1 < len(lines) or data.endswith(b"\n"):
                raise
            noticed["message_torn"] += 1
    return found


def _read(file: Path) -> tuple[bytes, datetime]:
    """The bytes of a file, and when it was changed. No link is followed. Raises `FileNotFoundError`."""
    if file.is_symlink():
        raise UnsafePath(file.name, "a symbolic link")
    descriptor = places.opened_file(file, os.O_RDONLY, base=places.ROOT)
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(opened.fileno())
        if found.st_size > files.MAX_BYTES:
            raise PayloadTooLarge(file.name, limit=files.MAX_BYTES, actual=found.st_size)
        return opened.read(), _changed(found)


def _changed(status: os.stat_result) -> datetime:
    """Return when a file was changed, in whole seconds."""
    return of_file(status.st_mtime_ns // 1_000_000_000 * 1_000_000_000)
