"""Imported logs of runs: how one is compared with the file that is stored, and copied byte for byte."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from lastlight_state.codec import load_line
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, BackendUnavailable, Conflict, InvalidValue, UnsafePath
from lastlight_state.jsonl import files, places
from lastlight_state.maintenance.imports import ledger, ranges
from lastlight_state.maintenance.imports.pieces import Into, Look
from lastlight_state.run_log import locks, paths, words
from lastlight_state.run_log.tree import RunFile, RunTree, open_run

#: The most bytes of a first line.
_LINE = 64 * 1024 * 1024
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_APPEND = os.O_WRONLY | os.O_APPEND


def target_tree(source: Path, into: Into) -> RunTree:
    """The files that are imported into. Raises `InvalidValue` where the source is among them."""
    tree = RunTree(into.settings.run_logs)
    if source.is_relative_to(tree.sessions):
        raise InvalidValue("path", "must not be the run log root that is imported into")
    return tree


class LogPiece:
    """The log of a run, as it is at one moment: what is appended later is left for the next import."""

    kept: Sequence[str] = ()

    def __init__(self, source: Path, into: Into) -> None:
        tree = target_tree(source, into)
        self._source = _run_file(source)
        self.target = (words.RUN, paths.checked_id("run_id", self._source.run_id))
        folder = tree.sessions.joinpath(*source.parent.parts[-3:])
        self._stored = [self._source._replace(path=folder / name) for name in self._source.names]
        self._lock = tree.lock_path(self._source.run_id)
        self._there = 0
        with _opened(self._source) as file:
            self._size, self._changed = os.fstat(file.fileno()).st_size, source.stat().st_mtime_ns
            _refuse_other_run(file.readline(_LINE), self._source.run_id)
            file.seek(0)
            self.digest = ranges.digest(file, self._size)

    def compared(self, look: Look) -> tuple[str, Counter[str], Counter[str]]:
        """What happens with it. Raises `AlreadyExists` for a log that is stored with other bytes."""
        before, stored = ledger.known(look), self._found()
        outcome = "imported"
        if stored is not None:
            with _opened(stored) as there, _opened(self._source) as here:
                self._there = os.fstat(there.fileno()).st_size
                common = min(self._there, self._size)
                if ranges.digest(there, common) != ranges.digest(here, common):
                    raise AlreadyExists(*self.target, problem="is stored with other lines")
            if self._there < self._size:
                if stored.is_packed:
                    raise AlreadyExists(*self.target, problem="is stored and packed, with fewer lines")
                outcome = "grown"
            elif before == self.digest:
                return "unchanged", Counter(), Counter()
        return outcome, Counter(run_logs=1), Counter()

    def store(self, _: Unit, outcome: str) -> None:
        """Copy it, or append what is new. At every instant the path names nothing, or a beginning of the source."""
        held = locks.try_acquire(self._lock, sync=True)
        if held is None:
            raise Conflict(f"run {self.target[1]!r} is being written", run_id=self.target[1])
        with held:
            stored = self._found()
            size = 0 if stored is None else stored.path.lstat().st_size
            if stored is not None and not stored.is_packed and size != self._there:
                raise Conflict(f"run {self.target[1]!r} was changed meanwhile", code="unique")
            if stored is None or outcome == "grown":
                self._copy(size)

    def _found(self) -> RunFile | None:
        return next((one for one in self._stored if os.path.lexists(one.path)), None)

    def _copy(self, begin: int) -> None:
        path = self._stored[0].path
        try:
            with places.directory(path.parent, base=places.ROOT, create=True) as (held, changed):
                if begin:
                    self._write(path, _APPEND, begin)
                else:
                    self._create(held, path)
                places.sync(held)
                for directory in changed:
                    files.sync_directory(directory)
        except OSError as error:
            raise files.failure(error, path) from error

    def _create(self, held: int, path: Path) -> None:
        """Write the log under another name, and give it its own."""
        name = f".{path.name}.tmp"
        try:
            self._write(path.with_name(name), _NEW, 0)
            os.rename(name, path.name, src_dir_fd=held, dst_dir_fd=held)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=held)
            raise

    def _write(self, path: Path, flags: int, begin: int) -> None:
        descriptor = places.opened_file(path, flags, base=places.ROOT)
        with os.fdopen(descriptor, "wb") as to, _opened(self._source) as file:
            ranges.copy(file, to, begin, self._size, self.digest)
            to.flush()
            os.utime(to.fileno(), ns=(self._changed, self._changed))
            os.fsync(to.fileno())


def _run_file(source: Path) -> RunFile:
    run_id, day = paths.run_of(source.name), paths.day_parts_of(source)
    at = None if day is None else paths.day_of(day)
    if run_id is None or at is None:
        raise UnsafePath(source.name, "is no name of a log")
    return RunFile(run_id, at, source, 0)


@contextmanager
def _opened(file: RunFile) -> Iterator[BinaryIO]:
    try:
        descriptor = open_run(file)
    except BackendUnavailable as error:  # this file alone
        raise InvalidValue("file", f"cannot be read: {error}") from error
    with os.fdopen(descriptor, "rb") as found:
        found.seek(0)
        yield found


def _refuse_other_run(line: bytes, run_id: str) -> None:
    """Raise `InvalidValue` for the header of another run. A line that is damaged is copied as it is."""
    with suppress(ValueError):
        value = load_line(line)
        if isinstance(value, dict) and value.get("run_id", run_id) != run_id:
            raise InvalidValue("run_id", "must be the name of the file")
