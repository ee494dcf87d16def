"""Reading: every whole record, whatever else is in the file, and an account of what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.each import with_each
from support.run_log.logs import (
    EXAMPLE_RUN,
    OTHER_RUN,
    RUN,
    ending,
    event,
    head,
    kinds,
    line,
    put,
    put_example,
    read,
    run_log,
    start,
    status,
)

from lastlight_state.codec import dump_line
from lastlight_state.errors import BackendUnavailable, InvalidValue, NewerSchema, NotFound
from lastlight_state.files.run_log import RunLog, RunReading


def accounted(reading: RunReading) -> list[str]:
    return [damage.reason for damage in reading.damage]


def seqs(log: RunLog) -> tuple[list[int], list[str]]:
    """The numbers of the events that were read, and the damage."""
    records, reading = read(log)
    return [record.seq for record in records if record.type == "agent.event"], accounted(reading)  # type: ignore[union-attr]


def raw(value: dict[str, Any]) -> bytes:
    return dump_line(value)[:-1]


@pytest.mark.parametrize("lines", [3, pytest.param(9, marks=pytest.mark.soak)])
def test_a_log_cut_at_every_byte_gives_all_whole_lines(log: RunLog, lines: int) -> None:
    """run-log RL-31, RL-33, case 1: at most one place is damaged, and it is told."""
    path = put_example(log)
    parts = path.read_bytes().split(b"\n")[-lines - 1 : -1]
    whole = b"".join(part + b"\n" for part in parts)
    ends = [sum(len(part) + 1 for part in parts[: n + 1]) for n in range(len(parts))]
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        records, reading = read(log, EXAMPLE_RUN)
        complete = sum(end - 1 <= size for end in ends)
        assert [record.raw for record in records] == parts[:complete]
        is_cut = size not in (0, *ends, *(end - 1 for end in ends))
        assert (reading.torn, reading.damage_count, reading.size) == (is_cut, int(is_cut), size)
        if is_cut:
            (damage,) = reading.damage
            assert (damage.offset, damage.offset + damage.length) == (ends[complete - 1] if complete else 0, size)
            assert damage.line == complete + 1


def test_whole_records_in_bad_lines_are_returned_once_and_the_rest_is_counted(log: RunLog) -> None:
    """run-log RL-32."""
    one, two = raw(event(1)), raw(event(2))
    for damaged, expected, reasons in (
        (one + two, [1, 2], ["glued"]),
        (one[:40] + two, [2], ["torn"]),
        (b"\0\0" + one, [1], ["nul_bytes"]),
        (one + b"\0\0\0", [1], ["nul_bytes"]),
        (one[:30] + b"\0\0" + one[32:] + b"\n" + two, [2], ["nul_bytes"]),
        (b"noise\n" + one + b"\r\n\n" + b'"text"\n[1]\n' + two, [1, 2], ["bad_json", "not_object", "not_object"]),
        (b'{"no":"type"}\n' + one, [1], ["no_type"]),
        (raw(head()) + b"\n" + one, [1], ["duplicate_header"]),
        (b"\xff\xfe{\n" + one, [1], ["bad_utf8"]),
    ):
        put(log, raw(head()) + b"\n" + damaged + b"\n" + raw(event(3)) + b"\n")
        assert seqs(log) == ([*expected, 3], reasons)


def test_recovered_records_are_marked_and_of_this_run(log: RunLog) -> None:
    """run-log RL-32."""
    put(log, raw(head()) + b"\n" + raw(event(1))[:30] + raw(event(2)) + b"\n")
    records, reading = read(log)
    assert [record.recovered for record in records] == [False, True]
    assert reading.recovered == 1
    put(log, raw(head()) + b"\n" + raw(event(1))[:30] + raw(event(2, run_id=OTHER_RUN)) + b"\n")
    assert kinds(read(log)[0]) == ["header"]


@with_each(("kind", "expected"), [("x.acme.note", 2), ("later", 1), ("agent.later", 1), (7, 1)])
def test_a_record_is_recovered_by_a_type_that_is_known_or_custom(tmp_path: Path, kind: Any, expected: int) -> None:
    """run-log RL-32: any other object may be a part of the torn one."""
    log = run_log(tmp_path)
    put(log, raw(head()) + b"\n" + raw(event(1))[:30] + raw(line("x") | {"type": kind}) + b"\n")
    records, reading = read(log)
    assert (len(records), reading.recovered) == (expected, expected - 1)


def test_an_object_inside_a_torn_record_is_not_returned(log: RunLog) -> None:
    """run-log RL-32."""
    torn = raw(line("run.start", input={"type": "text", "text": "go"}))
    put(log, raw(head()) + b"\n" + torn[: torn.rindex(b"}}") + 1] + b"\n")
    records, reading = read(log)
    assert kinds(records) == ["header"]
    assert accounted(reading) == ["torn"]


def test_lines_past_the_limit_are_counted_and_not_held(log: RunLog) -> None:
    """run-log RL-31."""
    put(log, b"".join([raw(head()), b"\n", b"x" * (65 * 1024 * 1024), b"\n", raw(event(1)), b"\n"]))
    assert seqs(log) == ([1], ["oversize"])


@with_each("version", [2, "1", 0, True, None])
def test_another_version_is_read_as_far_as_it_can_be(tmp_path: Path, version: Any) -> None:
    """run-log RL-36."""
    log = run_log(tmp_path)
    put(log, [head(schema_version=version, later=1), event(0)])
    records, reading = read(log)
    assert kinds(records) == ["header", "agent.event"]
    assert not reading.supported
    assert log.runs.get(RUN).schema_version == version
    with pytest.raises(NewerSchema):
        read(log, strict_version=True)


def test_a_missing_version_is_not_ours(log: RunLog) -> None:
    """run-log RL-36."""
    value = head()
    del value["schema_version"]
    for values in ([value, event(0)], [event(0)]):
        put(log, values)
        assert not read(log)[1].supported
        with pytest.raises(NewerSchema):
            read(log, strict_version=True)


def test_a_long_header_is_found_and_a_torn_one_is_done_without(log: RunLog) -> None:
    """run-log RL-35."""
    long = head(session_id=OTHER_RUN, prompts={"system": "x" * 200_000})
    put(log, [long, line("run.start", input={"type": "text", "text": "go"})])
    entry = log.runs.get(RUN)
    assert (entry.session_id, entry.input_preview) == (OTHER_RUN, "go")
    put(log, raw(long)[:100] + b"\n" + raw(event(0)) + b"\n", OTHER_RUN)
    records, reading = read(log, OTHER_RUN)
    assert (kinds(records), reading.header, reading.run_id) == (["agent.event"], None, OTHER_RUN)
    assert reading.started_at.isoformat() == "2026-02-03T00:00:00+00:00"
    assert log.runs.get(OTHER_RUN).started_at == reading.started_at


def test_types_choose_what_is_given_and_all_is_counted(log: RunLog) -> None:
    """run-log RL-30."""
    put(log, [head(), event(0), status("running"), event(1), ending()])
    assert kinds(read(log, types="agent.event")[0]) == ["agent.event", "agent.event"]
    records, reading = read(log, types=["agent.event"])
    assert kinds(records) == ["agent.event", "agent.event"]
    assert reading.counts == {"header": 1, "agent.event": 2, "run.status": 1, "run.end": 1}
    assert reading.ended
    assert kinds(reading) == ["agent.event", "agent.event"]  # again, from the start
    assert reading.counts["agent.event"] == 2
    with pytest.raises(NotFound):
        log.runs.read(OTHER_RUN)


def test_a_half_line_is_not_consumed_and_comes_whole_with_a_later_tail(log: RunLog) -> None:
    """run-log RL-33."""
    with start(log) as writer:
        first = log.runs.tail(RUN)
        assert (kinds(first.records), first.live, first.ended, first.at_end) == (["header"], True, False, True)
        data = dump_line(event(0))
        with writer.path.open("ab") as file:
            for at in range(0, len(data) - 1, 40):
                file.write(data[at : at + 40])
                file.flush()
                if at + 40 < len(data):
                    assert log.runs.tail(RUN, after=first.cursor).records == ()
        second = log.runs.tail(RUN, after=first.cursor)
        assert [record.to_json() for record in second.records] == [event(0)]
        writer.end("completed")
        third = log.runs.tail(RUN, after=second.cursor)
        assert (kinds(third.records), third.reset, third.ended) == (["run.end"], False, True)


def test_a_tail_has_a_limit_and_says_whether_there_is_more(log: RunLog) -> None:
    """run-log RL-33."""
    put(log, [head(), *map(event, range(5))])
    seen, cursor, more = [], None, True
    while more:
        chunk = log.runs.tail(RUN, after=cursor, limit=2)
        seen.append(len(chunk.records))
        cursor, more = chunk.cursor, not chunk.at_end
    assert seen == [2, 2, 2]
    for bad in ("x", "", 5):
        with pytest.raises(InvalidValue):
            log.runs.tail(RUN, after=bad)  # type: ignore[arg-type]


def test_the_last_records_are_read_backwards(log: RunLog) -> None:
    """run-log RL-38: each once, as `tail` gives them; and from its end `tail` goes on."""
    path = put(log, [head(), *map(event, range(7))])
    chunk = log.runs.last(RUN, n=3)
    end, parts = chunk.cursor, [chunk.records]
    assert (chunk.at_end, chunk.reset) == (True, False)
    while parts[0]:
        chunk = log.runs.last(RUN, n=3, before=chunk.before)
        assert (chunk.at_end, chunk.reset) == (False, False)
        parts.insert(0, chunk.records)
    assert [len(part) for part in parts] == [0, 2, 3, 3]
    assert tuple(record for part in parts for record in part) == log.runs.tail(RUN).records
    assert log.runs.tail(RUN, after=end).records == ()
    with path.open("ab") as file:
        file.write(b"no record\n" + dump_line(event(7)))
    assert [record.to_json() for record in log.runs.tail(RUN, after=end).records] == [event(7)]
    assert [damage.reason for damage in log.runs.last(RUN, n=2).damage] == ["bad_json"]
    for bad in ("x", "", 5):
        with pytest.raises(InvalidValue):
            log.runs.last(RUN, before=bad)  # type: ignore[arg-type]


def test_the_last_records_are_counted_without_objects_that_are_none(log: RunLog) -> None:
    """run-log RL-38: so a chunk is shorter than was asked for only where the log begins."""
    put(log, [head(), event(0), event(1), *({"no": "type"} for _ in range(5)), event(2), {"no": "type"}])
    chunk = log.runs.last(RUN, n=2)
    assert [record.to_json() for record in chunk.records] == [event(1), event(2)]
    assert kinds(log.runs.last(RUN, n=2, before=chunk.before).records) == ["header", "agent.event"]


def test_the_last_records_of_a_replaced_file_are_those_of_its_end(log: RunLog) -> None:
    """run-log RL-38: and it says that it begins anew."""
    path = put(log, [head(), *map(event, range(7))])
    before = log.runs.last(RUN, n=3).before
    path.write_bytes(b"".join(map(dump_line, [head(), event(0)])))
    chunk = log.runs.last(RUN, n=3, before=before)
    assert (kinds(chunk.records), chunk.reset) == (["header", "agent.event"], True)


def test_damage_is_told_by_the_one_tail_that_passes_it(log: RunLog) -> None:
    """run-log RL-33: not by the one that ends where it begins."""
    put(log, b"".join(part + b"\n" for part in (raw(head()), raw(event(0)), b"{damaged", raw(event(1)))))
    first = log.runs.tail(RUN, limit=2)
    rest = log.runs.tail(RUN, after=first.cursor)
    assert (len(first.records), len(first.damage)) == (2, 0)
    assert (kinds(rest.records), len(rest.damage)) == (["agent.event"], 1)


def test_a_cursor_of_a_file_that_was_replaced_starts_again(log: RunLog) -> None:
    """run-log RL-33."""
    put(log, [head(), event(0), event(1)])
    cursor = log.runs.tail(RUN).cursor
    put(log, [head(), event(7)])
    chunk = log.runs.tail(RUN, after=cursor)
    assert chunk.reset
    assert kinds(chunk.records) == ["header", "agent.event"]


def test_an_end_without_newline_is_a_record_once_its_writer_is_gone(log: RunLog) -> None:
    """run-log RL-33."""
    path = put(log, raw(head()) + b"\n" + raw(event(0)))
    chunk = log.runs.tail(RUN)
    assert kinds(chunk.records) == ["header", "agent.event"]
    with log.runs.reopen(RUN) as writer:
        writer.event({})
    assert kinds(log.runs.tail(RUN, after=chunk.cursor).records) == ["agent.event"]
    assert path.read_bytes().count(b"\n") == 3


def test_an_end_is_found_behind_late_records(log: RunLog) -> None:
    """run-log RL-34."""
    late = line("tool.output", tool="t", tool_call_id="c", result_raw="r")
    put(log, [head(), ending("error"), late, {"type": "x.a.b", "run_id": RUN}, late])
    entry = log.runs.get(RUN)
    assert (entry.state, entry.outcome) == ("ended", "error")
    put(log, [head(), late, late])
    assert (log.runs.get(RUN).state, log.runs.tail(RUN).ended) == ("crashed", False)


def test_a_reading_left_in_the_middle_holds_no_file_open(log: RunLog) -> None:
    """run-log RL-30."""
    put(log, [head(), *map(event, range(5_000))])
    reading = iter(log.runs.read(RUN))
    next(reading)
    held = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink() and RUN in str(entry.resolve())]
    assert held == []
    assert json.loads(next(reading).raw or b"")["seq"] == 0


def test_a_log_that_is_replaced_between_two_blocks_is_not_read_on(log: RunLog) -> None:
    """run-log RL-30: its lines would not go on where those of the first ended."""
    path = put(log, [head(), *map(event, range(5_000))])
    reading = iter(log.runs.read(RUN))
    next(reading)
    path.rename(path.with_suffix(".old"))
    put(log, [head(), *(event(seq, run="other") for seq in range(9_000))])
    with pytest.raises(BackendUnavailable, match="replaced while it was read"):
        list(reading)


def test_a_log_of_our_version_is_read_whole_by_a_strict_reading(log: RunLog) -> None:
    """run-log RL-36."""
    put(log, [head(), *map(event, range(3)), ending()])
    records, reading = read(log, strict_version=True)
    assert kinds(records) == ["header", *["agent.event"] * 3, "run.end"]
    assert reading.supported


def test_a_record_of_no_known_type_is_no_misfit(log: RunLog) -> None:
    """run-log RL-11: its time is looked at as that of every other record."""
    put(log, [head(), line("later.kind"), {"type": "later.kind"}, line("agent.event")])
    reading = read(log)[1]
    assert (reading.misfits, reading.bad_times) == (1, 1)


def test_damage_behind_the_last_record_is_told_once(log: RunLog) -> None:
    """run-log RL-33: the tail that meets it passes it, as nothing else is there."""
    put(log, raw(head()) + b"\n{damaged\n")
    first = log.runs.tail(RUN)
    again = log.runs.tail(RUN, after=first.cursor)
    assert (len(first.damage), first.at_end, len(again.damage), again.records) == (1, True, 0, ())


def test_records_glued_into_one_line_count_one_by_one_and_come_once(log: RunLog) -> None:
    """run-log RL-33."""
    put(log, raw(head()) + b"\n" + b"".join(raw(event(n)) for n in range(3)) + b"\n" + raw(event(3)) + b"\n")
    found, cursor, more = [], None, True
    while more:
        chunk = log.runs.tail(RUN, after=cursor, limit=2)
        found.append([getattr(record, "seq", None) for record in chunk.records])
        cursor, more = chunk.cursor, not chunk.at_end
    assert found == [[None, 0], [1, 2], [3]]


@with_each("behind", [status("completed"), event(0), {"type": "later.kind"}, {"type": 5}])
def test_a_run_goes_on_behind_its_end_with_what_is_no_late_record(log: RunLog, behind: dict[str, Any]) -> None:
    """run-log RL-34: such an end is not the run's."""
    put(log, [head(), ending(), behind])
    assert (log.runs.get(RUN).state, log.runs.tail(RUN).ended) == ("crashed", False)


def test_a_sound_log_can_be_read_strictly(log: RunLog) -> None:
    """run-log RL-36: its header says the version, which no other record does."""
    put(log, [head(), event(0), event(1), ending()])
    assert kinds(read(log, strict_version=True)[0]) == ["header", "agent.event", "agent.event", "run.end"]


def test_a_type_of_others_is_no_record_that_does_not_fit(log: RunLog) -> None:
    """run-log RL-11: it counts as one without a time where it has none."""
    put(log, [head(), {"type": "later", "run_id": RUN}, line("later"), ending()])
    _, reading = read(log)
    assert (reading.misfits, reading.bad_times, reading.counts["later"]) == (0, 1, 2)
