"""Questions about runs: by trigger, by family, by name and by repository."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.each import with_each
from support.workflows.steps import TRIGGER, Raw, all_pages, started

from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Count, RunFilter, Trigger
from lastlight_state.workflows.words import LIVE

START = FrozenClock().now()
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def ids(items: Any) -> list[str]:
    return [item.id for item in items]


def test_who_was_there_first_and_who_came_last(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-96."""
    find = store.workflows.lookups.find_for_trigger
    assert find(TRIGGER.id) is None
    runs = []
    for name, status in (("plan", "running"), ("fix", "queued"), ("plan", "running")):
        runs.append(started(store, workflow_name=name, status=status))
        frozen_clock.advance(seconds=1)
    started(store, trigger=Trigger("t-2", type="api"))
    first, second, third = runs
    store.workflows.runs.finish(first.id, "succeeded")
    execution = store.workflows.executions.start("plan:a", run_id=third.id)
    newest, oldest = find(TRIGGER.id), find(TRIGGER.id, order="oldest", statuses=LIVE)
    assert newest is not None
    assert oldest is not None
    assert (newest.id, newest.totals.executions) == (execution.run_id, 1)
    assert oldest.id == second.id
    named = find(TRIGGER.id, workflow_names=["plan", "other"], order="oldest")
    assert named is not None
    assert named.id == first.id
    nothing: list[dict[str, Any]] = [
        {"workflow_names": []},
        {"statuses": []},
        {"statuses": ["failed"]},
        {"workflow_names": ["x"]},
    ]
    for given in nothing:
        assert find(TRIGGER.id, **given) is None


def test_the_latest_run_of_each_workflow_comes_in_one_answer(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-96: names without a run are absent."""
    made: dict[str, str] = {}
    for name in ("plan", "fix", "plan", "test"):
        made[name] = started(store, workflow_name=name).id
        frozen_clock.advance(seconds=1)
    store.workflows.runs.finish(made["fix"], "failed")
    latest = store.workflows.lookups.latest_by_workflow
    found = latest(TRIGGER.id, ["plan", "fix", "none"])
    assert {name: run.id for name, run in found.items()} == {name: made[name] for name in ("plan", "fix")}
    assert list(latest(TRIGGER.id, ["plan", "fix"], statuses=["failed"])) == ["fix"]
    assert latest(TRIGGER.id, []) == latest("t-2", ["plan"]) == {}


def test_children_are_listed_newest_first(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-96."""
    parent = started(store)
    children: list[str] = []
    for _ in range(3):
        frozen_clock.advance(seconds=1)
        children.insert(0, started(store, parent_run_id=parent.id).id)
    lookups = store.workflows.lookups
    for limit in (1, 2, 3):
        assert ids(all_pages(lambda **given: lookups.list_children(parent.id, limit=limit, **given))) == children  # noqa: B023
    assert lookups.list_children(children[0]).items == ()
    with pytest.raises(NotFound):
        lookups.list_children("nobody")


def test_ancestors_are_the_run_itself_and_up(store: StateStore) -> None:
    """workflows W-96."""
    chain = [started(store)]
    for _ in range(3):
        chain.append(started(store, parent_run_id=chain[-1].id))
    ancestors = store.workflows.lookups.list_ancestors(chain[-1].id)
    assert [(each.depth, each.id) for each in ancestors] == [(n, run.id) for n, run in enumerate(reversed(chain))]
    for limit in (1, 2):
        assert len(store.workflows.lookups.list_ancestors(chain[-1].id, limit=limit)) == limit
    with pytest.raises(NotFound):
        store.workflows.lookups.list_ancestors("nobody")


def plant(raw: Raw, run_id: str, parent: str | None) -> None:
    raw(
        "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, started_at, updated_at,"
        " parent_run_id) VALUES (?, 'w', 't', 'p', ?, ?, ?)",
        run_id,
        START,
        START,
        parent,
    )


def test_a_planted_cycle_ends(store: StateStore, raw: Raw) -> None:
    """workflows W-96."""
    for run_id, parent in (("a", "b"), ("b", "c"), ("c", "a"), ("self", "self"), ("into", "a")):
        plant(raw, run_id, parent)
    ancestors = store.workflows.lookups.list_ancestors
    assert ids(ancestors("a")) == ["a", "b", "c"]
    assert ids(ancestors("self")) == ["self"]
    assert ids(ancestors("into")) == ["into", "a", "b", "c"]


def test_a_missing_parent_ends_the_chain(store: StateStore, raw: Raw) -> None:
    """workflows W-96."""
    plant(raw, "orphan", "gone")
    assert ids(store.workflows.lookups.list_ancestors("orphan")) == ["orphan"]


def test_the_chain_has_a_thousand_at_most(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-96."""
    raw(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) "
        "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, started_at, updated_at,"
        " parent_run_id) SELECT 'r' || i, 'w', 't', 'p', ?, ?, 'r' || (i - 1) FROM n",
        START,
        START,
    )
    ancestors = every_backend.workflows.lookups.list_ancestors("r1500")
    assert ids(ancestors) == [f"r{n}" for n in range(1500, 500, -1)]


def test_transitions_are_told_in_both_orders(store: StateStore) -> None:
    """workflows W-11, W-96."""
    run = started(store)
    store.workflows.runs.finish(run.id, "failed")
    store.workflows.runs.restart(run.id, by="ana", reason="again")
    lookups = store.workflows.lookups
    told = all_pages(lambda **given: lookups.list_transitions(run.id, order="oldest", limit=2, **given))
    assert [(each.seq, each.from_status, each.to_status, each.actor) for each in told] == [
        (1, None, "running", "ana"),
        (2, "running", "failed", None),
        (3, "failed", "running", "ana"),
    ]
    assert list(lookups.list_transitions(run.id)) == told[::-1]
    with pytest.raises(NotFound):
        lookups.list_transitions("nobody")


def test_an_adopted_run_has_no_transitions_yet(store: StateStore, raw: Raw) -> None:
    """workflows W-11."""
    plant(raw, "adopted", None)
    assert store.workflows.lookups.list_transitions("adopted").items == ()


def test_a_count_stops_where_it_is_told(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-96, W-212."""
    for index in range(4):
        started(store, workflow_name=f"w{index % 2}", status="queued" if index == 3 else "running")
        frozen_clock.advance(seconds=1)
    count = store.workflows.lookups.count
    assert count() == Count(value=4, exact=True)
    assert count(at_most=4) == Count(value=4, exact=True)
    assert count(at_most=3) == Count(value=3, exact=False)
    assert count(at_most=1) == Count(value=1, exact=False)
    assert count(RunFilter(statuses=())) == Count(value=0, exact=True)
    counted: list[tuple[RunFilter, int]] = [
        (RunFilter(statuses=["running"]), 3),
        (RunFilter(statuses=["running", "queued", "failed"], workflow_names=["w1"]), 2),
        (RunFilter(statuses=()), 0),
        (RunFilter(repo="acme/widget"), 4),
        (RunFilter(repo="widget", since=START + timedelta(seconds=2)), 2),
        (RunFilter(until=START + timedelta(seconds=1)), 1),
        (RunFilter(since=START + timedelta(seconds=1), until=START + timedelta(seconds=3)), 2),
        (RunFilter(trigger_id=TRIGGER.id), 4),
        (RunFilter(trigger_id="t-2"), 0),
    ]
    assert [count(which).value for which, _ in counted] == [expected for _, expected in counted]


def test_the_names_of_workflows_are_told_once_each(store: StateStore) -> None:
    """workflows W-96."""
    names = store.workflows.lookups.names
    assert names().items == ()
    for name in ("b", "a", "c", "a", "Z", "é"):
        started(store, workflow_name=name)
    assert list(names()) == ["Z", "a", "b", "c", "é"]
    assert all_pages(names, limit=2) == ["Z", "a", "b", "c", "é"]


def test_repositories_are_counted_whichever_way_they_are_spelt(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """workflows W-6, W-96."""
    for owner, repo in (
        ("acme", "w"),
        ("x", "w"),
        (None, "solo"),
        ("acme", "w"),
        (None, None),
        ("acme", None),
        ("acme-2", "a"),
    ):
        started(store, trigger=Trigger("t", owner=owner, repo=repo))
        frozen_clock.advance(seconds=1)
    legacy = started(store)
    raw("UPDATE workflow_runs SET owner = NULL, repo = 'acme/w' WHERE id = ?", legacy.id)
    other = started(store)
    raw("UPDATE workflow_runs SET owner = NULL, repo = 'b/c/d' WHERE id = ?", other.id)
    repos = store.workflows.lookups.repos
    expected = [("solo", 1), ("acme/w", 3), ("acme-2/a", 1), ("b/c/d", 1), ("x/w", 1)]
    for limit in (1, 2, 5):
        found = all_pages(repos, limit=limit)
        assert [(each.qualified, each.runs) for each in found] == expected
    assert repos(limit=5).next_page_token is None
    found = list(repos())
    assert (found[1].last_run_at, found[3].owner, found[3].repo) == (legacy.started_at, "b", "c/d")


def test_the_activity_of_a_repository(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-96: by workflow and status, both spellings, since inclusive."""
    old = started(store)
    since = frozen_clock.advance(seconds=1)
    runs = [started(store, workflow_name=name) for name in ("fix", "fix", "plan")]
    store.workflows.runs.finish(runs[0].id, "failed")
    raw("UPDATE workflow_runs SET owner = NULL, repo = 'acme/widget' WHERE id = ?", runs[1].id)
    started(store, trigger=Trigger("t", repo="x/widget"))

    def activity(owner: str | None, repo: str, since: datetime = since) -> list[tuple[str, str, int]]:
        found = store.workflows.lookups.activity(owner, repo, since=since)
        return [(each.workflow_name, each.status, each.runs) for each in found]

    expected = [("fix", "failed", 1), ("fix", "running", 1), ("plan", "running", 1)]
    assert activity("acme", "widget") == activity(None, "acme/widget") == expected
    assert activity("acme", "widget", old.started_at) == [("deploy", "running", 1), *expected]
    assert activity(None, "widget") == []


REFUSED: dict[str, Callable[[Any], Any]] = {
    "order": lambda lookups: lookups.find_for_trigger("t", order="random"),
    "status": lambda lookups: lookups.find_for_trigger("t", statuses=["done"]),
    "names": lambda lookups: lookups.latest_by_workflow("t", [f"w{n}" for n in range(51)]),
    "one name": lambda lookups: lookups.latest_by_workflow("t", "fix"),
    "ancestors": lambda lookups: lookups.list_ancestors("r", limit=1_001),
    "no ancestors": lambda lookups: lookups.list_ancestors("r", limit=0),
    "filter": lambda lookups: lookups.count({"statuses": ["running"]}),
    "nothing to count": lambda lookups: lookups.count(at_most=0),
    "everything": lambda lookups: lookups.count(at_most=1_000_001),
    "naive": lambda lookups: lookups.activity("a", "b", since=datetime(2026, 1, 1)),  # noqa: DTZ001
    "blank repo": lambda lookups: lookups.activity("a", " ", since=LONG_AGO),
    "token": lambda lookups: lookups.names(page_token=lookups.repos(limit=1).next_page_token),
    "made up": lambda lookups: lookups.repos(page_token="WyJhIl0"),
}


@with_each("asked", REFUSED.values(), ids=REFUSED)
def test_a_question_that_means_nothing_is_refused(sqlite_database: Database, asked: Callable[[Any], Any]) -> None:
    """workflows W-1, W-20, W-96."""
    store = sqlite_database.open()
    for repo in ("a/b", "a/c"):
        started(store, trigger=Trigger("t", repo=repo))
    with pytest.raises(InvalidValue):
        asked(store.workflows.lookups)
