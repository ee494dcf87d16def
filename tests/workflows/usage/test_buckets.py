"""Days and hours of usage: exactly as many as asked for, in UTC."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.each import with_each
from support.workflows.steps import Raw, started

from lastlight_state.errors import InvalidValue
from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import ExecutionOptions, Trigger, Usage
from lastlight_state.workflows.words import OUTCOMES

NOON = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
DAY, HOUR, TICK = timedelta(days=1), timedelta(hours=1), timedelta(milliseconds=1)


@pytest.fixture(autouse=True)
def noon(frozen_clock: FrozenClock) -> None:
    frozen_clock.set(NOON)


def begun(store: Any, at: datetime, **given: Any) -> Any:
    options = ExecutionOptions(started_at=at)
    trigger = given.pop("trigger", Trigger("t", type="api", repo="acme/widget"))
    return store.workflows.executions.start(given.pop("skill", "fix:a"), trigger=trigger, options=options)


def counts(buckets: Any) -> list[int]:
    return [bucket.executions for bucket in buckets]


def test_an_empty_database_has_its_days_and_hours(store: StateStore) -> None:
    """workflows W-62: ascending, ending with the present one."""
    days = store.workflows.usage.daily(7)
    assert [bucket.start for bucket in days] == [datetime(2026, 2, 23, tzinfo=UTC) + DAY * n for n in range(7)]
    assert counts(days) == [0] * 7
    assert days[0].outcomes == dict.fromkeys(OUTCOMES, 0)
    hours = store.workflows.usage.hourly()
    assert [bucket.start for bucket in hours] == [NOON.replace(minute=0) - HOUR * n for n in range(23, -1, -1)]
    assert (len(store.workflows.usage.daily()), counts(hours)) == (30, [0] * 24)


def test_yesterdays_last_millisecond_is_not_today(store: StateStore) -> None:
    """workflows W-62."""
    midnight = NOON.replace(hour=0, minute=0)
    for at in (midnight - TICK, midnight, midnight - DAY, midnight - DAY - TICK):
        begun(store, at)
    assert counts(store.workflows.usage.daily(2)) == [2, 1]
    assert counts(store.workflows.usage.hourly(13)) == [1] + [0] * 12
    assert store.workflows.usage.stats(since=midnight - DAY).today.executions == 1


def test_what_is_dated_ahead_falls_out(store: StateStore) -> None:
    """workflows W-62."""
    for at in (NOON, NOON + TICK, NOON + DAY):
        begun(store, at)
    assert counts(store.workflows.usage.daily(1)) == [1]
    assert counts(store.workflows.usage.hourly(1)) == [1]


def test_a_bucket_counts_each_outcome_and_adds_up(store: StateStore) -> None:
    """workflows W-62."""
    executions = store.workflows.executions
    begun(store, NOON)
    for outcome in ("succeeded", "failed", "failed"):
        usage = Usage(input_tokens=10, output_tokens=1, cost_usd=Decimal("0.1"))
        executions.finish(begun(store, NOON).id, outcome, usage=usage)
    [bucket] = store.workflows.usage.daily(1)
    assert bucket.outcomes == dict.fromkeys(OUTCOMES, 0) | {"running": 1, "succeeded": 1, "failed": 2}
    assert (bucket.executions, bucket.cost_usd, bucket.total_tokens) == (4, Decimal("0.3"), 33)


def test_buckets_can_be_of_a_workflow_a_repository_or_a_model(store: StateStore, raw: Raw) -> None:
    """workflows W-62: a skill whose name goes on with the sign after the colon is of no workflow of theirs."""
    ours, theirs = begun(store, NOON), begun(store, NOON, skill="fixed:a", trigger=Trigger("t", "api", "x", "widget"))
    legacy = begun(store, NOON, trigger=Trigger("t", type="api"))
    begun(store, NOON, skill="fix;", trigger=Trigger("t", type="api"))
    raw("UPDATE executions SET repo = 'acme/widget' WHERE id = ?", legacy.id)
    store.workflows.executions.finish(ours.id, "succeeded", usage=Usage(model="m-1"))
    store.workflows.executions.finish(theirs.id, "succeeded", usage=Usage(model="m-2"))

    def count(**given: str) -> int:
        days, hours = store.workflows.usage.daily(1, **given), store.workflows.usage.hourly(1, **given)
        assert counts(days) == counts(hours)
        return counts(days)[0]

    assert (count(), count(workflow="fix"), count(workflow="fixed"), count(workflow="fi")) == (4, 2, 1, 0)
    assert (count(repo="acme/widget"), count(repo="x/widget"), count(repo="widget"), count(repo="w%")) == (2, 1, 3, 0)
    assert (count(model="m-1"), count(model="m-1", workflow="fixed")) == (1, 0)
    assert count(model="m-2", workflow="fixed", repo="widget") == 1


BAD: list[tuple[str, Any]] = [
    *(("daily", days) for days in (0, -1, 367, True, 1.5)),
    *(("hourly", hours) for hours in (0, 745, "24")),
]


@with_each(("method", "count"), BAD)
def test_no_or_too_many_buckets_are_refused(sqlite_store: StateStore, method: str, count: Any) -> None:
    """workflows W-62."""
    with pytest.raises(InvalidValue):
        getattr(sqlite_store.workflows.usage, method)(count)


@pytest.fixture
def sqlite_store(sqlite_database: Database) -> StateStore:
    return sqlite_database.open()


def test_the_most_buckets_are_given(store: StateStore) -> None:
    """workflows W-62."""
    assert len(store.workflows.usage.daily(366)) == 366
    assert len(store.workflows.usage.hourly(744)) == 744


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, database: Database) -> Iterator[StateStore]:
    """A store whose host and server live in Kathmandu."""
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    monkeypatch.setenv("PGTZ", "Asia/Kathmandu")
    time.tzset()
    yield database.open()
    monkeypatch.undo()
    time.tzset()


def test_a_zone_of_the_host_or_the_server_changes_nothing(elsewhere: StateStore) -> None:
    """workflows W-62."""
    midnight = NOON.replace(hour=0, minute=0)
    for at in (midnight - TICK, midnight):
        begun(elsewhere, at)
    assert counts(elsewhere.workflows.usage.daily(2)) == [1, 1]
    assert counts(elsewhere.workflows.usage.hourly(14)) == [1, 1] + [0] * 12


@settings(max_examples=15)
@given(ages=st.lists(st.integers(-3_600_000, 3 * 86_400_000), max_size=8), days=st.integers(1, 4))
def test_every_execution_is_in_one_bucket(every_backend: StateStore, ages: list[int], days: int) -> None:
    """workflows W-62: days and hours agree with a count by hand."""
    name = f"w{next(_names)}"
    for age in ages:
        begun(every_backend, NOON - timedelta(milliseconds=age), skill=f"{name}:a")
    for size, buckets in (
        (DAY, every_backend.workflows.usage.daily(days, workflow=name)),
        (HOUR, every_backend.workflows.usage.hourly(days * 24, workflow=name)),
    ):
        moments = [NOON - timedelta(milliseconds=age) for age in ages if age >= 0]
        assert counts(buckets) == [
            sum(bucket.start <= moment < bucket.start + size for moment in moments) for bucket in buckets
        ]


_names = iter(range(1_000_000))


def test_a_run_of_ours_is_in_the_buckets_of_its_workflow(store: StateStore) -> None:
    """workflows W-62."""
    store.workflows.executions.start("deploy:plan", run_id=started(store).id)
    assert counts(store.workflows.usage.daily(1, workflow="deploy")) == [1]
