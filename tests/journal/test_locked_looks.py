"""What a call of this domain has looked at stays as it is until the call has written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from support.journal.trees import element
from support.rivals import Look, Wait, after_waiting, check, parameters
from support.workflows.steps import started

from lastlight_state.errors import LostRace
from lastlight_state.journal import NewEvent, NewScore, ToolOutcome
from lastlight_state.journal.events import checks as event_checks
from lastlight_state.journal.writer.queue import Entry
from lastlight_state.journal.writer.saver import Batches
from lastlight_state.testing import Database, racing

TREE = element("task", id="a")
AT = datetime(2026, 1, 2, tzinfo=UTC)


def _run(store: Any) -> str:
    """A run whose streams have counters."""
    run_id = started(store).id
    store.journal.events.append(run_id, "NodeStarted", {})
    store.journal.signals.send(run_id, "go", 1)
    store.journal.frames.append(run_id, TREE)
    store.journal.tool_calls.create(run_id, "search")
    return run_id


def _append(store: Any, run_id: str) -> Any:
    return store.journal.events.append(run_id, "NodeFinished", {}, event_id="e-1")


def _append_many(store: Any, run_id: str) -> Any:
    [appended] = store.journal.events.append_many(run_id, [NewEvent("NodeFinished", {}, event_id="e-1")])
    return appended


def _batch(store: Any, run_id: str) -> Any:
    row = event_checks.event(run_id, NewEvent("NodeFinished", {}, event_id="e-1"), store._context.clock.now())
    [appended], _ = Batches(store._context).store([Entry(row, is_keyed=True)], in_doubt=False)
    return appended


def _send(store: Any, run_id: str) -> Any:
    return store.journal.signals.send(run_id, "go", 2, signal_id="s-1")


def _replay(store: Any, run_id: str) -> Any:
    """Send a signal that has no id, but a time: an equal one is the same signal."""
    return store.journal.signals.send(run_id, "go", 2, at=AT, correlation_id="c-1")


def _frame(store: Any, run_id: str) -> Any:
    return store.journal.frames.append(run_id, element("task", id="b"))


def _call(store: Any, run_id: str) -> Any:
    return store.journal.tool_calls.create(run_id, "search", call_id="c-1")


def _score(store: Any, run_id: str, score: float = 0.8) -> Any:
    new = NewScore(run_id=run_id, score=score, node_id="plan", scorer_id="j", scorer_name="Judge", source="live")
    return store.journal.scores.record(new)


def _scored(store: Any) -> str:
    run_id = started(store).id
    _score(store, run_id, 0.2)
    return run_id


def _take(store: Any, run_id: str, consumer: str = "ours") -> Any:
    return store.journal.signals.try_take(run_id, "go", consumer=consumer)


LOOKS = {
    "Events.append": Look(_run, _append, _append),
    "Events.append_many": Look(_run, _append_many, _append),
    "Events.ensure_start": Look(
        lambda s: started(s).id, lambda s, r: s.journal.events.ensure_start(r, 7), _append, since=3
    ),
    "Batches.store": Look(_run, _batch, _append),
    "Frames.append": Look(_run, _frame, _frame),
    "Signals.send": Look(_run, _send, _send),
    "Signals._try_take": Look(_run, _take, lambda o, r: _take(o, r, "theirs"), since=4),
    "ToolCalls._store_call": Look(_run, _call, _call),
    "Scores.record": Look(_scored, _score, lambda o, r: _score(o, r, 0.5), since=3),
}


@parameters(LOOKS)
def test_nobody_changes_what_a_call_has_looked_at_before_it_writes(database: Database, look: Look) -> None:
    """journal Q-6: the counter is locked from the look to the commit."""
    check(database, look)


TWICE = {"Events.append": _append, "Events.append_many": _append_many, "Signals.send": _send, "a replay": _replay}


@pytest.mark.parametrize("write", TWICE.values(), ids=list(TWICE))
def test_what_two_store_under_one_key_is_stored_once(shared_postgres: Database, write: Any) -> None:
    """journal Q-6, D-1: the second waits, and finds what the first has stored."""
    assert after_waiting(shared_postgres, Wait(_run, write, write)).created is False


def test_a_tool_call_that_two_begin_under_one_key_is_stored_once(shared_postgres: Database) -> None:
    """journal L-1: ToolCalls._store_call."""
    assert after_waiting(shared_postgres, Wait(_run, _call, _call)).seq == 1


def test_frames_that_two_append_have_numbers_of_their_own(shared_postgres: Database) -> None:
    """journal R-1: Frames.append; the change is against the frame that is there then."""
    assert after_waiting(shared_postgres, Wait(_run, _frame, _frame)).frame_no == 2
    store = shared_postgres.open()
    [run] = store.workflows.runs.list().items
    assert store.journal.frames.verify(run.id).broken == ()


def test_a_signal_taken_after_the_look_goes_to_nobody_else(database: Database) -> None:
    """journal G-6: Signals.try_take looks again under the counter's lock."""
    store, other = database.open(), database.open()
    run_id = _run(store)
    with racing(store) as race:
        race.before_unit(2, lambda: _take(other, run_id, "theirs"))
        assert _take(store, run_id) is None
    assert race.left == 0


def test_a_signal_that_the_consumer_took_after_the_look_is_its_own(database: Database) -> None:
    """journal G-6, G-5: Signals.try_take."""
    store, other = database.open(), database.open()
    run_id = _run(store)
    store.journal.signals.send(run_id, "go", 2)
    with racing(store) as race:
        race.before_unit(2, lambda: _take(other, run_id))
        assert _take(store, run_id).seq == 0
    assert race.left == 0


def test_two_takers_at_once_get_a_signal_each(shared_postgres: Database) -> None:
    """journal G-6: Signals.try_take; the second waits for the first."""

    def given(store: Any) -> str:
        run_id = _run(store)
        store.journal.signals.send(run_id, "go", 2)
        return run_id

    wait = Wait(given, lambda t, r: _take(t, r, "theirs"), _take)
    assert after_waiting(shared_postgres, wait).seq == 1


def test_a_tool_call_finished_after_the_look_keeps_its_end(database: Database) -> None:
    """journal L-2: ToolCalls.finish."""
    store, other = database.open(), database.open()
    run_id = _run(store)
    with racing(store) as race:
        race.before_unit(2, lambda: other.journal.tool_calls.finish(run_id, 0, ToolOutcome("succeeded")))
        with pytest.raises(LostRace):
            store.journal.tool_calls.finish(run_id, 0, ToolOutcome("failed"))
    assert race.left == 0


@pytest.mark.parametrize("given", [_scored, lambda store: started(store).id], ids=["rerun", "first"])
def test_of_two_scores_at_once_the_later_is_the_current_one(shared_postgres: Database, given: Any) -> None:
    """journal K-1: Scores.record; the second waits, and supersedes what the first has stored."""
    theirs: list[Any] = []
    wait = Wait(given, lambda t, r: theirs.append(_score(t, r, 0.5)), _score)
    ours = after_waiting(shared_postgres, wait)
    scores = shared_postgres.open().journal.scores
    assert [score.id for score in scores.list().items] == [ours.id]
    assert scores.get(theirs[0].id).superseded_at is not None
