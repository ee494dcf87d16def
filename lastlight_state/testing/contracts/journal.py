"""Contract tests of the journal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lastlight_state import AlreadyExists, Conflict, InvalidValue, LostRace, NotFound, StateStore, Transaction
from lastlight_state.journal import (
    EventFilter,
    NewEvent,
    NewScore,
    SandboxChanges,
    ScoreFilter,
    SignalFilter,
    TaskAttempt,
    ToolOutcome,
)
from lastlight_state.testing.contracts.steps import fresh, start_run

_AT = datetime(2026, 2, 3, 12, 34, 56, 789_000, UTC)


class _Undone(Exception):
    """An exception that stands for an error in the caller's own code."""


class JournalContract:
    """Tests of ``store.journal``."""

    def test_events_are_numbered_from_0_and_found_by_every_filter(self, store: StateStore) -> None:
        run, events = start_run(store).id, store.journal.events
        assert events.append(run, "a", {"nodeId": "n", "text": "✓"}).seq == 0
        batch = [NewEvent("b", {"n": i}) for i in range(3)]
        assert [stored.seq for stored in events.append_many(run, batch)] == [1, 2, 3]
        assert events.get(run, 0).payload == {"nodeId": "n", "text": "✓"}
        assert [event.seq for event in events.list(run, where=EventFilter(types=["b"]), after_seq=1)] == [2, 3]
        assert [event.seq for event in events.list(run, where=EventFilter(node_id="n"))] == [0]
        assert (events.count(run), events.latest_seq(run)) == (4, 3)
        with pytest.raises(NotFound):
            events.append(fresh("nobody"), "a")

    def test_an_event_with_a_key_or_a_time_of_its_own_is_stored_once(self, store: StateStore) -> None:
        run, events = start_run(store).id, store.journal.events
        told = [events.append(run, "a", {"n": n}, event_id="k") for n in (1, 1.0)]
        told += [events.append(run, "b", {"n": 1}, at=_AT) for _ in range(2)]
        assert [(one.seq, one.created) for one in told] == [(0, True), (0, False), (1, True), (1, False)]
        assert [events.append(run, "c").seq for _ in range(2)] == [2, 3]
        with pytest.raises(AlreadyExists):
            events.append(run, "a", {"n": True}, event_id="k")

    def test_a_rollback_gives_the_number_back(self, store: StateStore) -> None:
        run = start_run(store).id
        with pytest.raises(_Undone), store.transaction() as tx:
            _append_and_fail(tx, run)
        assert store.journal.events.append(run, "b").seq == 0

    def test_followers_get_stored_events_in_order(self, store: StateStore) -> None:
        run, events = start_run(store).id, store.journal.events
        events.append_many(run, [NewEvent("a"), NewEvent("b"), NewEvent("stop"), NewEvent("c")])
        assert [event.type for event in events.follow(run, after_seq=0, stop_types=["stop"])] == ["b", "stop"]

    def test_a_signal_is_taken_once_and_the_oldest_first(self, store: StateStore) -> None:
        run, signals = start_run(store).id, store.journal.signals
        for n in range(2):
            signals.send(run, " merged ", {"n": n}, correlation_id="pr-7")
        first, again, second, none = (
            signals.try_take(run, "merged", consumer=consumer) for consumer in ("a", "a", "b", "c")
        )
        assert first is not None
        assert second is not None
        assert (first.payload, second.payload, again, none) == ({"n": 0}, {"n": 1}, first, None)
        assert signals.find_taken(run, "a") == first
        assert signals.count(run, where=SignalFilter(correlation_id="pr-7")) == 2

    def test_frames_are_read_as_they_were_stored(self, store: StateStore) -> None:
        run, frames = start_run(store).id, store.journal.frames
        trees = [_tree(step) for step in range(4)]
        assert [frames.append(run, tree).frame_no for tree in trees] == [0, 1, 2, 3]
        assert [frame.tree["children"][0] for frame in frames.replay(run)] == [tree["children"][0] for tree in trees]
        assert frames.get(run, 2).content_hash == frames.append(run, trees[2], frame_no=2).content_hash
        assert frames.verify(run).broken == ()
        with pytest.raises(AlreadyExists):
            frames.append(run, trees[0], frame_no=1)

    def test_a_tool_call_ends_once_with_its_latency(self, store: StateStore) -> None:
        run, calls = start_run(store).id, store.journal.tool_calls
        task = TaskAttempt("plan", 1, 2)
        call = calls.create(run, "grep", task=task, call_id="c", input={"pattern": "x"}, at=_AT)
        outcome = ToolOutcome("succeeded", output=["✓"], at=_AT + timedelta(milliseconds=250))
        ended = calls.finish(run, call.seq, outcome)
        assert (ended.status, ended.duration_ms, ended.output) == ("succeeded", 250, ["✓"])
        assert calls.create(run, "grep", task=task, call_id="c", input={"pattern": "x"}) == ended
        with pytest.raises(LostRace):
            calls.finish(run, call.seq, ToolOutcome("failed", error="no"))

    def test_a_sandbox_changes_field_by_field_until_it_has_ended(self, store: StateStore) -> None:
        run, sandboxes = start_run(store).id, store.journal.sandboxes
        sandboxes.put(run, "box", SandboxChanges(runtime="docker", config={"net": False}))
        done = sandboxes.put(run, "box", SandboxChanges(status="completed"))
        assert (done.runtime, done.config, done.completed_at) == ("docker", {"net": False}, done.updated_at)
        with pytest.raises(Conflict):
            sandboxes.put(run, "box", SandboxChanges(status="running"))
        assert [box.sandbox_id for box in sandboxes.list(run_id=run)] == ["box"]

    def test_a_rerun_of_a_scorer_supersedes_its_score(self, store: StateStore) -> None:
        run, scores = start_run(store).id, store.journal.scores
        of_run = ScoreFilter(run_ids=[run])
        told = [scores.record(_score(run, value)) for value in (0.25, 0.75, 0.75)]
        assert told[1] == told[2] != told[0]
        scores.record(_score(run, 1, iteration=1))
        assert {score.score for score in scores.list(where=of_run)} == {0.75, 1.0}
        [judge] = scores.aggregate(where=of_run)
        assert (judge.count, judge.mean, judge.p50, judge.stddev) == (2, 0.875, 0.875, 0.125)
        with pytest.raises(InvalidValue):
            scores.record(_score(run, float("nan")))


def _append_and_fail(tx: Transaction, run_id: str) -> None:
    assert tx.journal.events.append(run_id, "a").seq == 0
    raise _Undone


def _tree(step: int) -> Any:
    said = {"kind": "text", "text": f"step {step}"}
    parts = [{"kind": "element", "tag": "part", "props": {"id": f"p{i}"}, "children": []} for i in range(9)]
    return {"kind": "element", "tag": "plan", "props": {}, "children": [said, *parts]}


def _score(run_id: str, value: float, **given: Any) -> NewScore:
    return NewScore(run_id, "plan", "judge-1", "Judge", "live", value, **given)
