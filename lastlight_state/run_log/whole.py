"""New files in an open directory, written whole."""

from __future__ import annotations

import os
from contextlib import suppress

from lastlight_state.jsonl.places import PRIVATE_FILE

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_new(held: int, name: str, data: bytes, *, sync: bool = True) -> None:
    """Make a file in the directory ``held``, which must not have one of this name.

    Raises OSError; then there is no such file.
    """
    descriptor = os.open(name, _NEW, PRIVATE_FILE, dir_fd=held)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if sync:
            os.fsync(descriptor)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=held)
        raise
    finally:
        os.close(descriptor)
