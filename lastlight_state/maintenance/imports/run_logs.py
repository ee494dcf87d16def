"""Imported logs of runs: comparing a log with the stored file, and copying it byte for byte.

A torn last message is left out and counted. A log that has grown is continued, and a stored log that is longer is kept.
A log with other lines, a name that is not an id, another id in the file, and a link are refused.

A snapshot without a readable time gets the time of its source's last change. A later snapshot replaces the stored one
if the stored one is unchanged since its import. It also does if it begins with the stored messages and agrees in every
field except time, run and invocation. An older snapshot is refused. The root of run logs cannot be imported into
itself.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from lastlight_state.clock import of_file, to_millis
from lastlight_state.codec import load_line
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import (
    AlreadyExists,
    BackendUnavailable,
    Conflict,
    InvalidValue,
    PayloadTooLarge,
    UnsafePath,
)
from lastlight_state.files.jsonl import files
from lastlight_state.files.run_log import RunLog, SessionState, paths, storage
from lastlight_state.files.run_log.states import INDEX, check, files as states_files, refuse_backwards
from lastlight_state.files.run_log.tree import RunFile, RunTree, open_run
from lastlight_state.maintenance.imports import foreign, origins, pieces
from lastlight_state.maintenance.imports.foreign import Foreign, Row
from lastlight_state.maintenance.imports.lenient import decode_json
from lastlight_state.maintenance.imports.pieces import ImportTarget, UnitLookup

#: The longest first line, in bytes.
_LINE = 64 * 1024 * 1024
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_APPEND = os.O_WRONLY | os.O_APPEND


def target_tree(source: Path, into: ImportTarget) -> RunTree:
    """Return the tree of run logs to import into. Raises `InvalidValue` if the source is part of it."""
    tree = RunTree(into.settings.run_logs)
    if source.is_relative_to(tree.sessions):
        raise InvalidValue("path", "must not be the run log root that is imported into")
    return tree


class LogPiece:
    """The log of a run as it is at one moment. Lines that are appended later are left for the next import."""

    kept_differences: Sequence[str] = ()

    def __init__(self, source: Path, into: ImportTarget) -> None:
        tree = target_tree(source, into)
        self._source = _run_file(source)
        self.target = (paths.RUN, paths.checked_id("run_id", self._source.run_id))
        self._sessions, self._day = tree.sessions, source.parent.parts[-3:]
        self._stored = self._files(self._day)
        self._lock = tree.lock_path(self._source.run_id)
        self._there = 0
        with _open_file(self._source) as file:
            self._size, self._changed = os.fstat(file.fileno()).st_size, source.stat().st_mtime_ns
            _refuse_other_run(file.readline(_LINE), self._source.run_id)
            file.seek(0)
            self.digest = foreign.range_digest(file, self._size)

    def compare(self, look: UnitLookup) -> tuple[str, Counter[str], Counter[str]]:
        """Return the outcome of the file. Raises `AlreadyExists` for a log that is stored with other bytes."""
        before, stored = pieces.known_digest(look), self._looked_for(look)
        outcome = "imported"
        if stored is None and pieces.is_removed(look, self):
            return "pruned", Counter(), Counter()
        if stored is not None:
            with _open_file(stored) as there, _open_file(self._source) as here:
                self._there = os.fstat(there.fileno()).st_size
                common = min(self._there, self._size)
                if foreign.range_digest(there, common) != foreign.range_digest(here, common):
                    raise AlreadyExists(*self.target, problem="is stored with other lines")
            if self._there < self._size:
                if stored.is_packed:
                    raise AlreadyExists(*self.target, problem="is stored and packed, with fewer lines")
                outcome = "grown"
            elif before is not None:
                return "unchanged", Counter(), Counter()
        return outcome, Counter(run_logs=1), Counter()

    def store(self, _: Unit, outcome: str) -> None:
        """Copy the log, or append its new lines.

        At every moment, the path has no file, or a beginning of the source.
        """
        held = storage.try_acquire(self._lock, sync=True)
        if held is None:
            raise Conflict(f"run {self.target[1]!r} is being written", run_id=self.target[1])
        with held:
            stored = self._stored_file()
            size = 0 if stored is None else stored.path.lstat().st_size
            if stored is not None and not stored.is_packed and size != self._there:
                raise Conflict(f"run {self.target[1]!r} was changed meanwhile", code="unique")
            if stored is None or outcome == "grown":
                self._copy(size)

    def _looked_for(self, look: UnitLookup) -> RunFile | None:
        """Return the stored file: on the day of the source, or on a day where an earlier import found the source."""
        days = [Path(key).parent.parts for _, key in pieces.keys(look, self)]
        for day in (self._day, *days):
            self._stored = self._files(day)
            if (found := self._stored_file()) is not None:
                return found
        self._stored = self._files(self._day)
        return None

    def _files(self, day: Sequence[str]) -> list[RunFile]:
        return [self._source._replace(path=self._sessions.joinpath(*day, name)) for name in self._source.names]

    def _stored_file(self) -> RunFile | None:
        return next((one for one in self._stored if os.path.lexists(one.path)), None)

    def _copy(self, begin: int) -> None:
        path = self._stored[0].path
        try:
            with files.open_directory(path.parent, base=files.ROOT, create=True) as (held, changed):
                if begin:
                    self._write(path, _APPEND, begin)
                else:
                    self._create(held, path)
                files.sync(held)
                for directory in changed:
                    files.sync_directory(directory)
        except OSError as error:
            raise files.failure(error, path) from error

    def _create(self, held: int, path: Path) -> None:
        """Write the log under a temporary name, then rename it."""
        name = f".{path.name}.tmp"
        try:
            self._write(path.with_name(name), _NEW, 0)
            os.rename(name, path.name, src_dir_fd=held, dst_dir_fd=held)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=held)
            raise

    def _write(self, path: Path, flags: int, begin: int) -> None:
        descriptor = files.opened_file(path, flags, base=files.ROOT)
        with os.fdopen(descriptor, "wb") as to, _open_file(self._source) as file:
            foreign.copy(file, to, begin, self._size, self.digest)
            to.flush()
            os.utime(to.fileno(), ns=(self._changed, self._changed))
            os.fsync(to.fileno())


def _run_file(source: Path) -> RunFile:
    run_id, day = paths.run_of(source.name), paths.day_parts_of(source)
    at = None if day is None else paths.day_of(day)
    if run_id is None or at is None:
        raise UnsafePath(source.name, "must be the name of a log: <run id>.jsonl or <run id>.jsonl.gz")
    return RunFile(run_id, at, source, 0)


@contextmanager
def _open_file(file: RunFile) -> Iterator[BinaryIO]:
    try:
        descriptor = open_run(file)
    except BackendUnavailable as error:  # fails only this file
        raise InvalidValue("file", f"cannot be read: {error}") from error
    with os.fdopen(descriptor, "rb") as found:
        found.seek(0)
        yield found


def _refuse_other_run(line: bytes, run_id: str) -> None:
    """Raise `InvalidValue` if the first line names another run. A first line that is damaged is accepted and copied."""
    with suppress(ValueError):
        value = load_line(line)
        if isinstance(value, dict) and value.get("run_id", run_id) != run_id:
            raise InvalidValue("run_id", "must be the name of the file")


# Imported snapshots of sessions: read in either layout, compared with the stored snapshot, and saved.

#: The table of the later layout's database, and the folder of its messages.
TABLE, MESSAGES = "session_state", "messages"
#: Fields that change with every save, or only grow.
_MOVES_ON = ("updated_at", "run_id", "invoke_seq", "messages")
#: The columns of the later layout that repeat facts of the messages and of the field ``meta``.
_DERIVED = ("message_count", "last_user_message", "workspace_root")
_FIELDS = ("schema_version", "session_id", "updated_at", "run_id", "invoke_seq")

_READ = (*_FIELDS, "meta_json", *_DERIVED)


class StatePiece:
    """The snapshot of a session. If it states no time, it gets the time at which its source was changed."""

    kept_differences: Sequence[str] = ()

    def __init__(self, given: SessionState, tree: RunTree, noticed: Counter[str], changed: datetime) -> None:
        noticed["updated_at_approximate"] += given.updated_at is None
        self._at = given.updated_at or to_millis(changed)
        state = given.model_copy(update={"updated_at": self._at})
        check(state)
        self._state, self._tree, self._noticed = state, tree, noticed
        self._based_on: datetime | None = None  # when the stored snapshot was saved, set by `compare`
        self.target = (paths.STATE_TYPE, state.session_id)
        self.digest = hashlib.sha256(states_files.encode_state(state)).hexdigest()

    def compare(self, look: UnitLookup) -> tuple[str, Counter[str], Counter[str]]:
        """Return the outcome of the snapshot.

        Raises `StaleVersion` if it is older than the stored snapshot, and `AlreadyExists` if the stored snapshot has
        messages or fields that this one lacks.
        """
        before = pieces.known_digest(look)
        if before == self.digest and os.path.lexists(self._path):
            return "unchanged", Counter(), self._noticed
        stored = states_files.load(self._path, self._state.session_id)
        self._based_on = None if stored is None else stored.updated_at
        if stored is None and pieces.is_removed(look, self):
            return "pruned", Counter(), Counter()
        outcome = "imported" if stored is None or stored.to_json() == self._state.to_json() else "grown"
        if stored is not None:
            refuse_backwards(self._state, stored)
            if not self._continues(stored, before if origins.is_of_source(look) else None):
                raise AlreadyExists(*self.target, problem="is stored with other messages or fields")
        return outcome, Counter(session_states=1), self._noticed

    def store(self, _: Unit, __: str) -> None:
        """Store the snapshot, with the time of its last change.

        Raises `StaleVersion` if another was stored meanwhile.
        """
        RunLog(self._tree.root).states.put(self._state, based_on=self._based_on)
        os.utime(self._path, (self._at.timestamp(),) * 2, follow_symlinks=False)

    def _continues(self, stored: SessionState, before: str | None) -> bool:
        """True if the stored snapshot is unchanged since this source's import, or is contained in this one.

        The second case occurs after an import that was killed, so that its snapshot is not in the ledger.
        """
        if before == hashlib.sha256(states_files.encode_state(stored)).hexdigest():
            return True
        kept, given = stored.to_json(), self._state.to_json()
        is_longer = self._state.messages[: len(stored.messages)] == stored.messages
        others = kept.keys() - set(_MOVES_ON)
        return is_longer and all(kept[name] in (None, given.get(name)) for name in others)

    @property
    def _path(self) -> Path:
        return self._tree.state_path(self._state.session_id)


def single(file: Path, into: ImportTarget) -> StatePiece:
    """Return a snapshot of the older layout, which is a single file."""
    tree, noticed = target_tree(file, into), Counter[str]()
    session_id = paths.checked_id("session_id", file.name.removesuffix(paths.STATE_SUFFIX))
    data, changed = _read(file)
    state = states_files.state_of(decode_json(paths.STATE, data, noticed if into.lenient else None), session_id)
    return StatePiece(state, tree, noticed, changed)


def indexed_piece(home: RunTree, source: Foreign, row: Row, into: ImportTarget) -> StatePiece:
    """Return a snapshot of the later layout: a database row, and a file of messages unless there are none."""
    messages_folder = home.sessions / MESSAGES
    tree, noticed = target_tree(messages_folder, into), Counter[str]()
    session_id = paths.checked_id("session_id", row["session_id"])
    adapts = noticed if into.lenient else None
    value = {name: row[name] for name in _FIELDS if row.get(name) is not None}
    noticed.update(f"{name}_left" for name, told in row.items() if name not in _READ and told is not None)
    if row.get("meta_json") is not None:
        value["meta"] = decode_json("meta_json", row["meta_json"], adapts)
    try:
        data, changed = _read(messages_folder / f"{session_id}{paths.LOG_SUFFIX}")
    except FileNotFoundError:
        index = home.sessions / INDEX
        data, changed = b"", _change_time(index.stat())
    value["messages"] = _messages(data, noticed, adapts)
    source.confirm()
    return StatePiece(states_files.state_of(value, session_id), tree, noticed, changed)


def _messages(data: bytes, noticed: Counter[str], adapts: Counter[str] | None) -> list[Any]:
    """Return the messages in a file that has one message on each line.

    A torn last line is left out and counted.
    """
    lines = [line for line in data.split(b"\n") if line.strip()]
    found = []
    for i, line in enumerate(lines):
        try:
            found.append(decode_json(f"{MESSAGES}[{i}]", line, adapts))
        except InvalidValue:
            if i + 1 < len(lines) or data.endswith(b"\n"):
                raise
            noticed["message_torn"] += 1
    return found


def _read(file: Path) -> tuple[bytes, datetime]:
    """Return the bytes of a file, and the time of its last change. Follows no link. Raises `FileNotFoundError`."""
    if file.is_symlink():
        raise UnsafePath(file.name, "must not be a symbolic link")
    descriptor = files.opened_file(file, os.O_RDONLY, base=files.ROOT)
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(opened.fileno())
        if found.st_size > states_files.MAX_BYTES:
            raise PayloadTooLarge(file.name, limit=states_files.MAX_BYTES, actual=found.st_size)
        return opened.read(), _change_time(found)


def _change_time(status: os.stat_result) -> datetime:
    """Return when a file was changed, in whole seconds."""
    return of_file(status.st_mtime_ns // 1_000_000_000 * 1_000_000_000)
