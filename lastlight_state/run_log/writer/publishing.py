"""Publishing a new log: either there is no file, or one whose first line is its whole header."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

from lastlight_state.errors import AlreadyExists
from lastlight_state.jsonl import files, places
from lastlight_state.run_log import words
from lastlight_state.run_log.packed import SUFFIX
from lastlight_state.run_log.whole import write_new

#: What file systems say that have no hard links.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EACCES})


def publish(path: Path, run_id: str, line: bytes, *, sync: bool) -> None:
    """Make the log with its first line. Raises `AlreadyExists`, `UnsafePath` for a link, `BackendUnavailable`.

    The line is written under another name and gets its own by an exclusive link. Where links are missing, the file is
    made exclusively under its name.
    """
    try:
        with places.directory(path.parent, base=places.ROOT, create=True) as (held, changed):
            if _exists(held, path.name) or _exists(held, path.name + SUFFIX):
                raise AlreadyExists(words.RUN, run_id)
            _linked(held, path.name, line, sync=sync)
            if sync:
                places.sync(held)
                for directory in changed:
                    files.sync_directory(directory)
    except FileExistsError:
        raise AlreadyExists(words.RUN, run_id) from None
    except OSError as error:
        raise files.failure(error, path) from error


def _linked(held: int, name: str, line: bytes, *, sync: bool) -> None:
    temporary = f".{name}.{secrets.token_hex(4)}.tmp"
    try:
        write_new(held, temporary, line, sync=sync)
        try:
            os.link(temporary, name, src_dir_fd=held, dst_dir_fd=held, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            write_new(held, name, line, sync=sync)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=held)


def _exists(held: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=held, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
