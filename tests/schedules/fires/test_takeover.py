"""Leases of fires: renewed, over, taken by one other, given back, given up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.busy import impatient
from support.schedules.steps import put
from support.sent import recorded
from support.workflows.crew import Crew
from support.workflows.steps import Raw, together

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, CorruptData
from lastlight_state.schedules import FireClaim, FireOutcome
from lastlight_state.testing import Database, FrozenClock

LEASE = timedelta(minutes=5)
MILLISECOND = timedelta(milliseconds=1)
OK = FireOutcome()


def begun(store: Any, name: str = "tidy", **given: Any) -> FireClaim:
    claim: FireClaim = store.schedules.fires.create(name, owner="worker-1", **given)
    return claim


def test_a_lease_holds_at_its_very_end_and_is_over_a_millisecond_later(
    store: StateStore, frozen_clock: FrozenClock
) -> None:
    """schedules F-7."""
    claim = begun(store)
    frozen_clock.set(claim.lease_expires_at)
    assert store.schedules.fires.take_stale(owner="worker-2") == ()
    frozen_clock.advance(MILLISECOND)
    [taken] = store.schedules.fires.take_stale(owner="worker-2", lease=timedelta(minutes=1))
    assert (taken.fire_id, taken.owner, taken.epoch, taken.attempts) == (claim.fire_id, "worker-2", 2, 2)
    assert taken.lease_expires_at == frozen_clock.now() + timedelta(minutes=1)
    stored = store.schedules.fires.get(claim.fire_id)
    assert (stored.owner, stored.epoch, stored.attempts) == ("worker-2", 2, 2)
    assert stored.started_at == claim.lease_expires_at - LEASE


def test_a_renewed_lease_is_nobody_elses_and_a_lost_one_is_not_renewed(
    store: StateStore, frozen_clock: FrozenClock
) -> None:
    """schedules F-3."""
    fires = store.schedules.fires
    claim = begun(store)
    frozen_clock.set(claim.lease_expires_at)
    renewed = fires.heartbeat(claim)
    assert renewed.lease_expires_at == frozen_clock.now() + LEASE
    frozen_clock.set(renewed.lease_expires_at)
    assert fires.take_stale(owner="worker-2") == ()
    frozen_clock.advance(MILLISECOND)
    [taken] = fires.take_stale(owner="worker-2")
    for late in (fires.heartbeat, fires.release, lambda held: fires.finish(held, OK)):
        with pytest.raises(ClaimLost) as refusal:
            late(renewed)
        error = refusal.value
        assert (error.fire_id, error.held_by, error.current_epoch) == (claim.fire_id, "worker-2", 2)
    assert fires.get(claim.fire_id).lease_expires_at == taken.lease_expires_at
    assert fires.finish(taken, OK).status == "ok"


def test_the_same_end_stored_by_another_holder_is_not_ones_own(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules F-3, F-4."""
    fires = store.schedules.fires
    lost = begun(store)
    frozen_clock.advance(LEASE + MILLISECOND)
    [taken] = fires.take_stale(owner="worker-2")
    fires.finish(taken, OK)
    with pytest.raises(ClaimLost):
        fires.finish(lost, OK)


def test_a_lease_that_is_over_but_not_taken_is_still_good(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules F-3; a renewal never makes a lease shorter."""
    fires = store.schedules.fires
    claim, other = begun(store), begun(store)
    frozen_clock.advance(LEASE * 2)
    renewed = fires.heartbeat(claim)
    assert renewed.lease_expires_at == frozen_clock.now() + LEASE
    assert fires.heartbeat(claim, lease=timedelta(seconds=1)).lease_expires_at == renewed.lease_expires_at
    assert fires.finish(other, OK).finished_at == frozen_clock.now()


def test_a_fire_given_back_is_taken_at_once(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules F-15: release."""
    claim = begun(store)
    store.schedules.fires.release(claim)
    store.schedules.fires.release(claim)
    [taken] = store.schedules.fires.take_stale(owner="worker-2")
    assert (taken.fire_id, taken.epoch) == (claim.fire_id, 2)


def test_the_lease_that_ended_first_is_taken_first_and_no_more_than_asked(
    store: StateStore, frozen_clock: FrozenClock
) -> None:
    """schedules F-7."""
    ends = [3, 1, 2, 4]
    begun_fires = {end: begun(store, f"cron {end}", lease=timedelta(minutes=end)) for end in ends}
    frozen_clock.advance(timedelta(minutes=4))
    taken = store.schedules.fires.take_stale(owner="worker-2", limit=2)
    assert [claim.fire_id for claim in taken] == [begun_fires[1].fire_id, begun_fires[2].fire_id]
    assert [claim.cron_name for claim in store.schedules.fires.take_stale(owner="worker-2")] == ["cron 3"]


def test_a_fire_that_had_its_owners_is_given_up(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules F-7, C-2, case 43."""
    fires = store.schedules.fires
    put(store)
    claim = begun(store)
    for owner in ("worker-2", "worker-3"):
        frozen_clock.advance(LEASE + MILLISECOND)
        [claim] = fires.take_stale(owner=owner)
    frozen_clock.advance(LEASE + MILLISECOND)
    assert fires.take_stale(owner="worker-4") == ()
    fire = fires.get(claim.fire_id)
    assert (fire.status, fire.attempts, fire.finished_at) == ("abandoned", 3, frozen_clock.now())
    assert fire.error["detail"] == {"owner": "worker-3", "attempts": 3}
    assert store.schedules.crons.get("tidy").error == fire.error
    assert fires.health(["tidy"])["tidy"].failure_streak == 1
    with pytest.raises(ClaimLost):
        fires.finish(claim, OK)


@pytest.mark.parametrize(("most", "owners"), [(1, "its owner"), (2, "2 owners")])
def test_the_error_of_a_fire_that_was_given_up_counts_its_owners(
    store: StateStore, frozen_clock: FrozenClock, most: int, owners: str
) -> None:
    """schedules F-7."""
    claim, taken = begun(store), None
    for _ in range(most):
        frozen_clock.advance(LEASE + MILLISECOND)
        taken = store.schedules.fires.take_stale(owner="worker-2", max_attempts=most)
    assert taken == ()
    message = store.schedules.fires.get(claim.fire_id).error["message"]
    assert message.startswith(f"{owners} let the lease run out")


def test_what_is_given_up_keeps_nothing_behind_it_waiting(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules F-7, case 43: it is not counted as taken; with one attempt nothing is ever run again."""
    fires = store.schedules.fires
    begun(store, "old")
    frozen_clock.advance(LEASE + MILLISECOND)
    [old] = fires.take_stale(owner="worker-2", lease=timedelta(seconds=1))
    begun(store, "new", lease=timedelta(seconds=2))
    frozen_clock.advance(seconds=3)
    [taken] = fires.take_stale(owner="worker-3", limit=1, max_attempts=2)
    assert (taken.cron_name, fires.get(old.fire_id).status) == ("new", "abandoned")
    begun(store, "once")
    frozen_clock.advance(LEASE + MILLISECOND)
    assert fires.take_stale(owner="worker-4", limit=1, max_attempts=1) == ()
    assert {fire.status for fire in fires.list()} == {"abandoned"}


def test_of_racing_takers_each_fire_has_one(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules F-7, C-1: every fire once, none left."""
    ids = {begun(every_backend, f"cron {i}").fire_id for i in range(12)}
    frozen_clock.advance(LEASE + MILLISECOND)
    told = together([lambda i=i: every_backend.schedules.fires.take_stale(owner=f"worker-{i}") for i in range(4)])  # type: ignore[misc]
    taken = [claim for claims in told if isinstance(claims, tuple) for claim in claims]
    assert sorted(claim.fire_id for claim in taken) == sorted(ids)
    assert {claim.epoch for claim in taken} == {2}


def test_looking_for_stale_fires_waits_for_no_writer(sqlite_database: Database) -> None:
    """schedules C-20: a loop that finds nothing has read, and no more."""
    store = impatient(sqlite_database)
    begun(store)
    holder = sqlite_database.raw()
    holder.execute("BEGIN IMMEDIATE")
    assert store.schedules.fires.take_stale(owner="worker-2") == ()


@pytest.mark.logs("taking fires ended early")
def test_what_was_taken_before_the_database_failed_is_kept(database: Database, raw: Raw) -> None:
    """schedules F-7: a claim that nobody hears of would cost an attempt."""
    with recorded(database) as (store, sent):
        first, second = begun(store), begun(store, lease=LEASE + MILLISECOND)
        database.clock.advance(LEASE * 2)
        sent.before(
            "UPDATE cron_fires",
            lambda: sent.before("UPDATE cron_fires", lambda: raw("ALTER TABLE cron_fires RENAME TO lost_fires")),
        )
        taken = store.schedules.fires.take_stale(owner="worker-2")
        raw("ALTER TABLE lost_fires RENAME TO cron_fires")
        assert [claim.fire_id for claim in taken] == [first.fire_id]
        assert [claim.fire_id for claim in store.schedules.fires.take_stale(owner="worker-2")] == [second.fire_id]


@pytest.mark.logs("could not be taken")
def test_a_fire_that_cannot_be_read_keeps_no_other_from_being_taken(sqlite_database: Database) -> None:
    """schedules C-2, F-7: where nothing else was taken it is raised, and in the end the fire is given up."""
    with sqlite_database.open() as store:
        fires, clock = store.schedules.fires, sqlite_database.clock
        claims = [begun(store, name, lease=LEASE + n * MILLISECOND) for n, name in enumerate("abc")]
        Raw(sqlite_database)("UPDATE cron_fires SET payload = '{' WHERE id = ?", claims[1].fire_id)
        clock.advance(LEASE * 2)
        taken = fires.take_stale(owner="worker-2")
        assert [claim.cron_name for claim in taken] == ["a", "c"]
        for claim in taken:
            fires.finish(claim, OK)
        clock.advance(LEASE * 2)
        with pytest.raises(CorruptData):
            fires.take_stale(owner="worker-2")
        clock.advance(LEASE * 2)
        assert fires.take_stale(owner="worker-2") == ()
        assert [fire.cron_name for fire in fires.list(status="abandoned")] == ["b"]


@pytest.mark.logs("could not be taken")
def test_a_fire_whose_row_cannot_be_read_is_told_once_and_hides_no_other(
    sqlite_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """schedules F-7: however few are asked for."""
    with sqlite_database.open() as store:
        claims = [begun(store, name, lease=LEASE + n * MILLISECOND) for n, name in enumerate("ab")]
        Raw(sqlite_database)("UPDATE cron_fires SET epoch = 'x' WHERE id = ?", claims[0].fire_id)
        sqlite_database.clock.advance(LEASE * 2)
        assert [claim.cron_name for claim in store.schedules.fires.take_stale(owner="worker-2", limit=1)] == ["b"]
    assert len([message for message in caplog.messages if "could not be taken" in message]) == 1


DIES = """
import json, os, signal, sys
from datetime import timedelta
from lastlight_state import StateStore
from lastlight_state.errors import StateError
from lastlight_state.schedules import FireClaim, FireOutcome
from lastlight_state.testing import FrozenClock

url, name, how = arguments
clock = FrozenClock()
hear, tell = os.pipe()
wait, release = os.pipe()
owner = os.fork()
if owner == 0:
    os.close(release)
    store = StateStore.open(url, migrate=False, clock=clock)
    [claim] = store.schedules.crons.take_due(owner="first")
    os.write(tell, claim.model_dump_json().encode())
    os.read(wait, 1)
    try:
        said = store.schedules.fires.finish(claim, FireOutcome()).status
    except StateError as error:
        said = error.code
    os.write(tell, said.encode())
    os._exit(0)
claim = FireClaim.model_validate_json(os.read(hear, 10_000))
os.kill(owner, getattr(signal, how))
os.waitpid(owner, os.WUNTRACED)
store = StateStore.open(url, migrate=False, clock=clock)
fires = store.schedules.fires
early = fires.take_stale(owner="second")
clock.advance(timedelta(minutes=5, milliseconds=1))
taken = [(one.fire_id == claim.fire_id, one.epoch, one.owner)
         for owner_name in ("second", "third") for one in fires.take_stale(owner=owner_name)]
said = None
if how == "SIGSTOP":
    os.kill(owner, signal.SIGCONT)
    os.write(release, b"x")
    said = os.read(hear, 100).decode()
    os.waitpid(owner, 0)
result = [len(early), taken, said, fires.get(claim.fire_id).status]
store.close()
"""


@pytest.mark.parametrize(("how", "said"), [("SIGKILL", None), ("SIGSTOP", "claim_lost")])
def test_the_fire_of_a_process_that_is_gone_is_taken_by_one_other(
    database: Database, every_backend: StateStore, crew: Crew, how: str, said: str | None
) -> None:
    """schedules C-2, C-22, F-3, case 2: killed right after its claim, or stopped and continued too late."""
    put(every_backend, next_run_at="2026-02-03T12:34Z")
    [told] = crew.race(DIES, [database.url, "tidy", how])
    assert told == [0, [[True, 2, "second"]], said, "running"]
