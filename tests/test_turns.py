"""What threads share is used by one after the other: whoever comes meanwhile waits, and finds what was left."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.agent_log.logs import SESSION, agent_log, said, text
from support.each import with_each
from support.run_log.logs import event, run_log, start
from support.turns import outcome_of_waiting

from lastlight_state import StateStore
from lastlight_state.aio.lanes import Lane
from lastlight_state.db.news import watch as watches
from lastlight_state.db.units.scope import StoreScope
from lastlight_state.errors import MisuseError, StateError, StoreClosed
from lastlight_state.files.agent_log import Outcome
from lastlight_state.files.agent_log.tree import Recent
from lastlight_state.files.jsonl.writer import LineWriter
from lastlight_state.files.run_log import record_of
from lastlight_state.ids import IdSource
from lastlight_state.journal import JournalWriter, NewEvent
from lastlight_state.journal.events import checks as event_checks
from lastlight_state.journal.frames import FrameCache
from lastlight_state.journal.writer.queue import Entry, Queue
from lastlight_state.journal.writer.registry import Opened
from lastlight_state.metrics import Metrics

Call = Callable[[Any], object]
AT = datetime(2026, 2, 3, tzinfo=UTC)

IN_MEMORY: dict[str, tuple[Callable[[], Any], Call, object]] = {
    "an id": (IdSource, lambda ids: len(ids.fresh()), 36),
    "a count": (Metrics, lambda metrics: metrics.count("retries"), None),
    "the counts of a label": (Metrics, lambda metrics: metrics.of("nightly"), {}),
    "a value that is kept": (Recent, lambda recent: recent.put("k", 1), None),
    "a kept value": (Recent, lambda recent: recent.find("k"), None),
    "a frame that is kept": (FrameCache, lambda cache: cache.put(("r", 1, "d"), "text"), None),
    "a kept frame": (FrameCache, lambda cache: cache.get(("r", 1, "d")), None),
    "an event of a queue": (
        lambda: Queue(9, 9),
        lambda queue: queue.offer(Entry(event_checks.event("r", NewEvent("progress"), AT), is_keyed=True)),
        True,
    ),
    "a queue that takes no more": (lambda: Queue(9, 9), lambda queue: queue.refuse(StateError("over")), None),
    "what has grown": (lambda: watches.Watch(dict), lambda watch: watch.wait_for_growth({"k": 1}, 0), {}),
    "how often to look": (lambda: watches.Watch(dict), lambda watch: watch._interval(), 0.5),
    "what to look for": (
        lambda: watches.Watch(dict),
        lambda watch: watch._wanted_keys(watch._idle),
        [],
    ),
    "the end of a wait": (lambda: watches.Watch(dict), lambda watch: watch._over(object()), None),
}


@with_each("case", IN_MEMORY)
def test_a_thread_waits_while_another_is_at_the_same_state(case: str) -> None:
    """house H-43."""
    make, call, expected = IN_MEMORY[case]
    owner = make()
    assert outcome_of_waiting(owner, "_lock", lambda: call(owner)) == expected


def test_who_begins_to_wait_has_a_turn_of_its_own() -> None:
    """house H-43: nobody is added while another thread looks at all who wait."""
    watch: watches.Watch[str] = watches.Watch(lambda keys: dict.fromkeys(keys, 1))
    waiting = watch.waiting_for(["k"], 30)
    seen: list[int] = []
    with_turn = outcome_of_waiting(watch, "_lock", waiting.__enter__, lambda: seen.append(len(watch._waiting)))
    waiting.__exit__(None, None, None)
    assert (with_turn, seen) == (None, [0])


class _Guarded(watches.Watch[str]):
    """Tells which of its changes were made without its lock."""

    def __init__(self, read: Callable[[Collection[str]], dict[str, int]]) -> None:
        super().__init__(read)
        self.changes: list[tuple[str, bool]] = []

    def __setattr__(self, name: str, value: object) -> None:
        if "changes" in self.__dict__ and name != "changes":
            self._seen(name)
        super().__setattr__(name, value)

    def _wake(self, keys: Collection[str]) -> None:
        self._seen("_wake")
        super()._wake(keys)

    def _seen(self, name: str) -> None:
        self.changes.append((name, self._lock._is_owned()))  # type: ignore[attr-defined]


def _refused(_: Collection[str]) -> dict[str, int]:
    raise MisuseError("the store was closed")


def test_a_watch_changes_nothing_but_in_its_turn() -> None:
    """house H-43: from the first who waits to its end, whoever ends it."""
    watch, refused = _Guarded(lambda keys: dict.fromkeys(keys, 1)), _Guarded(_refused)
    with watch.waiting_for(["k"], 0.001):
        assert watch.wait_for_growth({"k": 0}, 30) == {"k": 1}
        watch.end()
    with refused.waiting_for(["k"], 0.001), pytest.raises(StoreClosed):
        refused.wait_for_growth({"k": 0}, 30)
    for one in (watch, refused):
        changed = {"_thread", "_threads", "_idle", "_waiting", "_closed", "_wake", "_news", "_last_news"}
        assert changed == {name for name, _ in one.changes}
        assert [name for name, was_owned in one.changes if not was_owned] == []


def test_one_thread_is_started_for_a_place_of_a_lane() -> None:
    """house H-43: of two calls that find the place free, the second finds the thread of the first."""
    lane = Lane("test", 1)
    assert outcome_of_waiting(lane, "_guard", lane._start) is None
    lane._start()
    lane.close()
    lane.join()
    assert len(lane._calls.threads) == 1


def test_a_store_has_one_watch_of_a_name_whoever_asks_first() -> None:
    """house H-43."""
    scope: Any = SimpleNamespace(before_close=[], after_commits=[], watches={})

    def of(name: str) -> object:
        found: object = watches.watch_of(scope, name, dict)
        return found

    late = outcome_of_waiting(watches, "_making_lock", lambda: of("queue"))
    assert of("queue") is late
    assert len(scope.before_close) == 1


def test_the_writers_of_a_store_are_closed_with_it_once_whoever_opens_the_first(state_store: StateStore) -> None:
    """house H-43."""
    opened, scope = state_store._context.remember(Opened), state_store._scope
    assert isinstance(scope, StoreScope)
    late = outcome_of_waiting(opened, "_lock", state_store.journal.writer)
    assert isinstance(late, JournalWriter)
    state_store.journal.writer()
    assert scope.before_close.count(opened.close) == 1


LINES: dict[str, Call] = {
    "append": lambda writer: writer.append([b"{}\n"]),
    "seal": lambda writer: writer.seal(),
    "sync": lambda writer: writer.sync(),
    "close": lambda writer: writer.close(),
}


@pytest.mark.parametrize("name", LINES)
def test_a_thread_waits_while_another_holds_the_line_file(tmp_path: Path, name: str) -> None:
    """agent-log L-26."""
    with LineWriter(tmp_path / "log.jsonl") as writer:
        writer.append([b"{}\n"])
        outcome = outcome_of_waiting(writer, "_mutex", lambda: LINES[name](writer))
    assert not isinstance(outcome, Exception)


WRITES: dict[str, Call] = {
    "feed": lambda writer: writer.feed(said(text("again"))),
    "append": lambda writer: writer.append([{"type": "note"}]),
    "finish": lambda writer: writer.finish(Outcome()),
    "finish_failed": lambda writer: writer.finish_failed("s-2", Outcome("error_during_execution")),
    "sync": lambda writer: writer.sync(),
    "close": lambda writer: writer.close(),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_thread_waits_while_another_writes_the_session(tmp_path: Path, name: str) -> None:
    """agent-log L-26."""
    with agent_log(tmp_path).writer.open(prompt="go", sync="os") as writer:
        writer.feed(SESSION)
        writer.feed(said(text("once")))
        outcome = outcome_of_waiting(writer, "_lock", lambda: WRITES[name](writer))
    assert not isinstance(outcome, Exception)


ASKED = {"messages": [{"role": "user", "content": "go"}]}
RUN: dict[str, tuple[Call, Call, int | None]] = {
    "status": (lambda writer: writer.status("running"), lambda _: None, None),
    "event": (lambda writer: writer.event({"type": "text"}), lambda writer: writer.event({"type": "text"}), 1),
    "append": (lambda writer: writer.append(record_of(event(0))), lambda _: None, None),
    "request": (lambda writer: writer.llm_request(ASKED), lambda writer: writer.llm_request(ASKED), 2),
    "flush": (lambda writer: writer.flush(), lambda _: None, None),
    "close": (lambda writer: writer.close(), lambda _: None, None),
}


@pytest.mark.parametrize("name", RUN)
def test_a_thread_waits_while_another_writes_the_run(tmp_path: Path, name: str) -> None:
    """run-log RL-23: each finds the number after those that were given meanwhile."""
    call, meanwhile, expected = RUN[name]
    with start(run_log(tmp_path)) as writer:
        writer.run_start("do it")
        assert outcome_of_waiting(writer, "_lock", lambda: call(writer), lambda: meanwhile(writer)) == expected
