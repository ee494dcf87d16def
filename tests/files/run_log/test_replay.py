"""Replay: prompts as they were sent, events as they were shown, histories of sessions and summaries of runs."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
from support.memory import assert_peak_bytes_below
from support.run_log.logs import (
    EXAMPLE_RUN,
    OTHER_SESSION,
    RUN,
    SESSION,
    ending,
    event,
    head,
    id_of,
    line,
    put,
    put_example,
    request,
    response,
    status,
)

from lastlight_state.codec import dump_line
from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.files.run_log import RunLog


def test_prompts_are_given_exactly_as_they_were_sent(log: RunLog) -> None:
    """run-log RL-40: with a compaction between two of them, and one that was never answered."""
    compaction = [event(0, event={"type": "compaction_start"}), event(1, event={"type": "compaction_complete"})]
    first, second, third = request(1, "one", "two", "three"), request(2, "summary"), request(5, "again")
    put(log, [head(), first, response(1), *compaction, second, third, response(5), response(5, "dup"), request(5, "x")])
    turns = list(log.replay.prompts(RUN))
    assert [(turn.seq, turn.request.to_json()) for turn in turns] == [(1, first), (2, second), (5, third)]
    answers = [turn.response.output.messages[0]["content"] if turn.response else None for turn in turns]
    assert answers == ["yes", None, "yes"]
    assert log.replay.prompt(RUN, 5) == turns[2]
    for missing in (lambda: log.replay.prompt(RUN, 3), lambda: log.replay.prompts(id_of(1))):
        with pytest.raises(NotFound):
            missing()


def test_answers_may_cross_and_prompts_keep_their_order(log: RunLog) -> None:
    """run-log RL-40."""
    put(log, [head(), request(1, "a"), request(2, "b"), response(2, "B"), request(3, "c"), response(1, "A")])
    turns = log.replay.prompts(RUN)
    found = [(turn.seq, turn.response.output.messages[0]["content"] if turn.response else None) for turn in turns]
    assert found == [(1, "A"), (2, "B"), (3, None)]


def test_events_are_played_by_their_number_and_never_by_time(log: RunLog) -> None:
    """run-log RL-41: ties in file order."""
    late = [event(n, ts=f"2026-02-03T12:00:{59 - n:02}.000Z") for n in range(3)]
    put(log, [head(), late[0], late[2], event(7, mark=1), late[1], event(7, mark=2)])
    events = log.replay.events(RUN)
    assert [(found.seq, (found.model_extra or {}).get("mark")) for found in events] == [
        (0, None),
        (1, None),
        (2, None),
        (7, 1),
        (7, 2),
    ]
    assert [found.seq for found in log.replay.events(RUN, after_seq=1)] == [2, 7, 7]


def _session(log: RunLog) -> None:
    """Five runs of two sessions over three days, whose files changed in the reverse order of their starts."""
    for n, (session, day) in enumerate([(SESSION, 1), (OTHER_SESSION, 1), (SESSION, 2), (SESSION, 2), (SESSION, 3)]):
        started = f"2026-02-{day:02}T12:00:{n:02}.000Z"
        asked = line("run.start", id_of(n), input={"type": "text", "text": f"ask {n}"})
        events = [event(seq, run_id=id_of(n)) for seq in (1, 0)]
        values = [head(id_of(n), session_id=session, started_at=started), asked, *events]
        path = put(log, values, id_of(n), f"2026/02/{day:02}")
        os.utime(path, (1_000_000 - n, 1_000_000 - n))


def test_a_history_has_the_newest_runs_of_its_session_by_their_start(log: RunLog) -> None:
    """run-log RL-42."""
    _session(log)
    history = log.replay.history(SESSION, max_runs=3)
    assert history.runs == (id_of(2), id_of(3), id_of(4))
    assert [(found.run_id, found.seq) for found in history.events] == [
        (id_of(n), seq) for n in (2, 3, 4) for seq in (-1, 0, 1)
    ]
    assert history.events[0].event == {"type": "hidden_user_message", "content": "ask 2"}
    assert not history.truncated


def test_a_history_keeps_its_last_events_and_says_so(log: RunLog) -> None:
    """run-log RL-42."""
    _session(log)
    whole = log.replay.history(SESSION, max_runs=1)
    assert len(whole.events) == 3
    exact, cut = (log.replay.history(SESSION, max_runs=1, max_events=n) for n in (3, 2))
    assert (exact.truncated, cut.truncated) == (False, True)
    assert (exact.events, cut.events) == (whole.events, whole.events[1:])
    for none in ({"max_runs": 0}, {"max_events": 0}):
        assert log.replay.history(SESSION, **none).events == ()
    assert log.replay.history(id_of(9)).runs == ()
    with pytest.raises(InvalidValue):
        log.replay.history(SESSION, max_runs=-1)


def test_a_damaged_run_gives_its_history_what_can_be_read(log: RunLog) -> None:
    """run-log RL-42: parts are joined with nothing between them, images stand as a word."""
    parts = [{"type": "text", "text": "see"}, {"type": "image_url"}, {"type": "audio"}]
    values = [head(session_id=SESSION, schema_version=9), line("run.start", input={"type": "parts", "parts": parts})]
    put(log, b"".join(map(dump_line, values)) + b"noise\n" + dump_line(event(0))[:-9])
    (only,) = log.replay.history(SESSION).events
    assert only.event["content"] == "see[image][other:audio]"


def test_a_summary_tells_what_a_run_did(log: RunLog) -> None:
    """run-log RL-43."""
    put_example(log)
    digest = log.replay.summarise(EXAMPLE_RUN)
    assert (digest.state, digest.status, digest.outcome) == ("ended", "completed", "completed")
    assert (digest.input_text, digest.final) == (
        "list files",
        "Here are the files: AGENTS.md, RULES.md, packages.",
    )
    assert digest.duration == timedelta(seconds=2, milliseconds=344)
    assert (digest.invocations, digest.unanswered, digest.tool_calls, digest.errors) == (1, 0, 1, 0)
    assert digest.usage["gpt-4.1-mini"].total_tokens == 135
    assert digest.records["agent.event"] == 2
    assert digest.header is not None


def test_a_summary_has_the_beginning_of_long_texts(log: RunLog) -> None:
    """run-log RL-43: the first 1,000 characters."""
    asked = line("run.start", input={"type": "text", "text": "a" * 1_001})
    put(log, [head(), asked, ending() | {"final": "b" * 1_001}])
    digest = log.replay.summarise(RUN)
    assert (digest.input_text, digest.final) == ("a" * 1_000, "b" * 1_000)


def test_a_summary_adds_tokens_by_model_and_missing_usage_counts_as_none(log: RunLog) -> None:
    """run-log RL-43."""

    def usage(model: str, tokens: int) -> dict[str, object]:
        return {
            "model": model,
            "input_tokens": tokens,
            "input_cached_tokens": None,
            "output_tokens": 1,
            "total_tokens": 9,
        }

    put(
        log,
        [
            head(session_id=SESSION),
            *(request(seq, "x") for seq in range(1, 7)),
            response(1, usage=usage("a", 5)),
            response(2, usage=usage("b", 7)),
            response(3, usage=usage("a", 6)),
            response(4, usage=None),
            response(5),
            event(0, event={"type": "compaction_complete"}),
            line("tool.output", tool="t", tool_call_id="c", result_raw="", is_error=True),
            line("run.context", context_left_percent=40),
            line("run.error", error={"name": "E", "message": "m"}),
            status("error"),
            ending("error"),
        ],
    )
    digest = log.replay.summarise(RUN)
    assert {model: totals.input_tokens for model, totals in digest.usage.items()} == {"a": 11, "b": 7}
    assert (digest.usage["a"].responses, digest.usage["a"].input_cached_tokens) == (2, 0)
    assert (digest.invocations, digest.unanswered, digest.compactions, digest.tool_errors, digest.errors) == (
        6,
        1,
        1,
        1,
        1,
    )
    assert digest.context_left_percent == 40


def test_a_large_log_is_summarised_in_little_memory(log: RunLog) -> None:
    """run-log RL-43."""
    output = line("tool.output", tool="t", tool_call_id="c", result_raw="x" * 200_000)
    put(log, [head(), *[output] * 100])

    def summarise() -> None:
        assert log.replay.summarise(RUN).tool_calls == 100

    assert_peak_bytes_below(8_000_000, summarise)


def test_an_answer_that_stands_before_its_question_is_none(log: RunLog) -> None:
    """run-log RL-40: and of several answers the first counts, also while others are awaited."""
    put(log, [head(), response(2, "early"), request(1), request(2), response(2), response(2, "dup"), response(1)])
    found = [turn.response and turn.response.output.messages[0]["content"] for turn in log.replay.prompts(RUN)]
    assert found == ["yes", "yes"]


def test_a_run_has_one_input_in_a_history(log: RunLog) -> None:
    """run-log RL-42: that of its first start."""
    asked = [line("run.start", input={"type": "text", "text": text}) for text in ("first", "second")]
    put(log, [head(session_id=SESSION), *asked])
    assert [found.event["content"] for found in log.replay.history(SESSION).events] == ["first"]


def test_a_response_before_its_request_answers_nothing(log: RunLog) -> None:
    """run-log RL-40: and one that was never asked for changes no other."""
    put(log, [head(), response(1, "early"), request(1, "a"), response(9, "odd"), request(2, "b"), response(2)])
    found = [(turn.seq, turn.response and turn.response.seq) for turn in log.replay.prompts(RUN)]
    assert found == [(1, None), (2, 2)]


def test_a_second_start_is_no_second_input(log: RunLog) -> None:
    """run-log RL-42: others wrote it."""
    starts = [line("run.start", input={"type": "text", "text": text}) for text in ("ask", "again")]
    put(log, [head(session_id=SESSION), *starts, event(0)])
    history = log.replay.history(SESSION)
    assert [event.event.get("content") for event in history.events] == ["ask", None]
