"""Database files: creates them for their owner alone, and tells local file systems from remote ones."""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from lastlight_state import special_files

PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700

_REMOTE = ("nfs", "cifs", "smb", "9p", "virtiofs", "fuse", "afs", "ceph", "gluster", "lustre", "vboxsf", "prl_fs")

#: The length of a database's header, and where it says how the file is read and written: 2 and 2 mean by a log.
_HEADER, _VERSIONS, _WAL_VERSIONS = 100, slice(18, 20), b"\2\2"
#: How a journal ends that names another one.
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")


def make_private_directory(path: Path) -> None:
    """Create the directory and its missing parents, each readable by their owner alone. Existing modes are kept.

    Their names are brought to disk: SQLite does so only for names of files.
    """
    missing = [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]
    for folder in reversed(missing):
        folder.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        with suppress(OSError):  # a directory above that may be entered and not be read
            _sync(folder.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_private_file(path: Path) -> None:
    """Create an empty file that only its owner can read, unless it exists."""
    make_private_directory(path.parent)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE_FILE))
    except FileExistsError:
        return


def is_there(path: Path, *, follow: bool = True) -> bool:
    """Return whether there is a database file.

    Raises OSError for a directory that may not be entered or is none, and for what is not a regular file.

    SQLite would wait for ever at the other end of a FIFO. ``follow``: a symbolic link counts as what it leads to.
    """
    try:
        found = path.stat(follow_symlinks=follow)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found.st_mode):
        raise special_files.refusal(path, found.st_mode)
    return True


def without_waiting(path: str, flags: int) -> int:
    """Open a file, and do not wait for the other end where a FIFO was put in its place."""
    return os.open(path, flags | os.O_NONBLOCK)


def size(*paths: Path | str) -> int:
    """Return the bytes of all these files that are there."""
    found = 0
    for path in paths:
        try:
            found += os.lstat(path).st_size
        except OSError:
            continue
    return found


def real(path: Path) -> Path:
    """Return what a link leads to: there SQLite looks for the files beside a database."""
    return Path(os.path.realpath(path))


def beside(path: Path) -> tuple[Path, Path, Path]:
    """Return where SQLite puts the log of a database, the index of that log, and the rollback journal."""
    path = real(path)
    return (
        path.with_name(f"{path.name}-wal"),
        path.with_name(f"{path.name}-shm"),
        path.with_name(f"{path.name}-journal"),
    )


def names_another(journal: Path | str) -> bool:
    """Return whether a journal that SQLite would roll back names another journal.

    SQLite opens what is named so, and may delete it, whatever that is. No journal of ours does. Raises OSError for no
    regular file.
    """
    try:
        held = without_waiting(str(journal), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    with os.fdopen(held, "rb") as opened:
        found = os.fstat(held)
        if not stat.S_ISREG(found.st_mode):
            raise special_files.refusal(Path(journal), found.st_mode)
        if found.st_size < len(_NAMES_ANOTHER) or opened.read(1) == b"\0":
            return False
        opened.seek(-len(_NAMES_ANOTHER), os.SEEK_END)
        return opened.read() == _NAMES_ANOTHER


def refuse_beside(path: Path) -> None:
    """Raise OSError where something lies beside a database that SQLite would wait for: a FIFO, a device, a folder."""
    for beside_it in beside(path):
        with suppress(FileNotFoundError):
            found = beside_it.stat()
            if not stat.S_ISREG(found.st_mode):
                said = f"{beside_it.name}: {special_files.mismatch(found.st_mode)}"
                raise OSError(errno.EINVAL, said, str(beside_it))


def lost_log(path: Path, *, lacks_tables: bool) -> bool:
    """Return whether a database is one whose commits stand in a write-ahead log, and there is none beside it.

    A file that was closed looks so, too. Hence only one that lacks tables, or is shorter than its header says: the log
    of the former held them, and the latter was copied while it grew. To be asked only of a file that no connection of
    this process has open.
    """
    try:
        if beside(path)[0].exists():
            return False
        size = path.stat().st_size
        with path.open("rb") as file:  # to close it drops the locks of this process's connections, which have none
            header = file.read(_HEADER)
    except OSError:
        return False
    if len(header) < _HEADER or header[_VERSIONS] != _WAL_VERSIONS:
        return False
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    return lacks_tables or size < pages * (65_536 if page == 1 else page)


def refuse_unwritable(path: Path) -> None:
    """Raise `PermissionError` for a file that this process may not write, and OSError on a read-only file system."""
    if not os.access(path, os.W_OK):
        number = errno.EROFS if is_on_read_only(path) else errno.EACCES
        raise OSError(number, os.strerror(number), str(path))


def is_on_read_only(path: Path) -> bool:
    """Return whether a file is on a file system that is mounted read-only here."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except (AttributeError, OSError):  # elsewhere than on Unix, or where it is not there
        return False


def is_remote(carrier: str) -> bool:
    """Return whether a file system of this name is on a network or on the host of a virtual machine."""
    return carrier.startswith(_REMOTE)


def file_system(path: Path) -> str:
    """Return the name of the file system that holds the file. Outside Linux ``"unknown"``, which counts as local."""
    for folder in path.parents:
        with suppress(OSError):
            return kind_of_device(folder.stat().st_dev)
    return "unknown"


@lru_cache(maxsize=64)
def kind_of_device(device: int) -> str:
    """Return the name of the file system on a device, ``"unknown"`` as `file_system` does."""
    if sys.platform != "linux":
        return "unknown"
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "unknown"
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        head, _, tail = line.partition(" - ")
        if head.split()[2] == wanted:
            return tail.split()[0]
    return "unknown"
