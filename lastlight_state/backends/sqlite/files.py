"""Database files: creates them so that only their owner has access, and tells local file systems from remote ones."""

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

#: Local file systems that update a file's ctime with each change, and let nobody set it.
_TIMED = frozenset(
    "apfs bcachefs btrfs ext2 ext3 ext4 f2fs jfs nilfs2 overlay ramfs reiserfs rootfs tmpfs ufs xfs zfs".split()
)
#: Other local file systems. ``unknown`` counts as one, because outside Linux no name is reported.
_LOCAL = _TIMED | frozenset("erofs exfat hfs hfsplus iso9660 msdos ntfs ntfs3 proc squashfs udf unknown vfat".split())
#: The seconds for which the name of a device's file system is cached: another one may be mounted under its number.
_KEPT_SECONDS = 60
_MOUNTS, _DESCRIPTOR_FACTS = "/proc/self/mountinfo", "/proc/self/fdinfo/"

#: The length of a database's header, and the position of its two format bytes: 2 and 2 mean WAL mode.
_HEADER, _VERSIONS, _WAL_VERSIONS = 100, slice(18, 20), b"\2\2"
#: The end of a journal that names a second journal.
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")


def make_private_directory(path: Path) -> None:
    """Create the directory and its missing parents, each accessible to their owner only. Existing modes are kept.

    The new names are synced to disk here, because SQLite syncs only names of files.
    """
    missing = [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]
    for folder in reversed(missing):
        folder.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        with suppress(OSError):  # a parent that may be entered, but not read
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
    """True if there is a database file at this path.

    Raises OSError if its directory cannot be entered or is not a directory, or if the path is not a regular file. A
    FIFO would make SQLite wait for ever for the other end. With ``follow``, a symbolic link counts as its target.
    """
    try:
        found = path.stat(follow_symlinks=follow)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found.st_mode):
        raise special_files.refusal(path, found.st_mode)
    return True


def without_waiting(path: str, flags: int) -> int:
    """Open a file without ever blocking.

    If a FIFO was put in the file's place, a normal open would wait for its other end.
    """
    return os.open(path, flags | os.O_NONBLOCK)


def size(*paths: Path | str) -> int:
    """Return the total size in bytes of those files that exist."""
    found = 0
    for path in paths:
        try:
            found += os.lstat(path).st_size
        except OSError:
            continue
    return found


def real(path: Path) -> Path:
    """Resolve a link to its target, because SQLite looks next to the target for a database's other files."""
    return Path(os.path.realpath(path))


def beside(path: Path) -> tuple[Path, Path, Path]:
    """Return the paths of a database's write-ahead log, of the log's index, and of the rollback journal."""
    path = real(path)
    return (
        path.with_name(f"{path.name}-wal"),
        path.with_name(f"{path.name}-shm"),
        path.with_name(f"{path.name}-journal"),
    )


def names_another(journal: Path | str) -> bool:
    """True if a journal that SQLite would roll back names a second journal.

    SQLite opens the file with that name and may delete it, whatever the file contains. No journal that this library
    writes names a second one. Raises OSError if the journal is not a regular file.
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
    """Raise OSError if a file next to a database is a FIFO, a device or a folder: SQLite would wait for it."""
    for beside_it in beside(path):
        with suppress(FileNotFoundError):
            found = beside_it.stat()
            if not stat.S_ISREG(found.st_mode):
                said = f"{beside_it.name}: {special_files.mismatch(found.st_mode)}"
                raise OSError(errno.EINVAL, said, str(beside_it))


def lost_log(path: Path, *, lacks_tables: bool) -> bool:
    """True if a database's commits were in a write-ahead log that no longer lies next to the file.

    A file that was closed properly looks the same. So call this only for a file that lacks tables (the lost log held
    them) or is shorter than its header states (it was copied while it grew). No connection of this process may have the
    file open.
    """
    try:
        if beside(path)[0].exists():
            return False
        size = path.stat().st_size
        with path.open("rb") as file:  # closing it drops the locks of this process's connections: there are none
            header = file.read(_HEADER)
    except OSError:
        return False
    if len(header) < _HEADER or header[_VERSIONS] != _WAL_VERSIONS:
        return False
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    return lacks_tables or size < pages * (65_536 if page == 1 else page)


def refuse_unwritable(path: Path) -> None:
    """Raise `PermissionError` for a file that this process may not write, and OSError for a read-only file system."""
    if not os.access(path, os.W_OK):
        number = errno.EROFS if is_on_read_only(path) else errno.EACCES
        raise OSError(number, os.strerror(number), str(path))


def is_on_read_only(path: Path) -> bool:
    """True if the file's file system is mounted read-only here."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except (AttributeError, OSError):  # not on Unix, or the file does not exist
        return False


def is_remote(carrier: str) -> bool:
    """True if a file system of this type may be on a network, or on the host of a virtual machine.

    Every type that is not known to be local counts as remote.
    """
    return carrier not in _LOCAL


def tells_changes(carrier: str) -> bool:
    """True if, on a file system of this type, each change of a file changes the result of its stat."""
    return carrier in _TIMED


def file_system(path: Path) -> str:
    """Return the type of the file's file system; ``"unknown"`` outside Linux, and if it cannot be found."""
    for folder in path.parents:
        with suppress(OSError):
            return kind_of_device(folder.stat().st_dev)
    return "unknown"


def kind_of_device(device: int, folder: int | None = None) -> str:
    """Return the type of the file system on a device, or ``"unknown"`` as `file_system` does.

    A file's device number may differ from its mount's, as on btrfs. Then the open directory ``folder`` is used to find
    the mount.
    """
    if sys.platform != "linux":
        return "unknown"
    minute = int(time.monotonic()) // _KEPT_SECONDS
    with suppress(OSError):  # such as too many open files; not cached
        found = _type_of_mount(2, f"{os.major(device)}:{os.minor(device)}", minute)
        if found is None and folder is not None:
            found = _type_of_mount(0, _mount_of(folder), minute)
        return found or "unknown"
    return "unknown"


@lru_cache(maxsize=64)
def _type_of_mount(field: int, wanted: str, _minute: int) -> str | None:
    """Return the type of the file system whose mount has this value in a field: 0 is its number, 2 its device."""
    for line in Path(_MOUNTS).read_text(encoding="utf-8", errors="replace").splitlines():
        head, _, tail = line.partition(" - ")
        if head.split()[field] == wanted:
            return tail.split()[0]
    return None


def _mount_of(descriptor: int) -> str:
    """Return the number of the mount to which an open descriptor belongs.

    Return an empty text if the system does not report it.
    """
    facts = Path(f"{_DESCRIPTOR_FACTS}{descriptor}").read_text(encoding="ascii", errors="replace")
    return facts.partition("mnt_id:")[2].split("\n", 1)[0].strip()
