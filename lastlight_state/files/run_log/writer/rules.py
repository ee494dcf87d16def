"""Rules for the next record of a run: the order of records and their numbers.

The rules are checked before a record is written, and updated afterwards, so that a refused record leaves no gap.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from math import isfinite
from pathlib import Path

from lastlight_state.clock import aware_utc
from lastlight_state.db.valid import word
from lastlight_state.errors import AlreadyExists, Conflict, InvalidValue, ReservedName
from lastlight_state.files.jsonl import files
from lastlight_state.files.run_log import paths
from lastlight_state.files.run_log.records import (
    KINDS,
    AgentEvent,
    CustomRecord,
    LlmRequest,
    LlmResponse,
    RunContext,
    RunEnd,
    RunError,
    RunHeader,
    RunRecord,
    RunStart,
    RunStatus,
    ToolOutput,
    UnknownRecord,
    is_custom,
    is_reserved,
)
from lastlight_state.files.run_log.storage import SUFFIX, write_new
from lastlight_state.reprs import repr_of

# Publishing of a new log: the file either does not exist, or its first line is its whole header.

#: The errors of file systems that have no hard links.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EACCES})


def publish(path: Path, run_id: str, line: bytes, *, sync: bool) -> None:
    """Create a log together with its first line. Raises `AlreadyExists`, `UnsafePath` for a link, `BackendUnavailable`.

    The line is written under a temporary name, and the file gets its own name by a hard link, which fails if the name
    exists. Without hard links, the file is created exclusively under its name.
    """
    try:
        with files.open_directory(path.parent, base=files.ROOT, create=True) as (held, changed):
            if _exists(held, path.name) or _exists(held, path.name + SUFFIX):
                raise AlreadyExists(paths.RUN, run_id)
            _link_new(held, path.name, line, sync=sync)
            if sync:
                files.sync(held)
                for directory in changed:
                    files.sync_directory(directory)
    except FileExistsError:
        raise AlreadyExists(paths.RUN, run_id) from None
    except OSError as error:
        raise files.failure(error, path) from error


def _link_new(held: int, name: str, line: bytes, *, sync: bool) -> None:
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


#: The most open requests that an error names.
_NAMED = 20


class Rules:
    """The state of a run as its log shows it."""

    def __init__(self, header: RunHeader, *, invoke_seq: int = 0) -> None:
        self.run_id = header.run_id
        self.session_id = header.session_id
        self.has_start = False
        self.has_error = False
        self.ended = False
        self.last_status: str | None = None
        self.last_event = -1
        self.last_request = invoke_seq
        self.open_requests: set[int] = set()

    def resume(self, records: Iterable[RunRecord]) -> None:
        """Count the records of an existing log, whichever program wrote them."""
        for record in records:
            self.count(record)

    def check(self, record: RunRecord) -> None:
        """Raise an error if a record may not be written now: `InvalidValue`, `ReservedName` or `Conflict`."""
        if isinstance(record, RunHeader):
            raise InvalidValue("type", "a log has one header, which is written when the run starts")
        if self.ended and not isinstance(record, ToolOutput | CustomRecord):
            raise Conflict(f"run {self.run_id!r} has ended: only late tool outputs and x. records follow", code="ended")
        if record.run_id != self.run_id and not _is_foreign(record):
            raise InvalidValue(
                "run_id", f"is of another run: expected {self.run_id!r}, got {repr_of(record.run_id, 80)}"
            )
        if record.ts is not None:
            aware_utc("ts", record.ts)
        elif not isinstance(record, UnknownRecord):
            raise InvalidValue("ts", "must be a time with its zone")
        self._check_fields(record)

    def count(self, record: RunRecord) -> None:
        """Count a record that was written."""
        if isinstance(record, RunStart):
            self.has_start = True
        elif isinstance(record, AgentEvent):
            self.last_event = max(self.last_event, record.seq)
        elif isinstance(record, LlmRequest):
            self.last_request = max(self.last_request, record.seq)
            self.open_requests.add(record.seq)
        elif isinstance(record, LlmResponse):
            self.open_requests.discard(record.seq)
        elif isinstance(record, RunStatus):
            self.last_status = record.status
        elif isinstance(record, RunError):
            self.has_error = True
        elif isinstance(record, RunEnd):
            self.ended = True

    def _check_fields(self, record: RunRecord) -> None:
        if isinstance(record, AgentEvent):
            _must_grow(record.seq, self.last_event)
        elif isinstance(record, LlmRequest):
            _must_grow(record.seq, self.last_request)
        elif isinstance(record, LlmResponse):
            self._check_response(record)
        elif isinstance(record, RunStart):
            self._check_start(record)
        elif isinstance(record, RunContext):
            percent = record.context_left_percent
            if not isfinite(percent) or not 0 <= percent <= 100:
                raise InvalidValue("context_left_percent", f"must be a number from 0 to 100, got {percent}")
        elif isinstance(record, RunStatus):
            word("status", record.status, paths.STATUSES)
        elif isinstance(record, RunEnd):
            word("outcome", record.outcome, paths.OUTCOMES)
        elif isinstance(record, CustomRecord | UnknownRecord):
            _check_type(record)

    def _check_start(self, record: RunStart) -> None:
        if self.has_start:
            raise InvalidValue("type", "a log has at most one run.start")
        if record.session_id is not None and record.session_id != self.session_id:
            raise InvalidValue("session_id", f"must be that of the header, {self.session_id!r}")
        word("input.type", record.input.type, paths.INPUTS)

    def _check_response(self, record: LlmResponse) -> None:
        if record.seq in self.open_requests:
            return
        problem = "is answered already, or was never asked" if record.seq <= self.last_request else "was never asked"
        raise InvalidValue(
            "seq", f"request {repr_of(record.seq, 80)} {problem}", expected=sorted(self.open_requests)[:_NAMED]
        )


def _is_foreign(record: RunRecord) -> bool:
    """True if the record's type is unknown and the record has no run id."""
    return isinstance(record, UnknownRecord) and not isinstance(record.run_id, str)


def _must_grow(seq: int, last: int) -> None:
    if seq <= last:
        raise InvalidValue("seq", f"must be {last + 1} or more, got {repr_of(seq, 80)}", expected=last + 1)


def _check_type(record: CustomRecord | UnknownRecord) -> None:
    """Refuse a type that is not of the form for other programs, unless the record was read from a file."""
    kind = record.type
    if is_custom(kind) if isinstance(record, CustomRecord) else record.raw is not None and kind != "header":
        return
    if is_reserved(kind):
        raise ReservedName("type", f"{repr_of(kind, 80)} is kept for later versions of the format")
    if kind in KINDS:
        raise InvalidValue("type", f"a record of the type {kind!r} has fields that do not fit")
    raise InvalidValue("type", f"must be of the form x.<org>.<name>, got {repr_of(kind, 80)}")
