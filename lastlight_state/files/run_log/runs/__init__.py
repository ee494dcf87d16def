"""The logs of runs: starting, continuing, reading, following and listing them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from lastlight_state.clock import Clock, aware_utc
from lastlight_state.codec import dump_line
from lastlight_state.db.gate import check_arguments
from lastlight_state.db.valid import flag, number, page_limit, word, words as words_of
from lastlight_state.errors import AlreadyExists, BackendUnavailable, Conflict, CorruptData, InvalidValue, LostRace
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.cursor import START, Mark, mark_at, mark_of_text, read_tail
from lastlight_state.files.jsonl.reader import Issue, Line, LineKind, LineReader, read_at
from lastlight_state.files.jsonl.recovery import Piece
from lastlight_state.files.jsonl.writer import MAX_LINE_BYTES, LineWriter, SyncWord
from lastlight_state.files.run_log import paths, storage
from lastlight_state.files.run_log.paths import OnError, RunState
from lastlight_state.files.run_log.reading import Damage, RunReading, is_supported, newer
from lastlight_state.files.run_log.records import RunHeader, RunRecord, accepts, record_of_piece
from lastlight_state.files.run_log.runs.heads import Heads, PruneReport, RunEntry, RunPage, TailChunk, end_of
from lastlight_state.files.run_log.runs.lists import RunFilter, RunLists
from lastlight_state.files.run_log.runs.upkeep import Upkeep
from lastlight_state.files.run_log.tree import RunFile, RunTree, open_run
from lastlight_state.files.run_log.writer import Hold, RunWriter
from lastlight_state.files.run_log.writer.rules import Rules, publish

_STATES = words_of(RunState)
_ON_ERROR = words_of(OnError)
_MOST_IN_CHUNK = 10_000


class Writing(NamedTuple):
    """The settings with which run logs are written: when to sync, and how long to wait for locks."""

    clock: Clock
    sync: SyncWord
    lock_timeout: float
    max_line_bytes: int = MAX_LINE_BYTES


class Runs:
    """The logs of runs: ``store.run_log.runs``."""

    def __init__(self, tree: RunTree, heads: Heads, lists: RunLists, writing: Writing) -> None:
        self._upkeep = Upkeep(tree, heads, lists, writing.lock_timeout)
        self._tree = tree
        self._heads = heads
        self._lists = lists
        self._writing = writing

    @check_arguments
    def start(self, header: RunHeader, *, invoke_seq: int = 0, on_error: OnError = "raise") -> RunWriter:
        """Create the log of a new run and return its writer. The file appears only with its complete header.

        ``invoke_seq`` is the last invocation number of the session so far. ``on_error="report"`` logs and counts
        failures of the file system, for runs that must go on without a disk. Raises `AlreadyExists`, `InvalidValue` and
        `UnsafePath` for an id that is not a UUIDv4 or a time without zone, `PayloadTooLarge`, `BackendUnavailable`.
        """
        word("on_error", on_error, _ON_ERROR)
        number("invoke_seq", invoke_seq)
        run_id = paths.checked_id("run_id", header.run_id)
        if header.session_id is not None:
            paths.checked_id("session_id", header.session_id)
        if not header.schema_version == paths.VERSION or isinstance(header.schema_version, bool):
            raise InvalidValue("schema_version", f"must be {paths.VERSION}")
        path = self._tree.path_to_write(run_id, paths.utc_start(header.started_at))
        line = dump_line(header.to_json(), where="header")
        sync = self._writing.sync != "os"
        held = storage.try_acquire(self._tree.lock_path(run_id), sync=sync)
        if held is None:
            raise AlreadyExists(paths.RUN, run_id, problem="is being written")
        with _unless_kept(held):
            publish(path, run_id, line, sync=sync)
            return self._writer(Rules(header, invoke_seq=invoke_seq), path, line, held, on_error)

    @check_arguments
    def reopen(self, run_id: str, *, invoke_seq: int = 0, on_error: OnError = "raise") -> RunWriter:
        """Return a writer that continues a log after the log's writer died or was closed. Numbering continues.

        ``invoke_seq`` is as in `start`. A torn last line is ended with a newline before the first append; nothing else
        changes. A run with its ``run.end`` accepts only late tool outputs and ``x.`` records. Raises `NotFound`,
        `LostRace` while another writer is alive, `Conflict` for a packed log, `CorruptData` without a header,
        `NewerSchema` for another version, `BackendUnavailable`.
        """
        word("on_error", on_error, _ON_ERROR)
        number("invoke_seq", invoke_seq)
        self._tree.get(run_id)
        held = storage.try_acquire(self._tree.lock_path(run_id))
        if held is None:
            raise LostRace(f"run {run_id!r} has a living writer", kind="run log writer", run_id=run_id)
        with _unless_kept(held):
            file = self._tree.get(run_id)
            if file.is_packed:
                raise Conflict(f"run {run_id!r} is packed", run_id=run_id)
            reading = RunReading(self._tree, file)
            placed = reading.placed()
            head = next(placed, None)
            first = head.record if head is not None and head.offset == 0 else None
            if not isinstance(first, RunHeader) or first.raw is None or first.recovered:
                raise CorruptData("run_log", run_id, "header", problem="is missing or damaged")
            if not is_supported(first):
                raise newer(f"run {run_id}", first.schema_version)
            rules = Rules(first, invoke_seq=invoke_seq)
            rules.run_id = run_id
            rules.resume(found.record for found in placed)
            return self._writer(rules, file.path, first.raw, held, on_error)

    @check_arguments
    def read(self, run_id: str, *, types: Collection[str] | None = None, strict_version: bool = False) -> RunReading:
        """Return the records of a run in file order, read during iteration. Raises `NotFound`.

        ``types`` selects records of these types. A log of another version is read as far as possible;
        ``strict_version`` raises `NewerSchema` instead.
        """
        return RunReading(self._tree, self._tree.get(run_id), types=types, strict_version=strict_version)

    @check_arguments
    def tail(self, run_id: str, *, after: str | None = None, limit: int = 1000) -> TailChunk:
        """Return at most ``limit`` (1 to 10,000) records after the cursor ``after``.

        At the end of a file, one more record without a newline may be returned. A line that is still being written is
        returned by a later call, when it is complete. Raises `NotFound`, and `InvalidValue` for a damaged cursor.
        """
        number("limit", limit, least=1, most=_MOST_IN_CHUNK)
        given = START if after is None else mark_of_text("after", after)
        with self._open_log(run_id) as (descriptor, file, is_live):
            return _chunk(descriptor, file, given, limit, is_live=is_live)

    @check_arguments
    def last(self, run_id: str, *, n: int = 50, before: str | None = None) -> TailChunk:
        """Return the last ``n`` (1 to 500) records, oldest first; with ``before``, the last ones before that cursor.

        Pass the chunk's ``before`` to go further back, and its ``cursor`` to `tail` to go on. The cost depends on the
        size of these records, not of the file, unless the file is packed. Errors as in `tail`.
        """
        n = page_limit(n)
        given = None if before is None else mark_of_text("before", before)
        with self._open_log(run_id) as (descriptor, file, is_live):
            return _last(descriptor, file, given, n, is_live=is_live)

    @contextmanager
    def _open_log(self, run_id: str) -> Iterator[tuple[int, RunFile, bool]]:
        """Open a run's log for reading. Yields the descriptor, the file, and the state of the run's writer."""
        file = self._tree.get(run_id)
        is_live = storage.liveness(self._tree.lock_path(run_id)) != "free"
        descriptor = open_run(file)
        try:
            yield descriptor, file, is_live
        finally:
            os.close(descriptor)

    @check_arguments
    def find(self, run_id: str) -> RunEntry | None:
        """Return the run's entry in lists, or None. Raises `UnsafePath` for an id that cannot name a file."""
        file = self._tree.find(run_id)
        return None if file is None else self._heads.entry(file)

    @check_arguments
    def get(self, run_id: str) -> RunEntry:
        """Return the run's entry, as `find` does. Raises `NotFound` without a log."""
        return self._heads.entry(self._tree.get(run_id))

    @check_arguments
    def list(
        self,
        *,
        session_id: str | None = None,
        state: RunState | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> RunPage:
        """Return a page of runs, the newest ``started_at`` first; equal ones by id. ``limit``: 1 to 500.

        Lists runs that started at or after ``since`` and before ``until``. Reads the first lines of all logs in these
        days, once per process, and the last lines of the logs on the page. Logs that cannot be opened are counted in
        ``skipped``.
        """
        given = RunFilter(
            session_id,
            None if state is None else word("state", state, _STATES),  # type: ignore[arg-type]
            None if since is None else aware_utc("since", since),
            None if until is None else aware_utc("until", until),
        )
        return self._lists.page(given, page_limit(limit), page_token)

    @check_arguments
    def path(self, run_id: str) -> Path:
        """Return the path of a run's log. Raises `NotFound`."""
        return self._tree.get(run_id).path

    @check_arguments
    def pack(self, run_id: str) -> bool:
        """Replace the log of an ended run by a gzip file. Returns False if it is packed already.

        The gzip is synced to disk and read back before the log is deleted; readers read both forms. Raises `NotFound`,
        `Conflict` for a run that has not ended or whose writer is alive, `BackendBusy`, `BackendUnavailable`.
        """
        return self._upkeep.pack(run_id)

    @check_arguments
    def prune(self, *, ended_before: datetime, session_id: str | None = None, dry_run: bool = True) -> PruneReport:
        """Delete the logs of ended runs whose last record is older than ``ended_before``.

        With ``dry_run``, which is the default, nothing is deleted. The log of a run that has not ended is never
        deleted, nor a log that is being written. An interrupted call can be repeated.
        """
        before = aware_utc("ended_before", ended_before)
        return self._upkeep.prune(before, session_id, dry_run=flag("dry_run", dry_run))

    def _writer(self, rules: Rules, path: Path, header: bytes, held: storage.LockFile, on_error: OnError) -> RunWriter:
        def has_header(descriptor: int) -> None:
            expected = header.rstrip(b"\n")
            if read_at(descriptor, path, len(expected), 0) != expected:
                raise BackendUnavailable(f"{path}: replaced by a file with another header", path=str(path))

        lines = LineWriter(
            path,
            sync=self._writing.sync,
            on_removed="raise",
            max_line_bytes=self._writing.max_line_bytes,
            lock_timeout=self._writing.lock_timeout,
            base=files.ROOT,
            check=has_header,
            keeps_lock=held.is_real,
        )
        return RunWriter(rules, Hold(held, lines, self._writing.clock, on_error))


@contextmanager
def _unless_kept(held: storage.LockFile) -> Iterator[None]:
    """Release a run's lock if the block raises."""
    try:
        yield
    except BaseException:
        held.release()
        raise


def _chunk(descriptor: int, file: RunFile, given: Mark, limit: int, *, is_live: bool) -> TailChunk:
    """Return a chunk of the records after a mark."""
    holds = given.holds(descriptor, file.path)
    size = os.fstat(descriptor).st_size
    reader = LineReader(descriptor, file.path, LineKind(Line, accepts(file.run_id)), start=given.offset if holds else 0)
    found: list[Line] = []
    is_all = True
    for line in reader.lines():
        if len(found) >= limit:
            is_all = False
            break
        found.append(line)
    last = None if is_live or not is_all else reader.tail()
    if last is not None:
        found.append(last)
    end = found[-1].end if not is_all else (last.end if last else reader.offset)
    return TailChunk(
        records=_records(found),
        cursor=mark_at(descriptor, file.path, end).to_text(),
        before=mark_at(descriptor, file.path, found[0].offset if found else end).to_text(),
        live=is_live,
        ended=end_of(descriptor, file, size).is_ended,
        at_end=is_all,
        reset=not holds,
        damage=_damage(issue for issue in reader.issues if issue.offset < end),
    )


def _last(descriptor: int, file: RunFile, given: Mark | None, n: int, *, is_live: bool) -> TailChunk:
    """Return the last records before a mark, or at the end of the file."""
    holds = given is None or given.holds(descriptor, file.path)
    size = os.fstat(descriptor).st_size
    before = given.offset if given is not None and holds else size
    kind = LineKind(Line, accepts(file.run_id))
    found = read_tail(descriptor, file.path, kind, n=n, before=before, is_wanted=_is_record)
    first, end = (found.lines[0].offset, found.lines[-1].end) if found.lines else (0, 0)
    return TailChunk(
        records=_records(found.lines),
        cursor=mark_at(descriptor, file.path, end).to_text(),
        before=mark_at(descriptor, file.path, first).to_text(),
        live=is_live,
        ended=end_of(descriptor, file, size).is_ended,
        at_end=before == size,
        reset=not holds,
        damage=_damage(found.issues),
    )


def _records(lines: Iterable[Line]) -> tuple[RunRecord, ...]:
    return tuple(
        record_of_piece(Piece(line.offset, line.raw, line.value), recovered=line.recovered)
        for line in lines
        if _is_record(line)
    )


def _is_record(line: Line) -> bool:
    """True if the line has a type. An object without a type is not a record."""
    return isinstance(line.value.get("type"), str)


def _damage(issues: Iterable[Issue]) -> tuple[Damage, ...]:
    return tuple(Damage(reason=issue.reason, line=None, offset=issue.offset, length=issue.length) for issue in issues)
