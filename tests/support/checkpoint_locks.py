"""Watches SQLite's locks of a write-ahead log from outside: whether a checkpoint is made while nobody may commit.

The locks are bytes of the log's index: 120 is that of the one writer, 121 that of the one checkpointer.
"""

import fcntl
import os
import select
import struct
import sys
import time

_LOCK = "hhqqi"
WRITER, CHECKPOINTER = 120, 121
#: Looks that take longer say nothing: another checkpoint may have begun meanwhile.
_SECONDS = 0.0002


def holder(descriptor: int, byte: int) -> int:
    """The process that holds the lock; 0 where nobody does."""
    asked = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    kind, _, _, _, process = struct.unpack(_LOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return 0 if kind == fcntl.F_UNLCK else process


def looked(descriptor: int) -> bool | None:
    """Whether the checkpointer has the writers' lock, too. None where no checkpoint was seen."""
    began = time.monotonic()
    before = holder(descriptor, CHECKPOINTER)
    if not before:
        return None
    writer = holder(descriptor, WRITER)
    after = holder(descriptor, CHECKPOINTER)
    return writer == before if after == before and time.monotonic() - began < _SECONDS else None


def main() -> None:
    """Look until standard input ends, then print how many looks met a checkpoint, and how many one beside writers."""
    descriptor = os.open(sys.argv[1], os.O_RDWR)
    sys.stdout.write("looks\n")
    sys.stdout.flush()
    met = beside = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(2000):
            found = looked(descriptor)
            met += found is not None
            beside += found is False
    sys.stdout.write(f"{met} {beside}\n")


if __name__ == "__main__":
    main()
