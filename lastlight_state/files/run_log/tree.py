"""Finding run logs and snapshots in their directories without reading them.

Misplaced entries are skipped: unexpected names, links, directories in place of files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import NamedTuple

from lastlight_state.errors import NotFound
from lastlight_state.files.jsonl import files
from lastlight_state.files.run_log import paths, storage


class RunFile(NamedTuple):
    """The log of a run: its id and the day of its directory. ``inode`` distinguishes files that had the same name."""

    run_id: str
    day: date
    path: Path
    inode: int

    @property
    def is_packed(self) -> bool:
        """True if the log is a gzip file."""
        return self.path.suffix == storage.SUFFIX

    @property
    def names(self) -> tuple[str, str]:
        """Return the names that the run's log may have in its directory: unpacked and packed."""
        return _names(self.run_id)


class StateFile(NamedTuple):
    """The snapshot of a session, as listed in its directory."""

    changed_ns: int
    session_id: str
    path: Path
    size: int


class RunTree:
    """The files below ``<root>/sessions``. The root may be reached through links; links below it are not followed."""

    def __init__(self, root: Path) -> None:
        self.root = files.real(root)
        self.sessions = self.root / paths.SESSIONS
        self.states = self.sessions / paths.STATE

    def path_to_write(self, run_id: str, started_at: datetime) -> Path:
        """Return the path of a new log."""
        return self.sessions.joinpath(*paths.day_parts(started_at.date()), run_id + paths.LOG_SUFFIX)

    def lock_path(self, run_id: str) -> Path:
        """Return the lock file of a run's writer."""
        return self.sessions / paths.LOCKS / run_id

    def state_path(self, session_id: str) -> Path:
        """Return the path of a session's snapshot."""
        return self.states / (session_id + paths.STATE_SUFFIX)

    def state_lock_path(self, session_id: str) -> Path:
        """Return the lock file of a session's snapshot."""
        return self.states / paths.LOCKS / session_id

    def days(self) -> Iterator[tuple[date, Path]]:
        """Yield the directories of days, the newest first."""
        for year in _directories(self.sessions, 0):
            for month in _directories(self.sessions / year, 1):
                for name in _directories(self.sessions / year / month, 2):
                    day = paths.day_of((year, month, name))
                    if day is not None:
                        yield day, self.sessions / year / month / name

    def find(self, run_id: str) -> RunFile | None:
        """Return the log of this run. Checks two names in each day, the newest day first.

        Raises `UnsafePath`, `InvalidValue`, `BackendUnavailable`.
        """
        paths.readable_id("run_id", run_id)
        for day, directory in self.days():
            for name in _names(run_id):
                inode = _inode(directory / name)
                if inode is not None:
                    return RunFile(run_id, day, directory / name, inode)
        return None

    def get(self, run_id: str) -> RunFile:
        """Return the log of this run, as `find` does. Raises `NotFound` if the run has no log."""
        found = self.find(run_id)
        if found is None:
            raise NotFound(paths.RUN, run_id)
        return found

    def runs_of(self, day: date, directory: Path) -> list[RunFile]:
        """Return the logs in the directory of a day."""
        found: dict[str, RunFile] = {}
        for entry in _entries(directory):
            run_id = paths.run_of(entry.name)
            if run_id is not None and _is_file(entry):
                file = RunFile(run_id, day, directory / entry.name, entry.inode())
                if run_id not in found or not file.is_packed:
                    found[run_id] = file
        return list(found.values())

    def snapshots(self) -> list[StateFile]:
        """Return the snapshots, the last changed first."""
        found = []
        for entry in _entries(self.states):
            session_id = paths.session_of(entry.name)
            snapshot = None if session_id is None else _snapshot(entry, session_id, self.states / entry.name)
            if snapshot is not None:
                found.append(snapshot)
        return sorted(found, reverse=True)


def open_run(file: RunFile, most: int | None = None) -> int:
    """Open a log for reading and return the descriptor. For a packed log, it reads the bytes, or the first ``most``.

    Raises `NotFound` if the log has vanished, `BackendUnavailable`.
    """
    try:
        descriptor = files.open_to_read(file.path, base=files.ROOT)
        if not file.is_packed:
            return descriptor
        try:
            return storage.unpack(descriptor, most)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise NotFound(paths.RUN, file.run_id) from None
    except OSError as error:
        raise files.failure(error, file.path) from error


@contextmanager
def openings(file: RunFile) -> Iterator[Callable[[], int]]:
    """Yield a function that can open a log repeatedly. A packed log is unpacked only once. Raises as `open_run`."""
    if not file.is_packed:
        yield lambda: open_run(file)
        return
    unpacked = open_run(file)
    try:
        yield lambda: os.dup(unpacked)
    finally:
        os.close(unpacked)


def _names(run_id: str) -> tuple[str, str]:
    plain = run_id + paths.LOG_SUFFIX
    return plain, plain + storage.SUFFIX


def _inode(path: Path) -> int | None:
    """Return the inode of a regular file; None for any other kind. Raises `BackendUnavailable` if access is denied."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise files.failure(error, path) from error
    return found.st_ino if stat.S_ISREG(found.st_mode) else None


def _directories(path: Path, level: int) -> list[str]:
    """Return the names of the years, months or days in a directory, the greatest first."""
    names = (entry.name for entry in _entries(path) if paths.is_part(entry.name, level) and _is_directory(entry))
    return sorted(names, reverse=True)


def _entries(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise files.failure(error, path) from error


def _is_directory(entry: os.DirEntry[str]) -> bool:
    """True if the entry is a directory. Raises `BackendUnavailable` if access is denied."""
    try:
        return entry.is_dir(follow_symlinks=False)
    except NotADirectoryError:  # replaced meanwhile
        return False
    except OSError as error:
        raise files.failure(error, Path(entry.path)) from error


def _is_file(entry: os.DirEntry[str]) -> bool:
    """True if the entry is a regular file, or if access is denied: opening the file then raises the reason."""
    try:
        return entry.is_file(follow_symlinks=False)
    except OSError:
        return True


def _snapshot(entry: os.DirEntry[str], session_id: str, path: Path) -> StateFile | None:
    """Return the snapshot of an entry; None if it is not a regular file.

    If access is denied, the snapshot is returned nevertheless, and opening it raises the reason.
    """
    try:
        seen = entry.stat(follow_symlinks=False)
    except OSError:
        return StateFile(0, session_id, path, 0)
    return StateFile(seen.st_mtime_ns, session_id, path, seen.st_size) if stat.S_ISREG(seen.st_mode) else None
