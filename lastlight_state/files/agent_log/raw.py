"""Untruncated tool results: the complete texts of results that the log contains in shortened form."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from lastlight_state.db.gate import guard_arguments
from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.files.agent_log import paths
from lastlight_state.files.agent_log.merge import main_lines
from lastlight_state.files.agent_log.records import RawCheck, RawFile
from lastlight_state.files.agent_log.summaries import Sessions
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.reader import read_at
from lastlight_state.files.jsonl.writer import SyncWord
from lastlight_state.ids import new_id

# Untruncated tool results on disk: files named by the hash of their content, in ``<session id>/raw/`` beside a log.
#
# A file is written under a temporary name, synced to disk unless ``sync="os"``, and renamed. So a file with the final
# name is complete. It never changes afterwards. Links are not followed.

SUFFIX = ".txt"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BLOCK_BYTES = 1024 * 1024


def directory_of(log: Path) -> Path:
    """Return the directory of a log's untruncated results."""
    return log.with_suffix("") / paths.RAW


def is_digest(sha256: object) -> bool:
    """True if the text is 64 lower-case hex digits."""
    return isinstance(sha256, str) and _DIGEST.fullmatch(sha256) is not None


def keep(log: Path, text: str, units: int, *, sync: SyncWord) -> dict[str, Any]:
    """Store a complete text, and return the reference for its block in the log. Equal texts share one file.

    Lone surrogates are stored as their three bytes. Raises `BackendUnavailable`, and `UnsafePath` if ``raw`` is a link.
    """
    data = text.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(data).hexdigest()
    directory = directory_of(log)
    try:
        with files.open_directory(directory, base=files.ROOT, create=True) as (at, made):
            if _size(at, digest + SUFFIX) != len(data):
                _write(at, digest + SUFFIX, data, sync)
        if sync != "os":
            for changed in made:
                files.sync_directory(changed)
    except OSError as error:
        raise files.failure(error, directory) from error
    return {"sha256": digest, "bytes": len(data), "chars": units}


def digest_of(descriptor: int, path: Path) -> str:
    """Return the hash of an open file's content, read in blocks. Raises `BackendUnavailable` if reading fails."""
    found = hashlib.sha256()
    offset = 0
    while block := read_at(descriptor, path, _BLOCK_BYTES, offset):
        found.update(block)
        offset += len(block)
    return found.hexdigest()


def stored_sizes(directory: Path) -> dict[str, int]:
    """Return the size of each stored result in the directory, by digest.

    Raises OSError if the directory cannot be read.
    """
    found: dict[str, int] = {}
    try:
        with _open_directory(directory) as at:
            for name in sorted(os.listdir(at)):  # noqa: PTH208 - by descriptor, so that no link is followed
                size = _size(at, name) if name.endswith(SUFFIX) and is_digest(name.removesuffix(SUFFIX)) else None
                if size is not None:
                    found[name.removesuffix(SUFFIX)] = size
    except FileNotFoundError:
        return {}
    return found


@contextmanager
def _open_directory(directory: Path) -> Iterator[int]:
    descriptor = files.listable(directory, base=files.ROOT)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _size(directory: int, name: str) -> int | None:
    """Return the size of a regular file; None for anything else."""
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
            files.sync(directory)


_KIND = "raw_result"


class Raw:
    """The untruncated tool results of logs: ``store.agent_log.raw``."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    @guard_arguments
    def get(self, session_id: str, sha256: str, *, slug: str | None = None) -> bytes:
        """Return the complete result with this hash.

        If it is missing or damaged, raises `NotFound` with a ``reason``.
        """
        with self.open(session_id, sha256, slug=slug) as file:
            return file.read()

    @guard_arguments
    def open(self, session_id: str, sha256: str, *, slug: str | None = None) -> BinaryIO:
        """Return the complete result as an open file, after checking its hash. The caller closes the file.

        Errors as in `get`.
        """
        if not is_digest(sha256):
            raise InvalidValue("sha256", "must be 64 lower-case hex digits")
        reason = "no such session"
        for log in self._sessions.locations(session_id, slug=slug):
            path = directory_of(log.path) / (sha256 + SUFFIX)
            try:
                file = os.fdopen(files.open_to_read(path, base=files.ROOT), "rb")
            except FileNotFoundError:
                reason = "missing"
                continue
            except OSError as error:
                raise files.failure(error, path) from error
            with ExitStack() as unless_sound:
                unless_sound.callback(file.close)
                if digest_of(file.fileno(), path) == sha256:
                    unless_sound.pop_all()
                    return file
            reason = "damaged: the content has another hash"
        raise NotFound(_KIND, sha256, reason=reason)

    @guard_arguments
    def list(self, session_id: str, *, slug: str | None = None) -> tuple[RawFile, ...]:
        """Return the stored results of a session, ordered by hash. Raises `NotFound` for an unknown session."""
        log = self._sessions.get(session_id, slug=slug)
        return tuple(RawFile(sha256=digest, bytes=size) for digest, size in self._stored_sizes(log.path).items())

    @guard_arguments
    def verify(self, session_id: str, *, slug: str | None = None) -> RawCheck:
        """Compare the stored results with their hashes, and the hashes with the log's references. Reads all files."""
        log = self._sessions.get(session_id, slug=slug)
        kept = self._stored_sizes(log.path)
        sound = tuple(digest for digest in kept if self._is_sound(log.path, digest))
        referred = {sha256 for line in main_lines(log) for sha256 in references_of(line.value)}
        return RawCheck(
            sound=sound,
            damaged=tuple(digest for digest in kept if digest not in sound),
            missing=tuple(sorted(referred - set(kept))),
            unreferenced=tuple(digest for digest in kept if digest not in referred),
        )

    def _stored_sizes(self, log: Path) -> dict[str, int]:
        directory = directory_of(log)
        try:
            return stored_sizes(directory)
        except OSError as error:
            raise files.failure(error, directory) from error

    def _is_sound(self, log: Path, digest: str) -> bool:
        path = directory_of(log) / (digest + SUFFIX)
        try:
            descriptor = files.open_to_read(path, base=files.ROOT)
        except OSError:
            return False
        try:
            return digest_of(descriptor, path) == digest
        finally:
            os.close(descriptor)


def references_of(value: dict[str, Any]) -> Iterator[str]:
    """Yield the hashes of stored results that one line refers to."""
    message = value.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():
        reference = block.get("raw_ref") if isinstance(block, dict) else None
        if isinstance(reference, dict) and isinstance(reference.get("sha256"), str):
            yield reference["sha256"]
