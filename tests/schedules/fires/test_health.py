"""How crons have been doing: the newest fire, streaks, and how little is read for them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from support.each import with_each
from support.messaging.plans import Plans, excess
from support.sent import recorded
from support.workflows.steps import Raw

from lastlight_state import StateStore
from lastlight_state.errors import InvalidValue
from lastlight_state.schedules import CronHealth, FireOutcome
from lastlight_state.schedules.fires import health as fire_health, statements as sql
from lastlight_state.testing import Database, FrozenClock

OUTCOMES = {
    "ok": FireOutcome(),
    "partial": FireOutcome("partial"),
    "failed": FireOutcome("failed", error="no"),
}


class History:
    """Fires of crons, a minute apart, in the words of their ends; those that only claims write are written past."""

    def __init__(self, store: Any, raw: Raw, clock: FrozenClock) -> None:
        self._fires = store.schedules.fires
        self._raw = raw
        self._clock = clock

    def __call__(self, name: str, *ends: str) -> None:
        for end in ends:
            self._clock.advance(timedelta(minutes=1))
            claim = self._fires.create(name, owner="worker-1")
            if end in OUTCOMES:
                self._fires.finish(claim, OUTCOMES[end])
            elif end != "running":
                now = self._clock.now()
                self._raw("UPDATE cron_fires SET status = ?, finished_at = ? WHERE id = ?", end, now, claim.fire_id)


@pytest.fixture
def history(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> History:
    return History(store, raw, frozen_clock)


def health_of(store: Any, name: str = "tidy") -> CronHealth:
    health: CronHealth = store.schedules.fires.health([name])[name]
    return health


@with_each(
    ("ends", "streak"),
    [
        (["ok"], 0),
        (["failed", "ok", "partial", "failed"], 2),
        (["ok", "abandoned", "partial", "running", "skipped", "missed"], 2),
        (["failed", "ok"], 0),
        (["failed"] * 12, 10),
    ],
    ids=lambda value: ",".join(value)[:30] if isinstance(value, list) else str(value),
)
def test_a_streak_is_of_finished_fires_since_the_last_ok(
    store: StateStore, history: History, ends: list[str], streak: int
) -> None:
    """schedules F-8."""
    history("another", "failed")
    history("tidy", *ends)
    assert health_of(store).failure_streak == streak


def test_health_tells_what_was_last(store: StateStore, history: History, frozen_clock: FrozenClock) -> None:
    """schedules F-13: health."""
    start = frozen_clock.now()
    history("tidy", "ok", "failed", "running", "skipped")
    health = health_of(store)
    assert (health.cron_name, health.running) == ("tidy", True)
    assert health.last_ok_at == start + timedelta(minutes=1)
    assert health.last_finished_at == start + timedelta(minutes=2)
    assert health.latest is not None
    assert health.latest.status == "skipped"


def test_a_cron_that_never_fired_is_healthy_and_has_no_latest_fire(store: StateStore, history: History) -> None:
    """schedules F-8."""
    history("tidy", "ok")
    history("another", "running")
    fires = store.schedules.fires
    assert list(fires.latest(["tidy", "never"])) == ["tidy"]
    assert fires.health(["never"]) == {
        "never": CronHealth(
            cron_name="never",
            latest=None,
            failure_streak=0,
            last_ok_at=None,
            last_finished_at=None,
            running=False,
        )
    }
    assert (fires.latest([]), fires.health([])) == ({}, {})
    with pytest.raises(InvalidValue):
        fires.latest("tidy")
    with pytest.raises(InvalidValue):
        fires.health([f"cron {i}" for i in range(501)])


def test_of_two_fires_in_one_millisecond_the_later_made_is_the_latest(store: StateStore) -> None:
    """schedules F-9."""
    fires = store.schedules.fires
    ids = [fires.create("tidy", owner="worker-1").fire_id for _ in range(3)]
    assert fires.latest(["tidy"])["tidy"].id == ids[-1] == max(ids)
    assert fires.latest(["tidy"])["tidy"].status == "running"


def test_an_old_fire_that_still_runs_counts_as_running(store: StateStore, history: History) -> None:
    """schedules F-13: however many came after it."""
    history("tidy", "running", *["ok"] * 12)
    health = health_of(store)
    assert (health.running, health.failure_streak) == (True, 0)


def test_many_crons_are_asked_about_in_one_round_trip(database: Database) -> None:
    """schedules P-2, P-3: a renewal is one statement as well."""
    with recorded(database) as (store, sent):
        fires = store.schedules.fires
        names = [f"cron {i}" for i in range(60)]
        claims = [fires.create(name, owner="worker-1") for name in names[::2]]
        fires.finish(claims[0], OUTCOMES["failed"])
        for ask in (fires.latest, fires.health):
            sent.clear()
            assert set(ask(names)) >= set(names[::2])
            assert len(sent) == 1
        assert [name for name, health in fires.health(names).items() if health.failure_streak] == ["cron 0"]
        sent.clear()
        fires.heartbeat(claims[1])
        assert len(sent) == 1
        assert "payload" not in sent[0]


def test_fires_beyond_the_walk_are_not_looked_at(
    every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """schedules P-2: passing over what did not run has an end."""
    raw(FILL, 1, "failed", frozen_clock.now())
    raw(FILL.replace("'f'", "'s'"), fire_health.WALK - 1, "skipped", frozen_clock.now() + timedelta(days=1))
    assert health_of(every_backend, "busy").failure_streak == 1
    every_backend.schedules.fires.create("busy", owner="worker-1")
    raw("UPDATE cron_fires SET started_at = ? WHERE status = 'running'", frozen_clock.now() + timedelta(days=2))
    assert health_of(every_backend, "busy").failure_streak == 0


@pytest.mark.parametrize("many", [5_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_the_ledgers_size_is_nobodys_cost(
    database: Database, every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock, many: int
) -> None:
    """schedules P-2, P-4: with statistics and without."""
    now = frozen_clock.now()
    raw(FILL, many, "failed", now - timedelta(days=30))
    raw(FILL_FEW, now, now)
    plans = Plans(database, {"now": now, "limit": 10, "cron_name": "busy", "after_0": now, "after_1": "f9"})
    for analyzed in (False, True):
        if analyzed:
            raw("ANALYZE")
        for family in (fire_health.LATEST, fire_health.HEALTH):
            statement, values = family.of(["busy", "never", "few 1"])
            plan = plans.of(statement, values)
            assert "ix_cron_fires_cron" in plan, plan
            assert not re.search(SCANS, plan, re.MULTILINE), plan
        assert "ix_cron_fires_running" in plans.of(sql.STALE.of({})[0])
        assert not excess(plans.of(sql.LIST.statement({}, paged=True)))
    assert not excess(plans.of(sql.OF_CRON.statement({"cron_name": "busy"}, paged=True)))
    assert rows_read(database, every_backend, "busy") <= 10
    assert every_backend.schedules.fires.health(["busy"])["busy"].failure_streak == 10


def rows_read(database: Database, store: StateStore, name: str) -> int:
    """The most rows that any step of the plan of health gave. SQLite does not tell; there, its LIMIT does."""
    if database.name == "sqlite":
        return fire_health.STREAK
    statement, values = fire_health.HEALTH.of([name])
    compiled = statement.on(store.backend)
    told = database.raw().execute(f"EXPLAIN (ANALYZE) {compiled.sql}", compiled.parameters(values)).fetchall()
    return max(int(found) for [line] in told for found in re.findall(r"Index Scan.*actual.* rows=(\d+)", line))


SCANS = r"SCAN cron_fires\w*$|Seq Scan|Sort Key: .*started_at"

FILL = """
INSERT INTO cron_fires (id, cron_name, source, status, started_at)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < CAST(? AS INTEGER))
SELECT 'f' || i, 'busy', 'schedule', ?, ? FROM n
"""
FILL_FEW = """
INSERT INTO cron_fires (id, cron_name, source, status, started_at, lease_until)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50)
SELECT 'few' || i, 'few ' || (i % 10), 'manual', 'running', ?, ? FROM n
"""
