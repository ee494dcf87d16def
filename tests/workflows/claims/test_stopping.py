"""Processes that a supervisor stops with SIGTERM while they drive a run."""

from __future__ import annotations

import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from support.each import with_each
from support.processes import started as process
from support.workflows.steps import Raw, started

from lastlight_state import StateStore, stop_on_sigterm
from lastlight_state.errors import MisuseError
from lastlight_state.testing import Database

SYNC = """
import sys, time
from lastlight_state import StateStore, stop_on_sigterm

with stop_on_sigterm(), StateStore.open(sys.argv[1], migrate=False) as store:
    claims = store.workflows.claims
    [claim] = claims.take_next(owner="stopped")
    with claims.driving(claim):
        print("at work", flush=True)
        WORK
"""
ASYNC = """
import asyncio, sys, time
from lastlight_state import AsyncStateStore, stop_on_sigterm

async def main():
    with stop_on_sigterm():
        async with await AsyncStateStore.open(sys.argv[1], migrate=False) as store:
            claims = store.workflows.claims
            [claim] = await claims.take_next(owner="stopped")
            async with claims.driving(claim):
                print("at work", flush=True)
                WORK

asyncio.run(main())
"""
WORKERS = {
    "asleep": SYNC.replace("WORK", "time.sleep(60)"),
    "waiting": SYNC.replace("WORK", "claims.wait(timeout=60, workflow_names=['nothing'])"),
    "busy": SYNC.replace("WORK", "while True: claims.list_claimable()"),
    "async, asleep": ASYNC.replace("WORK", "await asyncio.sleep(60)"),
    "async, waiting": ASYNC.replace("WORK", "await claims.wait(timeout=60, workflow_names=['nothing'])"),
    "async, in a group": ASYNC.replace("WORK", "await asyncio.gather(asyncio.sleep(60), asyncio.sleep(60))"),
}


@pytest.mark.parametrize("worker", WORKERS.values(), ids=list(WORKERS))
def test_a_worker_that_is_stopped_by_sigterm_gives_its_run_back(fresh_database: Database, worker: str) -> None:
    """workflows W-142: at once, and the next take costs no restart."""
    run_id = started(fresh_database.open(), offered=True).id
    with process([sys.executable, "-c", worker, fresh_database.url]) as stopped:
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == "at work\n"
        for _ in range(3):  # an impatient supervisor
            stopped.send_signal(signal.SIGTERM)
        _, errors = stopped.communicate(timeout=30)
        assert (stopped.returncode, errors) == (143, "")
    with StateStore.open(fresh_database.url, migrate=False) as store:
        [claim] = store.workflows.claims.take_next(owner="next")
        assert (claim.run_id, claim.restart_count) == (run_id, 0)
        assert claim.taken_at <= datetime.now(UTC)
    Raw(fresh_database).check_history(run_id)


def test_the_handler_from_before_is_put_back() -> None:
    """workflows W-142: also after an error in the block."""
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with pytest.raises(ZeroDivisionError), stop_on_sigterm():
            raise ZeroDivisionError
        signal.raise_signal(signal.SIGTERM)
        assert came == [signal.SIGTERM]
        with pytest.raises(SystemExit) as caught, stop_on_sigterm():
            signal.raise_signal(signal.SIGTERM)
        assert caught.value.code == 143
        signal.raise_signal(signal.SIGTERM)
        assert len(came) == 2
    finally:
        signal.signal(signal.SIGTERM, before)


class Finalized:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def ended_by_finalizer() -> None:
    Finalized()


def ended_by_weak_reference() -> None:
    referred = threading.local()
    _ = weakref.ref(referred, lambda _: signal.raise_signal(signal.SIGTERM))
    del referred


def sleep_after(end: Callable[[], None]) -> None:
    with stop_on_sigterm():
        end()
        time.sleep(30)


@with_each("end", [ended_by_finalizer, ended_by_weak_reference])
def test_a_signal_that_comes_in_a_finalizer_is_not_lost(end: Callable[[], None]) -> None:
    """workflows W-142: Python drops what a handler raises there."""
    told: list[object] = []
    before, sys.unraisablehook = sys.unraisablehook, told.append
    try:
        with pytest.raises(SystemExit) as caught:
            sleep_after(end)
        assert caught.value.code == 143
        assert sys.unraisablehook == told.append
        assert told == []
    finally:
        sys.unraisablehook = before


def test_only_the_main_thread_can_ask_for_it() -> None:
    """workflows W-142."""
    errors: list[BaseException] = []

    def other() -> None:
        try:
            with stop_on_sigterm():
                pass
        except MisuseError as error:
            errors.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert len(errors) == 1
