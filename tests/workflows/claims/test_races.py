"""Claims under many hands: threads of one process, several processes, and processes that are killed."""

from __future__ import annotations

import inspect
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.workflows.claim_steps import LEASE, MILLI, abandoned
from support.workflows.crew import Crew
from support.workflows.steps import Raw, started, together

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, LostRace
from lastlight_state.testing import Database
from lastlight_state.workflows import Claim, PhaseEntry

Stale = pytest.mark.parametrize("many", [16, pytest.param(100, marks=pytest.mark.soak)])


def test_of_many_supervisors_one_takes_a_run(every_backend: StateStore, database: Database, raw: Raw) -> None:
    """workflows W-41: all others learn who it was."""
    run = abandoned(every_backend, database.clock)
    told = together([partial(every_backend.workflows.claims.take, run.run_id, owner=f"s-{n}") for n in range(16)])
    [won] = [outcome for outcome in told if isinstance(outcome, Claim)]
    lost = [outcome for outcome in told if isinstance(outcome, LostRace)]
    assert {(each.details["held_by"], each.details["lease_expires_at"]) for each in lost} == {
        (won.owner, won.lease_expires_at)
    }
    assert (len(lost), won.restart_count) == (15, 1)
    raw.check_history(run.run_id)


def test_of_many_workers_that_look_for_a_new_run_one_gets_it(
    every_backend: StateStore, database: Database, raw: Raw
) -> None:
    """workflows W-22, W-43: and it costs no restart."""
    run = started(every_backend, offered=True)
    told = together([partial(every_backend.workflows.claims.take_next, owner=f"s-{n}") for n in range(16)])
    [[won]] = [outcome for outcome in told if isinstance(outcome, tuple) and outcome]
    assert (won.run_id, won.epoch, won.restart_count) == (run.id, 1, 0)
    raw.check_history(run.id)


def test_supervisors_that_take_the_next_runs_share_them(
    every_backend: StateStore, database: Database, raw: Raw
) -> None:
    """workflows W-43: whoever asks gets some while there are any, and nobody gets one twice."""
    runs = {started(every_backend).id for _ in range(24)}
    database.clock.advance(LEASE + MILLI)
    told = together([partial(every_backend.workflows.claims.take_next, owner=f"s-{n}", limit=3) for n in range(8)])
    taken = [claim.run_id for claims in told if isinstance(claims, tuple) for claim in claims]
    assert len(taken) == len(set(taken)) == 24
    assert set(taken) == runs
    for run_id in runs:
        raw.check_history(run_id)


def test_heartbeats_of_overlapping_claims_never_deadlock(every_backend: StateStore) -> None:
    """workflows W-10, W-44: rows are locked in one order."""
    held = [every_backend.workflows.claims.take(started(every_backend).id, owner="a") for _ in range(30)]
    orders = [held, held[::-1], held[10:] + held[:10], held[::2] + held[1::2]]
    beats = every_backend.workflows.claims.heartbeat_many
    for told in together([partial(beats, order) for order in orders * 3]):
        assert isinstance(told, dict)
        assert all(isinstance(claim, Claim) for claim in told.values())
    assert every_backend.metrics.retries == 0


def test_a_holder_that_writes_while_it_is_replaced_writes_before_or_not_at_all(
    every_backend: StateStore, database: Database, raw: Raw
) -> None:
    """workflows W-14, W-41: the epoch decides, whichever commits first."""
    claims, runs = every_backend.workflows.claims, every_backend.workflows.runs
    for number in range(12):
        held = claims.take(started(every_backend).id, owner="a")
        database.clock.advance(LEASE + MILLI)
        write = partial(runs.append_phase, held.run_id, PhaseEntry("x", True), claim=held)
        taking = partial(claims.take, held.run_id, owner="b")
        both: list[Any] = [write, taking] if number % 2 else [taking, write]
        told = together(both)
        taken = next(each for each in told if isinstance(each, Claim))
        wrote = not any(isinstance(each, ClaimLost) for each in told)
        assert runs.get(held.run_id).phase_count == wrote
        assert claims.heartbeat(taken).owner == "b"
        raw.check_history(held.run_id)


TAKE_ALL = """
from lastlight_state import StateStore

url, me, run_ids = arguments
with StateStore.open(url, migrate=False) as store:
    ready()
    if run_ids is None:
        result = [claim.run_id for claim in store.workflows.claims.take_next(owner=me, limit=100)]
    else:
        result = [run_id for run_id in run_ids if store.workflows.claims.try_take(run_id, owner=me)]
"""


@Stale
@pytest.mark.parametrize("kind", ["each by id", "the next"])
def test_two_supervisors_that_take_all_stale_runs_win_each_once(
    fresh_database: Database, crew: Crew, many: int, kind: str
) -> None:
    """workflows W-41, W-42, W-43."""
    store, raw = fresh_database.open(), Raw(fresh_database)
    run_ids = [claim_of_the_gone(store) for _ in range(many)]  # when the frozen clock stands: long ago
    asked = run_ids if kind == "each by id" else None
    told = crew.race(TAKE_ALL, *([fresh_database.url, f"s-{n}", asked] for n in range(2)))
    with StateStore.open(fresh_database.url, migrate=False) as today:
        missed = today.workflows.claims.take_next(owner="last", limit=100)
    taken = [run_id for each in told for run_id in each] + [claim.run_id for claim in missed]
    assert sorted(taken) == sorted(run_ids)
    assert raw("SELECT DISTINCT restart_count FROM workflow_runs") == [(1,)]
    assert not missed or kind == "the next"  # which passes over what the other is locking
    for run_id in run_ids:
        raw.check_history(run_id)


def claim_of_the_gone(store: StateStore) -> str:
    """A run whose holder is heard of no more."""
    return store.workflows.claims.take(started(store).id, owner="gone").run_id


def test_a_due_run_is_woken_exactly_once(fresh_database: Database, crew: Crew) -> None:
    """workflows W-41: by two supervisors, the second before the first has started work."""
    store, raw = fresh_database.open(), Raw(fresh_database)
    run_ids = [store.workflows.waits.pause(started(store).id, until=fresh_database.clock.now()).id for _ in range(8)]
    told = crew.race(TAKE_ALL, *([fresh_database.url, f"s-{n}", run_ids] for n in range(2)))
    assert sorted(told[0] + told[1]) == sorted(run_ids)
    for run_id in run_ids:
        assert [reason for *_, reason in raw.transitions(run_id)].count("run.resumed.timer") == 1
        raw.check_history(run_id)


def make(store: StateStore, change: str, run_id: str) -> None:
    """Make a change of a claim; runs in the processes that are killed, too."""
    claims = store.workflows.claims
    if change == "release":
        holder: Any = claims.find(run_id)
        claims.release(Claim(**holder.model_dump(), lease=timedelta(seconds=30), taken_at=holder.claimed_at))
    elif change == "give up":
        claims.give_up()
    else:
        claims.take(run_id, owner="b")


KILLED = (
    """
import os, signal, traceback
from datetime import timedelta
from typing import Any
from lastlight_state import StateStore
from lastlight_state.workflows import Claim

class Dying:
    '''A driver connection whose process is killed right after the statement of a certain number.'''
    def __init__(self, driver):
        self._driver = driver
    def execute(self, *statement):
        global left
        done = self._driver.execute(*statement)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    def __getattr__(self, name):
        return getattr(self._driver, name)

"""
    + inspect.getsource(make)
    + """
def act():
    store = StateStore.open(url, migrate=False)
    acquire = store.backend.acquire
    def acquire_dying(mode, checkout=None):
        checkout = acquire(mode, checkout)
        checkout.driver = Dying(checkout.driver)
        checkout.execute = checkout.driver.execute
        return checkout
    store.backend.acquire = acquire_dying
    make(store, change, run_id)

url, change, run_id, left = arguments
ready()
child = os.fork()
if not child:
    try:
        act()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
_, status = os.waitpid(child, 0)
result = "killed" if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
"""
)
AFTER: dict[str, Any] = {
    "abandoned": ("running", "b", 1, 2),
    "due": ("running", "b", 0, 3),
    "release": ("paused", None, 0, 4),
    "give up": ("failed", None, 0, 2),
}
"""What becomes of a run: its status, its owner, its restarts, its transitions."""


@pytest.mark.parametrize("change", AFTER)
def test_a_change_of_a_claim_that_is_killed_at_any_statement_is_whole_or_not_begun(
    fresh_database: Database, crew: Crew, change: str
) -> None:
    """workflows case 54: a run is claimed with its restart counted and recorded, or stands as before."""
    store, raw = fresh_database.open(), Raw(fresh_database)
    outcome: Any = "killed"
    looks: list[str] = []
    while outcome == "killed":
        run_id = begun(store, change)
        before = look(store, run_id)
        [outcome] = crew.race(KILLED, [fresh_database.url, change, run_id, len(looks) + 1])
        found = look(store, run_id)
        assert found in (before, AFTER[change])
        looks.append("after" if found == AFTER[change] else "before")
        raw.check_history(run_id)
        if found[0] != "failed":
            store.workflows.runs.cancel(run_id, by="ana", reason="out of the way of the next")
    assert outcome == 0
    assert looks == sorted(looks, reverse=True)
    assert len(looks) > 1
    assert looks[-1] == "after"


def begun(store: StateStore, change: str) -> str:
    """A run whose claim is about to be changed. The clock of its start is far behind that of the processes."""
    run = started(store, max_restarts=0 if change == "give up" else 3)
    if change in ("due", "release"):
        store.workflows.waits.pause(run.id, until=run.started_at)
    if change != "due":
        store.workflows.claims.take(run.id, owner="a")
    return run.id


def look(store: StateStore, run_id: str) -> tuple[Any, ...]:
    run = store.workflows.runs.get(run_id)
    return run.status, run.claim_owner, run.restart_count, run.transition_seq
