"""Detects special files at a path, and opens regular files without blocking on a FIFO.

Opening a FIFO waits until another process opens its other end, and reading a device may never end. So files of callers
and of other programs are opened here: the result is a regular file, or an error that states what was found.
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
    """Return the error text for a file of another kind than expected."""
    return f"expected {wanted}, found {_NAMES.get(stat.S_IFMT(mode), 'something else')}"


def refusal(path: Path, mode: int, wanted: str = REGULAR) -> OSError:
    """Return the exception for a path with a file of another kind than expected."""
    return OSError(errno.EINVAL, mismatch(mode, wanted), str(path))


def mismatch_at(path: Path, wanted: str = REGULAR) -> str | None:
    """Return the error text if a file of another kind is at the path.

    Return None if the kind is right or there is no file.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        looped = isinstance(error, OSError) and error.errno == errno.ELOOP
        return f"expected {wanted}, found a loop of symbolic links" if looped else None
    return None if _NAMES.get(stat.S_IFMT(mode)) == wanted else mismatch(mode, wanted)


def open_regular(path: Path | str, flags: int = os.O_RDONLY, mode: int = 0o777, *, folder: int | None = None) -> int:
    """Return a descriptor of a regular file. ``folder`` is a descriptor of the file's directory.

    Raises OSError, ``EINVAL`` with the text of `mismatch`, if the file is not regular.
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
    """Open a regular file for reading bytes. Raises OSError as `open_regular` does."""
    return os.fdopen(open_regular(path), "rb")


def reason_of(error: OSError, path: Path | str | None) -> str:
    """Return why the system refused a path: a file in place of one of its directories, or the system's message."""
    if error.errno == errno.ENOTDIR and path is not None:
        for above in reversed(Path(path).absolute().parents):
            problem = mismatch_at(above, DIRECTORY)
            if problem is not None:
                return f"{above}: {problem}"
        return mismatch_at(Path(path), DIRECTORY) or str(error.strerror)
    return error.strerror or str(error)
