from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.refusal import refused
from support.workflows.steps import Raw, all_pages, started, together

from lastlight_state import StateStore
from lastlight_state.errors import AlreadyExists, InvalidValue, LostRace, NotFound, PayloadTooLarge
from lastlight_state.journal import TaskAttempt, ToolCallFilter, ToolOutcome
from lastlight_state.testing import FrozenClock

DONE = ToolOutcome("succeeded", output=["a.py"])


def test_a_call_begins_and_ends_with_its_latency(store: StateStore, frozen_clock: FrozenClock) -> None:
    """journal L-2, L-3: and one that is logged afterwards is stored at once."""
    run = started(store).id
    calls = store.journal.tool_calls
    began = frozen_clock.now()
    call = calls.create(run, "grep", task=TaskAttempt("plan", 1, 2, "exec-1"), input={"pattern": "x"})
    assert (call.seq, call.status, call.input, call.output) == (0, "running", {"pattern": "x"}, None)
    frozen_clock.advance(timedelta(milliseconds=250))
    ended = calls.finish(run, 0, DONE)
    assert (ended.status, ended.duration_ms, ended.output) == ("succeeded", 250, ["a.py"])
    assert calls.get(run, 0) == ended
    recorded = calls.record(run, "ls", ToolOutcome("failed", error="no", duration_ms=7), started_at=began)
    assert (recorded.seq, recorded.duration_ms, recorded.error) == (1, 7, "no")
    assert calls.record(run, "ls", DONE, started_at=frozen_clock.now() + timedelta(days=1)).duration_ms == 0
    with pytest.raises(NotFound):
        calls.create("nobody", "grep")
    with pytest.raises(NotFound):
        calls.finish(run, 9, DONE)


def test_a_call_with_a_key_is_found_again_with_its_result(store: StateStore) -> None:
    """journal L-1: a replayed attempt does not call again."""
    run = started(store).id
    calls = store.journal.tool_calls
    first = calls.create(run, "grep", call_id="c", input={"n": 1})
    calls.finish(run, first.seq, DONE)
    again = calls.create(run, "grep", call_id="c", input={"n": 1.0})
    assert (again.seq, again.status, again.output) == (0, "succeeded", ["a.py"])
    assert calls.find(run, "c") == again
    for tool, given in (("ls", {"n": 1}), ("grep", {"n": 2})):
        with pytest.raises(AlreadyExists):
            calls.create(run, tool, call_id="c", input=given)


def test_one_of_two_who_finish_wins(every_backend: StateStore, run_id: str) -> None:
    """journal L-2: an equal outcome is no other."""
    calls = every_backend.journal.tool_calls
    calls.create(run_id, "grep")
    told: list[Any] = together([lambda i=i: calls.finish(run_id, 0, ToolOutcome("failed", error=i)) for i in range(2)])  # type: ignore[misc]
    [won] = [one for one in told if not isinstance(one, BaseException)]
    [lost] = [one for one in told if isinstance(one, LostRace)]
    assert lost.details["call"] == won
    assert calls.finish(run_id, 0, ToolOutcome("failed", error=won.error)) == won


def test_calls_of_a_node_come_in_the_order_of_its_attempts(store: StateStore) -> None:
    """journal L-4: else the newest first; a count has the same filters."""
    run = started(store).id
    calls = store.journal.tool_calls
    for node, attempt, tool in (("b", 1, "ls"), ("a", 2, "ls"), ("a", 1, "grep"), ("a", 1, "ls")):
        calls.create(run, tool, task=TaskAttempt(node, attempt=attempt))
    calls.finish(run, 0, DONE)
    for where, wanted in (
        (None, [3, 2, 1, 0]),
        (ToolCallFilter(node_id="a"), [2, 3, 1]),
        (ToolCallFilter(node_id="a", attempt=1, tool_name="ls"), [3]),
        (ToolCallFilter(status="succeeded"), [0]),
    ):
        found = [call.seq for call in all_pages(calls.list, run_id=run, where=where, limit=2)]
        assert found == wanted
        assert calls.count(run, where=where) == len(wanted)
    assert not hasattr(calls.list(run).items[0], "input")


def test_too_large_an_output_is_refused_and_never_cut(store: StateStore, raw: Raw) -> None:
    """journal L-5, J-4: and a finished call stays."""
    run = started(store).id
    calls = store.journal.tool_calls
    calls.create(run, "grep", input="x" * (256 * 1024 - 2))
    with pytest.raises(PayloadTooLarge):
        calls.finish(run, 0, ToolOutcome("succeeded", output="x" * (256 * 1024 - 1)))
    with pytest.raises(InvalidValue):
        calls.finish(run, 0, ToolOutcome("running"))  # type: ignore[arg-type]
    calls.finish(run, 0, ToolOutcome("succeeded", output_ref="s3://bucket/key"))
    for sql in ("UPDATE tool_calls SET status = 'failed'", "DELETE FROM tool_calls"):
        with refused():
            raw(sql)
