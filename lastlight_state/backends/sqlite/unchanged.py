"""Tells without a look into database files whether another party may have changed them.

Each commit writes the file, which changes its times. The time of its last change of any kind can be set by nobody. The
clock of these times stands still for some milliseconds, on some file systems for two seconds: a stamp tells one state
from the next only after the file has been left alone for longer.

On a network or the mount of a virtual machine the system may know an old size and old times, and some file systems let
the time of the last change be set. So unless the file system is known to tell each change, the stamp also has the
counter in the file's header that each commit raises, but for commits to a write-ahead log: a file that has one gets no
stamp there. SQLite opens and closes the file for that, because it knows its other connections to it: to close a
descriptor of our own would drop the locks that this process has on the file.
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

#: Longer than the clock of any file system stands still.
_SETTLED_NS = 3_000_000_000
#: Where the header says how the file is written, 2 and 2 for by a log, and where it has the counter of commits.
_HEAD_BYTES, _HEAD_AT = 10, 18
_VERSIONS, _BY_LOG, _COUNTER = slice(0, 2), b"\2\2", slice(6, 10)


class Stamp(NamedTuple):
    """The state of a file as far as it can be told without reading its pages. Times are in nanoseconds.

    ``counter`` is empty where the file system tells each change.
    """

    device: int
    inode: int
    size: int
    written_at: int
    changed_at: int
    counter: bytes


def stamps_of(folder: Path, names: Sequence[str]) -> tuple[Stamp, ...] | None:
    """Return the stamps of database files in a folder, given by its real path.

    None where they would tell nothing: a file is missing or is none, a link stands in the path, or something lies in
    the file's journal or log.
    """
    try:
        with untrusted.directory(folder / names[0]) as held:
            found = [_stamp(held, folder, name) for name in names]
    except (OSError, sqlite3.Error):
        return None
    stamps = tuple(stamp for stamp in found if stamp is not None)
    return stamps if len(stamps) == len(names) else None


def are_settled(stamps: Sequence[Stamp], now: int) -> bool:
    """True if any later commit gets a later stamp, where the files had these stamps at ``now``, in nanoseconds."""
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
    """Return the counter of commits; None where it tells nothing, or SQLite does not open the file anew."""
    unchanging = f"file://{quote(str(path))}?mode=ro&immutable=1"
    connection, descriptor = untrusted.connected(
        (found.st_dev, found.st_ino), held, lambda: connect(unchanging, uri=True, check_same_thread=False)
    )
    try:
        if descriptor is None:
            return None
        head = os.pread(descriptor, _HEAD_BYTES, _HEAD_AT)
        return head[_COUNTER] if len(head) == _HEAD_BYTES and head[_VERSIONS] != _BY_LOG else None
    finally:
        connection.close()
