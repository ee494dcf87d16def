"""Rollups over runs, triggers, repositories and groups: what counts, and to the micro-dollar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from support.sent import recorded
from support.workflows.steps import Raw, all_pages, started

from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Trigger, Usage, UsageTotals

START = FrozenClock().now()
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
CHAT = Trigger("thread-1", type="chat")


def spent(store: Any, cost: str | None = None, skill: str = "deploy:plan", **given: Any) -> str:
    """An ended execution that cost this much; its id."""
    outcome, usage = given.pop("outcome", "succeeded"), given.pop("usage", None)
    execution = store.workflows.executions.start(skill, **given)
    usage = usage or Usage(cost_usd=None if cost is None else Decimal(cost))
    ended: str = store.workflows.executions.finish(execution.id, outcome, usage=usage).id
    return ended


def test_what_a_run_has_used(store: StateStore) -> None:
    """workflows W-60, W-61: one in flight counts with what it has so far, NULL counts 0."""
    run, other = started(store), started(store)
    spent(store, run_id=run.id, usage=Usage(1, 100, 20, 3, 4, cost_usd=Decimal("0.1")))
    spent(store, run_id=run.id, outcome="failed")
    flying = store.workflows.executions.start("deploy:fix", run_id=run.id)
    store.workflows.executions.update(flying.id, usage=Usage(input_tokens=1, cost_usd=Decimal("0.2")))
    totals = store.workflows.usage.for_run(run.id)
    assert (totals.executions, totals.cost_usd) == (3, Decimal("0.3"))
    assert (totals.input_tokens, totals.output_tokens) == (101, 20)
    assert (totals.cache_creation_input_tokens, totals.cache_read_input_tokens) == (3, 4)
    assert totals.total_tokens == 101 + 20 + 4
    assert store.workflows.usage.for_run(other.id) == UsageTotals()


def test_the_usage_of_no_run_is_not_found(store: StateStore, raw: Raw) -> None:
    """workflows W-13: unless another program has left executions of it."""
    with pytest.raises(NotFound):
        store.workflows.usage.for_run("nobody")
    raw("UPDATE executions SET workflow_run_id = 'gone' WHERE id = ?", raw.execution(started(store).id))
    assert store.workflows.usage.for_run("gone").executions == 1


def test_what_was_used_for_a_repository(store: StateStore, frozen_clock: FrozenClock, raw: Raw) -> None:
    """workflows W-6: rows of another program spell it as one text; since is inclusive."""
    spent(store, "1", run_id=started(store).id)
    at = frozen_clock.advance(seconds=1)
    spent(store, "2", run_id=started(store).id)
    legacy = spent(store, "4", run_id=started(store).id)
    raw("UPDATE executions SET owner = NULL, repo = 'acme/widget' WHERE id = ?", legacy)
    spent(store, "8", run_id=started(store, trigger=Trigger("t", repo="widget")).id)

    def costs(since: datetime) -> dict[str | None, Decimal]:
        return {group.key: group.cost_usd for group in store.workflows.usage.by("repo", since=since)}

    assert costs(LONG_AGO) == {"acme/widget": 7, "widget": 8}
    assert costs(at) == {"acme/widget": 6, "widget": 8}


@pytest.mark.plain_postgres("fills tables by a statement that Citus refuses")
def test_ten_thousand_costs_in_any_order_add_up_alike(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-60: 0.1 and 0.2, and floats of another program that end in half a micro-dollar."""
    legacy = sum(Decimal(n) / 128 for n in range(1, 10_001) if n % 4 > 1)
    for order in ("ASC", "DESC"):
        run = started(every_backend)
        raw(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) "
            "INSERT INTO executions (id, trigger_type, trigger_id, skill, started_at, workflow_run_id, cost_usd,"
            " cost_micros) SELECT r.id || '-' || n.i, 'api', 't', 'a:b', r.started_at, r.id, n.i / 128.0,"
            " CASE n.i % 4 WHEN 0 THEN 100000 WHEN 1 THEN 200000 END "
            f"FROM n, workflow_runs r WHERE r.id = ? ORDER BY n.i {order}",
            run.id,
        )
        expected = legacy + 2_500 * Decimal("0.3")
        assert every_backend.workflows.usage.for_run(run.id).cost_usd == expected


GROUPS: list[tuple[Any, list[tuple[str | None, str]]]] = [
    ("workflow", [("fix", "6"), (None, "4"), ("deploy", "1")]),
    ("repo", [("acme/widget", "7"), (None, "4")]),
    ("model", [("m-1", "6"), (None, "5")]),
    ("trigger_type", [("webhook", "7"), ("chat", "4")]),
    ("skill", [("chat", "4"), ("fix:a", "4"), ("fix:b", "2"), ("deploy:plan", "1")]),
    ("triggered_by", [("ana", "7"), (None, "4")]),
]


@pytest.mark.parametrize(("dimension", "expected"), GROUPS, ids=[each for each, _ in GROUPS])
def test_groups_come_the_dearest_first(
    store: StateStore, raw: Raw, dimension: Any, expected: list[tuple[str | None, str]]
) -> None:
    """workflows W-62."""
    run = started(store)
    spent(store, "1", run_id=run.id)
    spent(store, skill="fix:b", run_id=run.id, usage=Usage(model="m-1", cost_usd=Decimal(2)))
    legacy = spent(store, skill="fix:a", run_id=run.id, usage=Usage(model="m-1", cost_usd=Decimal(4)))
    raw("UPDATE executions SET owner = NULL, repo = 'acme/widget' WHERE id = ?", legacy)
    spent(store, "4", "chat", trigger=CHAT)
    groups = store.workflows.usage.by(dimension, since=START)
    assert [(group.key, group.cost_usd) for group in groups] == [(key, Decimal(cost)) for key, cost in expected]
    assert sum(group.executions for group in groups) == 4


def test_groups_keep_to_their_window(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-62: since is inclusive, until is not, and without it the present is."""
    run = started(store)
    for cost in ("1", "2", "4"):
        spent(store, cost, run_id=run.id)
        frozen_clock.advance(seconds=1)
    second = timedelta(seconds=1)

    def total(**given: Any) -> Decimal:
        return sum((group.cost_usd for group in store.workflows.usage.by("skill", **given)), Decimal(0))

    assert total(since=START, until=START + 2 * second) == 3
    assert total(since=START + second) == 6
    assert total(since=START, until=START) == 0
    frozen_clock.set(START + second)
    assert total(since=START) == 3
    with pytest.raises(InvalidValue, match="until"):
        store.workflows.usage.by("skill", since=START, until=START - second)
    with pytest.raises(InvalidValue, match="dimension"):
        store.workflows.usage.by("colour", since=START)  # type: ignore[arg-type]


def test_there_are_at_most_five_hundred_groups(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-62."""
    raw(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 501) "
        "INSERT INTO executions (id, trigger_type, trigger_id, skill, started_at, cost_micros) "
        "SELECT 'e-' || n.i, 'api', 't', 's-' || n.i, ?, n.i FROM n",
        START,
    )
    groups = every_backend.workflows.usage.by("skill", since=START)
    assert [group.key for group in groups] == [f"s-{n}" for n in range(501, 1, -1)]
    assert len(every_backend.workflows.usage.stats(since=START).skills) == 500


def test_statistics_are_of_a_window_of_today_and_of_now(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-62: "today" is UTC, what runs now is of any age."""
    old = [store.workflows.executions.start("deploy:plan", run_id=started(store).id) for _ in range(2)]
    frozen_clock.set(datetime(2026, 3, 1, 23, 59, 59, 999_000, tzinfo=UTC))
    since = frozen_clock.now()
    spent(store, "1", "chat", trigger=CHAT)
    frozen_clock.advance(seconds=1)
    for outcome in ("succeeded", "failed", "failed"):
        spent(store, "2", run_id=old[0].run_id, outcome=outcome)
    stats = store.workflows.usage.stats(since=since)
    assert (stats.totals.executions, stats.totals.cost_usd) == (4, Decimal(7))
    assert (stats.today.executions, stats.today.cost_usd) == (3, Decimal(6))
    assert (stats.outcomes["succeeded"], stats.outcomes["failed"], stats.outcomes["running"]) == (2, 2, 0)
    assert stats.skills == {"deploy:plan": 3, "chat": 1}
    assert stats.trigger_types == {"webhook": 3, "chat": 1}
    assert (stats.running_now, stats.since) == (2, since)


def test_a_streak_of_failures_is_ended_by_a_success_alone(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-63: skipped, deferred and cancelled neither count nor end it; one in flight is not finished."""
    run = started(store)
    streak = store.workflows.usage.failure_streak

    def end(outcome: str) -> int:
        frozen_clock.advance(seconds=1)
        spent(store, run_id=run.id, outcome=outcome)
        return streak()

    assert streak() == 0
    outcomes = ["failed", "succeeded", "failed", "skipped", "interrupted", "deferred", "cancelled", "failed"]
    assert [end(outcome) for outcome in outcomes] == [1, 0, 1, 1, 2, 2, 2, 3]
    frozen_clock.advance(seconds=1)
    store.workflows.executions.start("deploy:plan", run_id=run.id)
    assert (streak(), streak(limit=2)) == (3, 2)


SKILLS_IN_TIME = [
    ("fix:a", "succeeded"),
    ("fix:b", "failed"),
    ("fix:a", "failed"),
    ("fixed:a", "succeeded"),
    ("fix;", "succeeded"),
    ("build:a", "failed"),
]


def test_a_streak_is_of_a_skill_or_a_workflow(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-63: the executions of a workflow are of skills that begin with its name and a colon."""
    run = started(store)
    for skill, outcome in SKILLS_IN_TIME:
        spent(store, skill=skill, run_id=run.id, outcome=outcome)
        frozen_clock.advance(seconds=1)
    streak = store.workflows.usage.failure_streak
    assert (streak(), streak("fix:a"), streak("fix:b"), streak("fix")) == (1, 1, 1, 0)
    assert (streak(workflow_name="fix"), streak(workflow_name="fixed"), streak(workflow_name="none")) == (2, 0, 0)
    assert (streak("fix:b", "fix"), streak("fix:b", "fixed")) == (1, 0)
    refused: list[dict[str, Any]] = [{"limit": 0}, {"limit": 501}, {"skill": " "}]
    for given in refused:
        with pytest.raises(InvalidValue):
            streak(**given)


def test_a_streak_of_a_workflow_of_very_many_skills(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-63."""
    run = started(every_backend)
    spent(every_backend, run_id=run.id, skill="fix:first")
    for index in range(51):
        frozen_clock.advance(seconds=1)
        spent(every_backend, run_id=run.id, skill=f"fix:{index}", outcome="failed")
    for other in ("fixed:a", "fix;"):
        spent(every_backend, run_id=run.id, skill=other)
    assert every_backend.workflows.usage.failure_streak(workflow_name="fix", limit=100) == 51


def test_a_streak_of_a_workflow_of_fifty_skills_reads_nothing_of_others(sqlite_database: Database) -> None:
    """workflows W-63: its skills by their index, where those of even more are sought among all executions."""
    with recorded(sqlite_database) as (store, sent):
        Raw(sqlite_database)(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) "
            "INSERT INTO executions (id, trigger_type, trigger_id, skill, started_at, finished_at, success) "
            "SELECT 'e-' || n.i, 'api', 't', 'fix:' || n.i, ?, ?, 0 FROM n",
            START,
            START,
        )
        sent.clear()
        assert store.workflows.usage.failure_streak(workflow_name="fix", limit=100) == 50
        assert not [sql for sql in sent if "ix_executions_usage" in sql]


def test_threads_are_listed_by_their_newest_activity(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-63: chat turns grouped by trigger, each thread once on all pages."""
    for index, thread in enumerate(("a", "b", "a", "c", "b", "a")):
        spent(store, "0.5", "chat", trigger=Trigger(thread, type="chat"))
        frozen_clock.advance(seconds=index % 2)
    spent(store, "9", run_id=started(store, trigger=Trigger("a", type="chat")).id)
    for limit in (1, 2, 50):
        threads = all_pages(store.workflows.usage.list_threads, limit=limit)
        assert [(each.trigger_id, each.executions, each.cost_usd) for each in threads] == [
            ("a", 3, Decimal("1.5")),
            ("b", 2, Decimal(1)),
            ("c", 1, Decimal("0.5")),
        ]
    first = store.workflows.usage.list_threads().items[0]
    assert (first.first_at, first.last_at) == (START, START + timedelta(seconds=2))
    recent = store.workflows.usage.list_threads(since=START + timedelta(seconds=2))
    assert [each.trigger_id for each in recent] == ["a", "b"]


def test_a_thread_that_cannot_be_read_breaks_no_other(sqlite_database: Database) -> None:
    """workflows W-21, W-63: it is said to be damaged."""
    store, raw = sqlite_database.open(), Raw(sqlite_database)
    for thread in ("a", "b"):
        spent(store, "1", "chat", trigger=Trigger(thread, type="chat"))
    for (name,) in raw("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'executions'"):
        raw(f"DROP TRIGGER {name}")
    raw("UPDATE executions SET started_at = 'soon' WHERE trigger_id = 'b'")
    page = store.workflows.usage.list_threads()
    assert ([each.trigger_id for each in page], len(page.damaged)) == (["a"], 1)


def test_rollups_go_to_json_and_back(store: StateStore) -> None:
    spent(store, "0.1", run_id=started(store).id)
    usage = store.workflows.usage
    for record in (usage.stats(since=START), usage.daily(1)[0], usage.by("skill", since=START)[0]):
        assert type(record).model_validate_json(record.model_dump_json()) == record
