"""Packed logs: gzip files that hold the bytes of logs that have ended."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tempfile
import zlib
from typing import IO

SUFFIX = ".gz"
_BLOCK_BYTES = 256 * 1024
#: Begins a line that never ends. It stands where a damaged gzip cannot be read on, so that the log reads as torn there.
_TORN = b"{"


def pack(plain: int, target: int) -> None:
    """Write the bytes of an open log into an open file as gzip, on disk when this returns. Raises OSError."""
    with open(target, "wb", closefd=False) as raw:
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed, _from_start(plain) as source:
            shutil.copyfileobj(source, packed, _BLOCK_BYTES)
        raw.flush()
        os.fsync(target)


def unpacked(packed: int, most: int | None = None) -> int:
    """A descriptor of an unnamed file with the bytes of a packed log, or the first ``most`` of them. Raises OSError."""
    with tempfile.TemporaryFile() as plain, _from_start(packed) as raw, gzip.GzipFile(fileobj=raw) as source:
        try:
            rest = most  # read1: what stands before the damage is not held back until a block is full
            while block := source.read1(_BLOCK_BYTES if rest is None else min(rest, _BLOCK_BYTES)):
                plain.write(block)
                rest = None if rest is None else rest - len(block)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            plain.write(_TORN)
        if not plain.tell():  # no log is empty
            plain.write(_TORN)
        plain.flush()
        return os.dup(plain.fileno())


def is_same(plain: int, packed: int) -> bool:
    """Whether a packed log holds exactly the bytes of an open one. Raises OSError."""
    unpacked_again = unpacked(packed)
    try:
        return _digest(plain) == _digest(unpacked_again)
    finally:
        os.close(unpacked_again)


def _digest(descriptor: int) -> bytes:
    with _from_start(descriptor) as source:
        return hashlib.file_digest(source, "sha256").digest()  # type: ignore[arg-type]


def _from_start(descriptor: int) -> IO[bytes]:
    """The open file from its first byte. It stays open when what is returned is closed."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    return open(descriptor, "rb", closefd=False)
