from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.journal import appenders
from support.preloaded import run_program
from support.workflows.steps import Raw, all_pages, started, together, undone, wait_until_blocked

from lastlight_state import StateStore
from lastlight_state.journal import NewEvent
from lastlight_state.testing import Database

PROCESSES = 16
SCALE = [pytest.param(20, id="20"), pytest.param(500, id="500", marks=pytest.mark.soak)]


def numbers(store: StateStore, run_id: str) -> list[int]:
    return [event.seq for event in all_pages(store.journal.events.list, run_id=run_id, limit=500)]


def test_threads_leave_no_gap_and_no_double(every_backend: StateStore, run_id: str) -> None:
    """journal Q-1: eight threads, batches and single events, with keys and without."""

    def work(number: int) -> list[int]:
        found = []
        for i in range(10):
            found.append(every_backend.journal.events.append(run_id, "a", {"by": number}).seq)
            found.append(every_backend.journal.events.append(run_id, "a", event_id=f"{number}-{i}").seq)
            batch = [NewEvent("a"), NewEvent("b", event_id=f"{number}-{i}-b"), NewEvent("c")]
            found += [one.seq for one in every_backend.journal.events.append_many(run_id, batch)]
        return found

    told: list[Any] = together([lambda number=number: work(number) for number in range(8)])  # type: ignore[misc]
    assert sorted(seq for one in told for seq in one) == list(range(400)) == numbers(every_backend, run_id)
    assert all(one == sorted(one) for one in told)


@pytest.mark.slow
@pytest.mark.parametrize("events", SCALE)
def test_processes_leave_no_gap_and_no_double(fresh_database: Database, events: int) -> None:
    """journal Q-1: 16 processes, one run that all append to and one of each."""
    with fresh_database.open() as store:
        shared, owns = started(store).id, [started(store).id for _ in range(PROCESSES)]
        command = [sys.executable, "-W", "error", str(Path(appenders.__file__)), fresh_database.url]
        finished = run_program(
            [*command, shared, ",".join(owns), str(events)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (finished.stderr, finished.returncode) == ("", 0)
        assert numbers(store, shared) == list(range(PROCESSES * events))
        for own in owns:
            stored = all_pages(store.journal.events.list, run_id=own, limit=500)
            assert [(event.seq, event.payload["i"]) for event in stored] == [(i, i) for i in range(events)]


def test_a_key_appended_by_many_at_once_is_one_row(every_backend: StateStore, run_id: str) -> None:
    """journal Q-6: one is told that it created the event, and no gap follows."""
    append = every_backend.journal.events.append
    told = together([lambda: append(run_id, "a", {"n": 1}, event_id="k")] * 20)
    assert sorted((one.seq, one.created) for one in told) == [(0, False)] * 19 + [(0, True)]  # type: ignore[union-attr]
    assert append(run_id, "b").seq == 1


def test_a_replay_by_many_at_once_is_one_row(every_backend: StateStore, run_id: str) -> None:
    """journal D-3."""
    at = every_backend.journal.events.append(run_id, "first").occurred_at
    append = every_backend.journal.events.append
    told = together([lambda: append(run_id, "a", {"n": 1}, at=at)] * 10)
    assert sorted((one.seq, one.created) for one in told) == [(1, False)] * 9 + [(1, True)]  # type: ignore[union-attr]


def test_first_appends_that_race_after_an_import_go_on_from_it(
    every_backend: StateStore, run_id: str, raw: Raw
) -> None:
    """journal Q-2."""
    for seq in range(10):
        raw(
            "INSERT INTO run_events (run_id, seq, type, occurred_at, payload) VALUES (?, ?, 'old', ?, '{}')",
            run_id,
            seq,
            every_backend.workflows.runs.get(run_id).started_at,
        )
    told = together([lambda: every_backend.journal.events.append(run_id, "a")] * 6)
    assert sorted(one.seq for one in told) == list(range(10, 16))  # type: ignore[union-attr]


def test_an_append_waits_for_an_open_transaction_and_gets_the_number_that_it_gives_back(
    every_backend: StateStore, run_id: str, raw: Raw
) -> None:
    """journal Q-1, T-1."""
    every_backend.journal.events.append(run_id, "a")
    found: list[int] = []
    waiter = threading.Thread(target=lambda: found.append(every_backend.journal.events.append(run_id, "c").seq))
    with undone(every_backend) as tx:
        assert tx.journal.events.append(run_id, "b").seq == 1
        waiter.start()
        wait_until_blocked(raw)
        assert found == []
    waiter.join()
    assert found == [1]


def test_a_reader_in_another_process_sees_all_of_a_transaction_or_nothing(fresh_database: Database) -> None:
    """journal T-2, T-4, backends B-46: transactions of two events and a phase, one after another."""
    with fresh_database.open() as store:
        run_id = started(store).id
    child = os.fork()
    if not child:
        with fresh_database.open() as own:
            for _ in range(30):
                with own.transaction() as tx:
                    tx.journal.events.append(run_id, "a")
                    tx.workflows.runs.merge_scratch(run_id, {"at": 1})
                    tx.journal.events.append(run_id, "b")
        os._exit(0)
    with fresh_database.open() as store:
        seen = [store.journal.events.count(run_id)]
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            seen.append(store.journal.events.count(run_id))
        seen.append(store.journal.events.count(run_id))
    assert (seen[-1], {count % 2 for count in seen}) == (60, {0})
