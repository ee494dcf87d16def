"""Imported line files: how one is compared with the file that is stored, and copied byte for byte."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, UnsafePath
from lastlight_state.jsonl import files, lock, places
from lastlight_state.maintenance.imports import ledger, ranges
from lastlight_state.maintenance.imports.pieces import Look

#: The kind of what is imported, and the name under which it is counted.
_RECORD, _COUNTED = "agent_log", "agent_logs"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_APPEND = os.O_RDWR | os.O_APPEND


class CopyPiece:
    """A file as it is at one moment: what is appended to it later is left for the next import."""

    kept: Sequence[str] = ()

    def __init__(self, key: str, source: Path, target: Path) -> None:
        self._source, self._path = source, target
        self.target = (_RECORD, key)
        self._there: int | None = None
        with _opened(source) as file:
            found = os.fstat(file.fileno())
            self._size, self._changed = found.st_size, found.st_mtime_ns
            self.digest = ranges.digest(file, self._size)

    def compared(self, look: Look) -> tuple[str, Counter[str], Counter[str]]:
        """What happens with it. A file that is stored and goes on with more lines is kept.

        Raises `AlreadyExists` for a file that is stored with other bytes.
        """
        self._there = self._common()
        is_known = ledger.known(look) == self.digest
        if self._there is not None and self._there >= self._size:
            return ("unchanged", Counter(), Counter()) if is_known else ("imported", Counter(), Counter(kept=1))
        return "imported" if self._there is None else "grown", Counter({_COUNTED: 1}), Counter()

    def store(self, _: Unit, outcome: str) -> None:
        """Copy it, or append what is new. At every instant the path names nothing, or a beginning of the source."""
        try:
            with places.directory(self._path.parent, base=places.ROOT, create=True) as (held, changed):
                self._clear(held)
                if self._there is None:
                    self._create(held)
                elif self._there < self._size:
                    self._append(self._there)
                places.sync(held)
            for directory in changed:
                files.sync_directory(directory)
        except OSError as error:
            raise files.failure(error, self._path) from error

    def _common(self) -> int | None:
        """The size of the stored file; None if there is none."""
        try:
            with _opened(self._path) as there, _opened(self._source) as here:
                size = os.fstat(there.fileno()).st_size
                common = min(size, self._size)
                if ranges.digest(there, common) != ranges.digest(here, common):
                    raise AlreadyExists(*self.target, problem="is stored with other lines")
                return size
        except FileNotFoundError:
            return None

    @property
    def _unfinished(self) -> str:
        """The name that the file has until it is whole."""
        return f".{hashlib.sha256(os.fsencode(self._path.name)).hexdigest()}.tmp"

    def _clear(self, held: int) -> None:
        """Remove that name. One that a killed import left may be a second name of a log: it is never written to."""
        with suppress(FileNotFoundError):
            os.unlink(self._unfinished, dir_fd=held)

    def _create(self, held: int) -> None:
        """Make the file under another name, and give it its own if nobody has made it meanwhile."""
        name = self._unfinished
        try:
            with os.fdopen(places.opened_file(self._path.with_name(name), _NEW, base=places.ROOT), "wb") as to:
                self._write(to, 0)
            os.link(name, self._path.name, src_dir_fd=held, dst_dir_fd=held)
        except FileExistsError:
            raise self._lost() from None
        finally:
            self._clear(held)

    def _append(self, begin: int) -> None:
        """Append what is new, while no writer of the log can append."""
        with os.fdopen(places.opened_file(self._path, _APPEND, base=places.ROOT), "ab") as to:
            lock.acquire(to.fileno(), self._path, lock.LOCK_TIMEOUT)
            if os.fstat(to.fileno()).st_size != begin:
                raise self._lost()
            self._write(to, begin)

    def _write(self, to: BinaryIO, begin: int) -> None:
        with _opened(self._source) as file:
            ranges.copy(file, to, begin, self._size, self.digest)
        to.flush()
        os.utime(to.fileno(), ns=(self._changed, self._changed))
        os.fsync(to.fileno())

    def _lost(self) -> Conflict:
        return Conflict(f"{self.target[1]!r:.200} was written meanwhile", code="unique")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A regular file to read from. No link is followed: raises `UnsafePath`, OSError."""
    try:
        descriptor = places.opened_file(path, os.O_RDONLY, base=places.ROOT)
    except OSError:
        if path.is_symlink():
            raise UnsafePath(str(path), "a symbolic link") from None
        raise
    with os.fdopen(descriptor, "rb") as found:
        yield found
