"""Untruncated tool results on disk: files named by the hash of their content, in ``<session id>/raw/`` beside a log.

A file is written under a temporary name, flushed to disk unless ``sync="os"``, and renamed, so that its name stands for
complete content. It never changes afterwards. Links are not followed.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lastlight_state.agent_log import paths
from lastlight_state.ids import new_id
from lastlight_state.jsonl import files, places
from lastlight_state.jsonl.reader import read_at
from lastlight_state.jsonl.writer import SyncWord

SUFFIX = ".txt"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BLOCK_BYTES = 1024 * 1024


def directory_of(log: Path) -> Path:
    """The directory of the untruncated results of a log."""
    return log.with_suffix("") / paths.RAW


def is_digest(sha256: object) -> bool:
    """Whether the text is 64 lower-case hex digits."""
    return isinstance(sha256, str) and _DIGEST.fullmatch(sha256) is not None


def keep(log: Path, text: str, units: int, *, sync: SyncWord) -> dict[str, Any]:
    """Store a whole text, and return the reference for its block. Equal texts share one file.

    Lone surrogates are kept as their three bytes. Raises `BackendUnavailable`, `UnsafePath` when ``raw`` is a link.
    """
    data = text.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(data).hexdigest()
    directory = directory_of(log)
    try:
        with places.directory(directory, base=places.ROOT, create=True) as (at, made):
            if _size(at, digest + SUFFIX) != len(data):
                _write(at, digest + SUFFIX, data, sync)
        if sync != "os":
            for changed in made:
                files.sync_directory(changed)
    except OSError as error:
        raise files.failure(error, directory) from error
    return {"sha256": digest, "bytes": len(data), "chars": units}


def digest_of(descriptor: int, path: Path) -> str:
    """The hash of an open file's content, read in blocks. Raises `BackendUnavailable` when it cannot be read."""
    found = hashlib.sha256()
    offset = 0
    while block := read_at(descriptor, path, _BLOCK_BYTES, offset):
        found.update(block)
        offset += len(block)
    return found.hexdigest()


def kept(directory: Path) -> dict[str, int]:
    """Digest and size of each file in the directory. Raises OSError if it cannot be read."""
    found: dict[str, int] = {}
    try:
        with _opened(directory) as at:
            for name in sorted(os.listdir(at)):  # noqa: PTH208 - by descriptor, so that no link is followed
                size = _size(at, name) if name.endswith(SUFFIX) and is_digest(name.removesuffix(SUFFIX)) else None
                if size is not None:
                    found[name.removesuffix(SUFFIX)] = size
    except FileNotFoundError:
        return {}
    return found


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = places.listable(directory, base=places.ROOT)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _size(directory: int, name: str) -> int | None:
    """The size of a regular file, None for anything else."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _write(directory: int, name: str, data: bytes, sync: SyncWord) -> None:
    temporary = f".{name}.{new_id()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if sync != "os":
                    os.fdatasync(descriptor)
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)
            raise
    finally:
        if sync != "os":
            places.sync(directory)
