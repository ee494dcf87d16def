"""RunWriter: what may be written, in which order, under which numbers, and what a failure leaves."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.each import with_each
from support.jsonl.lines import counted
from support.run_log.logs import (
    AT,
    OTHER_RUN,
    OTHER_SESSION,
    RUN,
    SESSION,
    ending,
    event,
    files_below,
    head,
    header,
    kinds,
    line,
    lines_of,
    put,
    read,
    request,
    response,
    run_log,
    start,
    status,
)

from lastlight_state.codec import dump_line
from lastlight_state.errors import (
    AlreadyExists,
    BackendBusy,
    BackendUnavailable,
    Conflict,
    CorruptData,
    InvalidValue,
    LostRace,
    NewerSchema,
    NotFound,
    PayloadTooLarge,
    StoreClosed,
    UnsafePath,
)
from lastlight_state.files.jsonl.writer import LineWriter, SyncWord
from lastlight_state.files.run_log import RunHeader, RunLog, RunWriter, UnknownRecord, record_of
from lastlight_state.files.run_log.paths import OnError
from lastlight_state.files.run_log.runs import Writing

UUID7 = "01890a5d-ac96-774b-bcce-b302099a8057"


# ---- starting and continuing ---------------------------------------------------------------------------------------


@with_each(
    ("started_at", "day"),
    [
        ("2026-02-03T23:30:00-05:00", "2026/02/04"),
        ("2026-01-31T23:59:00-05:00", "2026/02/01"),
        ("2026-02-03T00:10:00+02:00", "2026/02/02"),
    ],
)
def test_a_log_stands_under_the_utc_day_of_its_start(tmp_path: Path, started_at: str, day: str) -> None:
    """run-log RL-03, RL-20: the header is the first line."""
    log = run_log(tmp_path)
    with start(log, started_at=started_at, session_id=SESSION) as writer:
        assert writer.path == log.root / "sessions" / day / f"{RUN}.jsonl"
        writer.event({"type": "text"}, ts=datetime(2027, 1, 1, tzinfo=UTC))
    first, second = lines_of(writer.path)
    assert list(first)[:3] == ["type", "schema_version", "run_id"]
    assert (first["session_id"], second["ts"]) == (SESSION, "2027-01-01T00:00:00.000Z")


@with_each("started_at", [None, "yesterday", datetime(2026, 2, 3), "2026-02-03T12:00:00"])  # noqa: DTZ001
def test_a_start_without_a_zone_is_refused_and_makes_nothing(log: RunLog, started_at: Any) -> None:
    """run-log RL-03."""
    with pytest.raises(InvalidValue, match="started_at"):
        start(log, started_at=started_at)
    assert files_below(log.root) == []


@with_each("run_id", ["../x", "a/b", "a\\b", "a\0b", "..", "", UUID7, RUN.upper()[:-1] + "A", "x" * 300])
def test_an_id_that_is_no_uuid4_is_refused_and_makes_nothing(log: RunLog, run_id: str) -> None:
    """run-log RL-02."""
    escapes = any(part in run_id for part in ("/", "\\", "\0", ".."))
    with pytest.raises(UnsafePath if escapes else InvalidValue):
        start(log, run_id)
    with pytest.raises(InvalidValue):
        start(log, session_id=run_id)
    assert not list(log.root.rglob("*"))


def test_a_foreign_but_safe_name_is_still_read(log: RunLog) -> None:
    """run-log RL-02."""
    put(log, [head("run 7"), event(0, run_id="run 7")], "run 7")
    assert log.runs.get("run 7").run_id == "run 7"
    assert "id_not_uuid4" in log.checks.validate("run 7").counts


def test_a_run_that_is_there_is_not_started_again(log: RunLog) -> None:
    """run-log RL-20: its bytes are as they were."""
    path = put(log, b"whatever")
    with pytest.raises(AlreadyExists):
        start(log)
    assert path.read_bytes() == b"whatever"
    assert files_below(log.root) == [f"sessions/2026/02/03/{RUN}.jsonl"]


@with_each("suffix", ["", ".gz"])
def test_a_run_is_not_started_beside_a_link_of_its_name(tmp_path: Path, suffix: str) -> None:
    """run-log RL-20, RL-04: wherever the link leads, and if it leads nowhere."""
    log = run_log(tmp_path)
    plain = put(log, b"")
    plain.unlink()
    link = plain.with_name(plain.name + suffix)
    link.symlink_to("nowhere")
    with pytest.raises(AlreadyExists):
        start(log)
    assert [entry.name for entry in link.parent.iterdir()] == [link.name]


def test_a_file_system_without_links_gets_the_header_all_the_same(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-log RL-20."""

    def link(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    start(log).close()
    assert kinds(read(log)[0]) == ["header"]
    with pytest.raises(AlreadyExists):
        start(log)


def test_new_files_are_private_and_links_are_not_followed(log: RunLog, tmp_path: Path) -> None:
    """run-log RL-04."""
    with start(log) as writer:
        path = writer.path
    assert path.stat().st_mode & 0o777 == 0o600
    assert {folder.stat().st_mode & 0o777 for folder in list(path.parents)[:4]} == {0o700}
    outside = tmp_path / "outside"
    outside.mkdir()
    (log.root / "sessions" / "2026" / "02" / "04").symlink_to(outside)
    with pytest.raises(UnsafePath):
        start(log, OTHER_RUN, started_at="2026-02-04T12:00:00Z")
    assert not list(outside.iterdir())


@with_each("name", ["flush", "event", "end"])
def test_a_closed_writer_refuses_and_says_of_which_run(tmp_path: Path, name: str) -> None:
    """run-log RL-22."""
    log = run_log(tmp_path)
    writer = start(log)
    writer.close()
    given: dict[str, list[Any]] = {"flush": [], "event": [{"type": "text"}], "end": ["completed"]}
    with pytest.raises(StoreClosed, match=f"of run '{RUN}'"):
        getattr(writer, name)(*given[name])


def test_a_second_writer_loses_the_race_until_the_first_is_closed(log: RunLog) -> None:
    """run-log RL-22."""
    with start(log) as writer:
        with pytest.raises(LostRace):
            log.runs.reopen(RUN)
        assert log.runs.get(RUN).state == "running"
    assert files_below(log.root / "sessions" / ".locks") == []
    with log.runs.reopen(RUN) as again:
        again.event({"type": "text"})
    assert writer.path == again.path


def test_a_torn_tail_is_sealed_and_numbers_go_on(log: RunLog) -> None:
    """run-log RL-21."""
    asked = line("llm.request", seq=8, input={"messages": []})
    path = put(
        log, [head(session_id=SESSION), line("run.start", input={"type": "text", "text": "go"}), event(3), asked]
    )
    with path.open("ab") as file:
        file.write(b'{"type":"agent.event","run_id":"')
    before = path.read_bytes()
    with log.runs.reopen(RUN) as writer:
        assert writer.event({"type": "text"}) == 4
        writer.llm_response(8, {"messages": []})
        assert writer.llm_request({"messages": []}) == 9
        with pytest.raises(InvalidValue):
            writer.run_start("again")
    assert path.read_bytes().startswith(before + b"\n{")
    records, reading = read(log)
    assert kinds(records)[-3:] == ["agent.event", "llm.response", "llm.request"]
    assert [damage.reason for damage in reading.damage] == ["torn"]


def test_reopening_needs_a_header_of_this_version(log: RunLog) -> None:
    """run-log RL-21, RL-36."""
    with pytest.raises(NotFound):
        log.runs.reopen(RUN)
    for value, error in (
        (event(0), CorruptData),
        (head(schema_version=2), NewerSchema),
        ({name: part for name, part in head().items() if name != "schema_version"}, NewerSchema),
    ):
        put(log, [value])
        with pytest.raises(error):
            log.runs.reopen(RUN)
    put(log, b"noise\n" + dump_line(head()))
    with pytest.raises(CorruptData):
        log.runs.reopen(RUN)
    assert files_below(log.root / "sessions" / ".locks") == []


def test_invocations_go_on_from_the_sessions_last(log: RunLog) -> None:
    """run-log RL-29, case 20."""
    with log.runs.start(header(), invoke_seq=7) as writer:
        assert writer.llm_request({"messages": []}) == 8
    with log.runs.reopen(RUN, invoke_seq=3) as writer:
        assert writer.llm_request({"messages": []}) == 9


# ---- rules ---------------------------------------------------------------------------------------------------------


def test_numbers_grow_and_a_refused_record_leaves_no_gap(log: RunLog) -> None:
    """run-log RL-29, RL-24."""
    with start(log) as writer:
        assert [writer.event({}), writer.event({}, seq=5), writer.event({})] == [0, 5, 6]
        with pytest.raises(InvalidValue) as refused:
            writer.event({}, seq=6)
        assert refused.value.expected == 7  # type: ignore[attr-defined]
        with pytest.raises(InvalidValue):
            writer.event({"cycle": object()})
        assert writer.event({}) == 7
        first, second = writer.llm_request({"messages": []}), writer.llm_request({"messages": []}, seq=4)
        writer.llm_response(second, {"messages": []})
        for seq in (second, 9, 3):
            with pytest.raises(InvalidValue):
                writer.llm_response(seq, {"messages": []})
        with pytest.raises(InvalidValue):
            writer.llm_request({"messages": []}, seq=4)
        writer.llm_response(first, {"messages": []})
        for percent in (-1, 100.5, float("nan"), float("inf")):
            with pytest.raises(InvalidValue):
                writer.context(percent)
    assert [value.get("seq") for value in lines_of(writer.path)[1:]] == [0, 5, 6, 7, 1, 4, 4, 1]


@with_each("percent", [0, 0.0, 0.5, 99.9, 100])
def test_what_is_left_of_the_context_is_a_share_of_it(tmp_path: Path, percent: float) -> None:
    """run-log RL-29."""
    log = run_log(tmp_path)
    with start(log) as writer:
        writer.context(percent)
    assert lines_of(writer.path)[1]["context_left_percent"] == percent


@with_each("percent", [-0.1, -1, 100.1, 101, float("nan"), float("inf"), -float("inf")])
def test_more_or_less_than_a_share_of_the_context_is_refused(tmp_path: Path, percent: float) -> None:
    """run-log RL-29."""
    log = run_log(tmp_path)
    with start(log) as writer, pytest.raises(InvalidValue, match="context_left_percent"):
        writer.context(percent)
    assert len(lines_of(writer.path)) == 1


def test_behind_the_end_only_late_outputs_and_custom_records_follow(log: RunLog) -> None:
    """run-log RL-28: through the open writer and through a new one."""
    with start(log) as writer:
        writer.end("cancelled")
        assert writer.ended
        for late in (status("running"), event(0), ending()):
            with pytest.raises(Conflict):
                writer.append(record_of(late))
        writer.tool_output("t", tool_call_id="c", result_raw="r", meta={"k": 1})
    with log.runs.reopen(RUN) as writer:
        assert writer.ended
        writer.append(record_of({"type": "x.acme.note"}))
        with pytest.raises(Conflict):
            writer.status("running")
    assert [value["meta"] for value in lines_of(writer.path)[2:]] == [
        {"k": 1, "x.lastlight.late": True},
        {"x.lastlight.late": True},
    ]
    entry = log.runs.get(RUN)
    assert (entry.state, entry.outcome) == ("ended", "cancelled")
    report = log.checks.validate(RUN)
    assert report.ok
    assert report.counts["late_record"] == 2


def test_numbers_that_do_not_fit_are_refused_and_say_which_would(log: RunLog) -> None:
    """run-log RL-29."""
    with start(log) as writer:
        for seq in (3, 4):
            writer.append(record_of(request(seq)))
        writer.append(record_of(response(4)))
        for record, said in (
            (request(4), "must be 5 or more, got 4"),
            (response(4), "request 4 is answered already, or was never asked"),
            (response(2), "request 2 is answered already, or was never asked"),
            (response(5), "request 5 was never asked"),
        ):
            with pytest.raises(InvalidValue, match=said):
                writer.append(record_of(record))
        writer.append(record_of(response(3)))


def test_a_record_of_a_later_version_is_of_this_run_or_names_none(log: RunLog) -> None:
    """run-log RL-28: as another log has it."""
    later = {"type": "later.kind", "ts": AT}
    values = [head(OTHER_RUN), later | {"run_id": OTHER_RUN}, {"type": "x.acme.note", "ts": AT}, later | {"run_id": 5}]
    put(log, values, OTHER_RUN)
    _, named, custom, nameless = read(log, OTHER_RUN)[0]
    with start(log) as writer:
        for record in (named, custom):
            with pytest.raises(InvalidValue, match="is of another run"):
                writer.append(record)
        writer.append(nameless)
    assert [value["type"] for value in lines_of(writer.path)] == ["header", "later.kind"]


def test_a_record_of_this_run_and_session_differs_from_what_is_none(log: RunLog) -> None:
    """run-log RL-10: comparing never raises."""
    record = record_of(event(0))
    assert record == record_of(event(0))
    for other in (record_of(event(1)), head(), 5, None):
        assert record != other


def test_a_record_is_of_this_run_and_session(log: RunLog) -> None:
    """run-log RL-28."""
    with start(log, session_id=SESSION) as writer:
        for record in (
            event(0, run_id=OTHER_RUN),
            line("run.start", session_id=OTHER_SESSION, input={"type": "text", "text": ""}),
            head(),
        ):
            with pytest.raises(InvalidValue):
                writer.append(record_of(record))
        for misfit in (line("agent.event"), {"type": "agent.event"}):
            assert isinstance(record_of(misfit), UnknownRecord)
            with pytest.raises(InvalidValue):
                writer.append(record_of(misfit))
        with pytest.raises(InvalidValue):
            writer.event({}, ts=datetime(2026, 1, 1))  # noqa: DTZ001
    assert len(lines_of(writer.path)) == 1


def test_a_start_may_leave_its_session_to_the_header(log: RunLog) -> None:
    """run-log RL-28."""
    with start(log, session_id=SESSION) as writer:
        writer.append(record_of(line("run.start", input={"type": "text", "text": "go"})))
    assert log.replay.summarise(RUN).session_id == SESSION


# ---- values --------------------------------------------------------------------------------------------------------


def test_an_output_is_kept_whole_whatever_it_contains(log: RunLog) -> None:
    """run-log RL-16."""
    result = "line\nreturn\r\u2028\0😀" * 20_000
    with start(log) as writer:
        writer.tool_output("t", tool_call_id="c", result_raw=result)
    assert writer.path.read_bytes().count(b"\n") == 2
    assert read(log)[0][1].result_raw == result  # type: ignore[union-attr]


def test_what_happened_is_written_whatever_it_is(log: RunLog) -> None:
    """run-log RL-16."""
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    with start(log) as writer:
        writer.event({"half": "\ud83d", "nan": float("nan"), "big": 2**70})
        size = writer.path.stat().st_size
        for bad in (cycle, {"deep": [{"kind": object()}]}):
            with pytest.raises(InvalidValue, match=r"record\.event\."):
                writer.event(bad)
        assert writer.path.stat().st_size == size
    raw = writer.path.read_bytes().split(b"\n")[1]
    assert b'{"half":"\\ud83d","nan":null,"big":1180591620717411303424}' in raw
    read_back = read(log)[0][1]
    assert read_back.event["half"] == "\ufffd"  # type: ignore[union-attr]
    assert read_back.raw == raw


def test_a_record_past_the_limit_is_refused_whole(log: RunLog) -> None:
    """run-log RL-16."""
    log.runs._writing = Writing(log.runs._writing.clock, "end", 1.0, max_line_bytes=1_000)
    with start(log) as writer:
        with pytest.raises(PayloadTooLarge):
            writer.tool_output("t", tool_call_id="c", result_raw="x" * 1_000)
        assert writer.event({}) == 0
    assert len(lines_of(writer.path)) == 2


def test_later_changes_of_the_callers_objects_do_not_show(log: RunLog) -> None:
    """run-log RL-23."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "before"}]
    with start(log) as writer:
        writer.llm_request({"messages": messages})
        messages[0]["content"] = "after"
    assert lines_of(writer.path)[1]["input"]["messages"] == [{"role": "user", "content": "before"}]


def test_threads_share_a_writer_and_each_keeps_its_order(log: RunLog) -> None:
    """run-log RL-24, RL-23."""
    with start(log) as writer:

        def work(name: int) -> None:
            for number in range(100):
                writer.event({"name": name, "number": number})

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = [value["event"] for value in lines_of(writer.path)[1:]]
    assert [value["seq"] for value in lines_of(writer.path)[1:]] == list(range(800))
    for name in range(8):
        assert [one["number"] for one in events if one["name"] == name] == list(range(100))


# ---- failures ------------------------------------------------------------------------------------------------------


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A disk that takes no more than the bytes in the list, while it is not empty."""
    room: list[int] = []
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        if not room:
            return real(descriptor, data)
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(descriptor, bytes(data)[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", write)
    return room


def test_a_header_that_finds_no_room_is_told_and_leaves_no_run(log: RunLog, full: list[int]) -> None:
    """run-log RL-20, RL-25."""
    full.append(0)
    with pytest.raises(BackendUnavailable):
        start(log)
    full.clear()
    assert log.runs.find(RUN) is None
    start(log).close()


def test_a_full_disk_in_the_middle_of_a_line_harms_no_other(log: RunLog, full: list[int]) -> None:
    """run-log RL-25."""
    with start(log) as writer:
        writer.event({})
        full.append(20)
        with pytest.raises(BackendUnavailable) as failed:
            writer.event({})
        assert (failed.value.outcome, writer.failed_appends) == ("unknown", 1)
        full.clear()
        assert writer.event({}) == 2
    records, reading = read(log)
    assert [record.seq for record in records[1:]] == [0, 2]  # type: ignore[union-attr]
    assert [damage.reason for damage in reading.damage] == ["torn"]


@pytest.mark.logs("was not written")
def test_a_run_that_must_go_on_counts_what_could_not_be_written(
    log: RunLog, full: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """run-log RL-25: wrong values still raise."""
    with log.runs.start(header(), on_error="report") as writer, caplog.at_level(logging.WARNING):
        full.append(0)
        seq = writer.llm_request({"messages": [{"content": "secret"}]})
        writer.llm_response(seq, {"messages": []})
        with pytest.raises(InvalidValue):
            writer.context(200)
        full.clear()
        writer.end("completed")
    assert writer.failed_appends == 2
    assert RUN in caplog.text
    assert "secret" not in caplog.text
    assert kinds(read(log)[0]) == ["header", "run.end"]


@pytest.mark.parametrize(
    "on_error", ["raise", pytest.param("report", marks=pytest.mark.logs(f"a record of run {RUN} was not written"))]
)
def test_a_close_that_brings_nothing_to_disk_is_counted_and_lets_go_of_the_run(
    log: RunLog, monkeypatch: pytest.MonkeyPatch, on_error: OnError
) -> None:
    """run-log RL-25, RL-26."""
    writer = log.runs.start(header(), on_error=on_error)
    writer.event({})

    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched, pytest.raises(BackendUnavailable) if on_error == "raise" else nullcontext():
        patched.setattr(os, "fdatasync", fail)
        writer.close()
    assert writer.failed_appends == 1
    log.runs.reopen(RUN).close()


@pytest.mark.logs("the end of run")
def test_an_end_that_cannot_be_written_hides_no_exception_of_the_block(log: RunLog, full: list[int]) -> None:
    """run-log RL-25: it is logged."""
    with pytest.raises(KeyError, match="mine"), start(log):  # noqa: PT012 - how a block ends
        full.append(0)
        raise KeyError("mine")
    full.clear()
    assert kinds(read(log)[0]) == ["header"]


def test_a_record_is_one_look_and_one_write(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-log RL-95: the lock of the file is the writer's until it is closed."""
    with start(log) as writer:
        writer.event({})
        locks = counted(monkeypatch, fcntl, "flock")
        others = counted(monkeypatch, os, "lstat", "write", "pread", "open", "fstat")
        writer.event({})
        assert (locks, others) == ([], ["lstat", "write"])
        with LineWriter(writer.path, lock_timeout=0.05) as other, pytest.raises(BackendBusy):
            other.append([b"{}\n"])
    with LineWriter(writer.path) as other:
        other.append([b"{}\n"])


def test_a_removed_file_is_not_made_again(log: RunLog) -> None:
    """run-log RL-25."""
    with start(log) as writer:
        writer.path.unlink()
        with pytest.raises(BackendUnavailable):
            writer.event({})
        assert not writer.path.exists()
        put(log, [head(), event(7)])  # a repaired copy with the same header is written on
        writer.event({})
        replaced = writer.path.with_name("other")
        replaced.write_bytes(b'{"type":"header"}\n')
        replaced.replace(writer.path)
        with pytest.raises(BackendUnavailable, match="another header"):
            writer.event({})
        assert writer.path.read_bytes() == b'{"type":"header"}\n'


def test_an_exception_in_the_block_ends_the_run(log: RunLog) -> None:
    """run-log RL-27."""
    with pytest.raises(ZeroDivisionError), start(log) as writer:
        raise ZeroDivisionError("boom")
    failed, error, end = lines_of(writer.path)[-3:]
    assert (failed["status"], error["error"]["name"], error["error"]["message"], end["outcome"]) == (
        "error",
        "ZeroDivisionError",
        "boom",
        "error",
    )
    assert "test_writer" in error["error"]["stack"]


@with_each(
    ("before", "missing"),
    [
        ([], ["run.status", "run.error", "run.end"]),
        (["running"], ["run.status", "run.error", "run.end"]),
        (["error"], ["run.error", "run.end"]),
        (["fault"], ["run.status", "run.end"]),
        (["error", "fault"], ["run.end"]),
        (["end"], []),
        (["error", "end"], []),
    ],
)
def test_an_exception_adds_what_is_missing_alone(tmp_path: Path, before: list[str], missing: list[str]) -> None:
    """run-log RL-27."""
    log = run_log(tmp_path)
    with pytest.raises(ZeroDivisionError), start(log) as writer:  # noqa: PT012 - how a block ends
        for word in before:
            if word == "end":
                writer.end("completed")
            elif word == "fault":
                writer.error(KeyError("k"))
            else:
                writer.status(word)  # type: ignore[arg-type]
        raise ZeroDivisionError
    assert [value["type"] for value in lines_of(writer.path)[1 + len(before) :]] == missing


@with_each("kind", [asyncio.CancelledError, KeyboardInterrupt])
def test_a_cancellation_in_the_block_ends_the_run_without_an_error(tmp_path: Path, kind: type[BaseException]) -> None:
    """run-log RL-27."""
    log = run_log(tmp_path)
    with pytest.raises(kind), start(log) as writer:
        raise kind
    assert [value["type"] for value in lines_of(writer.path)] == ["header", "run.status", "run.end"]
    assert lines_of(writer.path)[-1]["outcome"] == "cancelled"


def test_an_exception_behind_the_close_of_a_writer_is_the_one_that_is_raised(log: RunLog) -> None:
    """run-log RL-27: the log of a closed run stays as it is."""
    with pytest.raises(ZeroDivisionError), start(log) as writer:  # noqa: PT012 - how a block ends
        writer.close()
        raise ZeroDivisionError
    assert [value["type"] for value in lines_of(writer.path)] == ["header"]


def test_a_block_that_ends_well_invents_nothing(log: RunLog) -> None:
    """run-log RL-27."""
    with start(log) as writer:
        writer.status("completed")
    writer.close()
    with pytest.raises(StoreClosed):
        writer.event({})
    with log.runs.reopen(RUN) as writer:
        writer.end("completed")
        writer.__exit__(ValueError, ValueError(), None)  # what is there already is not written again
    assert [value["type"] for value in lines_of(writer.path)] == ["header", "run.status", "run.end"]


def _noting(calls: list[str], real: Callable[[int], None]) -> Callable[[int], None]:
    def call(descriptor: int) -> None:
        calls.append("")
        real(descriptor)

    return call


def _write_all(writer: RunWriter, calls: list[str]) -> list[str]:
    """One record of each kind; which of them were synced."""
    synced = []
    for name, write in {
        "event": lambda: writer.event({}),
        "running": lambda: writer.status("running"),
        "terminal": lambda: writer.status("error"),
        "error": lambda: writer.error(ValueError()),
        "end": lambda: writer.end("error"),
        "late": lambda: writer.tool_output("t", tool_call_id="c", result_raw=""),
        "flush": writer.flush,
        "close": writer.close,
    }.items():
        before = len(calls)
        write()
        if len(calls) > before:
            synced.append(name)
    return synced


@with_each(
    ("sync", "expected"),
    [
        ("os", ["flush"]),
        ("end", ["terminal", "error", "end", "flush", "close"]),
        ("record", ["event", "running", "terminal", "error", "end", "late", "flush", "close"]),
    ],
)
def test_lines_reach_the_disk_as_the_setting_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: SyncWord, expected: list[str]
) -> None:
    """run-log RL-26: under the latter two the header and its directories, too."""
    calls: list[str] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, _noting(calls, getattr(os, name)))
    writer = start(run_log(tmp_path, sync=sync))
    assert bool(calls) == (sync != "os")
    assert _write_all(writer, calls) == expected


def test_a_header_says_the_version_that_is_written(log: RunLog) -> None:
    """run-log RL-36."""
    for version in (2, "1", None, True):
        with pytest.raises(InvalidValue, match="schema_version"):
            log.runs.start(RunHeader(run_id=RUN, started_at=datetime.now(UTC), schema_version=version))


def test_an_exception_after_a_close_stays_itself(log: RunLog) -> None:
    """run-log RL-27: there is nobody to write it any more."""

    def work() -> None:
        with start(log) as writer:
            writer.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert kinds(read(log)[0]) == ["header"]


def test_a_start_need_not_name_its_session(log: RunLog) -> None:
    """run-log RL-28: the header does."""
    with start(log, session_id=SESSION) as writer:
        writer.append(record_of(line("run.start", input={"type": "text", "text": "go"})))
        with pytest.raises(InvalidValue):
            writer.append(record_of(line("run.start", session_id=SESSION, input={"type": "text", "text": "go"})))


def test_a_header_that_does_not_fit_is_not_copied(log: RunLog) -> None:
    """run-log RL-14: unlike records of types that are not known."""
    put(log, [{"type": "header", "run_id": RUN, "client": 5}, line("later")], OTHER_RUN)
    odd, later = [record for record in log.runs.read(OTHER_RUN) if isinstance(record, UnknownRecord)]
    with start(log) as writer:
        with pytest.raises(InvalidValue):
            writer.append(odd)
        writer.append(later)
