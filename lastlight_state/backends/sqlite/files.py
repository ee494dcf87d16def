"""Database files: creates them for their owner alone, and tells local file systems from remote ones."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from lastlight_state import special_files

PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700

#: File systems of this machine that change the time of the last change with each change, and let nobody set it.
_TIMED = frozenset(
    "apfs bcachefs btrfs ext2 ext3 ext4 f2fs jfs nilfs2 overlay ramfs reiserfs rootfs tmpfs ufs xfs zfs".split()
)
#: What else is of this machine. ``unknown`` counts as that, because no name is told outside Linux.
_LOCAL = _TIMED | frozenset("erofs exfat hfs hfsplus iso9660 msdos ntfs ntfs3 proc squashfs udf unknown vfat".split())
#: How long the name of a device's file system is kept: another one may be mounted under its number.
_KEPT_SECONDS = 60
_MOUNTS, _DESCRIPTOR_FACTS = "/proc/self/mountinfo", "/proc/self/fdinfo/"

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
    """Return whether a file system of this name may be on a network, or on the host of a virtual machine.

    Such is each that is not known to be of this machine.
    """
    return carrier not in _LOCAL


def tells_changes(carrier: str) -> bool:
    """Return whether each change of a file changes what a stat says, on a file system of this name."""
    return carrier in _TIMED


def file_system(path: Path) -> str:
    """Return the name of the file system that holds the file; ``"unknown"`` outside Linux, and where nobody tells."""
    for folder in path.parents:
        with suppress(OSError):
            return kind_of_device(folder.stat().st_dev)
    return "unknown"


def kind_of_device(device: int, folder: int | None = None) -> str:
    """Return the name of the file system on a device, ``"unknown"`` as `file_system` does.

    A file may have another device than its mount, as on btrfs. Then the open directory ``folder`` tells the mount.
    """
    if sys.platform != "linux":
        return "unknown"
    minute = int(time.monotonic()) // _KEPT_SECONDS
    with suppress(OSError):  # such as too many open files, which is not kept
        found = _mounted(2, f"{os.major(device)}:{os.minor(device)}", minute)
        if found is None and folder is not None:
            found = _mounted(0, _mount_of(folder), minute)
        return found or "unknown"
    return "unknown"


@lru_cache(maxsize=64)
def _mounted(field: int, wanted: str, _minute: int) -> str | None:
    """Return the name of the file system whose mount has this in a field: 0 is its number, 2 its device."""
    for line in Path(_MOUNTS).read_text(encoding="utf-8", errors="replace").splitlines():
        head, _, tail = line.partition(" - ")
        if head.split()[field] == wanted:
            return tail.split()[0]
    return None


def _mount_of(descriptor: int) -> str:
    """Return the number of the mount that a descriptor leads to; nothing where the system does not say."""
    facts = Path(f"{_DESCRIPTOR_FACTS}{descriptor}").read_text(encoding="ascii", errors="replace")
    return facts.partition("mnt_id:")[2].split("\n", 1)[0].strip()
