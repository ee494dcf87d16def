"""Pages of runs: what they show, in which order, and how they are read."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st
from support.workflows.plans import plan_of, plan_of_page, sql_of_page
from support.workflows.steps import TRIGGER, Raw, all_pages, paused, started

from lastlight_state import StateStore
from lastlight_state.errors import InvalidValue
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import RunOptions, RunSummary, Trigger, WorkflowRun
from lastlight_state.workflows.runs import statements as sql
from lastlight_state.workflows.words import TERMINAL

LARGE = ("context", "scratch", "node_statuses", "phase_history", "error", "heartbeat")


def ids(items: Any) -> list[str]:
    return [item.id for item in items]


def test_a_summary_shows_what_the_run_is_and_nothing_large(store: StateStore) -> None:
    """workflows W-24."""
    parent = started(store)
    run = started(store, context={"a": 1}, scratch={"b": 2}, parent_run_id=parent.id)
    store.workflows.runs.request_cancel(run.id, by="ana", reason="stop")
    stored = store.workflows.runs.get(run.id)
    [summary, _] = store.workflows.runs.list()
    shown = summary.model_dump(exclude={"totals"})
    assert shown == {name: getattr(stored, name) for name in shown}
    assert not [name for name in RunSummary.model_fields if name.startswith(LARGE)]


def test_runs_are_listed_by_who_triggered_them_and_until_a_time(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-212: exactly that name; the end is exclusive; pages and both orders keep to it."""
    begin, list_ = frozen_clock.now(), store.workflows.runs.list
    for number in range(6):
        actor = ("ana", "Ana", None)[number % 3]
        status: Any = "queued" if number == 3 else "running"
        trigger = Trigger("t", type="cli", actor=actor)
        options = RunOptions(id=f"r-{number}", status=status)
        store.workflows.runs.create("w", trigger=trigger, phase="p", options=options)
        frozen_clock.advance(seconds=1)
    end = begin + timedelta(seconds=3)
    assert ids(list_(triggered_by="ana")) == ["r-3", "r-0"]
    assert ids(list_(triggered_by="ana", order="active_first")) == ["r-0", "r-3"]
    assert ids(list_(triggered_by="ana", statuses=["running"])) == ["r-0"]
    assert ids(list_(triggered_by="nobody")) == []
    assert ids(list_(until=end)) == ["r-2", "r-1", "r-0"]
    assert ids(list_(until=end, since=begin + timedelta(seconds=1), workflow_names=["w"])) == ["r-2", "r-1"]
    paged = all_pages(lambda **part: list_(until=end, triggered_by="Ana", **part), limit=1)
    assert ids(paged) == ["r-1"]
    for bad in ("", "x" * 129, 5):
        with pytest.raises(InvalidValue):
            list_(triggered_by=bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue):
        list_(until=datetime(2026, 1, 1))  # noqa: DTZ001 - without a zone


def test_a_summary_has_the_totals_of_its_executions(store: StateStore, raw: Raw) -> None:
    """workflows W-24, W-60, W-61: exact to the picodollar, legacy rows too, NULL counts 0."""
    run, other = started(store), started(store)
    for index, (micros, dollars) in enumerate(((100_000, 0.1), (200_000, 0.2), (None, 0.0000016), (None, None))):
        raw.execution(run.id, f"e-{index}")
        raw(
            "UPDATE executions SET cost_micros = ?, cost_usd = ?, input_tokens = ?, output_tokens = 10, "
            "cache_read_input_tokens = 1 WHERE id = ?",
            micros,
            dollars,
            index,
            f"e-{index}",
        )
    totals = {summary.id: summary.totals for summary in store.workflows.runs.list()}
    assert totals[run.id].cost_usd == Decimal("0.3000016")
    assert (totals[run.id].executions, totals[run.id].input_tokens, totals[run.id].output_tokens) == (4, 6, 40)
    assert (totals[run.id].cache_read_input_tokens, totals[run.id].cache_creation_input_tokens) == (4, 0)
    assert (totals[other.id].executions, totals[other.id].cost_usd) == (0, Decimal(0))


def test_runs_are_listed_newest_first_by_any_filter(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-24: several filters together, since is inclusive."""
    made: list[WorkflowRun] = []
    for index in range(4):
        trigger = Trigger("t", owner="acme" if index % 2 else "other", repo="widget")
        made.append(
            started(
                store, workflow_name=f"w{index // 2}", trigger=trigger, status="queued" if index == 3 else "running"
            )
        )
        frozen_clock.advance(seconds=1)
    first, second, third, fourth = ids(made)
    store.workflows.runs.finish(first, "succeeded")
    listed = store.workflows.runs.list
    assert ids(listed()) == [fourth, third, second, first]
    assert ids(listed(statuses=["running"])) == [third, second]
    assert ids(listed(statuses=["queued", "succeeded", "queued"])) == [fourth, first]
    assert ids(listed(workflow_names=["w0"])) == [second, first]
    assert ids(listed(workflow_names=["w0", "w1"], statuses=["running"])) == [third, second]
    assert ids(listed(repo="acme/widget")) == [fourth, second]
    assert ids(listed(repo="widget", statuses=["succeeded"])) == [first]
    assert ids(listed(repo="acme/gadget")) == []
    assert ids(listed(repo=["acme/widget", "acme/gadget"], statuses=["running"])) == [second]
    assert ids(listed(since=made[2].started_at)) == [fourth, third]
    assert ids(listed(since=made[2].started_at + timedelta(milliseconds=1))) == [fourth]


def test_an_empty_sequence_matches_nothing(store: StateStore) -> None:
    """workflows W-20."""
    started(store)
    for order in ("newest", "active_first"):
        assert store.workflows.runs.list(statuses=(), order=order).items == ()
        assert store.workflows.runs.list(workflow_names=(), order=order).items == ()
        assert store.workflows.runs.list(repo=(), order=order).items == ()
    assert len(store.workflows.runs.list(statuses=None)) == 1


def test_a_filter_that_means_nothing_is_refused(store: StateStore) -> None:
    """workflows W-1, W-20."""
    cases: list[dict[str, Any]] = [
        {"statuses": ["done"]},
        {"statuses": "running"},
        {"workflow_names": "deploy"},
        {"workflow_names": [""]},
        {"workflow_names": [f"w{index}" for index in range(51)]},
        {"repo": " "},
        {"repo": "a b"},
        {"repo": ["acme/widget", " "]},
        {"repo": [f"acme/w{index}" for index in range(51)]},
        {"since": datetime(2026, 1, 1)},  # noqa: DTZ001
        {"order": "random"},
        {"limit": 0},
        {"limit": 501},
        {"limit": "10"},
        {"page_token": "not a token"},
        {"page_token": 7},
    ]
    for case in cases:
        with pytest.raises(InvalidValue):
            store.workflows.runs.list(**case)


def test_a_token_goes_on_in_its_own_list_only(store: StateStore) -> None:
    """workflows W-20."""
    for _ in range(3):
        started(store)
    newest = store.workflows.runs.list(limit=1).next_page_token
    active = store.workflows.runs.list(limit=1, order="active_first").next_page_token
    queued = store.workflows.runs.list(limit=1, statuses=["running"]).next_page_token
    assert newest is not None
    assert len(store.workflows.runs.list(limit=2, page_token=newest)) == 2
    foreign: list[dict[str, Any]] = [
        {"statuses": ["running"], "page_token": newest},
        {"repo": "widget", "page_token": newest},
        {"repo": ["widget", "gadget"], "page_token": newest},
        {"order": "active_first", "page_token": newest},
        {"page_token": active},
        {"page_token": queued},
        {"page_token": newest[:-3]},
        {"page_token": newest + "A"},
    ]
    for asked in foreign:
        with pytest.raises(InvalidValue) as refused:
            store.workflows.runs.list(**asked)
        assert refused.value.where == "page_token"


def test_what_runs_is_not_hidden_by_a_queue(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-24: running, paused, queued, then the rest, newest first in each."""
    running = started(store).id
    waiting = paused(store).run_id
    done = [started(store).id for _ in range(2)]
    frozen_clock.advance(seconds=1)
    for run_id, status in zip(done, ("failed", "succeeded"), strict=True):
        store.workflows.runs.finish(run_id, cast(Any, status))
    queued = [started(store, status="queued").id for _ in range(5)]
    expected = [running, waiting, *reversed(queued), *reversed(done)]
    assert ids(store.workflows.runs.list(order="active_first")) == expected
    for limit in (1, 2, 3, 8):
        pages = all_pages(lambda **given: store.workflows.runs.list(order="active_first", limit=limit, **given))  # noqa: B023
        assert ids(pages) == expected
    some = store.workflows.runs.list(order="active_first", statuses=["failed", "queued", "paused"])
    assert ids(some) == [waiting, *reversed(queued), done[0]]


RUNS = st.lists(
    st.tuples(st.sampled_from(["queued", "running", "succeeded", "failed", "cancelled"]), st.integers(0, 3)),
    max_size=12,
)
_RANKS = {"running": 0, "paused": 1, "queued": 2}


@settings(max_examples=25)
@given(
    runs=RUNS, limit=st.integers(1, 5), statuses=st.none() | st.sets(st.sampled_from(["queued", "running", "failed"]))
)
def test_pages_of_any_runs_repeat_and_skip_nothing(
    every_backend: StateStore, frozen_clock: FrozenClock, runs: Any, limit: int, statuses: set[str] | None
) -> None:
    """workflows W-24, W-101: in both orders, with runs that began at one instant."""
    name = f"w{next(_names)}"
    expected = []
    for status, seconds in runs:
        frozen_clock.set(_START + timedelta(seconds=seconds))
        run = started(every_backend, workflow_name=name, status="queued" if status == "queued" else "running")
        if status in TERMINAL:
            every_backend.workflows.runs.finish(run.id, status)
        if statuses is None or status in statuses:
            expected.append((run.started_at, run.id, _RANKS.get(status, 3)))
    expected.sort(reverse=True)

    def listed(order: Any) -> list[str]:
        filters: dict[str, Any] = {"workflow_names": [name], "statuses": statuses, "order": order, "limit": limit}
        return ids(all_pages(lambda **given: every_backend.workflows.runs.list(**filters, **given)))

    assert listed("newest") == [run_id for _, run_id, _ in expected]
    assert listed("active_first") == [run_id for _, run_id, _ in sorted(expected, key=lambda run: run[2])]


_START = FrozenClock().now()
_names = iter(range(1_000_000))


def test_pages_repeat_and_miss_nothing_while_runs_are_added(
    every_backend: StateStore, frozen_clock: FrozenClock
) -> None:
    """workflows W-24."""
    for index in range(200):
        started(every_backend, status="queued")
        if index < 2:
            started(every_backend)
    before = set(ids(all_pages(every_backend.workflows.runs.list)))
    frozen_clock.advance(seconds=1)
    stop = threading.Event()

    def add() -> None:
        while not stop.is_set():
            started(every_backend, status="queued")

    adding = threading.Thread(target=add)
    adding.start()
    try:
        for order in ("newest", "active_first"):
            listed = ids(all_pages(every_backend.workflows.runs.list, order=order, limit=10))
            assert len(listed) == len(set(listed))
            assert before <= set(listed)
            if order == "active_first":
                assert {every_backend.workflows.runs.get(run_id).status for run_id in listed[:2]} == {"running"}
    finally:
        stop.set()
        adding.join()


@pytest.fixture
def many(every_backend: StateStore, database: Database, raw: Raw) -> StateStore:
    """2,000 runs where a planner counts them."""
    if database.name == "postgresql":
        raw.many_runs(2_000)
    return every_backend


PAGES: list[dict[str, Any]] = [
    {},
    {"statuses": ["running"]},
    {"statuses": ["running", "paused"]},
    {"statuses": list(TERMINAL)},
]


def test_pages_are_ranges_of_an_index_that_holds_all_they_show(many: StateStore, database: Database) -> None:
    """workflows W-100, W-101, case 41: covering on SQLite, ordered without a sort on Postgres."""
    for chosen in PAGES:
        for paged in (False, True):
            plan = plan_of_page(database, many, sql.listing_of(chosen), chosen, paged=paged)
            assert not plan.sorts_the_table, plan
            assert not plan.scans_the_table, plan
            if database.name == "sqlite":
                assert "USING COVERING INDEX ix_workflow_runs_summary" in plan.text, plan


def test_pages_by_name_or_repository_are_ranges_too(many: StateStore, database: Database) -> None:
    """workflows W-100: they may read one page of rows from the table, no more."""
    one = {"repo_owner": "acme", "repo_name": "x1", "qualified": "acme/x1"}
    other = {"repo_owner": "acme", "repo_name": "x2", "qualified": "acme/x2"}
    for chosen in ({"workflow_names": ["w1"]}, {"workflow_names": ["w1", "w2"], "statuses": ["running"]}):
        plan = plan_of_page(database, many, sql.listing_of(chosen), chosen, paged=True)
        assert not plan.scans_the_table, plan
    numbered = {f"{name}_{at}": value for at, repo in enumerate((one, other)) for name, value in repo.items()}
    for repos, values in (({"owned_repo": one}, one), ({"owned_repos": [one, other]}, numbered)):
        for paged in (False, True):
            given = {**values, "after_0": database.clock.now() + timedelta(seconds=50), "after_1": "x"}
            plan = plan_of(database, many, sql.LIST.statement(repos, paged=paged), given, in_order=True)
            ranges = plan.text.count("INDEX ix_workflow_runs_repo")
            assert database.name != "sqlite" or ranges == 2 * len(values) // len(one), plan
            assert not plan.sorts_the_table, plan
            assert not plan.scans_the_table, plan


def test_pages_by_several_repositories_are_those_of_each(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """workflows W-6, W-24: however they are stored and named, each run once and in the order of all runs."""
    listed, expected = store.workflows.runs.list, {}
    for index in range(12):
        owner, repo = (("acme", "widget"), ("acme", "gadget"), ("other", "widget"), (None, "tool"))[index % 4]
        run = started(store, workflow_name=f"w{index % 2}", trigger=Trigger("t", owner=owner, repo=repo))
        if index >= 8 and owner:
            raw("UPDATE workflow_runs SET owner = NULL, repo = ? WHERE id = ?", f"{owner}/{repo}", run.id)
        expected[run.id] = f"{owner}/{repo}"
        frozen_clock.advance(seconds=index % 2)
    newest = [found.id for found in listed()]
    cases: list[tuple[Any, set[str]]] = [
        (["acme/gadget", "acme/widget", "acme/gadget"], {"acme/gadget", "acme/widget"}),
        ({"other/widget", "acme/none"}, {"other/widget"}),
        (("acme/gadget", "widget"), {"acme/gadget", "acme/widget", "other/widget"}),
        (["tool", "gadget", "none"], {"None/tool", "acme/gadget"}),
        (["acme/widget", "acme/widget"], {"acme/widget"}),
        (["widget"], {"acme/widget", "other/widget"}),
    ]
    for asked, wanted in cases:
        chosen = [run_id for run_id in newest if expected[run_id] in wanted]
        for order in ("newest", "active_first"):
            assert ids(all_pages(listed, repo=asked, order=order, limit=2)) == chosen
        some = all_pages(listed, repo=asked, workflow_names=["w0"], limit=2)
        assert ids(some) == [found.id for found in listed(workflow_names=["w0"]) if found.id in chosen]


def test_pages_name_no_large_column(many: StateStore) -> None:
    """workflows W-100, case 41."""
    for chosen in PAGES:
        statement = sql_of_page(many, sql.LIST, chosen, paged=True)
        assert not [column for column in LARGE if column in statement]


def test_totals_of_a_page_are_one_statement_on_one_index(many: StateStore, database: Database) -> None:
    """workflows W-61, W-100."""
    statement, values = sql.TOTALS.of([f"r{index}" for index in range(50)])
    plan = plan_of(database, many, statement, values)
    if database.name == "sqlite":
        assert "USING COVERING INDEX ix_executions_usage (started_at=? AND id=?" in plan.text, plan
    assert not plan.scans_the_table or database.name == "postgresql", plan  # nothing to read there, in no order


def test_since_is_told_by_the_index_too(many: StateStore, database: Database) -> None:
    """workflows W-101."""
    plan = plan_of_page(database, many, sql.LIST, {"since": database.clock.now(), "statuses": ["running"]})
    assert not plan.sorts_the_table, plan


def test_the_trigger_of_the_first_run_is_shown(store: StateStore) -> None:
    """workflows W-24."""
    started(store)
    [summary] = store.workflows.runs.list()
    assert (summary.trigger_id, summary.trigger_type, summary.triggered_by) == (TRIGGER.id, "webhook", "ana")
