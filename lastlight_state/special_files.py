"""What stands at a path in place of a regular file, and files that are opened without waiting at a FIFO.

A FIFO keeps its opener until somebody opens its other end, and a device may never end. So files of callers and of other
programs are opened here, and what is opened is a regular file or an error that says what was found.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

REGULAR, DIRECTORY = "a regular file", "a directory"
_NAMES = {
    stat.S_IFREG: REGULAR,
    stat.S_IFDIR: DIRECTORY,
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFLNK: "a symbolic link",
}


def mismatch(mode: int, wanted: str = REGULAR) -> str:
    """Return how an error says that something else than the wanted kind of file was found."""
    return f"expected {wanted}, found {_NAMES.get(stat.S_IFMT(mode), 'something else')}"


def refusal(path: Path, mode: int, wanted: str = REGULAR) -> OSError:
    """Return the error, to be raised, for a path with another kind of file than the wanted one."""
    return OSError(errno.EINVAL, mismatch(mode, wanted), str(path))


def mismatch_at(path: Path, wanted: str = REGULAR) -> str | None:
    """Return why the path leads to no file of the wanted kind; None if it does, or leads to nothing at all."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        looped = isinstance(error, OSError) and error.errno == errno.ELOOP
        return f"expected {wanted}, found a loop of symbolic links" if looped else None
    return None if _NAMES.get(stat.S_IFMT(mode)) == wanted else mismatch(mode, wanted)


def opened(path: Path | str, flags: int = os.O_RDONLY, mode: int = 0o777, *, folder: int | None = None) -> int:
    """Return a descriptor of a regular file; ``folder`` is a descriptor of the directory that has it.

    Raises OSError, ``EINVAL`` with `mismatch` for what is there and is not a regular file.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.EISDIR):  # a socket, or a FIFO that nobody reads; a directory
            found = os.stat(path, dir_fd=folder, follow_symlinks=not flags & os.O_NOFOLLOW)
            if not stat.S_ISREG(found.st_mode):
                raise refusal(Path(path), found.st_mode) from error
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise refusal(Path(path), found.st_mode)
    return descriptor


def open_binary(path: Path) -> BufferedReader:
    """Open a regular file to read its bytes. Raises OSError as `opened` does."""
    return os.fdopen(opened(path), "rb")


def reason_of(error: OSError, path: Path | str | None) -> str:
    """Return why the operating system refused a path: what stands where it expected a directory, or what it said."""
    if error.errno == errno.ENOTDIR and path is not None:
        for above in reversed(Path(path).absolute().parents):
            problem = mismatch_at(above, DIRECTORY)
            if problem is not None:
                return f"{above}: {problem}"
        return mismatch_at(Path(path), DIRECTORY) or str(error.strerror)
    return error.strerror or str(error)
