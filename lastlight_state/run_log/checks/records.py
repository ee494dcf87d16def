"""What checks of logs report."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias, get_args

from lastlight_state.db.records import Record

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
    """Something about a log. ``line`` counts from 1; both are None where it concerns the file as a whole."""

    code: str
    severity: Severity
    line: int | None
    offset: int | None
    text: str


class Report(Record):
    """A check of a log. ``ok`` means that there are no errors.

    ``findings`` are the first 1,000 of ``finding_count``, in file order; ``counts`` are all of them by code.
    """

    run_id: str
    path: Path
    ok: bool
    findings: tuple[Finding, ...]
    finding_count: int
    counts: dict[str, int]
    records: int


class Salvaged(Record):
    """The clean copy of a damaged log. A sound one has no copy, and nothing was written.

    ``rejects`` holds every byte that is not in the copy. ``sections`` and ``section_bytes`` tell what the log consists
    of: records, recovered ones, and damage by reason.
    """

    run_id: str
    path: Path
    copy_path: Path | None
    rejects: Path | None
    sections: dict[str, int]
    section_bytes: dict[str, int]


def severity_of(code: str) -> Severity:
    """How much a finding means. Codes that are neither warnings nor notes are errors."""
    if code in _WARNINGS:
        return "warning"
    return "note" if code in _NOTES else "error"
