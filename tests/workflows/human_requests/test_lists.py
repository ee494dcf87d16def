"""Lists of requests to people: of a run, and the inbox."""

from __future__ import annotations

import json
import timeit
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.workflows.asking import FORM, SURE, WHICH, WHO, asked
from support.workflows.plans import plan_of, plan_of_page, sql_of_page
from support.workflows.steps import Raw, all_pages, started

from lastlight_state import StateStore
from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import NodeRef, Trigger
from lastlight_state.workflows.human_requests import statements as sql
from lastlight_state.workflows.shared import questions

HOUR = timedelta(hours=1)


def ids(items: Any) -> list[str]:
    return [item.id for item in items]


def test_the_requests_of_a_run_are_listed_oldest_first(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-116: all statuses, nothing large, page by page."""
    run = started(store)
    requests = []
    for question in (WHO, SURE, WHICH, FORM):
        requests.append(store.workflows.human_requests.create(run.id, question))
        frozen_clock.advance(seconds=1)
    store.workflows.human_requests.answer(requests[1].id, True)
    asked(store)
    listed = all_pages(lambda **given: store.workflows.human_requests.list_for_run(run.id, limit=3, **given))
    assert ids(listed) == ids(requests)
    assert [request.status for request in listed] == ["pending", "answered", "pending", "pending"]
    assert listed[0].model_dump().items() <= requests[0].model_dump().items()
    for column in ("options", "schema", "response"):
        assert column not in type(listed[0]).model_fields


def test_the_requests_of_an_unknown_run_are_not_found(store: StateStore) -> None:
    """workflows W-13."""
    assert store.workflows.human_requests.list_for_run(started(store).id).items == ()
    with pytest.raises(NotFound):
        store.workflows.human_requests.list_for_run("nothing")


def test_the_inbox_shows_what_is_asked_and_where_the_run_stands(store: StateStore, raw: Raw) -> None:
    """workflows W-93: the node's label, None when the node has no row, whatever others have."""
    request = asked(store, FORM, workflow_name="release", trigger=Trigger("t-9"))
    [pending] = store.workflows.human_requests.list_pending()
    shared = set(type(pending).model_fields) & set(type(request).model_fields)
    assert {name: getattr(pending, name) for name in shared} == {name: getattr(request, name) for name in shared}
    assert {"id", "run_id", "node_id", "iteration", "kind", "prompt", "options", "expires_at"} <= shared
    assert (pending.workflow_name, pending.run_status, pending.trigger_id) == ("release", "paused", "t-9")
    assert (pending.has_schema, pending.label) == (True, None)
    store.workflows.nodes.put(request.run_id, NodeRef("form"), label="Introduce yourself")
    assert store.workflows.human_requests.list_pending().items[0].label == "Introduce yourself"
    raw("INSERT INTO maintenance_permits (receipt_id) VALUES ('prune')")
    raw("DELETE FROM run_nodes")
    raw("DELETE FROM maintenance_permits")
    for node in (NodeRef("form", 1), NodeRef("other")):
        store.workflows.nodes.put(request.run_id, node, label="Introduce yourself again")
    store.workflows.nodes.put(started(store).id, NodeRef("form"), label="Introduce another")
    assert store.workflows.human_requests.list_pending().items[0].label is None


def test_the_inbox_shows_pending_requests_of_live_runs_only(store: StateStore, raw: Raw) -> None:
    """workflows W-93."""
    kept, choice = asked(store), asked(store, WHICH)
    store.workflows.human_requests.answer(asked(store).id, "bo")
    store.workflows.human_requests.cancel(asked(store).id, by="ana", reason="obsolete")
    adopted = store.workflows.human_requests.create(started(store).id, SURE)
    raw("UPDATE workflow_runs SET status = 'succeeded' WHERE id = ?", adopted.run_id)
    pending = store.workflows.human_requests.list_pending(order="oldest")
    assert set(ids(pending)) == {kept.id, choice.id}
    assert {each.id: (each.options, each.has_schema) for each in pending} == {
        kept.id: (None, False),
        choice.id: (["eu", "us", 1, None], False),
    }
    assert store.workflows.human_requests.count_pending() == 2


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_the_inbox_has_two_orders_and_filters(store: StateStore, frozen_clock: FrozenClock, order: Any) -> None:
    """workflows W-93, W-20: pages of one inbox survive the passing of time, and what expires meanwhile."""
    made = []
    for index in range(5):
        made.append(asked(store, SURE if index % 2 else WHO).id)
        frozen_clock.advance(seconds=1)
    run = started(store)
    own = []
    for index in range(2):
        own.append(store.workflows.human_requests.create(run.id, replace(WHO, node=NodeRef("who", index))).id)
        frozen_clock.advance(seconds=1)
    expires_at = frozen_clock.now() + timedelta(milliseconds=1)
    store.workflows.human_requests.create(run.id, replace(SURE, expires_at=expires_at))

    def later(**given: Any) -> Any:
        frozen_clock.advance(seconds=1)
        return store.workflows.human_requests.list_pending(**given)

    def listed(**given: Any) -> list[str]:
        found = ids(all_pages(lambda **paging: later(order=order, limit=2, **given, **paging)))
        return found if order == "oldest" else found[::-1]

    assert listed() == [*made, *own]
    assert listed(kind="confirm") == made[1::2]
    assert listed(run_id=run.id) == own
    assert listed(run_id=run.id, kind="confirm") == []


def test_a_token_of_another_list_is_refused(store: StateStore) -> None:
    """workflows W-20."""
    run_ids = [asked(store).run_id for _ in range(3)]
    token = store.workflows.human_requests.list_pending(limit=1).next_page_token
    assert token is not None
    for call in (
        lambda: store.workflows.human_requests.list_pending(kind="text", page_token=token),
        lambda: store.workflows.human_requests.list_pending(order="oldest", page_token=token),
        lambda: store.workflows.human_requests.list_for_run(run_ids[0], page_token=token),
        lambda: store.workflows.approvals.list_pending(page_token=token),
    ):
        with pytest.raises(InvalidValue):
            call()


@pytest.fixture(params=[2_000, pytest.param(100_000, marks=pytest.mark.soak)])
def many(request: pytest.FixtureRequest, every_backend: StateStore, database: Database, raw: Raw) -> StateStore:
    """So many runs with a request each: every tenth paused at it, the others' answered; some expire. SQLite plans
    without counting them."""
    if database.name == "postgresql":
        raw.many_runs(request.param)
        raw(
            "INSERT INTO human_requests (id, run_id, node_id, kind, status, prompt, requested_at, expires_at) "
            "SELECT 'h-' || id, id, 'who', 'text', CASE WHEN status = 'paused' THEN 'pending' ELSE 'answered' END, "
            "'Who', started_at, CASE WHEN id LIKE '%50' THEN started_at END FROM workflow_runs"
        )
        raw("ANALYZE")
    return every_backend


BY_RUN = {"sqlite": "ix_human_requests_summary", "postgresql": "ix_human_requests_run"}
PENDING = {"sqlite": "ix_human_requests_asked", "postgresql": "ix_human_requests_inbox"}


def test_lists_and_sweeps_read_by_their_indexes(many: StateStore, database: Database) -> None:
    """workflows W-93, W-101, W-103: the inbox in its order, what is due by its time, a run's by the run."""
    for paged in (False, True):
        for inbox in sql.INBOX.orders.values():
            plan = plan_of_page(database, many, inbox, {}, paged=paged)
            assert PENDING[database.name] in plan.text, plan
            assert not plan.sorts_the_table, plan
        for inbox in sql.INBOX.of_run.values():
            plan = plan_of_page(database, many, inbox, {"run_id": "r10"}, paged=paged, in_order=False)
            assert BY_RUN[database.name] in plan.text, plan
        plan = plan_of_page(database, many, sql.OF_RUN, {"run_id": "r10"}, paged=paged)
        assert BY_RUN[database.name] in plan.text, plan
    now = database.clock.now()
    for names in (None, ["deploy"]):
        statement, given = sql.QUESTIONS.due_statements.of({"workflow_name": names})
        due = plan_of(database, many, statement, {**given, "at": now, "limit": 100}, in_order=True)
        assert "ix_human_requests_due" in due.text, due
    counted = plan_of(database, many, sql.INBOX.count, {"now": now}, in_order=True)
    assert PENDING[database.name] in counted.text, counted


def test_what_hangs_on_a_run_or_a_list_of_ids_is_read_by_those(many: StateStore, database: Database) -> None:
    """workflows W-85, W-102: an answer or an end costs the same beside any number of pending requests."""
    values = {"run_id": "r10", "at": database.clock.now(), "reason": "run.cancelled"}
    for statement in (questions.BLOCKING, questions._CLOSE[1]):
        plan = plan_of(database, many, statement, values)
        assert BY_RUN[database.name] in plan.text, plan
    expiring, ids_given = sql.QUESTIONS.expire_statement.of([f"h-r{index}" for index in range(100)])
    plan = plan_of(database, many, expiring, {**values, **ids_given})
    assert not plan.scans_the_table, plan
    assert "_inbox" not in plan.text, plan


def test_lists_read_nothing_large(many: StateStore) -> None:
    """workflows W-93, W-100: of the runs, and of the requests beyond what is asked."""
    inbox = sql_of_page(many, sql.INBOX.orders["newest"], {})
    for column in ("context", "scratch", "phase_history", "node_statuses", "schema", "response"):
        assert column not in inbox
    of_run = sql_of_page(many, sql.OF_RUN, {"run_id": "r10"})
    for column in ("options", "schema", "response"):
        assert f".{column}" not in of_run


def test_lists_show_the_beginning_of_long_prompts_and_no_long_options(every_backend: StateStore) -> None:
    """workflows W-93, W-100: `get` has them whole."""
    requests, options = every_backend.workflows.human_requests, [f"{n:0100}" for n in range(30)]
    choice = replace(WHICH, prompt="p" * 2_000, options=options)
    request = asked(every_backend, choice)
    [pending], [summary] = requests.list_pending(), requests.list_for_run(request.run_id)
    assert (pending.prompt, pending.options, summary.prompt) == ("p" * 500, None, "p" * 500)
    assert requests.get(request.id).options == options
    assert requests.list_pending(run_id=request.run_id).items == (pending,)


@pytest.mark.soak
def test_a_page_beside_large_schemas_costs_what_it_costs_beside_none(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-100."""
    requests, run = every_backend.workflows.human_requests, started(every_backend)
    for index in range(300):
        requests.create(run.id, replace(FORM, node=NodeRef("form", index)))

    def fastest(listed: Callable[[], object]) -> float:
        return min(timeit.repeat(listed, number=5, repeat=40))

    def costs() -> list[float]:
        return [fastest(requests.list_pending), fastest(lambda: requests.list_for_run(run.id))]

    before = costs()
    raw("UPDATE human_requests SET schema = ?, response = ?", *([json.dumps({"const": "x" * 60_000})] * 2))
    if raw.name == "postgresql":
        raw("VACUUM human_requests")  # what the update left behind would be walked over, whatever its size
    assert all(after <= 1.5 * small for after, small in zip(costs(), before, strict=True))
