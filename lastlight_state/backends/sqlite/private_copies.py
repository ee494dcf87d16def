"""Private copies of SQLite files whose writer crashed.

The copy is recovered and read if the file itself may not be written. Another process makes the copy. If this process
closed a descriptor of the file, it would lose all its locks on the file.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from lastlight_state.backends import waiting
from lastlight_state.backends.facts import Place
from lastlight_state.backends.sqlite import files, untrusted
from lastlight_state.backends.sqlite.dbapi import connect, error_name, sqlite3
from lastlight_state.backends.sqlite.driver import is_locked, translate
from lastlight_state.errors import BackendBusy, BackendUnavailable

# Folders of private copies. A folder is locked while a process that reads it lives; unlocked ones are left-overs.

#: The prefix of locked folders. A folder is renamed to it after locking, so nobody meets an unlocked one in use.
PREFIX = "lastlight-copy-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folder(place: str) -> tuple[Path, int]:
    """Create a folder. Return it, and the descriptor that holds the folder's lock. Raises OSError.

    If the file system has no locks, the folder keeps a name that the search for left-over folders ignores.
    """
    folder = Path(tempfile.mkdtemp(prefix="lastlight-", dir=place))
    try:
        held = os.open(folder, _FOLDER)
    except OSError:
        folder.rmdir()
        raise
    with suppress(OSError):
        fcntl.flock(held, fcntl.LOCK_EX)
        folder = folder.rename(folder.with_name(folder.name.replace("lastlight-", PREFIX, 1)))
    return folder, held


def remove(folder: Path, held: int, maker: int) -> None:
    """Remove a folder and its lock. Does nothing in a forked child, because the parent may still read the folder."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)
    os.close(held)


def remove_left(place: str) -> None:
    """Remove the folders that killed processes of this user left here. Ignores folders that cannot be removed."""
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                _remove_if_left(entry.path)


def _remove_if_left(folder: str) -> None:
    with suppress(OSError):  # a link, another user's, or already gone
        held = os.open(folder, _FOLDER)
        try:
            if os.fstat(held).st_uid != os.geteuid():
                return
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in os.listdir(held):  # noqa: PTH208 - of the folder that is locked, not of a path
                os.unlink(name, dir_fd=held)
            os.rmdir(folder)  # noqa: PTH106 - only an empty one goes, whatever stands there now
        finally:
            os.close(held)


# Files beside a SQLite file, and whether processes of this machine use them.
#
# Another process checks, because closing any descriptor of a file drops this process's locks on it.

_WAL_MODE = "0202"
#: A check takes this long only if the file system does not answer.
_MOST_SECONDS = 30.0
#: A script that prints the header's two format bytes, and the endings of left-over files: a journal without a writer's
#: lock, a log without the lock of a process that has it open. It checks both twice, so that a process that comes or
#: goes in between is seen. The lock bytes are those of SQLite's ``os.h``. A journal that begins with zero is finished.
_LOOK = """
import fcntl, os, stat, struct, sys
path = sys.argv[1]
def is_locked(begin, length):
    if sys.platform == "linux":
        form, at, asked = "hhqqi", 0, (fcntl.F_WRLCK, 0, begin, length, 0)
    else:
        form, at, asked = "qqihhi", 3, (begin, length, 0, fcntl.F_WRLCK, 0, 0)
    answer = struct.unpack(form, fcntl.fcntl(held, fcntl.F_GETLK, struct.pack(form, *asked)))
    return answer[at] != fcntl.F_UNLCK
def begin_of(ending):
    try:
        beside = os.open(path + ending, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    return os.read(beside, 1) if stat.S_ISREG(os.fstat(beside).st_mode) else b""
def left():
    if begin_of("-journal") not in (b"", b"\\0") and not is_locked(0x40000001, 1):
        yield "-journal"
    if begin_of("-wal") and not is_locked(0x40000002, 510):
        yield "-wal"
held = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
print(os.read(held, 20)[18:].hex() or "-", *sorted({*left()} & {*left()}))
"""


@dataclass(frozen=True)
class FileState:
    """The state of a database file. ``in_wal_mode`` comes from the file's header; it is None for an empty file.

    ``left`` has the suffixes of the files that a crashed writer left next to it.
    """

    in_wal_mode: bool | None
    left: tuple[str, ...]


def state_of(path: Path) -> FileState | None:
    """Return the state of a file. Return None for a link, and if the state cannot be determined."""
    command = [sys.executable, "-I", "-S", "-c", _LOOK, str(path)]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter
            command, check=True, capture_output=True, text=True, timeout=_MOST_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return None
    mode, *left = done.stdout.split()
    return FileState(None if mode == "-" else mode == _WAL_MODE, tuple(left))


def place_of(path: Path) -> Place | None:
    """Return the location of a file and of the files left next to it.

    Return None for a file that cannot be examined.
    """
    path = files.real(path)
    standing = state_of(path)
    if standing is None:
        return None
    name = files.file_system(path)
    log, index, journal = files.beside(path)
    unfit = [found for found in (log, index) if found.exists()] if standing.in_wal_mode is False else []
    left = {"-wal": log, "-journal": journal}
    return Place(
        file_system=name,
        is_remote=files.is_remote(name),
        in_wal_mode=bool(standing.in_wal_mode),
        left=tuple(left[ending] for ending in standing.left if left[ending] not in unfit),
        unfit=tuple(unfit),
    )


#: A stamp of the file, its journal and its log, which changes with each write: identity, size and time of each.
FileStamps: TypeAlias = "tuple[tuple[int, int, int] | None, ...]"

#: The seconds allowed for copying a file, and again for recovering the copy.
MOST_SECONDS = 600.0
_SUFFIXES = ("", "-journal", "-wal")
_TRIES = 5
#: A script that copies regular files only, even if another file is put in their place meanwhile.
_COPY = """
import os, shutil, stat, sys
for source, target in zip(sys.argv[1::2], sys.argv[2::2]):
    held = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(held).st_mode):
        sys.exit(1)
    with open(held, "rb") as read, open(target, "xb") as written:
        shutil.copyfileobj(read, written)
"""


class PrivateCopy:
    """A private copy of a file, deleted when no object refers to it any more.

    ``mark`` has the stamps of the original.
    """

    def __init__(self, mark: FileStamps) -> None:
        self.mark = mark
        folder, held = _private_folder(mark)
        self.path = folder / "copy.db"
        weakref.finalize(self, remove, folder, held, os.getpid())


def stamps_of(path: Path) -> FileStamps:
    """Return the stamps of a file and of the files next to it."""
    return tuple(_mark(f"{path}{suffix}") for suffix in _SUFFIXES)


def take_copy(path: Path, *, checked: bool, seconds: float = MOST_SECONDS) -> PrivateCopy:
    """Return a copy of a file, with the file's last commit.

    If ``checked``, a damaged file raises `BackendUnavailable` instead of being copied. Raises `BackendBusy` for a file
    that changes meanwhile. Raises `BackendUnavailable` if there is no room, if the file cannot be copied or read in
    time, and if it holds anything but tables.
    """
    end = waiting.until(seconds)
    for _ in range(_TRIES):
        before = stamps_of(path)
        copy = PrivateCopy(before)
        suffixes = [suffix for suffix, mark in zip(_SUFFIXES, before, strict=True) if mark is not None]
        pairs = [part for suffix in suffixes for part in (f"{path}{suffix}", f"{copy.path}{suffix}")]
        command = [sys.executable, "-I", "-c", _COPY, *pairs]
        done = _run_copy(command, end - time.monotonic())
        if before == stamps_of(path):
            _refuse_failed(done)
            _recover(copy.path, checked=checked, seconds=end - time.monotonic())
            return copy
    raise BackendBusy("the file of a crashed writer changed while it was copied")


def _run_copy(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(command, check=False, capture_output=True, timeout=max(0.0, seconds))  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise BackendUnavailable(
            f"a writer died, and its file could not be copied in {seconds:.1f} seconds", reason="statement_timeout"
        ) from error


def _refuse_failed(done: subprocess.CompletedProcess[bytes]) -> None:
    """Raise `BackendUnavailable` if making a copy failed although the original did not change meanwhile."""
    if done.returncode != 0:
        *_, told = ["expected regular files beside it", *done.stderr.decode(errors="replace").splitlines()]
        raise BackendUnavailable(f"a writer died, and its file cannot be copied to be read: {told:.200}")


def _private_folder(mark: FileStamps) -> tuple[Path, int]:
    """Return a new folder with room for the file and twice its log, because recovery copies the log in.

    First removes folders that killed processes left among the temporary files.
    """
    sizes = [0 if found is None else found[1] for found in mark]
    needed = sum(sizes) + sizes[-1]
    try:
        place = tempfile.gettempdir()
        remove_left(place)
        free = shutil.disk_usage(place).free
        if needed <= free:
            return make_folder(place)
    except OSError as error:
        raise BackendUnavailable(
            f"a writer died, and its file cannot be copied to be read: {error.strerror}: check TMPDIR", reason="no_room"
        ) from error
    raise BackendUnavailable(
        f"a writer died, and its file cannot be copied to be read: that needs {needed} bytes in {place}, and {free} are"
        " free; TMPDIR names another place",
        reason="no_room",
        path=place,
        free_bytes=free,
    )


def _mark(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _recover(copy: Path, *, checked: bool, seconds: float) -> None:
    """Recover the copy to its last commit. With ``checked``, raise `BackendUnavailable` if it is damaged."""
    if files.names_another(Path(f"{copy}-journal")):
        raise BackendUnavailable(
            "the file's journal names another journal, which is not followed", reason="not_a_database"
        )
    try:
        with closing(connect(copy, timeout=0)) as connection:  # nobody else has a lock on the copy
            connection.execute("PRAGMA synchronous = OFF")
            answer = _find_problem(connection, seconds) if checked else _read(connection)
    except sqlite3.Error as error:
        if is_locked(error):
            raise BackendBusy("the copy of a crashed writer's file is locked") from error
        if error_name(error) == "SQLITE_INTERRUPT":
            raise translate(error) from error
        answer = str(error)
    if answer != "ok":
        raise BackendUnavailable(f"the file of a crashed writer cannot be read: {answer}", reason="not_a_database")


def _find_problem(connection: sqlite3.Connection, seconds: float) -> str:
    """Check another party's file without evaluating its own expressions. Return the problem, or ``ok``."""
    untrusted.guard(connection, seconds)
    untrusted.refuse_forbidden(connection)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    [(answer,)] = connection.execute("PRAGMA quick_check(1)").fetchall()
    return str(answer)


def _read(connection: sqlite3.Connection) -> str:
    connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    return "ok"
