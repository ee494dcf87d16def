"""Checks: one finding for each thing that is wrong, and clean copies of damaged logs."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from support.each import with_each
from support.run_log.logs import (
    AT,
    EXAMPLE_RUN,
    OTHER_RUN,
    RUN,
    ending,
    event,
    head,
    line,
    put,
    put_example,
    read,
    request,
    response,
    run_log,
    status,
)

from lastlight_state.codec import dump_line
from lastlight_state.errors import AlreadyExists, InvalidValue, NotFound
from lastlight_state.files.run_log import RunLog


def test_the_seeds_example_has_no_findings(log: RunLog) -> None:
    """run-log RL-50, case 35, RL-15: sizes are never compared with the text beside them."""
    path = put_example(log)
    report = log.checks.validate(EXAMPLE_RUN)
    assert (report.ok, report.findings, report.records) == (True, (), 9)
    assert log.checks.validate(path) == report


def test_a_header_of_another_run_is_found(log: RunLog) -> None:
    """run-log RL-50."""
    put(log, [head(OTHER_RUN), event(0), ending()])
    assert [(found.code, found.line) for found in log.checks.validate(RUN).findings] == [("run_id_mismatch", 1)]


LATE = line("tool.output", tool="t", tool_call_id="c", result_raw="")

#: For each code: the lines of a log, and the line where it is found.
CASES: dict[str, tuple[list[Any], int | None]] = {
    "missing_header": ([event(0), ending()], None),
    "header_not_first": ([event(0), head(), ending()], 2),
    "duplicate_header": ([head(), head(), ending()], 2),
    "run_id_mismatch": ([head(), event(0, run_id=OTHER_RUN), ending()], 2),
    "path_mismatch": ([head(started_at="2026-02-04T00:00:00Z"), ending()], None),
    "torn": ([head(), b'{"type":"run.status","run_id":', ending()], 2),
    "bad_json": ([head(), b"noise", ending()], 2),
    "not_object": ([head(), b"[1]", ending()], 2),
    "nul_bytes": ([head(), b"\0\0\0", ending()], 2),
    "bad_utf8": ([head(), b"{\xff\xff", ending()], 2),
    "glued": ([head(), dump_line(event(0))[:-1] + dump_line(event(1))[:-1], ending()], 2),
    "no_type": ([head(), {"a": 1}, ending()], 2),
    "missing_field": ([head(), line("run.context"), ending()], 2),
    "bad_ts": ([head(), event(0, ts="yesterday"), ending()], 2),
    "event_seq_not_ascending": ([head(), event(0), event(0), ending()], 3),
    "request_seq_not_ascending": ([head(), request(2), response(2), request(1), response(1), ending()], 4),
    "response_without_request": ([head(), response(1), ending()], 2),
    "duplicate_response": ([head(), request(1), response(1), response(1), ending()], 4),
    "record_after_end": ([head(), ending(), status("completed")], 3),
    "torn_tail": ([head(), ending(), b'{"type":'], None),
    "unsupported_version": ([head(schema_version=2), ending()], 1),
    "id_not_uuid4": ([head(session_id="s-1"), ending()], 1),
    "unnamespaced_type": ([head(), {"type": "acme.note"}, ending()], 2),
    "unknown_word": ([head(), status("paused_by_moon"), status("completed"), ending()], 2),
    "status_and_outcome_differ": ([head(), status("error"), ending("completed")], 3),
    "no_end": ([head(), event(0)], None),
    "request_without_response": ([head(), request(1), ending()], 2),
    "ts_went_back": ([head(), event(0), event(1, ts="2026-02-03T11:00:00Z"), ending()], None),
    "event_seq_gap": ([head(), event(1), ending()], 2),
    "unknown_field": ([head(), event(0, extra=1), ending()], 2),
    "late_record": ([head(), ending(), LATE], 3),
}
ERRORS = 19


@with_each("code", CASES)
def test_each_thing_that_is_wrong_has_one_finding_at_its_line(log: RunLog, code: str) -> None:
    """run-log RL-50, case 35."""
    values, at = CASES[code]
    data = [value if isinstance(value, bytes) else dump_line(value)[:-1] for value in values]
    put(log, b"\n".join(data) + (b"" if code == "torn_tail" else b"\n"))
    report = log.checks.validate(RUN)
    assert report.counts == {code: 1}
    (finding,) = report.findings
    if code != "ts_went_back":
        assert finding.line == at
    assert report.ok is (list(CASES).index(code) >= ERRORS)


def test_a_file_anywhere_is_checked_and_nothing_is_written(log: RunLog, tmp_path: Path) -> None:
    """run-log RL-50."""
    path = tmp_path / f"{RUN}.jsonl"
    path.write_bytes(b"".join(map(dump_line, [head(), ending()])))
    before = path.stat().st_mtime_ns
    assert log.checks.validate(path).ok
    assert path.stat().st_mtime_ns == before
    with pytest.raises(NotFound):
        log.checks.validate(RUN)
    with pytest.raises(InvalidValue):
        log.checks.validate(tmp_path / "notes.txt")


def test_every_byte_of_a_damaged_log_is_in_the_copy_or_among_the_rejects(log: RunLog, tmp_path: Path) -> None:
    """run-log RL-51."""
    whole = [dump_line(value)[:-1] for value in (head(), event(0), event(1), ending())]
    data = b"\n".join([whole[0], whole[1][:30] + whole[2], b"noise\0", whole[3]]) + b'\n{"torn'
    path = put(log, data)
    target = tmp_path / "copy.jsonl"
    done = log.checks.salvage(RUN, to=target)
    assert target.read_bytes().splitlines() == [whole[0], whole[2], whole[3]]
    assert done.rejects is not None
    rejects = [json.loads(text) for text in done.rejects.read_text().splitlines()]
    rebuilt = bytearray(data)
    for part in rejects:
        assert data[part["offset"] :].startswith(base64.b64decode(part["base64"]))
        rebuilt[part["offset"] : part["offset"] + part["length"]] = b"\0" * part["length"]
    for kept in (whole[0], whole[2], whole[3]):
        rebuilt = bytearray(bytes(rebuilt).replace(kept, b"\0" * len(kept), 1))
    assert rebuilt.strip(b"\0\n") == b""
    assert path.read_bytes() == data
    assert sum(done.section_bytes.values()) == len(data)
    with pytest.raises(AlreadyExists):
        log.checks.salvage(RUN, to=target)


def test_a_sound_log_is_not_copied(log: RunLog, tmp_path: Path) -> None:
    """run-log RL-51."""
    put_example(log)
    done = log.checks.salvage(EXAMPLE_RUN, to=tmp_path / "copy.jsonl")
    assert (done.copy_path, done.rejects) == (None, None)
    assert not (tmp_path / "copy.jsonl").exists()


def test_the_first_thousand_findings_are_told_and_all_are_counted(log: RunLog) -> None:
    """run-log RL-50, RL-31: and so are the places that hold no record."""
    put(log, [head(), ending(), *[LATE] * 1_001])
    report = log.checks.validate(RUN)
    assert (len(report.findings), report.finding_count, report.counts) == (1_000, 1_001, {"late_record": 1_001})
    put(log, dump_line(head()) + b"?\n" * 1_001 + dump_line(ending()))
    records, reading = read(log)
    assert (len(records), len(reading.damage), reading.damage_count) == (2, 1_000, 1_001)
    assert {damage.reason for damage in reading.damage} == {"bad_json"}


def test_a_number_of_a_request_that_comes_again_is_found(log: RunLog) -> None:
    """run-log RL-50: and a greater one is none, however much greater."""
    put(log, [head(), request(1), response(1), request(1), ending()])
    assert log.checks.validate(RUN).counts == {"request_seq_not_ascending": 1}
    put(log, [head(), request(1), response(1), request(2), response(2), request(7), response(7), ending()])
    assert log.checks.validate(RUN).counts == {}


def test_a_header_behind_one_that_does_not_fit_is_not_the_first(log: RunLog) -> None:
    """run-log RL-50."""
    put(log, [head(started_at=[], session_id=5), head(), ending()])
    assert log.checks.validate(RUN).counts == {"missing_field": 1, "header_not_first": 1}


@with_each(
    ("values", "counts"),
    [
        ([head(), {"type": "x.acme.note", "ts": AT}], {}),
        ([head(), line("x.acme.note")], {}),
        ([head(), line("x.acme.note", OTHER_RUN)], {"run_id_mismatch": 1}),
        ([head(started_at="yesterday")], {"bad_ts": 1}),
    ],
)
def test_a_custom_record_may_name_no_run_but_no_other_one(
    tmp_path: Path, values: list[dict[str, Any]], counts: dict[str, int]
) -> None:
    """run-log RL-50: and a start that cannot be read contradicts no directory."""
    log = run_log(tmp_path)
    put(log, [*values, ending()])
    assert log.checks.validate(RUN).counts == counts


def test_a_sound_log_has_no_findings_about_its_numbers_and_runs(log: RunLog) -> None:
    """run-log RL-50: requests that ascend, and records of others that name no run."""
    records = [request(1), response(1), request(2), response(2), request(7), response(7)]
    put(log, [head(), *records, {"type": "x.org.mine", "ts": AT}, ending()])
    assert log.checks.validate(RUN).findings == ()


def test_a_record_of_others_that_names_another_run_is_found(log: RunLog) -> None:
    """run-log RL-50"""
    put(log, [head(), line("x.org.mine", OTHER_RUN), ending()])
    assert [found.code for found in log.checks.validate(RUN).findings] == ["run_id_mismatch"]
