"""Detects whether another party may have changed database files, without reading the files.

Each commit writes the file, which changes its times. Nobody can set its ctime, the time of the last change of any kind.
The clock of these times advances in steps of some milliseconds, on some file systems of two seconds. So a stamp tells
two states apart only if the file was unchanged for longer than a step before the stamp was taken.

On a network or a virtual machine's mount, the system may report an old size and old times, and some file systems let
programs set the ctime. So unless the file system is known to show each change, the stamp also has the change counter in
the file's header. Each commit increments the counter, except a commit to a write-ahead log; so a file with such a log
gets no stamp there. The counter is read through a connection of SQLite, which tracks its other connections to the file.
If this module opened and closed a descriptor of its own, the process would lose its locks on the file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from lastlight_state.backends.sqlite import files, untrusted
from lastlight_state.backends.sqlite.dbapi import connect, sqlite3

#: Longer than a step of any file system's clock, in nanoseconds.
_SETTLED_NS = 3_000_000_000
#: Positions in the header: the two format bytes, 2 and 2 for WAL mode, and the change counter.
_HEAD_BYTES, _HEAD_AT = 10, 18
_VERSIONS, _BY_LOG, _COUNTER = slice(0, 2), b"\2\2", slice(6, 10)


class Stamp(NamedTuple):
    """The state of a file as visible without reading its pages. Times are in nanoseconds.

    ``counter`` is empty if the file system shows each change.
    """

    device: int
    inode: int
    size: int
    written_at: int
    changed_at: int
    counter: bytes


def stamps_of(folder: Path, names: Sequence[str]) -> tuple[Stamp, ...] | None:
    """Return the stamps of database files in a folder, which is given by its real path.

    Returns None if stamps would prove nothing: a file is missing or not regular, the path contains a link, or the
    file's journal or log is not empty.
    """
    try:
        with untrusted.directory(folder / names[0]) as held:
            found = [_stamp(held, folder, name) for name in names]
    except (OSError, sqlite3.Error):
        return None
    stamps = tuple(stamp for stamp in found if stamp is not None)
    return stamps if len(stamps) == len(names) else None


def are_settled(stamps: Sequence[Stamp], now: int) -> bool:
    """True if any later commit must change these stamps. They were taken at ``now``, in nanoseconds."""
    return all(max(stamp.written_at, stamp.changed_at) + _SETTLED_NS < now for stamp in stamps)


def _stamp(held: int, folder: Path, name: str) -> Stamp | None:
    found = os.stat(name, dir_fd=held, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        return None
    for suffix in ("-journal", "-wal"):
        with suppress(FileNotFoundError):
            beside = os.stat(name + suffix, dir_fd=held, follow_symlinks=False)
            if beside.st_size or not stat.S_ISREG(beside.st_mode):
                return None
    counter: bytes | None = b""
    if not files.tells_changes(files.kind_of_device(found.st_dev, held)):
        counter = _counter(held, folder / name, found)
    if counter is None:
        return None
    return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, counter)


def _counter(held: int, path: Path, found: os.stat_result) -> bytes | None:
    """Return the change counter.

    Return None if the counter proves nothing, or if SQLite does not open the file anew.
    """
    unchanging = f"file://{quote(str(path))}?mode=ro&immutable=1"
    connection, descriptor = untrusted.open_with_descriptor(
        (found.st_dev, found.st_ino), held, lambda: connect(unchanging, uri=True, check_same_thread=False)
    )
    try:
        if descriptor is None:
            return None
        head = os.pread(descriptor, _HEAD_BYTES, _HEAD_AT)
        return head[_COUNTER] if len(head) == _HEAD_BYTES and head[_VERSIONS] != _BY_LOG else None
    finally:
        connection.close()
