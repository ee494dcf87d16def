"""Many loops at once, some of which die: each instant is fired once."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.schedules.steps import at, put, stored_fires
from support.workflows.crew import Crew
from support.workflows.steps import Raw, together

from lastlight_state import StateStore
from lastlight_state.testing import Database, FrozenClock

CLAIM_ALL = """
from datetime import UTC, datetime
from lastlight_state import StateStore
from lastlight_state.testing import FrozenClock

url, owner, now = arguments
clock = FrozenClock(datetime.fromisoformat(now))
result = []
with StateStore.open(url, migrate=False, clock=clock) as store:
    ready()
    while True:
        due = store.schedules.crons.next_due_at()
        if due is None or due > clock.now():
            break
        result += [[claim.fire_id, claim.cron_name] for claim in store.schedules.crons.take_due(owner=owner, limit=7)]
"""


@pytest.fixture
def now(frozen_clock: FrozenClock) -> datetime:
    return frozen_clock.now()


def claimed_by_all(database: Database, crew: Crew, now: datetime, processes: int = 8) -> list[list[Any]]:
    """The claims of that many processes, each as its fire and its cron; they go on until nothing is due."""
    loops = [[database.url, f"loop-{n}", now.isoformat()] for n in range(processes)]
    return [claim for told in crew.race(CLAIM_ALL, *loops) for claim in told]


def test_of_eight_processes_one_claims_a_due_cron(fresh_database: Database, crew: Crew, now: datetime) -> None:
    """schedules C-1, C-21."""
    with fresh_database.open() as store:
        put(store, next_run_at="2026-02-03T12:00Z")
    [[fire_id, _]] = claimed_by_all(fresh_database, crew, now)
    assert Raw(fresh_database)("SELECT id, status FROM cron_fires") == [(fire_id, "running")]


@pytest.mark.parametrize("crons", [60, pytest.param(1_000, marks=pytest.mark.soak)])
def test_eight_schedulers_fire_each_due_instant_exactly_once(
    fresh_database: Database, crew: Crew, now: datetime, crons: int
) -> None:
    """schedules C-1, C-21: however many are due."""
    with fresh_database.open() as store, store.transaction() as tx:
        for number in range(crons):
            put(tx, f"c{number}", pattern="0 0 1 1 *", next_run_at="2026-02-03T12:00Z")
    claims = claimed_by_all(fresh_database, crew, now)
    assert Counter(name for _, name in claims) == {f"c{number}": 1 for number in range(crons)}
    stored = Raw(fresh_database)("SELECT id, cron_name FROM cron_fires")
    assert sorted(stored) == sorted((fire_id, name) for fire_id, name in claims)


@pytest.mark.parametrize("minutes", [40, pytest.param(200, marks=pytest.mark.soak)])
def test_loops_with_jittering_clocks_fire_each_minute_once(database: Database, raw: Raw, minutes: int) -> None:
    """schedules C-1, C-29."""
    start = at("2026-02-03T12:00Z")
    clocks = [FrozenClock(start) for _ in range(4)]
    stores = [database.open(clock=clock) for clock in clocks]
    put(stores[0], pattern="* * * * *")

    def loop(store: StateStore, clock: FrozenClock, jitter: random.Random) -> list[Any]:
        claims: list[Any] = []
        for minute in range(1, minutes + 1):
            clock.set(start + timedelta(minutes=minute, seconds=jitter.uniform(0, 50)))
            while (due := store.schedules.crons.next_due_at()) is not None and due <= clock.now():
                claims += store.schedules.crons.take_due(owner="loop", lease=timedelta(hours=24))
        return claims

    works = [
        lambda store=store, clock=clock, seed=seed: loop(store, clock, random.Random(seed))
        for seed, (store, clock) in enumerate(zip(stores, clocks, strict=True))
    ]
    told = [claim for claims in together(works) for claim in claims]  # type: ignore[union-attr]
    assert sorted(claim.scheduled_for for claim in told) == [
        start + timedelta(minutes=minute) for minute in range(1, minutes + 1)
    ]
    assert len(stored_fires(raw, "id")) == minutes


KILLED = """
import os, signal
from datetime import datetime
from lastlight_state import StateStore
from lastlight_state.testing import FrozenClock

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

def act():
    store = StateStore.open(url, migrate=False, clock=FrozenClock(datetime.fromisoformat(now)))
    acquire = store.backend.acquire
    def acquire_dying(mode, checkout=None):
        checkout = acquire(mode, checkout)
        checkout.driver = Dying(checkout.driver)
        checkout.execute = checkout.driver.execute
        return checkout
    store.backend.acquire = acquire_dying
    store.schedules.crons.take_due(owner="dying")

url, now, left = arguments
ready()
child = os.fork()
if child == 0:
    try:
        act()
    finally:
        os._exit(0)
result = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def test_a_loop_killed_in_its_claim_leaves_all_of_it_or_nothing(
    fresh_database: Database, crew: Crew, now: datetime
) -> None:
    """schedules C-21, C-22, case 3: after each of its statements."""
    raw = Raw(fresh_database)
    with fresh_database.open() as store:
        killed, fires = 0, []
        for left in range(1, 10):
            name = f"c{left}"
            due = put(store, name, next_run_at="2026-02-03T12:00Z").next_run_at
            [outcome] = crew.race(KILLED, [fresh_database.url, now.isoformat(), left])
            fires = raw("SELECT id FROM cron_fires WHERE cron_name = ?", name)
            cron = store.schedules.crons.get(name)
            assert (len(fires), cron.last_fire_id) in [(0, None), (1, fires[0][0] if fires else None)]
            assert (cron.next_run_at == due) == (not fires)
            store.schedules.crons.retire(name)
            killed += outcome == -9
            if outcome != -9:
                break
    assert killed >= 4
    assert len(fires) == 1
