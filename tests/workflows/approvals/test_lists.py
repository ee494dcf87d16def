"""Lists of gates: of a run, of all runs, the inbox, the history."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.workflows.plans import plan_of, plan_of_page, sql_of_page
from support.workflows.steps import PLAN, Raw, all_pages, paused, started

from lastlight_state import StateStore
from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Approval, Gate, NodeRef, Trigger
from lastlight_state.workflows.approvals import statements as sql
from lastlight_state.workflows.shared import questions

HOUR = timedelta(hours=1)


def ids(items: Any) -> list[str]:
    return [item.id for item in items]


def test_the_gates_of_a_run_are_listed_oldest_first(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-113: all statuses, the action left out, page by page."""
    run = started(store)
    created = []
    for gate in "abcde":
        created.append(store.workflows.approvals.create(run.id, Gate(gate, "Go?", action={"gate": gate})))
        frozen_clock.advance(seconds=1)
    store.workflows.approvals.cancel(created[1].id, by="ana", reason="obsolete")
    paused(store)
    listed = all_pages(lambda **given: store.workflows.approvals.list_for_run(run.id, limit=2, **given))
    assert ids(listed) == ids(created)
    assert [gate.status for gate in listed] == ["pending", "cancelled", "pending", "pending", "pending"]
    assert not hasattr(listed[0], "action")
    assert listed[0].action_digest == created[0].action_digest


def test_the_gates_of_an_unknown_run_are_not_found(store: StateStore) -> None:
    """workflows W-13."""
    assert store.workflows.approvals.list_for_run(started(store).id).items == ()
    with pytest.raises(NotFound):
        store.workflows.approvals.list_for_run("nothing")


def test_gates_are_listed_newest_first_by_any_filter(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-113."""
    gates = [
        Gate("plan", "Go?", artifact="plan.md"),
        Gate("plan", "Which?", kind="reply"),
        Gate("review", "Read", artifact="plan.md"),
    ]
    made: list[Approval] = []
    for index, gate in enumerate(gates):
        made.append(paused(store, gate, trigger=Trigger(f"t-{index % 2}")))
        frozen_clock.advance(seconds=1)
    first, second, third = ids(made)
    store.workflows.approvals.answer(second, "replied", by="ana", response="main")
    approvals = store.workflows.approvals
    assert ids(approvals.list()) == [third, second, first]
    assert ids(approvals.list(statuses=["pending"])) == [third, first]
    assert ids(approvals.list(statuses=["approved", "pending"])) == [third, second, first]
    assert ids(approvals.list(statuses=[])) == []
    assert ids(approvals.list(trigger_id="t-0")) == [third, first]
    assert ids(approvals.list(artifact="plan.md")) == [third, first]
    assert ids(approvals.list(gate="plan")) == [second, first]
    assert ids(approvals.list(kind="reply")) == [second]
    assert ids(approvals.list(gate="plan", artifact="plan.md", statuses=["pending"])) == [first]


def test_a_filter_that_means_nothing_is_refused(store: StateStore) -> None:
    """workflows W-1, W-20."""
    cases: list[dict[str, Any]] = [{"statuses": ["open"]}, {"kind": "maybe"}, {"gate": ""}, {"limit": 0}]
    for given in cases:
        with pytest.raises(InvalidValue):
            store.workflows.approvals.list(**given)


def test_a_token_of_another_list_is_refused(store: StateStore) -> None:
    """workflows W-20."""
    for _ in range(3):
        paused(store)
    token = store.workflows.approvals.list(limit=1).next_page_token
    assert token is not None
    for call in (
        lambda: store.workflows.approvals.list(gate="plan", page_token=token),
        lambda: store.workflows.approvals.list_pending(page_token=token),
        lambda: store.workflows.approvals.list_history("deploy", page_token=token),
        lambda: store.workflows.approvals.list(page_token="damaged!"),
    ):
        with pytest.raises(InvalidValue):
            call()


def test_the_inbox_shows_what_is_asked_and_where_the_run_stands(store: StateStore, raw: Raw) -> None:
    """workflows W-88: digest and action included, a person must see what is approved."""
    gate = Gate("plan", "Go?", requested_by="bo", node=NodeRef("build", 1), artifact="plan.md", action={"a": 1})
    approval = paused(store, gate, workflow_name="release", trigger=Trigger("t-9"))
    [pending] = store.workflows.approvals.list_pending()
    shared = approval.model_dump().items() & pending.model_dump(exclude={"action"}).items()
    assert {"id", "run_id", "gate", "summary", "requested_by", "artifact"} <= {name for name, _ in shared}
    assert (pending.action, pending.action_digest, pending.node_id) == ({"a": 1}, approval.action_digest, "build")
    assert (pending.workflow_name, pending.run_status, pending.trigger_id) == ("release", "paused", "t-9")
    raw("UPDATE workflow_runs SET status = 'queued' WHERE id = ?", approval.run_id)
    assert store.workflows.approvals.list_pending().items[0].run_status == "queued"


def test_the_inbox_shows_pending_gates_of_live_runs_only(store: StateStore, raw: Raw) -> None:
    """workflows W-88."""
    kept = paused(store)
    answered, cancelled = paused(store), paused(store)
    store.workflows.approvals.answer(answered.id, "approved", by="ana")
    store.workflows.approvals.cancel(cancelled.id, by="ana", reason="obsolete")
    adopted = store.workflows.approvals.create(started(store).id, PLAN)
    raw("UPDATE workflow_runs SET status = 'succeeded' WHERE id = ?", adopted.run_id)
    assert ids(store.workflows.approvals.list_pending()) == [kept.id]
    assert store.workflows.approvals.count_pending() == 1


def test_an_overdue_gate_never_appears_in_the_inbox(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-88: swept or not."""
    lasting = paused(store)
    paused(store, Gate("plan", "Go?", expires_at=frozen_clock.now() + HOUR))
    assert store.workflows.approvals.count_pending() == 2
    frozen_clock.advance(HOUR - timedelta(milliseconds=1))
    assert len(store.workflows.approvals.list_pending()) == 2
    frozen_clock.advance(timedelta(milliseconds=1))
    assert ids(store.workflows.approvals.list_pending()) == [lasting.id]
    assert store.workflows.approvals.count_pending() == 1
    store.workflows.approvals.expire_due()
    assert ids(store.workflows.approvals.list_pending()) == [lasting.id]


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_the_inbox_has_two_orders_and_filters(store: StateStore, frozen_clock: FrozenClock, order: Any) -> None:
    """workflows W-88: pages of one inbox survive the passing of time."""
    made = []
    for index in range(5):
        made.append(paused(store, Gate("plan", "Go?", kind="reply" if index % 2 else "approve")).id)
        frozen_clock.advance(timedelta(seconds=index % 2))  # some at the same instant
    run = started(store)
    own = [store.workflows.approvals.create(run.id, Gate(gate, "Go?")).id for gate in "ab"]

    def listed(**given: Any) -> list[str]:
        pages = all_pages(lambda **paging: later(order=order, limit=2, **given, **paging))
        return ids(pages) if order == "oldest" else ids(pages)[::-1]

    def later(**given: Any) -> Any:
        frozen_clock.advance(seconds=1)
        return store.workflows.approvals.list_pending(**given)

    assert listed() == [*made, *own]
    assert listed(kind="reply") == made[1::2]
    assert listed(run_id=run.id) == own
    assert listed(run_id=run.id, kind="reply") == []


def test_an_order_that_is_none_is_refused(store: StateStore) -> None:
    """workflows W-1."""
    with pytest.raises(InvalidValue):
        store.workflows.approvals.list_pending(order="random")  # type: ignore[arg-type]


def test_the_history_holds_the_decided_gates_of_a_workflow(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-88: newest first, with how each was answered."""

    def decided(decision: Any, *, via: Any = "person", name: str = "deploy", **given: Any) -> str:
        frozen_clock.advance(seconds=1)
        approval = paused(store, Gate(**{"gate": "plan", "summary": "Go?", **given}), workflow_name=name)
        return store.workflows.approvals.answer(approval.id, decision, by="ana", via=via).approval.id

    first = decided("approved")
    second = decided("rejected", via="policy")
    third = decided("approved", gate="review", node=NodeRef("build"))
    decided("approved", name="other")
    store.workflows.approvals.cancel(paused(store).id, by="ana", reason="obsolete")
    paused(store)
    history = store.workflows.approvals.list_history
    assert ids(history("deploy")) == [third, second, first]
    assert [gate.answered_via for gate in history("deploy", gate="plan")] == ["policy", "person"]
    assert ids(history("deploy", node_id="build")) == [third]
    assert ids(all_pages(lambda **given: history("deploy", limit=1, **given))) == [third, second, first]
    assert ids(history("nothing")) == []


#: What gives the gates of all runs in their order.
NEWEST = {"sqlite": "ix_approvals_summary", "postgresql": "ix_approvals_newest"}


@pytest.fixture
def many(every_backend: StateStore, database: Database, raw: Raw) -> StateStore:
    """2,000 runs with a gate each: every tenth paused at it, the others decided. SQLite plans without counting them."""
    if database.name == "postgresql":
        raw.many_runs(2_000)
        raw(
            "INSERT INTO workflow_approvals (id, workflow_run_id, gate, summary, status, created_at) "
            "SELECT 'a-' || id, id, 'plan', '', CASE WHEN status = 'paused' THEN 'pending' WHEN id LIKE '%1' "
            "THEN 'rejected' ELSE 'approved' END, started_at FROM workflow_runs"
        )
        raw("ANALYZE")
    return every_backend


def test_the_inbox_is_read_in_its_order_by_an_index_of_what_is_pending(many: StateStore, database: Database) -> None:
    """workflows W-88, W-101, W-103."""
    for paged in (False, True):
        for inbox in sql.INBOX.orders.values():
            plan = plan_of_page(database, many, inbox, {}, paged=paged)
            assert not plan.sorts_the_table, plan
            assert ("ix_approvals_asked" if database.name == "sqlite" else "ix_approvals_inbox") in plan.text, plan
        for inbox in sql.INBOX.of_run.values():
            plan = plan_of_page(database, many, inbox, {"run_id": "r10"}, paged=paged, in_order=False)
            assert ("ix_approvals_run" if database.name == "sqlite" else "idx_approvals_workflow") in plan.text, plan


def test_the_inbox_reads_nothing_large_of_the_runs(many: StateStore) -> None:
    """workflows W-88, W-100."""
    statement = sql_of_page(many, sql.INBOX.orders["newest"], {})
    for column in ("context", "scratch", "phase_history", "node_statuses", "error"):
        assert column not in statement


def test_a_page_of_gates_is_a_range_of_an_index(many: StateStore, database: Database) -> None:
    """workflows W-101: no scan and no sort of the table; the few gates of one instant or one trigger may be sorted."""
    ordered: tuple[dict[str, Any], ...] = (
        {},
        {"gate": "plan"},
        {"statuses": ["approved"]},
        {"statuses": ["approved", "rejected"]},
    )
    for paged in (False, True):
        for chosen in ordered:
            plan = plan_of_page(database, many, sql.LIST, chosen, paged=paged)
            assert NEWEST[database.name] in plan.text, plan
            assert not plan.sorts_the_table, plan
        for chosen, index in (({"artifact": "x"}, "ix_approvals_artifact"), ({"trigger_id": "t1"}, "_runs_trigger")):
            plan = plan_of_page(database, many, sql.LIST, chosen, paged=paged)
            assert index in plan.text or database.name == "postgresql", plan
            assert not plan.scans_the_table, plan


def test_the_history_walks_the_decided_gates_from_the_newest(many: StateStore, database: Database) -> None:
    """workflows W-101."""
    chosen = {"statuses": ["approved", "rejected"], "workflow_name": "w1", "gate": "plan"}
    for paged in (False, True):
        plan = plan_of_page(database, many, sql.HISTORY, chosen, paged=paged)
        assert NEWEST[database.name] in plan.text, plan
        assert not plan.sorts_the_table, plan


def test_a_sweep_reads_what_is_due(many: StateStore, database: Database) -> None:
    """workflows W-103: the cost grows with what is due, not with what is pending or was."""
    for names in (None, ["deploy"]):
        statement, given = sql.QUESTIONS.due_statements.of({"workflow_name": names})
        values = {**given, "at": database.clock.now(), "limit": 500}
        plan = plan_of(database, many, statement, values, in_order=True)
        assert "ix_approvals_due" in plan.text, plan
        assert not plan.sorts_the_table, plan


def test_what_is_left_of_a_run_is_counted_by_the_run(many: StateStore, database: Database) -> None:
    """workflows W-85: an answer costs the same beside any number of pending gates."""
    values = {"run_id": "r10", "at": database.clock.now(), "reason": "run.cancelled"}
    for statement in (questions.BLOCKING, questions._CLOSE[0]):
        plan = plan_of(database, many, statement, values)
        assert ("ix_approvals_run" if database.name == "sqlite" else "idx_approvals_workflow") in plan.text, plan


def test_what_expires_is_found_by_its_id_or_its_run(many: StateStore, database: Database) -> None:
    """workflows W-87, W-103."""
    for count in (1, 500):
        statement, values = sql.QUESTIONS.expire_statement.of([f"a-r{index}" for index in range(count)])
        plan = plan_of(database, many, statement, {**values, "run_id": "r10", "at": database.clock.now()})
        assert not plan.scans_the_table, plan
        assert "status" not in plan.text or database.name == "postgresql", plan


def test_lists_show_the_beginning_of_long_texts(every_backend: StateStore) -> None:
    """workflows W-100: `get` shows them whole."""
    approvals = every_backend.workflows.approvals
    gate = paused(every_backend, Gate("plan", "s" * 2_000, action={"pr": 7}), workflow_name="deploy")
    [pending] = approvals.list_pending()
    assert (pending.summary, pending.action) == ("s" * 500, {"pr": 7})
    approvals.answer(gate.id, "approved", by="ana", response="r" * 2_000, digest=gate.action_digest)
    for page in (approvals.list(), approvals.list_for_run(gate.run_id), approvals.list_history("deploy")):
        assert [(item.summary, item.response) for item in page.items] == [("s" * 500, "r" * 500)]
    assert (approvals.get(gate.id).summary, approvals.get(gate.id).response) == ("s" * 2_000, "r" * 2_000)


def test_the_inbox_shows_no_long_action(every_backend: StateStore) -> None:
    """workflows W-88, W-100: of more than 2,000 characters; its digest tells that there is one, and `get` has it."""
    approvals = every_backend.workflows.approvals
    around = '{"body":""}' if every_backend.backend.name == "sqlite" else '{"body": ""}'
    for length, is_shown in ((2_000, True), (2_001, False)):
        action = {"body": "b" * (length - len(around))}
        gate = paused(every_backend, Gate("plan", "Go?", action=action))
        for page in (approvals.list_pending(), approvals.list_pending(run_id=gate.run_id)):
            shown = [(item.action, item.action_digest) for item in page.items if item.id == gate.id]
            assert shown == [(action if is_shown else None, gate.action_digest)]
        assert approvals.get(gate.id).action == action
