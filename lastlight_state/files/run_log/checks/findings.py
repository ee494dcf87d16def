"""The findings about one log, record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from lastlight_state.db.rows.records import Record
from lastlight_state.files.run_log import paths
from lastlight_state.files.run_log.fields import Open
from lastlight_state.files.run_log.reading import Placed, RunReading
from lastlight_state.files.run_log.records import (
    AgentEvent,
    CustomRecord,
    LlmRequest,
    LlmResponse,
    RunEnd,
    RunHeader,
    RunRecord,
    RunStart,
    RunStatus,
    ToolOutput,
    UnknownRecord,
    is_custom,
)

# Reports of checks of logs.

Severity: TypeAlias = Literal["error", "warning", "note"]

WarningCode: TypeAlias = Literal[
    "torn_tail",
    "unsupported_version",
    "id_not_uuid4",
    "unnamespaced_type",
    "unknown_word",
    "status_and_outcome_differ",
]
NoteCode: TypeAlias = Literal[
    "no_end",
    "request_without_response",
    "ts_went_back",
    "event_seq_gap",
    "unknown_field",
    "late_record",
]

_WARNINGS, _NOTES = get_args(WarningCode), get_args(NoteCode)


class Finding(Record):
    """A finding about a log. ``line`` counts from 1.

    Position and line are None if the finding concerns the whole file.
    """

    code: str
    severity: Severity
    line: int | None
    offset: int | None
    text: str


class Report(Record):
    """The result of a check of a log. ``ok`` is True if there are no errors.

    ``findings`` are the first 1,000 of ``finding_count``, in file order. ``counts`` has the number of all findings by
    code.
    """

    run_id: str
    path: Path
    ok: bool
    findings: tuple[Finding, ...]
    finding_count: int
    counts: dict[str, int]
    records: int


class Salvaged(Record):
    """The clean copy of a damaged log. An intact log is not copied: then nothing was written.

    ``rejects`` has every byte that is not in the copy. ``sections`` and ``section_bytes`` count the parts of the log:
    records, recovered records, and damage by reason.
    """

    run_id: str
    path: Path
    copy_path: Path | None
    rejects: Path | None
    sections: dict[str, int]
    section_bytes: dict[str, int]


def severity_of(code: str) -> Severity:
    """Return the severity of a finding. Codes that are neither warnings nor notes are errors."""
    if code in _WARNINGS:
        return "warning"
    return "note" if code in _NOTES else "error"


FINDINGS_KEPT = 1_000

#: Fields that later writers of the original program add; they are not findings.
_ACCEPTED = {
    "model": {"fast", "source"},
    "input": {"session_key"},
    "error": {"provider", "kind", "status", "attempts", "max_attempts"},
}


class Findings:
    """A collector of the findings about a log's records, in file order."""

    def __init__(self, reading: RunReading) -> None:
        self._reading = reading
        self._found: list[Finding] = []
        self._counts: Counter[str] = Counter()
        self._at: tuple[int | None, int | None] = (None, None)
        self._header: RunHeader | None = None
        self._is_first = True
        self._has_end = False
        self._last_event: int | None = None
        self._last_request: int | None = None
        self._open: dict[int, tuple[int | None, int | None]] = {}
        self._answered: set[int] = set()
        self._last_ts: datetime | None = None
        self._last_status: str | None = None

    def report(self, day_of_path: tuple[str, str, str] | None) -> Report:
        """Read the log, and return the report. ``day_of_path`` are the day directories that contain the log, if any."""
        reading = self._reading
        for placed in reading.placed():
            self._at = placed.line, placed.offset
            self._look(placed)
        self._close(day_of_path)
        self._add_damage()
        self._found.sort(key=lambda finding: (finding.offset is not None, finding.offset or 0))
        return Report(
            run_id=reading.run_id,
            path=reading.path,
            ok=not any(severity_of(code) == "error" for code in self._counts),
            findings=tuple(self._found),
            finding_count=sum(self._counts.values()),
            counts=dict(self._counts),
            records=sum(reading.counts.values()),
        )

    def _look(self, placed: Placed) -> None:
        record = placed.record
        if isinstance(record, RunHeader):
            self._look_at_header(record)
        elif isinstance(record, UnknownRecord):
            self._look_at_unknown(record)
        else:
            self._look_at_record(record)
        for name in _unknown_fields(record):
            self._add("unknown_field", f"{record.type} has the field {name!r}")
        self._is_first = False

    def _look_at_header(self, header: RunHeader) -> None:
        if not self._is_first:
            self._add("header_not_first", "records stand before the header")
        self._header = header
        if not self._reading.supported:
            self._add("unsupported_version", f"schema version {header.schema_version!r}")
        if header.run_id != self._reading.run_id:
            self._add("run_id_mismatch", f"the header is of run {header.run_id!r}")
        if header.started_at is None:
            self._add("bad_ts", "started_at cannot be parsed")
        for name in ("run_id", "session_id"):
            text = getattr(header, name)
            if text is not None and not paths.is_uuid4(text):
                self._add("id_not_uuid4", f"{name} is no UUIDv4 in lower case")

    def _look_at_unknown(self, record: UnknownRecord) -> None:
        if record.problem is not None:
            self._add("missing_field", f"{record.type}: {record.problem}")
        elif not is_custom(record.type):
            self._add("unnamespaced_type", f"type {record.type!r:.100}")

    def _look_at_record(self, record: RunRecord) -> None:
        if record.run_id not in (self._reading.run_id, None):  # only custom records may lack one
            self._add("run_id_mismatch", f"{record.type} is of another run")
        self._look_at_time(record)
        if self._has_end:
            is_late = isinstance(record, ToolOutput | CustomRecord)
            self._add("late_record" if is_late else "record_after_end", f"{record.type} stands behind run.end")
        self._look_at_words(record)
        self._look_at_numbers(record)
        if isinstance(record, RunEnd):
            self._has_end = True
            if self._last_status is not None and self._last_status != record.outcome:
                self._add("status_and_outcome_differ", f"status {self._last_status!r}, outcome {record.outcome!r}")

    def _look_at_time(self, record: RunRecord) -> None:
        ts = getattr(record, "ts", None)
        if ts is None:
            self._add("bad_ts", f"ts of {record.type} cannot be parsed")
            return
        if self._last_ts is not None and ts < self._last_ts:
            self._add("ts_went_back", f"ts of {record.type} is earlier than the one before")
        self._last_ts = ts

    def _look_at_words(self, record: RunRecord) -> None:
        word, known = "", paths.STATUSES
        if isinstance(record, RunStatus):
            word = self._last_status = record.status
        elif isinstance(record, RunEnd):
            word, known = record.outcome, paths.OUTCOMES
        elif isinstance(record, RunStart):
            word, known = record.input.type, paths.INPUTS
        else:
            return
        if word not in known:
            self._add("unknown_word", f"{record.type}: {word!r:.100}")

    def _look_at_numbers(self, record: RunRecord) -> None:
        if isinstance(record, AgentEvent):
            self._look_at_event(record.seq)
        elif isinstance(record, LlmRequest):
            if self._last_request is not None and record.seq <= self._last_request:
                self._add("request_seq_not_ascending", f"request {record.seq} after {self._last_request}")
            self._last_request = record.seq
            if record.seq not in self._answered:
                self._open[record.seq] = self._at
        elif isinstance(record, LlmResponse):
            if record.seq in self._answered:
                self._add("duplicate_response", f"request {record.seq} is answered already")
            elif self._open.pop(record.seq, None) is None:
                self._add("response_without_request", f"request {record.seq} was not asked before")
            else:
                self._answered.add(record.seq)

    def _look_at_event(self, seq: int) -> None:
        last = self._last_event
        if last is not None and seq <= last:
            self._add("event_seq_not_ascending", f"event {seq} after {last}")
        elif seq != (0 if last is None else last + 1):
            self._add("event_seq_gap", f"event {seq} after {last}")
        self._last_event = seq

    def _close(self, day_of_path: tuple[str, str, str] | None) -> None:
        """Add the findings that are known only after the last record."""
        self._at = (None, None)
        if self._header is None:
            self._add("missing_header", "no header")
        elif day_of_path and self._header.started_at:
            expected = paths.day_parts(self._header.started_at.astimezone(UTC).date())
            if expected != day_of_path:
                self._add("path_mismatch", f"started on {'/'.join(expected)}, stands in {'/'.join(day_of_path)}")
        if not paths.is_uuid4(self._reading.run_id):
            self._add("id_not_uuid4", "the file's name is no UUIDv4 in lower case")
        if not self._has_end:
            self._add("no_end", "no run.end")
        for seq, at in self._open.items():
            self._at = at
            self._add("request_without_response", f"request {seq} has no response")

    def _add_damage(self) -> None:
        reading = self._reading
        for damage in reading.damage:
            if damage.offset != reading.torn_at:
                self._at = damage.line, damage.offset
                self._add(damage.reason, f"{damage.length} bytes without a record")
        if reading.torn_at is not None:
            self._at = None, reading.torn_at
            self._add("torn_tail", "the file ends in the middle of a line")

    def _add(self, code: str, text: str) -> None:
        self._counts[code] += 1
        if len(self._found) < FINDINGS_KEPT:
            line, offset = self._at
            self._found.append(Finding(code=code, severity=severity_of(code), line=line, offset=offset, text=text))


def _unknown_fields(record: RunRecord) -> Iterator[str]:
    if isinstance(record, CustomRecord | UnknownRecord):
        return
    yield from _unknown_in(record, record.type)


def _unknown_in(part: Open, name: str) -> Iterator[str]:
    accepted = _ACCEPTED.get(name, set())
    for extra in part.model_extra or {}:
        if extra not in accepted:
            yield extra
    for field, value in part:
        if isinstance(value, Open):
            yield from _unknown_in(value, field)
