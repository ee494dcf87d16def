"""Untruncated tool results: the whole texts of results that the log shows cut."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from lastlight_state.agent_log import raw_files
from lastlight_state.agent_log.records import RawCheck, RawFile
from lastlight_state.agent_log.scan import scanned
from lastlight_state.agent_log.sessions import Sessions
from lastlight_state.db.gate import guarded
from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.jsonl import files, places

_KIND = "raw_result"


class Raw:
    """``store.agent_log.raw``"""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    @guarded
    def get(self, session_id: str, sha256: str, *, slug: str | None = None) -> bytes:
        """The whole result with that hash. If it is missing or damaged, `NotFound` with a ``reason``."""
        with self.open(session_id, sha256, slug=slug) as file:
            return file.read()

    @guarded
    def open(self, session_id: str, sha256: str, *, slug: str | None = None) -> BinaryIO:
        """The whole result as a file to read, checked before; the caller closes it. Errors as in `get`."""
        if not raw_files.is_digest(sha256):
            raise InvalidValue("sha256", "must be 64 lower-case hex digits")
        reason = "no such session"
        for log in self._sessions.locations(session_id, slug=slug):
            path = raw_files.directory_of(log.path) / (sha256 + raw_files.SUFFIX)
            try:
                file = os.fdopen(files.open_to_read(path, base=places.ROOT), "rb")
            except FileNotFoundError:
                reason = "missing"
                continue
            except OSError as error:
                raise files.failure(error, path) from error
            with ExitStack() as unless_sound:
                unless_sound.callback(file.close)
                if raw_files.digest_of(file.fileno(), path) == sha256:
                    unless_sound.pop_all()
                    return file
            reason = "damaged: the content has another hash"
        raise NotFound(_KIND, sha256, reason=reason)

    @guarded
    def list(self, session_id: str, *, slug: str | None = None) -> tuple[RawFile, ...]:
        """The results kept for a session, ordered by hash. Raises `NotFound` for an unknown session."""
        log = self._sessions.get(session_id, slug=slug)
        return tuple(RawFile(sha256=digest, bytes=size) for digest, size in self._kept(log.path).items())

    @guarded
    def verify(self, session_id: str, *, slug: str | None = None) -> RawCheck:
        """Compare the files with their names, and with the log's references. Reads all of them."""
        log = self._sessions.get(session_id, slug=slug)
        kept = self._kept(log.path)
        sound = tuple(digest for digest in kept if self._is_sound(log.path, digest))
        referred = {sha256 for line in scanned(log) for sha256 in references_of(line.value)}
        return RawCheck(
            sound=sound,
            damaged=tuple(digest for digest in kept if digest not in sound),
            missing=tuple(sorted(referred - set(kept))),
            unreferenced=tuple(digest for digest in kept if digest not in referred),
        )

    def _kept(self, log: Path) -> dict[str, int]:
        directory = raw_files.directory_of(log)
        try:
            return raw_files.kept(directory)
        except OSError as error:
            raise files.failure(error, directory) from error

    def _is_sound(self, log: Path, digest: str) -> bool:
        path = raw_files.directory_of(log) / (digest + raw_files.SUFFIX)
        try:
            descriptor = files.open_to_read(path, base=places.ROOT)
        except OSError:
            return False
        try:
            return raw_files.digest_of(descriptor, path) == digest
        finally:
            os.close(descriptor)


def references_of(value: dict[str, Any]) -> Iterator[str]:
    """The hashes that one line refers to."""
    message = value.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():
        reference = block.get("raw_ref") if isinstance(block, dict) else None
        if isinstance(reference, dict) and isinstance(reference.get("sha256"), str):
            yield reference["sha256"]
