"""Events in, lines out."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, strategies as st
from support.agent_log.logs import (
    AT,
    FIXTURES,
    MODEL,
    NOW_TEXT,
    SANDBOX,
    SESSION,
    agent_log,
    call,
    ended,
    events,
    path_of,
    said,
    snapshot,
    text,
    written,
)
from support.each import with_each

from lastlight_state.codec import dump_line
from lastlight_state.errors import InvalidValue
from lastlight_state.files.agent_log import AgentLog, Outcome, Tokens, TranslationOptions
from lastlight_state.files.agent_log.events import Stamp, is_record, moment_of, parse_time
from lastlight_state.files.agent_log.writer.translate import ERROR_SUBTYPE, Translator

RUN = "0198c0de-7e57-7abc-8def-0123456789ab"
NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)


def translated(log: AgentLog, *given: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """The lines that events give, without the prompt."""
    with log.writer.open(options=TranslationOptions(**options), model="m") as writer:
        writer.feed_many([SESSION, *given])
        return written(writer) if writer.lines_written else []


# ---- whole runs ----------------------------------------------------------------------------------------------------


def test_a_whole_run_is_written_byte_for_byte_as_the_seed_says(log: AgentLog) -> None:
    """agent-log L-50, L-63, case 17."""
    with log.writer.open(prompt="Fix the failing test", model=MODEL) as writer:
        for event in events():
            writer.feed(event)
        assert writer.ignored == {"agent_start": 1, "agent_end": 1}
    assert path_of(log, RUN).read_bytes() == (FIXTURES / "written-default.jsonl").read_bytes()


def test_a_whole_run_is_written_byte_for_byte_as_later_files_were(log: AgentLog) -> None:
    """agent-log L-51, L-64, case 17."""
    options = TranslationOptions.later()
    with log.writer.open(prompt="Fix the failing test", model=MODEL, options=options) as writer:
        writer.feed_many(events())
        writer.finish(Outcome("error_fatal", result="Done.", duration_ms=22_500, error="quota exceeded"))
    assert path_of(log, RUN).read_bytes() == (FIXTURES / "written-later.jsonl").read_bytes()


@with_each("options", [TranslationOptions(), TranslationOptions.later()])
def test_events_one_by_one_and_all_at_once_give_the_same_bytes(tmp_path: Path, options: TranslationOptions) -> None:
    """agent-log L-138."""
    log = agent_log(tmp_path)
    for slug in ("one", "all"):
        place = replace(SANDBOX, name=slug)
        with log.writer.open(place=place, prompt="x", model=MODEL, options=options) as writer:
            if slug == "all":
                writer.feed_many(events())
            else:
                assert sum(map(writer.feed, events())) == writer.lines_written
    assert path_of(log, RUN, "one").read_bytes() == path_of(log, RUN, "all").read_bytes()


def test_every_line_that_is_written_passes_as_a_record(log: AgentLog) -> None:
    """agent-log L-38: what recovery accepts covers what we write."""
    names = ("written-default.jsonl", "written-later.jsonl", "original-first.jsonl", "original-later.jsonl")
    for name in names:
        for line in (FIXTURES / name).read_bytes().splitlines():
            assert is_record(orjson.loads(line.replace(rb"\ud83d", b"?")))
    assert not any(map(is_record, ({"type": "user"}, {"timestamp": AT}, {"type": "result", "timestamp": AT})))


def test_options_are_words_of_their_vocabulary() -> None:
    """agent-log L-131."""
    for option in fields(TranslationOptions):
        with pytest.raises(InvalidValue) as caught:
            replace(TranslationOptions(), **dict[str, Any]({option.name: "perhaps"}))
        assert caught.value.where == option.name


# ---- messages ------------------------------------------------------------------------------------------------------


def test_thinking_is_dropped_unless_it_is_to_be_kept(log: AgentLog) -> None:
    """agent-log L-132."""
    message = said({"type": "thinking", "thinking": "hm"}, text("yes"), {"type": "thinking", "thinking": ""})
    dropped = translated(log, message)[-1]["message"]["content"]
    kept = translated(log, message, thinking="keep")[-1]["message"]["content"]
    assert (dropped, kept) == ([text("yes")], [{"type": "thinking", "thinking": "hm"}, text("yes")])


@with_each(
    "event",
    [
        said({"type": "thinking", "thinking": "hm"}),
        said(
            {"type": "image"}, {"type": "toolCall", "name": "x"}, {"type": "toolCall", "id": "", "name": "x"}, "text", 5
        ),
        {"type": "message_end", "message": {"role": "assistant", "content": "plain"}},
        {"type": "message_end", "message": {"role": "user", "content": [text("hi")]}},
    ],
)
def test_a_message_of_which_nothing_is_left_gives_no_line(tmp_path: Path, event: dict[str, Any]) -> None:
    """agent-log L-133."""
    log = agent_log(tmp_path)
    assert translated(log, event) == []


def test_empty_text_is_kept_and_missing_arguments_are_an_empty_object(log: AgentLog) -> None:
    """agent-log L-134."""
    bare = {"type": "toolCall", "id": "c", "name": "ls", "arguments": None}
    content = translated(log, said(text(""), bare))[-1]["message"]["content"]
    assert content == [text(""), {"type": "tool_use", "id": "c", "name": "ls", "input": {}}]


def test_a_model_that_is_not_known_is_left_out(log: AgentLog) -> None:
    """agent-log L-30."""
    with log.writer.open(session_id="s-1", place=SANDBOX) as writer:
        writer.feed(said(text("hi")))
        assert list(written(writer)[0]["message"]) == ["role", "content"]


def test_usage_is_written_when_wanted_and_never_when_it_is_zero(log: AgentLog) -> None:
    """agent-log L-51."""
    some = said(text("a"), usage={"input": 3, "output": "?", "cacheRead": float("nan"), "cacheWrite": True})
    none = said(text("b"), usage={"input": 0})
    lines = translated(log, some, none, said(text("c")), message_usage="write")
    zero = {"output_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    assert [line["message"].get("usage") for line in lines] == [{"input_tokens": 3, **zero}, None, None]


def test_long_text_of_the_assistant_is_never_cut(log: AgentLog) -> None:
    """agent-log L-70."""
    words = "é" * 200_000
    line = translated(log, said(text(words), call("c", command=words)))[-1]
    assert line["message"]["content"] == [text(words), {**_use("c"), "input": {"command": words}}]


def _use(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "bash", "input": {}}


# ---- tool results --------------------------------------------------------------------------------------------------


@with_each(
    ("fields", "content"),
    [
        ({"result": None, "output": ""}, ""),
        ({"result": None, "output": None, "error": "e"}, "e"),
        ({}, ""),
        ({"result": {"a": [1, 2.0, "é\n"]}}, '{"a":[1,2,"é\\n"]}'),
        ({"result": 0}, "0"),
        ({"result": False, "output": "x"}, "false"),
        ({"result": {1, 2}}, "{1, 2}"),
        ({"result": "\ud83d"}, "\ud83d"),
    ],
)
def test_the_first_told_result_is_the_content(fields: dict[str, Any], content: str) -> None:
    """agent-log L-135, case 23."""
    translator = Translator(TranslationOptions(), None)
    event = {"type": "tool_execution_end", "id": "c", **fields}
    lines = translator.translate(event, Stamp(NOON, "s"))
    assert lines is not None
    assert lines[0]["message"]["content"] == [{"type": "tool_result", "tool_use_id": "c", "content": content}]


@with_each(("told", "is_error"), [(True, True), (False, None), (1, None), ("true", None), (None, None)])
def test_only_an_exact_true_is_an_error(tmp_path: Path, told: object, is_error: bool | None) -> None:
    """agent-log L-135, case 23."""
    log = agent_log(tmp_path)
    assert translated(log, ended("c", "x", isError=told))[-1]["message"]["content"][0].get("is_error") == is_error


def test_a_result_whose_call_was_not_seen_is_kept_unless_it_is_to_be_dropped(log: AgentLog) -> None:
    """agent-log L-65."""
    stream = (said(call("seen")), ended("seen", "a"), ended("unseen", "b"))
    assert len(translated(log, *stream)) == 3
    path_of(log).unlink()
    assert len(translated(log, *stream, orphan_results="drop")) == 2


# ---- results and errors --------------------------------------------------------------------------------------------


def test_a_snapshot_gives_one_result_and_finish_adds_none_for_the_same_end(log: AgentLog) -> None:
    """agent-log L-63, L-64, case 19."""
    with log.writer.open() as writer:
        writer.feed_many([SESSION, said(text("all good"), stopReason="end_turn"), snapshot(tokens={"input": 4})])
        assert writer.finish(Outcome()) == "s-1"
        assert writer.finish(Outcome("success", result="other")) == "s-1"
        lines = written(writer)
    assert lines[-1] == {
        "type": "result",
        "subtype": "success",
        "result": "all good",
        "num_turns": 1,
        "total_cost_usd": 0.5,
        "total_input_tokens": 4,
        "total_output_tokens": 0,
        "total_cache_read_input_tokens": 0,
        "total_cache_creation_input_tokens": 0,
        "duration_ms": 0,
        "stop_reason": "end_turn",
        "timestamp": AT,
    }
    assert len(lines) == 2


def test_finish_with_an_error_adds_its_line_and_a_second_result(log: AgentLog) -> None:
    """agent-log L-64, case 19."""
    with log.writer.open() as writer:
        writer.feed_many([SESSION, said(text("x")), snapshot()])
        writer.finish(Outcome("error_timeout", error="took too long"))
        writer.finish(Outcome("error_timeout", error="took too long"))
        lines = written(writer)[2:]
    assert [line.get("subtype") or line["error"] for line in lines] == ["took too long", "error_timeout"]
    assert lines[0] | {"timestamp": NOW_TEXT} == lines[0]


def test_activity_behind_a_result_asks_for_another(log: AgentLog) -> None:
    """agent-log L-64."""
    with log.writer.open() as writer:
        writer.feed_many([SESSION, snapshot(), said(text("more"))])
        writer.finish(Outcome())
        assert [line["type"] for line in written(writer)] == ["result", "assistant", "result"]


def test_an_error_of_the_stream_is_not_written_again_by_finish(log: AgentLog) -> None:
    """agent-log L-64."""
    with log.writer.open() as writer:
        writer.feed_many([SESSION, {"type": "fatal_error", "error": {"message": "boom"}}, snapshot()])
        writer.finish(Outcome(ERROR_SUBTYPE, error="boom"))
        lines = written(writer)
    assert [line.get("error") or line["subtype"] for line in lines] == ["boom", ERROR_SUBTYPE]


def test_totals_are_the_sums_of_the_messages_when_they_told_tokens(log: AgentLog) -> None:
    """agent-log L-63: a compaction leaves the snapshot at zero."""
    usage = {"input": 10, "output": 1, "cacheRead": 5, "cacheWrite": 2, "cost": {"total": 0.25}}
    messages = [said(text("a"), usage=usage), said(text("b"), usage={**usage, "cost": 0.25})]
    line = translated(log, *messages, snapshot(assistantMessages=0, cost=0.0))[-1]
    totals = {key: line[key] for key in line if key.startswith(("num", "total"))}
    assert list(totals.values()) == [2, 0.5, 20, 2, 10, 4]


@with_each(("told", "turns"), [(2**64 - 1, 2**64 - 1), (1 - 2**64, 1 - 2**64), (2**64, 0), (-(2**64), 0)])
def test_a_number_of_more_than_64_bits_is_none(tmp_path: Path, told: int, turns: int) -> None:
    """agent-log L-63."""
    log = agent_log(tmp_path)
    assert translated(log, said(text("a")), snapshot(assistantMessages=told))[-1]["num_turns"] == turns


def test_without_usage_in_the_messages_the_snapshot_counts(log: AgentLog) -> None:
    """agent-log L-63: nested and flat."""
    tokens = {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4}
    flat = {"type": "usage_snapshot", "turns": 7.0, "costUsd": 0.13, "inputTokens": 1, "outputTokens": 2}
    flat |= {"cacheReadInputTokens": 3, "cacheCreationInputTokens": 4}
    for event in (snapshot(assistantMessages=7, cost=0.13, tokens=tokens), flat):
        line = translated(log, said(text("a")), event)[-1]
        assert list(line.values())[3:9] == [7, 0.13, 1, 2, 3, 4]


def test_whole_floats_are_integers_and_what_is_no_number_is_null(log: AgentLog) -> None:
    """agent-log L-30, L-31, case 33."""
    with log.writer.open() as writer:
        flat = {
            "type": "usage_snapshot",
            "turns": 7.0,
            "costUsd": 0.0,
            "inputTokens": float("nan"),
            "outputTokens": "x",
        }
        writer.feed_many([SESSION, flat])
        raw = path_of(log).read_bytes()
    assert b'"num_turns":7,"total_cost_usd":0,"total_input_tokens":null,"total_output_tokens":0,' in raw


@with_each(
    ("cause", "subtype"),
    [
        ({"type": "fatal_error", "error": {}}, ERROR_SUBTYPE),
        (said(text("x"), stopReason="error"), ERROR_SUBTYPE),
        (said(text("x"), stopReason="aborted"), ERROR_SUBTYPE),
        (said(text("x"), stopReason="length"), "success"),
    ],
)
def test_an_error_since_the_last_result_makes_the_next_one_an_error(
    tmp_path: Path, cause: dict[str, Any], subtype: str
) -> None:
    """agent-log L-63."""
    log = agent_log(tmp_path)
    lines = translated(log, cause, snapshot(), snapshot())
    assert [line["subtype"] for line in lines[1:]] == [subtype, "success"]


def test_results_can_be_left_to_finish(log: AgentLog) -> None:
    """agent-log L-64, case 21: finish knows what the snapshot told."""
    with log.writer.open(options=TranslationOptions(results="finish")) as writer:
        writer.feed_many([SESSION, said(text("hi"), stopReason="stop"), snapshot(assistantMessages=3)])
        assert [line["type"] for line in written(writer)] == ["assistant"]
        writer.finish(Outcome())
        line = written(writer)[-1]
    assert (line["num_turns"], line["total_cost_usd"], line["result"], line["duration_ms"]) == (3, 0.5, "hi", 29_000)
    assert "stop_reason" not in line


def test_what_the_outcome_tells_is_written(log: AgentLog) -> None:
    """agent-log L-50, L-64."""
    with log.writer.open(session_id="s-1", place=SANDBOX) as writer:
        outcome = Outcome("success", "end_turn", "done", 2, 0.25, Tokens(1, 2, 3, 4), 99)
        writer.finish(outcome)
        line = written(writer)[0]
    assert list(line.values()) == ["result", "success", "done", 2, 0.25, 1, 2, 3, 4, 99, "end_turn", NOW_TEXT]


def test_a_subtype_is_success_or_an_error_word() -> None:
    """agent-log L-50."""
    with pytest.raises(InvalidValue):
        Outcome("timeout")


@with_each(
    ("error", "words"),
    [
        ({"message": "m", "name": "n"}, "m"),
        ({"name": "n"}, "n"),
        ({"message": {"code": 1}}, '{"code":1}'),
        ({}, "fatal error"),
        (None, "fatal error"),
    ],
)
def test_a_fatal_error_is_written_without_a_message(tmp_path: Path, error: object, words: str) -> None:
    """agent-log L-130."""
    log = agent_log(tmp_path)
    line = translated(log, {"type": "fatal_error", "error": error, "timestamp": AT})[-1]
    expected = {"type": "assistant", "isApiErrorMessage": True, "error": words, "timestamp": AT, "sessionId": "s-1"}
    assert list(line.items()) == list(expected.items())


# ---- breadcrumbs ---------------------------------------------------------------------------------------------------

LONG = "x" * 201


@with_each(
    ("event", "content"),
    [
        ({"type": "auto_retry_start"}, "⏳ Auto-retry after model error: transient error"),
        ({"type": "auto_retry_start", "attempt": 1.0}, "⏳ Auto-retry 1 after model error: transient error"),
        (
            {"type": "auto_retry_start", "attempt": 1, "maxAttempts": 3, "delayMs": 10_499, "errorMessage": " a \n b "},
            "⏳ Auto-retry 1/3 in 10s after model error: a b",
        ),
        ({"type": "auto_retry_start", "delayMs": 500}, "⏳ Auto-retry in 1s after model error: transient error"),
        (
            {"type": "auto_retry_start", "attempt": True, "delayMs": 10**400},
            "⏳ Auto-retry after model error: transient error",
        ),
        ({"type": "auto_retry_end"}, "✓ Auto-retry recovered after attempt(s)."),
        ({"type": "auto_retry_end", "attempt": 2, "finalError": ""}, "✓ Auto-retry recovered after 2 attempt(s)."),
        (
            {"type": "auto_retry_end", "attempt": 3, "finalError": "x" * 200},
            f"❌ Auto-retry gave up after 3 attempt(s): {'x' * 200}",
        ),
        ({"type": "auto_retry_end", "finalError": LONG}, f"❌ Auto-retry gave up after attempt(s): {'x' * 197}…"),
    ],
)
def test_retries_are_told_in_one_line_when_wanted(tmp_path: Path, event: dict[str, Any], content: str) -> None:
    """agent-log L-136."""
    log = agent_log(tmp_path)
    assert translated(log, event) == []
    line = translated(log, event, breadcrumbs="write")[-1]
    assert list(line) == ["role", "subtype", "content", "timestamp", "sessionId"]
    assert (line["role"], line["subtype"], line["content"]) == ("system", event["type"], content)


def test_states_of_extensions_and_skills_are_told_when_wanted(log: AgentLog) -> None:
    """agent-log L-136."""
    extension = {"type": "extension_status", "extension": "web", "reason": None, "other": 1, "timestamp": AT}
    skills = {"type": "skills_status", "status": "none", "skills": "?", "mappedPaths": [], "timestamp": AT}
    lines = translated(log, extension, skills, breadcrumbs="write")
    common = {"timestamp": AT, "sessionId": "s-1"}
    assert lines == [
        {"type": "system", "subtype": "extension_status", "extension": "web", "reason": None, **common},
        {"type": "system", "subtype": "skills_status", "status": "none", "mappedPaths": [], **common},
    ]


# ---- times, and whatever else an event may hold --------------------------------------------------------------------


@with_each(
    ("told", "moment"),
    [
        (1_770_120_000_000, "2026-02-03T12:00:00.000Z"),
        (1_770_120_000_123.9, "2026-02-03T12:00:00.123Z"),
        (-1.5, "1969-12-31T23:59:59.999Z"),
        ("2026-02-03T12:00:00Z", "2026-02-03T12:00:00.000Z"),
        ("2026-02-03T13:00:00.123456+01:00", "2026-02-03T12:00:00.123Z"),
        ("2026-02-03T12:00:00", "2026-02-03T12:00:00.000Z"),
        ("garbage", NOW_TEXT),
        (1e300, NOW_TEXT),
        (10**400, NOW_TEXT),
        (float("nan"), NOW_TEXT),
        (float("inf"), NOW_TEXT),
        ("0001-01-01T00:00:00+05:00", NOW_TEXT),
        (True, NOW_TEXT),
        (None, NOW_TEXT),
        ([], NOW_TEXT),
    ],
)
def test_times_are_milliseconds_or_iso_texts_and_all_else_is_now(log: AgentLog, told: object, moment: str) -> None:
    """agent-log L-66."""
    assert translated(log, {**said(text("x")), "timestamp": told})[-1]["timestamp"] == moment


@with_each(
    "event",
    [
        None,
        5,
        "text",
        [],
        {},
        {"type": None},
        {"type": []},
        {"type": 5, "sessionId": "s-1"},
        {"type": "unknown"},
        {"type": "session"},
        {"type": "session", "id": 5},
        {"type": "message_end"},
        {"type": "message_end", "message": "x"},
        {"type": "tool_execution_end"},
        {"type": "tool_execution_end", "id": 5},
        {"type": "usage_snapshot"},
        {"type": "usage_snapshot", "stats": "x"},
        {"type": "extension_status", "extension": 1},
        {"type": "skills_status"},
    ],
)
def test_malformed_and_unknown_events_give_no_line_and_are_counted(log: AgentLog, event: Any) -> None:
    """agent-log L-67."""
    with log.writer.open(options=TranslationOptions.later()) as writer:
        writer.feed(SESSION)
        assert writer.feed(event) == 0
        kind = event.get("type") if isinstance(event, dict) else None
        assert sum(writer.ignored.values()) == (kind != "session")


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = [
    "message",
    "stats",
    "error",
    "result",
    "output",
    "id",
    "toolCallId",
    "isError",
    "timestamp",
    "status",
    "extension",
]
kinds = ["message_end", "tool_execution_end", "usage_snapshot", "fatal_error", "extension_status", "skills_status"]
kinds += ["auto_retry_start", "auto_retry_end", "turn_end"]
messages = st.fixed_dictionaries(
    {
        "role": st.just("assistant"),
        "content": st.lists(st.dictionaries(st.sampled_from(["type", "text", "id", "name"]), json_like)),
    },
    optional={"usage": json_like, "stopReason": json_like},
)


@pytest.mark.slow
@given(
    st.lists(
        st.fixed_dictionaries({"type": st.sampled_from(kinds)}, optional=dict.fromkeys(names, json_like))
        | st.fixed_dictionaries({"type": st.just("message_end"), "message": messages})
    ),
    st.sampled_from([TranslationOptions(), TranslationOptions.later()]),
)
def test_no_event_makes_the_translation_raise(stream: list[dict[str, Any]], options: TranslationOptions) -> None:
    """agent-log L-67: and each line that it gives can be written."""
    translator = Translator(options, None)
    for event in stream:
        for line in translator.translate(event, Stamp(moment_of(event, NOON), "s")) or []:
            translator.record_line(line)
            assert dump_line(line).endswith(b"}\n")
    assert all(map(dump_line, translator.closing_lines(Outcome(), Stamp(NOON, "s"))))


def test_what_came_since_a_mark_can_be_forgotten() -> None:
    """agent-log L-80: a call whose write failed can be repeated."""
    translator = Translator(TranslationOptions(orphan_results="drop"), None)
    stamp = Stamp(NOON, "s")
    mark = translator.mark()
    translator.translate(said(call("c"), usage={"input": 5}), stamp)
    translator.back_to(mark)
    assert translator.translate(ended("c", "x"), stamp) is None
    assert translator.closing_lines(Outcome(), stamp)[0]["total_input_tokens"] == 0


def test_a_value_nested_too_deep_for_json_is_told_as_python_shows_it() -> None:
    """agent-log L-135: a result never raises for its form."""
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    translator = Translator(TranslationOptions(), None)
    lines = translator.translate(ended("c", deep), Stamp(NOON, "s"))
    assert lines is not None
    assert lines[0]["message"]["content"][0]["content"] == "<list>"
    while isinstance(deep, list):  # let go of it level by level
        deep = deep[0]


def test_times_without_offset_are_utc() -> None:
    assert parse_time("2026-02-03T12:00:00") == NOON
