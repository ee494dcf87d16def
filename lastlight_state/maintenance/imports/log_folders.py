"""Copies the event logs of the first original system: each file byte for byte, and what it has grown by since."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from lastlight_state.agent_log import paths
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, BackendBusy, Conflict
from lastlight_state.jsonl import files, lock, places
from lastlight_state.maintenance.imports import ledger
from lastlight_state.maintenance.imports.pieces import Into, Kind, Look, Part, Piece

_LOG = "agent_log"
_PROJECTS = "projects"
_CHUNK = 1024 * 1024
_ROOT = Path("/")


def found_at(path: Path) -> bool:
    """Whether the folder has logs of that system."""
    return any(_logs(path))


def _logs(path: Path) -> Iterator[tuple[Path, str]]:
    """The logs below a folder with the ids of their sessions, without those behind links."""
    for slug in sorted((path / _PROJECTS).iterdir() if (path / _PROJECTS).is_dir() else ()):
        if slug.is_dir() and not slug.is_symlink():
            for log in sorted(slug.iterdir()):
                session_id = paths.session_of(log.name)
                if session_id is not None and not log.is_symlink():
                    yield log, session_id


def parts(path: Path) -> Generator[Part]:
    """The logs below a folder, in the order of their names."""
    for log, session_id in _logs(path):
        yield Part(f"{log.parent.name}/{session_id}", partial(_piece, places.real(log), log.parent.name, session_id))


def _piece(source: Path, slug: str, session_id: str, into: Into) -> Piece:
    name = paths.checked_session_id(session_id) + paths.LOG_SUFFIX
    root = places.real(into.settings.agent_sessions)
    return _LogPiece(source, root / _PROJECTS / paths.checked_slug(slug) / name)


class _LogPiece:
    """A log that was found: ``size`` bytes of it are imported."""

    def __init__(self, source: Path, there: Path) -> None:
        self._source, self._there = source, there
        self.target = (_LOG, there.stem)
        with _reading(source) as descriptor:
            self._size = os.fstat(descriptor).st_size
            seen = hashlib.sha256()
            for chunk in _chunks(descriptor, 0, self._size):
                seen.update(chunk)
        self.digest = seen.hexdigest()

    def compared(self, look: Look) -> tuple[str, Counter[str], Counter[str]]:
        """Its outcome, and the bytes that are added."""
        try:
            with _reading(self._there) as stored:
                size = self._stored(stored)
        except FileNotFoundError:
            if ledger.known(look) is not None and not look.revives:
                return "pruned", Counter(), Counter()
            return "imported", Counter(log_files=1, log_bytes=self._size), Counter()
        if size >= self._size:
            return "unchanged", Counter(), Counter()
        return "grown", Counter(log_bytes=self._size - size), Counter()

    def _stored(self, stored: int) -> int:
        """The size of what is there. Raises `AlreadyExists` if one of the two does not begin with the other."""
        size = os.fstat(stored).st_size
        with _reading(self._source) as source:
            both = min(size, self._size)
            pairs = zip(_chunks(stored, 0, both), _chunks(source, 0, both), strict=False)
            if any(here != there for here, there in pairs):
                raise AlreadyExists(_LOG, self.target[1], problem="is there already with other lines")
        return size

    def store(self, view: Unit, outcome: str) -> None:
        """Append what is missing, while nobody else writes there. A copy that is cut short is a beginning of it."""
        del view, outcome
        descriptor, changed = files.open_to_append(self._there, create=True, base=_ROOT)
        try:
            lock.acquire(descriptor, self._there, 0)
            with _reading(self._source) as source:
                for chunk in _chunks(source, self._stored(descriptor), self._size):
                    _append(descriptor, chunk)
            os.fsync(descriptor)
            for folder in changed:
                files.sync_directory(folder)
        except BackendBusy:
            raise Conflict(f"the log {self.target[1]!r} is being written: import it again", code="busy") from None
        finally:
            os.close(descriptor)


@contextmanager
def _reading(path: Path) -> Iterator[int]:
    descriptor = files.open_to_read(path, base=_ROOT)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _chunks(descriptor: int, at: int, end: int) -> Iterator[bytes]:
    """The bytes from one place to another, which are there: logs are only appended to."""
    while at < end and (chunk := os.pread(descriptor, min(_CHUNK, end - at), at)):
        yield chunk
        at += len(chunk)


def _append(descriptor: int, chunk: bytes) -> None:
    while chunk:
        chunk = chunk[os.write(descriptor, chunk) :]


#: The kind of source.
KIND = Kind("lastlight-logs", "a folder with projects/<slug>/<session id>.jsonl", found_at, parts)
