"""Attachments of another program's mailbox: found with their digests, and copied byte for byte.

Its agent may write what it likes into these folders. Each directory is opened relative to the one above, no link is
followed, and nothing but regular files is read.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from lastlight_state.errors import UnsafePath
from lastlight_state.jsonl import files as line_files, places
from lastlight_state.mailbox.folder import HEARTBEAT, INBOUND_DB, INBOX, OUTBOUND_DB, OUTBOX
from lastlight_state.maintenance.imports import ranges

_BOXES = (INBOX, OUTBOX)
#: What a mailbox consists of. Everything else in its folder is left.
_OURS = frozenset(
    [HEARTBEAT, *_BOXES]
    + [name + ending for name in (INBOUND_DB, OUTBOUND_DB) for ending in ("", "-journal", "-wal", "-shm")]
)
#: What the system says of links, folders, FIFOs and sockets where a file is expected, and of files for folders.
_ODD = (errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.ENOTDIR)
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY


class Copied(NamedTuple):
    """An attachment as it was found: its box, the folder of its message, its name; bytes, digest, time of change."""

    names: tuple[str, str, str]
    size: int
    digest: str
    changed: int


class Attachments:
    """The attachments of a session. ``others`` counts what stands in its folder and is no part of a mailbox.

    Raises `UnsafePath` for a link in place of a box, and OSError for what may not be read.
    """

    def __init__(self, session: Path) -> None:
        self._session = session
        self.others = sum(name not in _OURS and not _is_empty(session / name) for name in os.listdir(session))  # noqa: PTH208
        self.found = [self._seen(*names) for names in self._files()]

    def copy(self, into: Path, directory_mode: int, file_mode: int) -> None:
        """Copy them into the folder of a session that nobody uses yet. Raises `Conflict` where one has changed."""
        folders = [into / box for box in _BOXES]
        folders += dict.fromkeys(into.joinpath(*one.names[:2]) for one in self.found)
        for folder in folders:
            folder.mkdir(mode=places.PRIVATE_DIRECTORY)
            folder.chmod(directory_mode)
        for one in self.found:
            with self._opened(one.names) as file, _made(into.joinpath(*one.names), file_mode) as to:
                ranges.copy(file, to, 0, one.size, one.digest)
                to.flush()
                os.utime(to.fileno(), ns=(one.changed, one.changed))
                os.fsync(to.fileno())
        for folder in folders:
            line_files.sync_directory(folder)

    def _files(self) -> Iterator[tuple[str, str, str]]:
        for box in _BOXES:
            for message in self._listed(box):
                for name in self._listed(box, message):
                    if self._is_file(box, message, name):
                        yield box, message, name

    def _listed(self, *names: str) -> list[str]:
        """The names in a folder, in their order; none if it is missing, or of a message and no folder."""
        path = self._session.joinpath(*names)
        try:
            held = places.listable(path, base=self._session)
        except FileNotFoundError:
            return []
        except OSError as error:
            if error.errno not in _ODD:
                raise
            if len(names) == 1:
                raise UnsafePath(str(path), "no folder, or a symbolic link") from error
            self.others += 1
            return []
        try:
            return sorted(os.listdir(held))  # noqa: PTH208 - of a descriptor
        finally:
            os.close(held)

    def _is_file(self, *names: str) -> bool:
        try:
            self._opened(names).close()
        except OSError as error:
            if error.errno not in _ODD:
                raise
            self.others += 1
            return False
        return True

    def _seen(self, *names: str) -> Copied:
        with self._opened(names) as file:
            status = os.fstat(file.fileno())
            digest = ranges.digest(file, status.st_size)
        return Copied((names[0], names[1], names[2]), status.st_size, digest, status.st_mtime_ns)

    def _opened(self, names: tuple[str, ...]) -> BinaryIO:
        path = self._session.joinpath(*names)
        return os.fdopen(places.opened_file(path, os.O_RDONLY, base=self._session), "rb")


def _made(path: Path, mode: int) -> BinaryIO:
    file = os.fdopen(os.open(path, _NEW, places.PRIVATE_FILE), "wb")
    os.fchmod(file.fileno(), mode)
    return file


def _is_empty(path: Path) -> bool:
    """Whether it is an empty folder, as mounts into an agent's folder leave them."""
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())
