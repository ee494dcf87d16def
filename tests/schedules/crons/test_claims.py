"""Claims of due crons, one loop at a time."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from support.schedules.steps import at, claimed, instants, override, put, stored_fires
from support.sent import recorded
from support.workflows.plans import plan_of
from support.workflows.steps import Raw, undone

from lastlight_state import BackendUnavailable, Conflict, CorruptData, StateStore
from lastlight_state.schedules import FireOutcome
from lastlight_state.schedules.crons import statements as cron_statements, takes
from lastlight_state.testing import Database, FrozenClock


def test_a_claim_is_a_fire_that_runs_and_a_plan_that_moved_on(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """schedules C-20, C-21, C-22."""
    put(store, payload={"deep": [1]}, target_kind="handler")
    now = frozen_clock.set(at("2026-02-03T13:00:30Z"))
    [claim] = claimed(store, lease=timedelta(minutes=2))
    assert (claim.cron_name, claim.scheduled_for, claim.source) == ("tidy", at("2026-02-03T13:00Z"), "schedule")
    assert (claim.target_kind, claim.target, claim.payload) == ("handler", "deploy", {"deep": [1]})
    assert (claim.owner, claim.epoch, claim.attempts) == ("loop", 1, 1)
    assert claim.lease_expires_at == now + timedelta(minutes=2)
    cron = store.schedules.crons.get("tidy")
    assert (cron.next_run_at, cron.last_run_at, cron.last_fire_id) == (at("2026-02-03T14:00Z"), now, claim.fire_id)
    columns = ("id", "status", "owner", "epoch", "attempts", "note", "finished_at", "actor")
    assert stored_fires(raw, *columns) == [(claim.fire_id, "running", "loop", 1, 1, None, None, None)]
    assert claimed(store) == []


def test_claims_come_earliest_instant_first(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules C-20: ties by name, no more than were asked for, one per cron and call."""
    for name, due in (("b", "12:00"), ("a", "12:00"), ("c", "11:00"), ("d", "12:30")):
        put(store, name, next_run_at=f"2026-02-03T{due}Z", catch_up="all")
    put(store, "later", next_run_at="2026-02-03T12:35Z")
    assert instants(claimed(store, limit=3)) == ["c 03T11:00", "a 03T12:00", "b 03T12:00"]
    assert instants(claimed(store, limit=3)) == ["c 03T12:00", "d 03T12:30"]
    assert claimed(store) == []


def test_crons_that_give_no_claim_keep_none_behind_them_waiting(store: StateStore, raw: Raw) -> None:
    """schedules C-20: the limit is of claims, not of rows looked at."""
    for number in range(5):
        put(store, f"off-{number}", next_run_at="2026-02-03T11:00Z")
        override(raw, f"off-{number}", enabled=False)
    put(store, "real", next_run_at="2026-02-03T12:34Z")
    assert instants(claimed(store, limit=2)) == ["real 03T12:34"]


def test_a_cron_is_claimed_once_a_call_however_often_it_is_due(store: StateStore, raw: Raw) -> None:
    """schedules C-20: also where crons that gave no claim make the call look again."""
    put(store, "all", next_run_at="2026-02-03T09:00Z", catch_up="all")
    put(store, "off", next_run_at="2026-02-03T09:05Z")
    override(raw, "off", enabled=False)
    put(store, "late", next_run_at="2026-02-03T12:00Z")
    assert instants(claimed(store, limit=2)) == ["all 03T09:00", "late 03T12:00"]


def test_an_instant_written_by_hand_fires(store: StateStore, raw: Raw) -> None:
    """schedules C-20, C-24."""
    put(store)
    raw("UPDATE cron_schedules SET next_run_at = ?", at("2026-02-03T12:00Z"))
    assert instants(claimed(store, limit=1)) == ["tidy 03T12:00"]
    assert claimed(store) == []


@pytest.mark.parametrize("spelt", ["2026-02-03 23:00:00+00:00", "2026-02-04T00:30:00+01:00"])
def test_an_instant_is_the_same_however_it_is_spelt(store: StateStore, raw: Raw, spelt: str) -> None:
    """schedules C-20, house H-61: Postgres reads it, SQLite refuses it; a cron due at 23:00 does not fire at noon."""
    put(store, next_run_at="2026-02-03T23:00Z")
    with suppress(sqlite3.IntegrityError):
        raw("UPDATE cron_schedules SET next_run_at = ?", spelt)
    assert claimed(store) == []


def test_a_number_out_of_all_bounds_keeps_no_other_cron_waiting(store: StateStore, raw: Raw) -> None:
    """schedules C-21: a row edited by hand."""
    for name in "abc":
        put(store, name, next_run_at="2026-02-03T12:00Z", catch_up="none", grace_seconds=3600)
    raw("UPDATE cron_schedules SET grace_seconds = ? WHERE name = 'b'", 10**18)
    assert instants(claimed(store)) == ["a 03T12:00", "b 03T12:00", "c 03T12:00"]


@pytest.mark.logs("could not be taken")
def test_a_text_where_a_number_belongs_keeps_no_other_cron_waiting(sqlite_database: Database) -> None:
    """schedules C-21: SQLite takes it; the row is named, and fires no more until it is mended."""
    with sqlite_database.open() as store:
        for name in ("a", "a2", "b"):
            put(store, name, next_run_at="2026-02-03T12:00Z", catch_up="none", grace_seconds=3600)
        Raw(sqlite_database)("UPDATE cron_schedules SET grace_seconds = '5m' WHERE name <> 'b'")
        assert instants(claimed(store, limit=1)) == ["b 03T12:00"]
        with pytest.raises(CorruptData, match="grace_seconds of 'a'"):
            claimed(store)


@pytest.mark.parametrize(
    ("catch_up", "calls", "rows"),
    [
        ("one", [["tidy 03T13:00"], []], [("running", None)]),
        ("all", [["tidy 03T13:00"], ["tidy 03T14:00"], ["tidy 03T15:00"], []], [("running", None)] * 3),
        ("none", [[], []], [("missed", "late, and not caught up with")]),
    ],
)
def test_what_three_hours_of_silence_leave(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock, catch_up: str, calls: list[list[str]], rows: list[Any]
) -> None:
    """schedules C-25, case 10."""
    put(store, catch_up=catch_up)
    frozen_clock.set(at("2026-02-03T15:30Z"))
    assert [instants(claimed(store)) for _ in calls] == calls
    cron = store.schedules.crons.get("tidy")
    assert cron.next_run_at == at("2026-02-03T16:00Z")
    assert (cron.last_run_at is None, cron.last_fire_id is None) == (catch_up == "none", catch_up == "none")
    assert stored_fires(raw, "status", "note") == rows


def test_instants_older_than_the_window_are_passed_over(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """schedules C-25, case 11: with one row for the oldest; a loop that stops at an empty answer misses nothing."""
    put(store, catch_up="all")
    frozen_clock.set(at("2026-02-06T12:30Z"))
    found: list[str] = []
    while more := instants(claimed(store)):
        found += more
    assert found == [f"tidy 05T{hour}:00" for hour in range(13, 24)] + [f"tidy 06T{hour:02}:00" for hour in range(13)]
    [missed, *others] = stored_fires(raw, "status", "note", "owner", "attempts")
    assert missed == ("missed", "older than the backfill window, with all instants up to its begin", None, 0)
    assert others == [("running", None, "loop", 1)] * 24
    assert claimed(store) == []


def test_a_window_of_nothing_makes_up_for_nothing(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """schedules C-25: an instant exactly as old as the window is in it."""
    put(store, catch_up="all")
    frozen_clock.set(at("2026-02-03T15:00Z"))
    assert instants(claimed(store, backfill_window=timedelta(0))) == ["tidy 03T15:00"]
    assert [row[0] for row in stored_fires(raw, "status")] == ["missed", "running"]


@pytest.mark.parametrize(("late", "statuses"), [("13:01:00.000", ["running"]), ("13:01:00.001", ["missed"])])
def test_up_to_the_grace_an_instant_is_on_time(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock, late: str, statuses: list[str]
) -> None:
    """schedules C-25."""
    put(store, catch_up="none", grace_seconds=60)
    frozen_clock.set(at(f"2026-02-03T{late}Z"))
    claimed(store)
    assert [row[0] for row in stored_fires(raw, "status")] == statuses


@pytest.mark.parametrize("catch_up", ["one", "all"])
def test_a_clock_that_steps_back_repeats_nothing(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock, catch_up: str
) -> None:
    """schedules C-26."""
    put(store, pattern="* * * * *", catch_up=catch_up)
    frozen_clock.set(at("2026-02-03T12:35Z"))
    assert instants(claimed(store)) == ["tidy 03T12:35"]
    frozen_clock.advance(timedelta(minutes=-10))
    for _ in range(10):
        assert claimed(store) == []
        frozen_clock.advance(timedelta(minutes=1))
    assert claimed(store) == []
    assert len(stored_fires(raw, "id")) == 1


def test_a_cron_that_was_switched_off_by_another_program_does_not_fire(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """schedules C-24, case 14."""
    put(store)
    override(raw, "tidy", enabled=False)
    frozen_clock.set(at("2026-02-03T13:00Z"))
    assert claimed(store) == []
    assert stored_fires(raw, "id") == []
    assert store.schedules.crons.get("tidy").next_run_at is None


def test_an_instant_of_a_pattern_that_holds_no_more_does_not_fire(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """schedules C-24, case 15: the override of another program, and a row edited by hand."""
    put(store, "overridden")
    put(store, "edited")
    put(store, "moved")
    override(raw, "overridden", schedule="30 * * * *")
    raw("UPDATE cron_schedules SET pattern = '45 * * * *' WHERE name = 'edited'")
    raw("UPDATE cron_schedules SET timezone = 'Asia/Kolkata' WHERE name = 'moved'")
    frozen_clock.set(at("2026-02-03T13:00Z"))
    assert claimed(store) == []
    plans = {cron.name: f"{cron.next_run_at:%H:%M}" for cron in store.schedules.crons.list()}
    assert plans == {"overridden": "13:30", "edited": "13:45", "moved": "13:30"}
    assert stored_fires(raw, "id") == []


def test_a_retired_row_with_a_plan_does_not_fire(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """schedules C-5: whoever wrote it."""
    put(store)
    raw("UPDATE cron_schedules SET retired_at = ?", frozen_clock.now())
    frozen_clock.set(at("2026-02-03T13:00Z"))
    assert claimed(store) == []
    assert store.schedules.crons.get("tidy").next_run_at is None


def test_a_cron_that_cannot_be_planned_any_more_fires_this_last_time(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """schedules C-28, F-5, case 33: and the others go on; that the fire went well does not hide why it was the last."""
    for name in "abcde":
        put(store, name)
    raw("UPDATE cron_schedules SET pattern = 'every day' WHERE name = 'b'")
    raw("UPDATE cron_schedules SET timezone = 'Mars/Base' WHERE name = 'd'")
    frozen_clock.set(at("2026-02-03T13:00Z"))
    claims = claimed(store)
    assert instants(claims) == [f"{name} 03T13:00" for name in "abcde"]
    for claim in claims:
        store.schedules.fires.finish(claim, FireOutcome())
    crons = {name: store.schedules.crons.get(name) for name in "abcde"}
    assert [name for name, cron in crons.items() if cron.next_run_at is None] == ["b", "d"]
    assert "every day" in crons["b"].error["message"]
    assert "Mars/Base" in crons["d"].error["message"]
    assert crons["a"].error is None
    assert put(store, "b").error is None


def test_fires_that_must_not_overlap_are_skipped(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """schedules C-27: as long as the lease of the one that runs is not over."""
    put(store, overlap="skip", pattern="* * * * *")
    put(store, "other", overlap="skip", pattern="0 0 * * *")
    frozen_clock.set(at("2026-02-03T12:35Z"))
    [first] = claimed(store, lease=timedelta(minutes=1))
    now = frozen_clock.set(at("2026-02-03T12:36Z"))
    assert first.lease_expires_at == now
    assert claimed(store) == []
    rows = stored_fires(raw, "status", "note", "owner")
    assert rows == [("running", None, "loop"), ("skipped", "overlap", None)]
    cron = store.schedules.crons.get("tidy")
    assert (cron.next_run_at, cron.last_fire_id) == (at("2026-02-03T12:37Z"), first.fire_id)
    assert cron.last_run_at == now - timedelta(minutes=1)
    store.schedules.fires.create("other", owner="worker-1")
    frozen_clock.set(at("2026-02-03T12:37Z"))
    assert instants(claimed(store)) == ["tidy 03T12:37"]


@pytest.mark.parametrize("catch_up", ["none", "all"])
def test_a_missed_instant_is_missed_whatever_runs_beside_it(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock, catch_up: str
) -> None:
    """schedules C-25, C-27."""
    put(store, overlap="skip", catch_up=catch_up, grace_seconds=0)
    frozen_clock.set(at("2026-02-03T13:30Z"))
    store.schedules.fires.create("tidy", owner="worker-1")
    assert claimed(store, backfill_window=timedelta(0)) == []
    assert [status for status, at_ in stored_fires(raw, "status", "scheduled_for") if at_ is not None] == ["missed"]


def test_a_missed_instant_of_a_cron_that_cannot_be_planned_is_its_last(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """schedules C-25, C-28."""
    put(store, catch_up="none", grace_seconds=0)
    raw("UPDATE cron_schedules SET pattern = 'nonsense', planned_with = 'UTC nonsense'")
    frozen_clock.set(at("2026-02-03T13:30Z"))
    assert (claimed(store), claimed(store)) == ([], [])
    assert stored_fires(raw, "status") == [("missed",)]
    cron = store.schedules.crons.get("tidy")
    assert (cron.next_run_at, cron.error["type"]) == (None, "not_planned")


def test_an_instant_that_has_its_fire_gets_no_second(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """schedules C-21: the plan stays moved on, and what is told of the last fire stays true."""
    put(store)
    frozen_clock.set(at("2026-02-03T13:00Z"))
    [first] = claimed(store)
    raw("UPDATE cron_schedules SET next_run_at = ?", at("2026-02-03T13:00Z"))
    frozen_clock.set(at("2026-02-03T13:00:05Z"))
    assert claimed(store) == []
    cron = store.schedules.crons.get("tidy")
    assert (cron.next_run_at, cron.last_fire_id) == (at("2026-02-03T14:00Z"), first.fire_id)
    assert cron.last_run_at == at("2026-02-03T13:00Z")


def test_one_cron_that_fails_stops_no_other(
    store: StateStore, frozen_clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """schedules C-21: it is logged, and tried again by the next call; alone, its error is raised."""
    put(store, "a", next_run_at="2026-02-03T11:00Z")
    [taken] = claimed(store)
    fresh = iter([taken.fire_id, "another", taken.fire_id])
    monkeypatch.setattr(takes, "new_id", lambda: next(fresh))
    put(store, "b", next_run_at="2026-02-03T12:10Z")
    put(store, "c", next_run_at="2026-02-03T12:20Z")
    with caplog.at_level(logging.WARNING, "lastlight_state.schedules"):
        assert instants(claimed(store)) == ["c 03T12:20"]
    assert "'b'" in caplog.text
    assert store.schedules.crons.get("b").next_run_at == at("2026-02-03T12:10Z")
    with pytest.raises(Conflict):
        claimed(store)


@pytest.mark.logs("taking fires ended early")
def test_what_was_claimed_before_the_database_failed_reaches_the_caller(every_backend: StateStore) -> None:
    """schedules C-21: with nothing claimed it is the error."""
    for name in "abc":
        put(every_backend, name, next_run_at="2026-02-03T12:00Z")
    scope: Any = every_backend._scope
    units = iter([scope.write])

    def failing(work: Any) -> Any:
        run = next(units, None)
        if run is None:
            raise BackendUnavailable("gone")
        return run(work)

    taker = takes.DueTaker("loop", at("2026-02-03T12:34Z"), timedelta(minutes=5), timedelta(hours=24))
    assert instants(taker.take_claims(scope.read, failing, 10)) == ["a 03T12:00"]
    with pytest.raises(BackendUnavailable):
        taker.take_claims(scope.read, failing, 10)
    assert instants(claimed(every_backend)) == ["b 03T12:00", "c 03T12:00"]


def test_a_claim_in_a_transaction_that_is_undone_was_none(every_backend: StateStore, raw: Raw) -> None:
    """schedules C-21, C-23."""
    put(every_backend, next_run_at="2026-02-03T12:00Z")
    with undone(every_backend) as tx:
        assert len(claimed(tx)) == 1
    assert stored_fires(raw, "id") == []
    assert len(claimed(every_backend)) == 1


def test_while_nothing_is_due_nobody_is_waited_for(every_backend: StateStore, database: Database) -> None:
    """schedules C-20, case 47: a loop polls beside a long write."""
    put(every_backend)
    holder = database.raw()
    holder.execute("BEGIN IMMEDIATE" if database.name == "sqlite" else "BEGIN")
    holder.execute("UPDATE cron_schedules SET target = 'held'")
    assert claimed(every_backend) == []
    assert every_backend.schedules.crons.next_due_at() == at("2026-02-03T13:00Z")
    holder.execute("ROLLBACK")


def test_a_cron_that_somebody_holds_is_passed_over(postgres_database: Database) -> None:
    """schedules C-21: schedulers do not queue behind one another."""
    store = postgres_database.open()
    put(store, "a", next_run_at="2026-02-03T12:00Z")
    put(store, "b", next_run_at="2026-02-03T12:10Z")
    holder = postgres_database.raw()
    holder.execute("BEGIN")
    holder.execute("SELECT 1 FROM cron_schedules WHERE name = 'a' FOR UPDATE")
    assert instants(claimed(store)) == ["b 03T12:10"]
    holder.execute("ROLLBACK")
    assert instants(claimed(store)) == ["a 03T12:00"]


@pytest.mark.parametrize("overlap", ["allow", "skip"])
def test_a_claim_is_three_statements(database: Database, overlap: str) -> None:
    """schedules P-1: and polling is one."""
    with recorded(database) as (store, sent):
        for number in range(2):
            put(store, f"c{number}", next_run_at="2026-02-03T12:00Z", overlap=overlap)
        sent.clear()
        assert len(claimed(store)) == 2
        unit = ["BEGIN", "SELECT", "INSERT", "UPDATE", "COMMIT"]
        assert [text.split()[0] for text in sent] == ["SELECT", *unit, *unit]
        sent.clear()
        assert claimed(store) == []
        store.schedules.crons.next_due_at()
        assert [text.split()[0] for text in sent] == ["SELECT", "SELECT"]


MANY = pytest.mark.parametrize("many", [3_000, pytest.param(100_000, marks=pytest.mark.soak)])
SOME_CRONS = """
INSERT INTO cron_schedules (name, pattern, target, created_at, updated_at, next_run_at)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
SELECT 'c' || i, '@daily', 'x', CAST(? AS {time}), CAST(? AS {time}),
       CASE WHEN i % 10 = 0 THEN NULL ELSE CAST(? AS {time}) END FROM n
"""
SOME_OVERRIDES = "INSERT INTO cron_overrides (name, updated_at) SELECT name, created_at FROM cron_schedules"
MANY_FIRES = """
INSERT INTO cron_fires (id, cron_name, source, status, started_at, lease_until)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {many})
SELECT 'f' || i, 'c7', 'manual', CASE WHEN i % 1000 = 0 THEN 'running' ELSE 'ok' END,
       CAST(? AS {time}), CAST(? AS {time}) FROM n
"""


@MANY
def test_polling_and_claiming_read_by_their_indexes(
    database: Database, every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock, many: int
) -> None:
    """schedules P-1, P-4: whatever lies in the ledger, and however many schedules there are."""
    now, time = frozen_clock.now(), "TEXT" if database.name == "sqlite" else "TIMESTAMPTZ"
    raw(SOME_CRONS.format(time=time), now, now, now + timedelta(hours=1))
    raw(SOME_OVERRIDES)
    raw(MANY_FIRES.format(time=time, many=many), now, now)
    raw.analyze()
    values = {"now": now, "after": now - timedelta(days=9), "after_name": "", "limit": 10, "name": "c7", "read": now}
    due = plan_of(database, every_backend, takes.DUE.of({})[0], values)
    assert "ix_cron_schedules_due" in due.text
    assert not due.scans_the_table, due
    assert not due.sorts_the_table, due
    following = plan_of(database, every_backend, cron_statements.NEXT.of({})[0], {})
    assert "ix_cron_schedules_due" in following.text
    assert "ix_cron_fires_running" in following.text
    fire = dict.fromkeys(("fire_id", "owner", "note"), "x") | {"status": "running", "lease_expires_at": now}
    insert = plan_of(database, every_backend, takes.FIRE, values | fire)
    assert "ix_cron_fires_running" in insert.text
    assert "ix_cron_fires_cron" not in insert.text
    assert not insert.scans_the_table, insert
    for chosen in ("not_retired", "only_enabled"):
        page = plan_of(database, every_backend, cron_statements.LIST.statement({chosen: {}}, paged=False), {})
        assert "ix_cron_schedules_newest" in page.text
        assert not page.sorts_the_table, page
