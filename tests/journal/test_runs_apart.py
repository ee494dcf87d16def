"""Journals of runs know nothing of one another: equal keys, times and numbers are each run's own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from support.journal.trees import element, text
from support.workflows.steps import started

from lastlight_state import StateStore
from lastlight_state.journal import (
    EventFilter,
    NewEvent,
    NewScore,
    SandboxChanges,
    ScoreFilter,
    SignalFilter,
    TaskAttempt,
    ToolCallFilter,
    ToolOutcome,
    WriterOptions,
)
from lastlight_state.testing import FrozenClock

AT = datetime(2026, 2, 3, 12, 0, 0, 5000, UTC)
KEYED = NewEvent("a", {"n": 1}, event_id="k", node_id="plan")


def _events(store: Any, run: str) -> Iterator[Any]:
    events = store.journal.events
    yield events.latest_seq(run), events.find(run, "k"), events.ensure_start(run, 3)
    yield events.append(run, "a")
    for _ in range(2):
        yield events.append(run, "a", {"n": 1}, event_id="k", node_id="plan")
        yield events.append(run, "r", {"n": 1}, at=AT)
        yield events.append_many(run, [KEYED, NewEvent("b", event_id="m"), NewEvent("r", {"n": 2}, AT)])
    yield events.append_many(run, [NewEvent("c")] * 2)
    for where in (None, EventFilter(types=("a",)), EventFilter(node_id="plan"), EventFilter(until=AT)):
        yield events.list(run, where=where).items, events.count(run, where=where)
    yield events.list(run, order="newest_first", after_seq=4).items, events.get(run, 5), events.latest_seq(run)
    yield [event.seq for event in events.follow(run, idle_timeout=0, after_seq=3)]


def _signals(store: Any, run: str) -> Iterator[Any]:
    signals = store.journal.signals
    yield signals.latest_seq(run), signals.find(run, "s"), signals.try_take(run, "go", consumer="c")
    for _ in range(2):
        yield signals.send(run, "go", 1, signal_id="s")
        yield signals.send(run, "go", 2, at=AT)
        yield signals.send(run, "go", 3, at=AT, correlation_id="k")
    for consumer in ("c", "d", "c"):
        yield signals.try_take(run, "go", consumer=consumer), signals.find_taken(run, "c")
    yield signals.list(run).items, signals.count(run, where=SignalFilter(correlation_id="k")), signals.latest_seq(run)
    yield signals.try_take(run, "go", consumer="e", correlation_id=None), signals.get(run, 2), signals.find(run, "s")


def _frames(store: Any, run: str) -> Iterator[Any]:
    frames = store.journal.frames
    rest = element("rest", text("it stays " * 20), id="rest")
    yield frames.find_latest(run), list(frames.replay(run))
    for i in range(4):
        yield frames.append(run, element("plan", text(f"step {i} of {run}"), rest), note="n")
    yield frames.append(run, element("plan", text(f"step 1 of {run}"), rest), frame_no=1, note="n")
    yield frames.append(run, None, frame_no=51).encoding, frames.append(run, rest).encoding
    yield frames.find_latest(run), frames.list(run).items, frames.verify(run), frames.diff(run, 0, 3)
    yield frames.get(run, 2), [frame.frame_no for frame in frames.replay(run, after=1, upto=51)]


def _calls(store: Any, run: str) -> Iterator[Any]:
    calls = store.journal.tool_calls
    yield calls.find(run, "c")
    for _ in range(2):
        yield calls.create(run, "grep", call_id="c", task=TaskAttempt("plan"))
    for _ in range(4):
        yield calls.create(run, "ls", task=TaskAttempt("plan"))
    yield calls.finish(run, 1, ToolOutcome("succeeded")), calls.get(run, 2), calls.find(run, "c")
    yield calls.record(run, "ls", ToolOutcome("failed", error="no"))
    for where in (
        None,
        ToolCallFilter(node_id="plan"),
        ToolCallFilter(status="running"),
        ToolCallFilter(tool_name="ls"),
    ):
        yield calls.list(run, where=where).items, calls.count(run, where=where)


def _others(store: Any, run: str) -> Iterator[Any]:
    boxes, scores = store.journal.sandboxes, store.journal.scores
    yield boxes.find(run, "box"), boxes.list(run_id=run).items
    yield boxes.put(run, "box", SandboxChanges(status="running")), boxes.put(run, "other", SandboxChanges())
    yield boxes.put(run, "box", SandboxChanges(status="completed")), boxes.get(run, "box"), boxes.get(run, "other")
    yield boxes.list(run_id=run).items, boxes.list(run_id=run, status="pending").items
    only = ScoreFilter(run_ids=[run])
    for i, value in enumerate((1, 1, 2)):
        yield scores.record(NewScore(run, "plan", "j", "Judge", "live", value, id=f"{run}-{i}"))
    yield scores.list(where=only).items, scores.aggregate(where=only)


def _goes_on(store: Any, run: str) -> Iterator[Any]:
    """The numbers that come next, and what is there still."""
    journal = store.journal
    yield journal.events.append(run, "z").seq, journal.events.append_many(run, [NewEvent("z", event_id="z")])[0].seq
    yield journal.signals.send(run, "z").seq, journal.signals.count(run)
    yield journal.frames.append(run, None).frame_no, journal.frames.verify(run)
    yield journal.tool_calls.create(run, "z").seq, journal.tool_calls.get(run, 1), journal.tool_calls.get(run, 3)
    yield journal.tool_calls.get(run, 2).status, journal.tool_calls.finish(run, 2, ToolOutcome("succeeded"))
    yield journal.sandboxes.get(run, "other"), journal.scores.get(f"{run}-2"), journal.scores.get(f"{run}-0")


def _told(store: Any, run: str, *stories: Any) -> list[str]:
    return [repr(found).replace(run, "<run>") for story in stories for found in story(store, run)]


def test_a_run_finds_what_is_its_own_whatever_the_others_have(store: StateStore, frozen_clock: FrozenClock) -> None:
    """journal J-2, Q-1, D-1: each of three runs tells the same story, also when all have told it."""
    runs = [started(store).id for _ in range(3)]
    first, *others = [_told(store, run, _events, _signals, _frames, _calls, _others) for run in runs]
    for other in others:
        assert other == first
    first, *others = [_told(store, run, _goes_on) for run in runs]
    for other in others:
        assert other == first


def test_a_batch_of_several_runs_gives_each_its_own(store: StateStore) -> None:
    """journal W-2, W-3, D-1: keys that are equal are of different runs; other streams go on as they were."""
    runs = [started(store).id for _ in range(3)]
    for i, run in enumerate(runs):
        for _ in range(i):
            store.journal.signals.send(run, "go")
            store.journal.events.append(run, "before")
    store.journal.events.append(runs[0], "a", {"n": 0}, event_id="k")
    with store.journal.writer(WriterOptions(linger=60)) as writer:
        keyed = [writer.append(run, "a", {"n": i}, event_id="k") for i, run in enumerate(runs)]
        plain = [writer.append(run, "b") for run in runs]
        writer.flush()
        assert [one.seq for one in keyed] == [0, 1, 2]
        assert [one.seq for one in plain] == [1, 2, 3]
        assert (writer.stats().stored, writer.stats().duplicates) == (5, 1)
    for i, run in enumerate(runs):
        assert store.journal.signals.send(run, "go").seq == i
        assert store.journal.events.append(run, "c").seq == i + 2
