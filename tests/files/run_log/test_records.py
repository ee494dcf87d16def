"""Records: the ten types, custom and unknown ones, and what survives of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.each import with_each
from support.run_log.logs import (
    EXAMPLE_RUN,
    FIXTURES,
    RUN,
    event,
    head,
    header,
    kinds,
    line,
    lines_of,
    put,
    put_example,
    read,
    run_log,
    start,
)

from lastlight_state.db.rows.records import DamagedRow
from lastlight_state.errors import InvalidValue, ReservedName
from lastlight_state.files.run_log import (
    AgentEvent,
    CustomRecord,
    LlmInput,
    LlmRequest,
    RunHeader,
    RunInput,
    RunLog,
    RunStatus,
    Runtime,
    UnknownRecord,
    record_of,
)

EXTRA: dict[str, Any] = {"x": [1, {"y": None}], "a": 0.5}


def test_the_seeds_example_is_read_and_written_back_byte_by_byte(log: RunLog, tmp_path: Path) -> None:
    """run-log RL-80, RL-10."""
    source = put_example(log)
    records, reading = read(log, EXAMPLE_RUN)
    assert (reading.supported, reading.ended, reading.damage, reading.misfits) == (True, True, [], 0)
    assert [record.to_json() for record in records] == [json.loads(text) for text in source.read_text().splitlines()]
    first, *others = records
    assert isinstance(first, RunHeader)
    copy = run_log(tmp_path / "copy")
    with copy.runs.start(first) as writer:
        for record in others:
            writer.append(record)
    assert writer.path.read_bytes() == source.read_bytes() == (FIXTURES / "run.jsonl").read_bytes()


def test_unknown_fields_null_and_absent_ones_survive_at_every_depth(log: RunLog) -> None:
    """run-log RL-10."""
    values: list[dict[str, Any]] = [
        head(
            client={"name": "c", "version": "1", **EXTRA}, model={"fast": True, "name": None}, tools=None, later=EXTRA
        ),
        line("run.start", input={"parts": [{"type": "image"}], "type": "parts", **EXTRA}, ui_context=None),
        {**line("run.context", context_left_percent=12.5), "zz": None, "b": 1},
        {**event(0), "recovered": 1, "raw": 2, "problem": 3, "_odd": 4},
        line("tool.output", tool="t", tool_call_id="c", result_raw="", output_ref={"id": "i", "line_count": None}),
        line("llm.request", seq=1, input={"messages": [EXTRA], "tools": None, "session_key": "k"}, model=EXTRA),
        line("llm.response", seq=1, output={"usage": None, "messages": [], "stop_reason": None, "provider_meta": [1]}),
        line("run.status", status="completed", message=None, **EXTRA),
        line("run.error", error={"name": "E", "message": "m", "attempts": 3, "stack": None}),
        line("run.end", outcome="error", final=None, meta={"k": {}}),
        line("x.acme.note", text="t", meta=None),
        {"type": "later.thing", "deep": EXTRA},
    ]
    put(log, values)
    records, _ = read(log)
    assert [list(record.to_json().items()) for record in records] == [list(value.items()) for value in values]
    assert [type(record) for record in records][-2:] == [CustomRecord, UnknownRecord]


def test_parts_are_given_as_they_are_or_as_mappings(log: RunLog) -> None:
    """run-log RL-10: unknown fields may be records, too."""
    asked = RunInput(text="go", by=Runtime(cwd="/w"))  # type: ignore[call-arg]
    found = LlmInput(messages=(EXTRA,), marked=DamagedRow(table="t", key=1, column="c", problem="p"))  # type: ignore[call-arg]
    with start(log) as writer:
        writer.run_start(asked)
        writer.llm_request(found)
    first, second = lines_of(writer.path)[1:]
    assert first["input"] == {"type": "text", "text": "go", "by": {"cwd": "/w"}}
    assert second["input"] == {
        "messages": [EXTRA], "marked": {"table": "t", "key": 1, "column": "c", "problem": "p"}
    }  # fmt: skip


def test_a_record_is_immutable_and_a_changed_copy_is_a_new_record(log: RunLog) -> None:
    """run-log RL-10."""
    put(log, [head(), {"seq": 0, **event(0)}])
    record = read(log)[0][1]
    assert isinstance(record, AgentEvent)
    with pytest.raises(ValueError, match="frozen"):
        record.seq = 2  # type: ignore[misc]
    changed = record.model_copy(update={"seq": 5})
    assert changed.raw is None
    assert changed.to_json()["seq"] == 5
    assert changed != record == record.model_copy()


@with_each(
    ("value", "field"),
    [
        (line("llm.response", seq=1), "output"),
        (line("agent.event", seq="1", event={}), "seq"),
        (line("agent.event", seq=1, event=[]), "event"),
        (line("llm.request", seq=1, input={"messages": [1]}), "input.messages"),
        (line("run.start", input={"type": "text"}), "input"),
        ({"type": "run.status", "status": "running", "run_id": RUN}, "ts"),
        (line("tool.output", tool="t", tool_call_id="c", result_raw=None), "result_raw"),
    ],
)
def test_a_known_type_that_does_not_fit_names_its_field_and_the_reading_goes_on(
    log: RunLog, value: dict[str, Any], field: str
) -> None:
    """run-log RL-11."""
    put(log, [head(), value, event(0)])
    records, reading = read(log)
    misfit = records[1]
    assert isinstance(misfit, UnknownRecord)
    assert (misfit.problem or "").startswith(field)
    assert misfit.to_json() == value
    assert isinstance(records[2], AgentEvent)
    assert (reading.misfits, reading.damage_count) == (1, 0)


def test_a_word_of_a_newer_writer_is_read_and_not_written(log: RunLog) -> None:
    """run-log RL-12."""
    with start(log) as writer:
        for record in (line("run.status", status="paused_by_moon"), line("run.end", outcome="moon")):
            with pytest.raises(InvalidValue):
                writer.append(record_of(record))
        with pytest.raises(InvalidValue):
            writer.status("paused_by_moon")  # type: ignore[arg-type]
    with writer.path.open("ab") as file:
        file.write(json.dumps(line("run.status", status="paused_by_moon")).encode() + b"\n")
    last = read(log)[0][-1]
    assert isinstance(last, RunStatus)
    assert last.status == "paused_by_moon"


def test_custom_types_are_namespaced_and_the_formats_own_are_reserved(log: RunLog) -> None:
    """run-log RL-14."""
    with start(log) as writer:
        writer.append(record_of({"type": "x.acme.note", "text": "t"}))
        for kind in ("run.note", "agent.x", "tool.input", "llm.retry", "header2"):
            with pytest.raises(ReservedName):
                writer.append(record_of({"type": kind}))
        for kind in ("acme.note", "x.acme", "x.ACME.note", "x.acme.", "note"):
            with pytest.raises(InvalidValue):
                writer.append(record_of({"type": kind, "run_id": RUN}))
    note = read(log)[0][1]
    assert isinstance(note, CustomRecord)
    assert (note.run_id, note.ts is not None, note.to_json()["text"]) == (RUN, True, "t")


def test_an_unknown_record_that_was_read_is_copied_as_it_is(log: RunLog, tmp_path: Path) -> None:
    """run-log RL-14: unknown types, and known ones that do not fit."""
    raw = b'{"type":"later.thing" , "b":1.50,"a":"\\ud800"}\n{"type":"run.context","run_id":"%s"}\n' % RUN.encode()
    source = put(log, json.dumps(head()).encode() + b"\n" + raw)
    first, *others = read(log)[0]
    assert isinstance(first, RunHeader)
    with run_log(tmp_path / "copy").runs.start(first.model_copy(update={"session_id": None})) as writer:
        for record in others:
            writer.append(record)
    assert writer.path.read_bytes().split(b"\n")[1:] == source.read_bytes().split(b"\n")[1:]


def test_a_time_that_cannot_be_parsed_leaves_its_record_readable(log: RunLog) -> None:
    """run-log RL-10."""
    odd = ["yesterday", "2026-02-03T12:00:00", 5, "2026-02-03T14:00:00.1234567+02:00"]
    put(log, [head(), *({**event(n), "ts": ts} for n, ts in enumerate(odd))])
    records, reading = read(log)
    assert [getattr(record, "ts").isoformat() if getattr(record, "ts") else None for record in records[1:]] == [  # noqa: B009
        None,
        None,
        None,
        "2026-02-03T12:00:00.123000+00:00",
    ]
    assert reading.bad_times == 3


def test_what_is_written_fits_the_seeds_ten_types(log: RunLog) -> None:
    """run-log RL-81: only `meta` and `x.` types hold more than the seed names."""
    seed = {
        "header": "schema_version run_id session_id started_at client server model prompts tools runtime meta",
        "run.start": "run_id session_id ts input ui_context meta",
        "run.context": "run_id ts context_left_percent meta",
        "agent.event": "run_id ts seq event meta",
        "tool.output": "run_id ts tool tool_call_id result_raw is_error output_ref meta",
        "llm.request": "run_id ts seq model input meta",
        "llm.response": "run_id ts seq output meta",
        "run.status": "run_id ts status message meta",
        "run.error": "run_id ts error meta",
        "run.end": "run_id ts outcome final meta",
    }
    with start(log, session_id="33333333-3333-4333-8333-333333333333", runtime={"cwd": "/"}, meta={}) as writer:
        writer.run_start("go", ui_context={"cwd": "/"}, meta={"k": 1})
        writer.status("running", message="m")
        writer.context(50)
        writer.event({"type": "text"})
        seq = writer.llm_request({"messages": []}, model={"name": "m"})
        writer.llm_response(seq, {"messages": [], "usage": None})
        writer.tool_output("t", tool_call_id="c", result_raw="r", is_error=False, output_ref={"id": "o"})
        writer.error(ValueError("no"))
        writer.status("error")
        writer.end("error", final="f")
        writer.tool_output("t", tool_call_id="late", result_raw="r")
    written = [json.loads(text) for text in writer.path.read_text().splitlines()]
    assert {value["type"] for value in written} == set(seed)
    for value in written:
        assert set(value) - {"type"} <= set(seed[value["type"]].split())


def test_prompts_and_answers_are_not_interpreted(log: RunLog) -> None:
    """run-log RL-13."""
    tools = [1, "two", {"three": [None]}, None]
    with start(log) as writer:
        seq = writer.llm_request({"messages": [{"role": "odd", "x": EXTRA}], "tools": tools, "tool_choice": [EXTRA]})
        writer.llm_response(seq, {"messages": [{}], "provider_meta": "text", "usage": None, "stop_reason": None})
        with pytest.raises(InvalidValue, match="messages"):
            writer.llm_request({"messages": ["text"]})
        with pytest.raises(InvalidValue, match="event"):
            writer.event("text")  # type: ignore[arg-type]
    asked = read(log)[0][1]
    assert isinstance(asked, LlmRequest)
    assert asked.input.tools == tuple(tools)
    assert kinds(read(log)[0]) == ["header", "llm.request", "llm.response"]


@with_each(
    ("number", "fits"), [(2**63 - 1, True), (2**63, False), (-(2**63), True), (-(2**63) - 1, False), (1.0, False)]
)
def test_a_number_of_64_bits_fits(number: float, fits: bool) -> None:
    """run-log RL-11: any other makes the record one that is not known."""
    assert isinstance(record_of(event(0) | {"seq": number}), AgentEvent if fits else UnknownRecord)


@with_each(
    ("kind", "error", "problem"),
    [
        ("run.context", InvalidValue, "do not fit"),
        ("header", InvalidValue, "do not fit"),
        ("odd", InvalidValue, "must be of the form"),
        ("run.later", ReservedName, "later versions"),
        ("headers", ReservedName, "later versions"),
    ],
)
def test_a_record_of_another_type_says_why_it_is_not_written(
    tmp_path: Path, kind: str, error: type[InvalidValue], problem: str
) -> None:
    """run-log RL-14: only names that are not taken yet are reserved."""
    log = run_log(tmp_path)
    with start(log) as writer, pytest.raises(InvalidValue, match=problem) as refused:
        writer.append(record_of(line(kind)))
    assert type(refused.value) is error


def test_an_input_of_a_later_kind_fits_whatever_it_holds(log: RunLog) -> None:
    """run-log RL-12."""
    put(
        log,
        [head(), line("run.start", input={"type": "audio", "url": "u"}), line("run.start", input={"type": "parts"})],
    )
    records, reading = read(log)
    assert (records[1].problem, reading.misfits) == (None, 1)
    assert records[2].problem is not None


def test_a_header_that_does_not_fit_is_not_copied_into_another_log(log: RunLog, tmp_path: Path) -> None:
    """run-log RL-14: a log has one header."""
    put(log, [head(session_id=5)])
    (misfit,) = read(log)[0]
    assert (misfit.type, misfit.problem is None) == ("header", False)
    with run_log(tmp_path / "copy").runs.start(header()) as writer, pytest.raises(InvalidValue, match="do not fit"):
        writer.append(misfit)
    assert len(lines_of(writer.path)) == 1
