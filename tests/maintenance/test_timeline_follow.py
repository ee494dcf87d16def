"""Following what happens to a run, whoever does it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.workflows.asking import WHO
from support.workflows.crew import Crew
from support.workflows.steps import PLAN, Raw, started

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.maintenance import FollowedEntry
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Trigger

HOUR = timedelta(hours=1)


def told(store: Any, run_id: str, **given: Any) -> list[FollowedEntry]:
    """All that is stored of a run, or after a cursor."""
    return list(store.maintenance.timeline.follow(run_id, idle_timeout=0, **given))


def lines(entries: list[FollowedEntry]) -> list[tuple[str | None, str]]:
    return [(entry.actor, entry.text) for entry in entries]


def test_a_follower_is_told_who_did_what_to_the_questions_of_a_run(
    store: StateStore, frozen_clock: FrozenClock, database: Database
) -> None:
    """maintenance OP-94: answers, expiries and cancels of others, also those that leave the run as it is."""
    flows = store.workflows
    run_id = started(store, trigger=Trigger("t")).id
    late = flows.approvals.create(
        run_id, replace(PLAN, gate="late", on_reject="resume", expires_at=frozen_clock.now() + HOUR)
    )
    question = flows.human_requests.create(run_id, WHO)
    gate = flows.approvals.pause(run_id, PLAN)
    flows.human_requests.answer(question.id, "bo", by="ana")
    flows.human_requests.reopen(question.id, reason="which bo?")
    flows.human_requests.cancel(question.id, by="cy", reason="never mind")
    frozen_clock.advance(HOUR)
    assert flows.approvals.expire_due() == (late.id,)
    flows.approvals.answer(gate.id, "approved", by="ana")
    flows.runs.request_cancel(run_id, by="bo", reason="superseded")
    flows.runs.cancel(run_id, by="bo", reason="superseded")
    entries = told(store, run_id)
    assert lines(entries) == [
        (None, "began"),
        (None, "question.asked: approval late: asked"),
        (None, "question.asked: human_request who: asked"),
        (None, "waits for an answer: approval plan: asked"),
        ("ana", "question.answered: human_request who: answered"),
        (None, "question.asked: human_request who: asked again"),
        ("cy", "question.cancelled: human_request who: cancelled"),
        (None, "question.expired: approval late: expired"),
        ("ana", "goes on after an answer: approval plan: approved"),
        ("bo", "asked to stop: superseded"),
        ("bo", "cancelled: superseded"),
    ]
    assert [entry.key for entry in entries] == [str(number) for number in range(1, 12)]
    Raw(database).check_history(run_id)


def test_a_timeline_tells_of_questions_once(store: StateStore) -> None:
    """maintenance OP-94: as facts of their own, not as notes of the run too."""
    run_id = started(store).id
    gate = store.workflows.approvals.create(run_id, PLAN)
    store.workflows.approvals.answer(gate.id, "approved", by="ana")
    texts = [entry.text for entry in store.maintenance.timeline.list(run_id)]
    assert texts == ["began", "gate plan asks for approval", "gate plan approved"]


def test_a_follower_goes_on_behind_any_entry(store: StateStore, frozen_clock: FrozenClock) -> None:
    """maintenance OP-94: over all four lists, in pieces of any size, with a clock that is set back."""
    run_id = started(store).id
    store.outputs.inputs.ensure(run_id, {"n": 1})
    for number in range(5):
        frozen_clock.advance(timedelta(seconds=-1 if number % 2 else 3))
        store.journal.events.append(run_id, f"step.{number}")
        store.journal.signals.send(run_id, f"signal-{number}", {})
    store.workflows.runs.finish(run_id, "succeeded")
    whole = told(store, run_id)
    assert len(whole) == 1 + 1 + 5 + 5 + 1
    assert [entry.at for entry in whole] == sorted(entry.at for entry in whole)
    for index, entry in enumerate(whole):
        assert {(each.source, each.key) for each in told(store, run_id, after=entry.cursor)} == {
            (each.source, each.key) for each in whole[index + 1 :]
        }


def test_pages_of_one_list_are_told_in_order(every_backend: StateStore) -> None:
    """maintenance OP-94: however many there are."""
    run_id = started(every_backend).id
    for number in range(450):
        every_backend.journal.events.append(run_id, f"e{number}")
    every_backend.journal.signals.send(run_id, "last", {})
    events = [entry.text for entry in told(every_backend, run_id) if entry.source == "event"]
    assert events == [f"e{number}" for number in range(450)]


ACT = """
from lastlight_state import StateStore
from lastlight_state.workflows import Gate

url, run_id, me = arguments
with StateStore.open(url, migrate=False) as store:
    ready()
    for n in range(8):
        store.journal.events.append(run_id, f"{me}.{n}")
        gate = store.workflows.approvals.create(run_id, Gate(f"{me}-{n}", "?"))
        store.workflows.approvals.answer(gate.id, "approved", by=me)
        with store.transaction() as tx:
            tx.journal.signals.send(run_id, f"{me}.{n}", {})
            tx.workflows.runs.request_cancel(run_id, by=me, reason="r")
result = None
"""


@pytest.mark.slow
def test_what_several_processes_do_is_told_to_each_follower_once_and_in_order(
    fresh_database: Database, crew: Crew
) -> None:
    """maintenance OP-94: while they do it, and until the run ends."""
    fresh_database.open().close()
    store = StateStore.open(fresh_database.url, migrate=False)  # whose clock goes on, as that of the processes does
    run_id = started(store).id
    heard: list[list[FollowedEntry]] = [[], []]

    def follow(into: list[FollowedEntry]) -> None:
        into.extend(store.maintenance.timeline.follow(run_id, until_end=True, poll_interval=0.01, idle_timeout=60))

    threads = [threading.Thread(target=follow, args=(into,)) for into in heard]
    for thread in threads:
        thread.start()
    crew.race(ACT, *([fresh_database.url, run_id, f"p{n}"] for n in range(3)))
    store.workflows.runs.finish(run_id, "cancelled")
    for thread in threads:
        thread.join(60)
    whole = {(entry.source, entry.key) for entry in told(store, run_id)}
    store.close()
    for into in heard:
        assert len(into) == len(whole)
        assert {(entry.source, entry.key) for entry in into} == whole
        assert into[-1].text.startswith("cancelled")
        for source in ("transition", "event", "signal"):
            numbers = [int(entry.key) for entry in into if entry.source == source]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_follower_ends_with_the_run_when_that_is_asked_for(store: StateStore) -> None:
    """maintenance OP-94: at once for a run that has ended, with all of it told."""
    run_id = started(store).id
    store.workflows.runs.finish(run_id, "succeeded")
    began = time.monotonic()
    entries = list(store.maintenance.timeline.follow(run_id, until_end=True, idle_timeout=60))
    assert [entry.text for entry in entries][-1] == "succeeded"
    assert time.monotonic() - began < 30


def test_a_follower_ends_when_it_is_told_to_stop(every_backend: StateStore) -> None:
    """maintenance OP-94."""
    run_id = started(every_backend).id
    stop = threading.Event()
    following: Iterator[Any] = every_backend.maintenance.timeline.follow(run_id, stop=stop)
    assert next(following).text == "began"
    stop.set()
    assert list(following) == []


def test_async_followers_end_when_they_are_told_to_stop(async_state_store: AsyncStateStore) -> None:
    """maintenance OP-94, journal F-2: of a story, and of the events of a run."""
    import asyncio

    async def main() -> list[str]:
        store = async_state_store
        run = await store.workflows.runs.create("w", trigger=Trigger("t"), phase="p")
        await store.journal.events.append(run.id, "begun")
        stop, heard = threading.Event(), []
        for following in (
            store.maintenance.timeline.follow(run.id, stop=stop),
            store.journal.events.follow(run.id, stop=stop),
        ):
            stop.clear()
            async for entry in following:
                heard.append(type(entry).__name__)
                stop.set()
        return heard

    assert asyncio.run(asyncio.wait_for(main(), 30))[-1] == "Event"


@pytest.mark.logs("a follower passed over what cannot be read")
def test_a_row_that_cannot_be_read_stops_no_follower(sqlite_database: Database) -> None:
    """maintenance OP-94: what is behind it is told."""
    store = sqlite_database.open()
    run_id = started(store).id
    for number in range(3):
        store.journal.events.append(run_id, f"e{number}")
    raw = Raw(sqlite_database)
    with raw.without_guard("run_events_no_update"):
        raw("UPDATE run_events SET occurred_at = 'soon' WHERE seq = 1")
    entries = told(store, run_id)
    assert [entry.text for entry in entries if entry.source == "event"] == ["e0", "e2"]
    assert told(store, run_id, after=entries[-1].cursor) == []


def test_rows_that_were_pruned_behind_a_cursor_are_told(sqlite_database: Database) -> None:
    """maintenance OP-94: with the first number that is left."""
    store = sqlite_database.open()
    run_id = started(store).id
    for number in range(4):
        store.journal.events.append(run_id, f"e{number}")
    cursor = next(entry.cursor for entry in told(store, run_id) if entry.text == "e0")
    raw = Raw(sqlite_database)
    with raw.without_guard("run_events_no_delete"):
        raw("DELETE FROM run_events WHERE seq < 3")
    with pytest.raises(NotFound) as caught:
        told(store, run_id, after=cursor)
    assert caught.value.details["key"] == (run_id, 3)


def test_a_bad_cursor_and_an_unknown_run_are_refused(every_backend: StateStore) -> None:
    """maintenance OP-94."""
    follow = every_backend.maintenance.timeline.follow
    with pytest.raises(NotFound):
        list(follow("nobody", idle_timeout=0))
    run_id = started(every_backend).id
    for cursor in ("", "1.2.3.4", "1.2.3.4.x", "1.2.3.4.-5", "1.2.3.4.5.6", 7):
        with pytest.raises(InvalidValue):
            list(follow(run_id, after=cursor, idle_timeout=0))  # type: ignore[arg-type]
