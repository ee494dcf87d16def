"""What a call of this domain has looked at stays as it is until the call has written."""

from __future__ import annotations

from typing import Any

import pytest
from support.rivals import Look, Wait, after_waiting, check, parameters
from support.schedules.steps import HOURLY, put

from lastlight_state import StateStore
from lastlight_state.errors import AlreadyExists
from lastlight_state.schedules import FireClaim, FireError, FireOutcome
from lastlight_state.testing import Database, racing

OTHERS = "30 3 * * *"


def _put_theirs(other: Any, _: Any) -> None:
    put(other, pattern=OTHERS)


def _overridden(store: Any) -> None:
    put(store)
    store.schedules.overrides.put("tidy", schedule=OTHERS)


def _fired(store: Any) -> FireClaim:
    put(store)
    claim: FireClaim = store.schedules.fires.create("tidy", owner="a")
    return claim


def _track(store: Any, _: Any) -> None:
    planned = store.schedules.crons.get("tidy").next_run_at
    store.schedules.crons.update_run("tidy", expected_next_run_at=planned, last_run_at=None, next_run_at=None)


def _begin(store: Any, _: Any) -> None:
    store.schedules.fires.create("tidy", owner="a")


LOOKS = {
    "Overrides.put": Look(
        put,
        lambda s, _: s.schedules.overrides.put("tidy", schedule="15 * * * *"),
        lambda o, _: o.schedules.overrides.put("tidy", enabled=False),
    ),
    "Overrides.put beside a cron": Look(
        put, lambda s, _: s.schedules.overrides.put("tidy", schedule="15 * * * *"), _put_theirs, since=3
    ),
    "Overrides.clear": Look(_overridden, lambda s, _: s.schedules.overrides.clear("tidy"), _put_theirs, since=3),
    "Crons.put": Look(put, lambda s, _: put(s, pattern="15 * * * *"), _put_theirs),
    "Crons.put of a new one": Look(lambda _: None, lambda s, _: put(s), _put_theirs),
    "Crons.sync": Look(
        lambda _: None,
        lambda s, _: s.schedules.crons.sync({"tidy": HOURLY}),
        lambda o, _: o.schedules.crons.sync({"sweep": HOURLY}),
        since=3,
    ),
    "Crons.update_run": Look(put, _track, _put_theirs, since=3),
    "Crons.take_due": Look(
        lambda s: put(s, next_run_at="2026-02-03T12:00Z"),
        lambda s, _: s.schedules.crons.take_due(owner="a"),
        _put_theirs,
        since=3,
    ),
    "Crons.replan": Look(
        lambda s: put(s, next_run_at="2026-02-03T12:00Z"), lambda s, _: s.schedules.crons.replan("tidy"), _put_theirs
    ),
    "Fires.create": Look(
        lambda s: put(s, overlap="skip"), _begin, lambda o, _: o.schedules.fires.create("tidy", owner="b")
    ),
}


@parameters(LOOKS)
def test_nobody_changes_what_a_call_has_looked_at_before_it_writes(database: Database, look: Look) -> None:
    """schedules C-1, C-21: the lock of the schedule's row lasts to the commit."""
    check(database, look)


def test_a_configuration_stored_after_the_comparison_is_found(database: Database) -> None:
    """schedules C-15: Crons.sync compares again under its lock."""
    store, other = database.open(), database.open()
    with racing(store) as race:
        race.before_unit(2, lambda: other.schedules.crons.sync({"tidy": HOURLY}))
        assert store.schedules.crons.sync({"tidy": HOURLY}).unchanged == ("tidy",)
    assert race.left == 0


def test_a_cron_retired_after_the_look_is_not_planned_again(database: Database) -> None:
    """schedules C-31: Crons.replan, of all."""
    store, other = database.open(), database.open()
    put(store)
    database.raw().execute("UPDATE cron_schedules SET next_run_at = NULL, planned_with = NULL")
    with racing(store) as race:
        race.before_unit(2, lambda: other.schedules.crons.retire("tidy"))
        assert store.schedules.crons.replan() == 0
    assert race.left == 0
    assert store.schedules.crons.get("tidy").next_run_at is None


def test_two_who_add_one_name_store_one_cron(shared_postgres: Database) -> None:
    """schedules C-11: Crons.put; the second one waits, and then finds a cron to change."""
    wait = Wait(lambda _: None, lambda t, _: put(t), lambda s, _: put(s, pattern=OTHERS))
    assert after_waiting(shared_postgres, wait).pattern == OTHERS


def test_two_who_sync_at_once_store_each_cron_once(shared_postgres: Database) -> None:
    """schedules C-15: Crons.sync."""
    wait = Wait(
        lambda _: None,
        lambda t, _: t.schedules.crons.sync({"tidy": HOURLY}),
        lambda s, _: s.schedules.crons.sync({"tidy": HOURLY}),
    )
    assert after_waiting(shared_postgres, wait).unchanged == ("tidy",)


def test_an_override_waits_for_the_cron_that_it_is_of(shared_postgres: Database) -> None:
    """schedules O-7: Overrides.put plans the cron that another is adding."""
    wait = Wait(
        lambda _: None, lambda t, _: put(t), lambda s, _: s.schedules.overrides.put("tidy", schedule="15 * * * *")
    )
    after_waiting(shared_postgres, wait)
    planned = shared_postgres.open().schedules.crons.get("tidy").next_run_at
    assert planned is not None
    assert planned.minute == 15


def test_one_instant_begun_by_two_at_once_has_one_fire(shared_postgres: Database) -> None:
    """schedules C-1: Fires.create."""

    def begin(store: Any, _: Any) -> Any:
        instant = put_at(store)
        return store.schedules.fires.create("tidy", owner="a", source="schedule", scheduled_for=instant)

    outcome = after_waiting(shared_postgres, Wait(put, begin, begin))
    assert isinstance(outcome, AlreadyExists)


def put_at(store: Any) -> Any:
    """An instant of the cron."""
    return store.schedules.crons.get("tidy").next_run_at


def test_the_error_of_a_fire_that_another_has_followed_is_not_told(shared_postgres: Database) -> None:
    """schedules F-5: Fires.finish, where the next fire begins in between. (Postgres, where others may write)"""
    store, other = shared_postgres.open(), shared_postgres.open()
    claim = _fired(store)
    with racing(store) as race:
        race.before(2, lambda: other.schedules.fires.create("tidy", owner="b"))
        store.schedules.fires.finish(claim, FireOutcome("failed", error=FireError("broke")))
    assert race.left == 0
    assert store.schedules.crons.get("tidy").error is None


@pytest.mark.parametrize("act", ["take", "abandon"])
def test_a_stale_fire_ended_meanwhile_is_left_alone(shared_postgres: Database, act: str) -> None:
    """schedules F-7: Fires.take_stale waits for the end, and then changes nothing."""

    def stale(store: StateStore) -> FireClaim:
        claim = _fired(store)
        shared_postgres.clock.set(claim.lease_expires_at)
        shared_postgres.clock.advance(seconds=1)
        return claim

    wait = Wait(
        stale,
        lambda t, c: t.schedules.fires.finish(c, FireOutcome()),
        lambda s, _: s.schedules.fires.take_stale(owner="b", max_attempts=3 if act == "take" else 1),
    )
    assert after_waiting(shared_postgres, wait) == ()
    [fire] = shared_postgres.open().schedules.fires.list().items
    assert fire.status == "ok"
