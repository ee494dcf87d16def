"""Plans of crons whose override another program changes with plain SQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from support.rivals import Look, check
from support.schedules.steps import at, claimed, instants, override, put, stored_fires
from support.sent import recorded
from support.workflows.steps import Raw, wait_until_blocked

from lastlight_state import StateStore
from lastlight_state.testing import Database, FrozenClock, racing

#: What another program's statement undoes: off, a rarer pattern, a more frequent one, another zone.
OVERRIDES: dict[str, dict[str, Any]] = {
    "off": {"enabled": False},
    "rarer": {"schedule": "0 0 1 1 *"},
    "more often": {"schedule": "*/5 * * * *"},
    "elsewhere": {"timezone": "Asia/Kolkata"},
}
GONE = "DELETE FROM cron_overrides WHERE name = 'tidy'"


def planned(store: StateStore, name: str = "tidy") -> str | None:
    """The next time of a cron."""
    instant = store.schedules.crons.get(name).next_run_at
    return None if instant is None else f"{instant:%dT%H:%M}"


@pytest.mark.parametrize("kind", OVERRIDES)
def test_a_cron_whose_override_was_deleted_is_planned_by_the_next_poll(
    every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock, kind: str
) -> None:
    """schedules C-37: and does not fire before the instant that its own pattern has."""
    put(every_backend)
    every_backend.schedules.overrides.put("tidy", **OVERRIDES[kind])
    raw(GONE)
    crons = every_backend.schedules.crons
    marked = crons.get("tidy")
    assert (marked.next_run_at, marked.planned_with) == (None, "unplanned")
    due = crons.next_due_at()
    assert due is not None
    assert due <= frozen_clock.now()
    assert claimed(every_backend) == []
    assert planned(every_backend) == "03T13:00"
    assert stored_fires(raw, "id") == []
    frozen_clock.set(at("2026-02-03T13:00Z"))
    assert instants(claimed(every_backend)) == ["tidy 03T13:00"]


def test_crons_whose_plan_still_fits_are_left_as_they_are(every_backend: StateStore, raw: Raw) -> None:
    """schedules C-37: without an override, with one that changes nothing, with an instant of a caller, off, retired."""
    schedules = every_backend.schedules
    for name in ("plain", "same", "given", "off", "retired"):
        put(every_backend, name, enabled=name != "off")
    raw("UPDATE cron_schedules SET next_run_at = ? WHERE name = 'same'", at("2026-02-03T12:00Z"))
    for name in ("same", "off", "retired"):
        schedules.overrides.put(name, enabled=name == "same")
    schedules.overrides.put("given", schedule="5 * * * *")
    put(every_backend, "given", next_run_at="2026-02-03T14:07Z")
    schedules.crons.retire("retired")
    stored = "SELECT name, next_run_at, planned_with FROM cron_schedules ORDER BY name"
    before = raw(stored)
    raw("DELETE FROM cron_overrides")
    assert raw(stored) == before
    assert instants(claimed(every_backend)) == ["same 03T12:00"]


def test_an_override_that_another_program_writes_is_noticed_by_the_next_poll(
    every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """schedules C-37, C-24: also one that is switched on again, changed, or given to another cron."""
    for name in ("tidy", "other"):
        put(every_backend, name)
    override(raw, "tidy", schedule="*/5 * * * *")
    assert claimed(every_backend) == []
    assert planned(every_backend) == "03T12:35"
    raw("UPDATE cron_overrides SET enabled = ?", False)
    frozen_clock.set(at("2026-02-03T12:35Z"))
    assert claimed(every_backend) == []
    assert planned(every_backend) is None
    raw("UPDATE cron_overrides SET enabled = ?, schedule = '50 * * * *'", True)
    assert claimed(every_backend) == []
    assert planned(every_backend) == "03T12:50"
    raw("UPDATE cron_overrides SET name = 'other'")
    assert claimed(every_backend) == []
    assert (planned(every_backend), planned(every_backend, "other")) == ("03T13:00", "03T12:50")
    assert stored_fires(raw, "id") == []


def test_a_replaced_override_is_noticed_too(sqlite_database: Database) -> None:
    """schedules C-37, SQLite: OR REPLACE fires no trigger of the row that it deletes."""
    store = sqlite_database.open()
    put(store)
    store.schedules.overrides.put("tidy", schedule="*/5 * * * *")
    replace = "INSERT OR REPLACE INTO cron_overrides (name, updated_at) VALUES ('tidy', ?)"
    Raw(sqlite_database)(replace, at("2026-02-03T12:00Z"))
    assert claimed(store) == []
    assert planned(store) == "03T13:00"


def test_a_cron_that_waits_for_its_plan_makes_up_for_nothing(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """schedules C-37, C-13: it is planned from the poll on, and one that cannot be planned does not fire at all."""
    for name in ("tidy", "broken"):
        put(store, name, catch_up="all")
        store.schedules.overrides.put(name, enabled=False)
    raw("UPDATE cron_schedules SET pattern = 'every day' WHERE name = 'broken'")
    raw("DELETE FROM cron_overrides")
    frozen_clock.advance(timedelta(hours=5))
    assert claimed(store) == []
    assert (planned(store), planned(store, "broken")) == ("03T18:00", None)
    assert "every day" in store.schedules.crons.get("broken").error["message"]
    assert stored_fires(raw, "id") == []


def test_loops_of_their_own_see_no_instant_where_a_plan_is_missing(store: StateStore, raw: Raw) -> None:
    """schedules C-37, C-17: a mark is no time at which they could fire."""
    put(store)
    store.schedules.overrides.put("tidy", enabled=False)
    raw(GONE)
    crons, instant = store.schedules.crons, at("2026-02-03T15:00Z")
    assert len(crons.list(due_before=at("2027-01-01T00:00Z"))) == 0
    moved = crons.update_run("tidy", expected_next_run_at=None, last_run_at=None, next_run_at=instant)
    assert (moved.next_run_at, crons.next_due_at()) == (instant, instant)


def test_a_poll_beside_the_deletion_of_an_override_does_not_fire_by_the_old_one(
    every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """schedules C-37, C-21: the override is deleted between the look and the claim."""
    put(every_backend)
    every_backend.schedules.overrides.put("tidy", schedule="40 * * * *")
    frozen_clock.set(at("2026-02-03T12:40Z"))
    with racing(every_backend) as race:
        race.before_unit(2, lambda: raw(GONE))
        assert claimed(every_backend) == []
    assert race.left == 0
    assert stored_fires(raw, "id") == []
    assert claimed(every_backend) == []
    assert planned(every_backend) == "03T13:00"


def test_nobody_deletes_an_override_under_a_claim(database: Database) -> None:
    """schedules C-37, C-21: from the lock of the schedule's row to the commit."""

    def due(store: StateStore) -> None:
        put(store)
        store.schedules.overrides.put("tidy", schedule="40 * * * *")
        database.clock.set(at("2026-02-03T12:40Z"))

    def delete(store: StateStore, _: object) -> None:
        store.schedules.overrides.clear("tidy")

    check(database, Look(due, lambda store, _: store.schedules.crons.take_due(owner="a"), delete, since=4))


def test_a_plan_taken_away_while_its_override_is_being_deleted_comes_back(shared_postgres: Database) -> None:
    """schedules C-37, Postgres: the trigger waits for the row, and then looks at what became of it."""
    store, raw = shared_postgres.open(), Raw(shared_postgres)
    put(store)
    override(raw, "tidy", enabled=False)
    shared_postgres.clock.set(at("2026-02-03T13:00Z"))
    with ThreadPoolExecutor(1) as pool:
        with store.transaction() as tx:
            assert claimed(tx) == []
            assert tx.schedules.crons.get("tidy").next_run_at is None
            deleting = pool.submit(Raw(shared_postgres), GONE)
            wait_until_blocked(raw)
        deleting.result(30)
    assert claimed(store) == []
    assert planned(store) == "03T14:00"


def test_who_may_not_write_schedules_may_still_delete_overrides(shared_postgres: Database) -> None:
    """schedules C-37, Postgres: the cron is left to replan. The role ends with its transaction."""
    raw = Raw(shared_postgres)
    put(shared_postgres.open())
    override(raw, "tidy", schedule="*/5 * * * *")
    before = raw("UPDATE cron_schedules SET planned_with = 'UTC */5 * * * *' RETURNING next_run_at, planned_with")
    role = f"narrow_{uuid4().hex}"
    for sql in ("BEGIN", f"CREATE ROLE {role}", f"GRANT SELECT, DELETE ON cron_overrides TO {role}"):
        raw(sql)
    raw(f"SET LOCAL ROLE {role}")
    raw(GONE)
    raw("RESET ROLE")
    assert raw("SELECT count(*) FROM cron_overrides") == [(0,)]
    assert raw("SELECT next_run_at, planned_with FROM cron_schedules") == before
    raw("ROLLBACK")


def test_a_poll_that_plans_again_sends_what_a_claim_does_without_the_fire(database: Database) -> None:
    """schedules C-37, P-1: and polling is one statement again."""
    with recorded(database) as (store, sent):
        put(store)
        store.schedules.overrides.put("tidy", enabled=False)
        Raw(database)(GONE)
        sent.clear()
        assert claimed(store) == []
        assert [text.split()[0] for text in sent] == ["SELECT", "BEGIN", "SELECT", "UPDATE", "COMMIT"]
        sent.clear()
        assert claimed(store) == []
        assert [text.split()[0] for text in sent] == ["SELECT"]
