from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

import pytest
from support.each import with_each
from support.maintenance.rows import insert
from support.sent import recorded
from support.workflows.plans import plan_of

from lastlight_state.db.lists.pages import after_values, encode_token
from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.maintenance import TimelineEntry
from lastlight_state.maintenance.timeline.facts import FACTS
from lastlight_state.maintenance.timeline.phases import Phases
from lastlight_state.store import StateStore
from lastlight_state.testing.databases import Database
from lastlight_state.workflows import Failure, Gate, NodeRef, Question, Trigger, Usage


def lived(database: Database, *, seconds: float) -> tuple[StateStore, str]:
    """A run that went through every source of facts, ``seconds`` apart."""
    store, step = database.open(), timedelta(seconds=seconds)
    workflows = store.workflows
    run_id = workflows.runs.create("wf", trigger=Trigger("t", actor="ana"), phase="plan").id
    database.clock.advance(step)
    execution = workflows.executions.start("wf:plan", run_id=run_id, node=NodeRef("plan"))
    database.clock.advance(step)
    usage = Usage(turns=3, cost_usd=Decimal("0.12"))
    workflows.executions.finish(
        execution.id, "failed", usage=usage, failure=Failure("no", stop_reason="error_max_turns")
    )
    workflows.executions.skip("wf:extra", run_id=run_id, reason="not needed")
    database.clock.advance(step)
    gate = Gate("merge", "Merge?", requested_by="worker", expires_at=database.clock.now() + timedelta(hours=1))
    asked = workflows.approvals.pause(run_id, gate)
    database.clock.advance(step)
    workflows.approvals.answer(asked.id, "approved", by="bo")
    workflows.approvals.create(
        run_id, Gate("how", "How?", kind="reply", expires_at=database.clock.now() + timedelta(1))
    )
    database.clock.advance(seconds=86_400)
    workflows.approvals.expire_due()
    return store, run_id


def texts(entries: list[TimelineEntry] | tuple[TimelineEntry, ...]) -> list[str]:
    return [entry.text for entry in entries]


def test_one_turn_of_an_execution_is_told_in_the_singular(database: Database) -> None:
    """maintenance OP-13."""
    store = database.open()
    run_id = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="plan").id
    execution = store.workflows.executions.start("wf:plan", run_id=run_id)
    store.workflows.executions.finish(execution.id, "succeeded", usage=Usage(turns=1))
    assert "wf:plan succeeded, after 0.0 s, 1 turn" in texts(store.maintenance.timeline.list(run_id).items)


def test_a_run_is_told_oldest_first_with_who_did_what(database: Database) -> None:
    """maintenance OP-13."""
    store, run_id = lived(database, seconds=60)
    entries = store.maintenance.timeline.list(run_id).items
    assert texts(entries) == [
        "began",
        "wf:plan started, attempt 1",
        "wf:extra started",
        "wf:plan failed, after 60.0 s, 3 turns, $0.1200, error_max_turns: no",
        "wf:extra skipped, after 0.0 s: not needed",
        "waits for an answer",
        "gate merge asks for approval",
        "goes on after an answer",
        "gate how asks for a reply",
        "gate merge approved",
        "failed: a question was not answered in time",
        "gate how expired",
    ]
    actors = {entry.text: entry.actor for entry in entries}
    assert actors["began"] == "ana"
    assert actors["gate merge asks for approval"] == "worker"
    assert actors["gate merge approved"] == actors["goes on after an answer"] == "bo"
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)


def test_inputs_are_told_with_the_reason_of_an_override(database: Database) -> None:
    """maintenance OP-13, outputs I-2."""
    store = database.open()
    run_id = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
    store.outputs.inputs.ensure(run_id, {"a": 1}, created_by="ana")
    database.clock.advance(seconds=1)
    store.outputs.inputs.override(run_id, {"a": 2}, expected_revision=0, reason="typo")
    told = [(entry.text, entry.actor) for entry in store.maintenance.timeline.list(run_id).items[1:]]
    assert told == [("input given", "ana"), ("input overridden (typo)", None)]


@with_each("limit", [1, 2, 3, 5])
@with_each("seconds", [0, 1])
def test_pages_of_any_size_show_each_fact_once_in_the_same_order(
    limit: int, seconds: float, database: Database
) -> None:
    """maintenance OP-13: with all sources at one instant, pages of 1 show each entry once."""
    store, run_id = lived(database, seconds=seconds)
    timeline = store.maintenance.timeline
    whole = timeline.list(run_id).items
    assert len(whole) == 12
    found: list[TimelineEntry] = []
    token = None
    while True:
        page = timeline.list(run_id, limit=limit, page_token=token)
        assert len(page.items) <= limit
        found += page.items
        token = page.next_page_token
        if token is None:
            break
    assert tuple(found) == whole


def test_facts_of_one_moment_stand_in_the_order_of_their_sources(database: Database) -> None:
    """maintenance OP-13."""
    store, run_id = lived(database, seconds=0)
    sources = [entry.source for entry in store.maintenance.timeline.list(run_id).items[:10]]
    assert sources == ["transition"] * 3 + ["approval"] * 3 + ["execution"] * 4


def test_ten_transitions_of_one_moment_stand_in_the_order_of_their_numbers(database: Database) -> None:
    """maintenance OP-13."""
    store = database.open()
    run_id = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
    for most in range(1, 12):
        store.workflows.runs.allow_restarts(run_id, most, by="ana", reason="why not")
    keys: list[str] = []
    token = None
    while True:
        page = store.maintenance.timeline.list(run_id, limit=4, page_token=token)
        keys += [entry.key for entry in page]
        token = page.next_page_token
        if token is None:
            break
    assert keys == [str(seq) for seq in range(1, 13)]


@pytest.mark.parametrize("limit", [1, 2, 200])
def test_a_clock_that_was_set_back_turns_no_order_around(limit: int, database: Database) -> None:
    """maintenance OP-13: changes of status and inputs keep the order of their numbers, and say what the clock said."""
    store, clock = database.open(), database.clock
    began = clock.now()
    run_id = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
    store.outputs.inputs.ensure(run_id, {"a": 1})
    clock.advance(seconds=-60)
    asked = store.workflows.approvals.pause(run_id, Gate("merge", "Merge?"))
    store.outputs.inputs.override(run_id, {"a": 2}, expected_revision=0, reason="better")
    clock.advance(seconds=90)
    store.workflows.approvals.answer(asked.id, "approved", by="bo")
    told: list[TimelineEntry] = []
    token = None
    while True:
        page = store.maintenance.timeline.list(run_id, limit=limit, page_token=token)
        told += page.items
        token = page.next_page_token
        if token is None:
            break
    back, after = began - timedelta(seconds=60), began + timedelta(seconds=30)
    assert [(entry.text, entry.at, entry.clock) for entry in told] == [
        ("gate merge asks for approval", back, None),
        ("began", began, None),
        ("waits for an answer", began, back),
        ("input given", began, None),
        ("input overridden (better)", began, back),
        ("goes on after an answer", after, None),
        ("gate merge approved", after, None),
    ]


def test_a_gate_that_was_withdrawn_is_told_with_who_did_it(database: Database) -> None:
    """maintenance OP-13."""
    store = database.open()
    run_id = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
    asked = store.workflows.approvals.pause(run_id, Gate("merge", "Merge?"))
    database.clock.advance(seconds=1)
    store.workflows.approvals.cancel(asked.id, by="ana", reason="no need")
    last = store.maintenance.timeline.list(run_id).items[-1]
    assert (last.text, last.actor, last.key) == ("gate merge cancelled", "ana", asked.id)


def test_requests_to_people_are_told_asked_answered_and_lapsed(database: Database) -> None:
    """maintenance OP-13."""
    store = database.open()
    requests = store.workflows.human_requests
    run_id = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
    until = database.clock.now() + timedelta(minutes=1)
    asked = requests.create(run_id, Question(NodeRef("where"), "select", "Where to?", options=["a", "b"]))
    requests.create(run_id, Question(NodeRef("why"), "text", "Why?", expires_at=until))
    database.clock.advance(seconds=1)
    requests.answer(asked.id, "b", by="ana")
    database.clock.advance(seconds=59)
    requests.expire_due()
    told = [(entry.text, entry.actor) for entry in store.maintenance.timeline.list(run_id).items[1:]]
    assert told == [
        ("where asks for a choice", None),
        ("why asks for an answer", None),
        ("where answered", "ana"),
        ("why expired", None),
    ]


def test_the_last_attempt_that_another_program_left_without_an_end_is_not_told_as_ended(database: Database) -> None:
    """maintenance OP-13: rows of the original have a truth value and no outcome; an end without a time has no place."""
    store = database.open()
    run_id = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
    for key, ended in (("one", "NULL"), ("two", "'2026-02-03T12:35:00.000Z'")):
        database.raw().execute(
            "INSERT INTO executions (id, trigger_type, trigger_id, skill, started_at, finished_at, success, "
            f"workflow_run_id) VALUES ('{key}', 'api', 't', 'wf:{key}', '2026-02-03T12:34:57.000Z', {ended}, "
            f"{'true' if database.name == 'postgresql' else 1}, '{run_id}')"
        )
    told = texts(store.maintenance.timeline.list(run_id).items)
    assert told[1:] == ["wf:one started", "wf:two started", "wf:two succeeded"]


def test_other_runs_do_not_show(database: Database) -> None:
    """maintenance OP-13."""
    store, run_id = lived(database, seconds=1)
    other = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
    assert texts(store.maintenance.timeline.list(other).items) == ["began"]
    assert len(store.maintenance.timeline.list(run_id)) == 12


def test_what_is_left_of_a_run_that_is_not_there_is_told(database: Database) -> None:
    """maintenance OP-13: executions of other programs may name one."""
    store, at = database.open(), database.clock.now()
    row = {"id": "e", "trigger_type": "api", "trigger_id": "t", "skill": "wf:p", "started_at": at}
    insert(database.raw(), "executions", {**row, "workflow_run_id": "gone"})
    assert texts(store.maintenance.timeline.list("gone").items) == ["wf:p started"]


def test_a_page_may_be_empty_after_which_the_rest_has_gone(database: Database) -> None:
    """maintenance OP-13: the run is still there."""
    store, raw = database.open(), database.raw()
    run_id = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
    store.workflows.runs.cancel(run_id, by="ana", reason="no")
    token = store.maintenance.timeline.list(run_id, limit=1).next_page_token
    insert(raw, "maintenance_permits", {"receipt_id": "r"})
    raw.execute("DELETE FROM run_transitions")
    page = store.maintenance.timeline.list(run_id, page_token=token)
    assert (page.items, page.next_page_token) == ((), None)


def test_what_cannot_be_shown_is_refused(every_backend: StateStore) -> None:
    """maintenance OP-13, OP-74."""
    timeline = every_backend.maintenance.timeline
    run_id = every_backend.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
    every_backend.workflows.runs.cancel(run_id, by="ana", reason="no")
    token = timeline.list(run_id, limit=1).next_page_token
    with pytest.raises(NotFound):
        timeline.list("no-such-run")
    with pytest.raises(InvalidValue):
        timeline.list("another-run", page_token=token)
    with pytest.raises(InvalidValue):
        timeline.list(run_id, page_token="%")
    for limit in (0, 501):
        with pytest.raises(InvalidValue):
            timeline.list(run_id, limit=limit)


@with_each("key", [[], ["x", 0, 1], ["2026-02-03T00:00:00.000Z", 0, "text"], ["2026", 99, "x"], [1, 2]])
def test_a_token_that_is_none_of_ours_is_refused(key: list[object], every_backend: StateStore) -> None:
    """maintenance OP-13."""
    run_id = every_backend.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
    with pytest.raises(InvalidValue, match="page_token"):
        every_backend.maintenance.timeline.list(run_id, page_token=encode_token(["timeline", run_id], key))


def test_a_page_costs_the_same_statements_however_long_the_story(database: Database) -> None:
    """maintenance OP-13, OP-75."""
    with recorded(database) as (store, sent):
        counts = []
        for gates in (1, 20):
            run_id = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
            for i in range(gates):
                store.workflows.approvals.create(run_id, Gate(f"g{i}", "Go?"))
            sent.clear()
            store.maintenance.timeline.list(run_id)
            counts.append(len([sql for sql in sent if sql.startswith("SELECT")]))
    assert counts == [len(FACTS)] * 2


CROWD = (
    (
        "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, started_at, updated_at) "
        "SELECT 'r' || i, 'wf', 't', 'p', now(), now() FROM generate_series(1, 300) i"
    ),
    (
        "INSERT INTO run_transitions (run_id, seq, to_status, reason, source, at) "
        "SELECT 'r' || i, seq, 'running', '', 'x', now() FROM generate_series(1, 300) i, generate_series(1, 9) s(seq)"
    ),
    (
        "INSERT INTO workflow_approvals (id, workflow_run_id, gate, summary, status, created_at, expires_at) "
        "SELECT 'a' || i, 'r' || i % 300, 'g', 's', 'expired', now(), now() FROM generate_series(1, 3000) i"
    ),
    (
        "INSERT INTO human_requests (id, run_id, node_id, kind, status, requested_at, expires_at, prompt) "
        "SELECT 'h' || i, 'r' || (i % 300 + 1), 'n', 'text', 'expired', now(), now(), '' "
        "FROM generate_series(1, 3000) i"
    ),
    (
        "INSERT INTO executions (id, trigger_type, trigger_id, skill, started_at, workflow_run_id) "
        "SELECT 'e' || i, 'api', 't', 's', now(), 'r' || i % 300 FROM generate_series(1, 3000) i"
    ),
    (
        "INSERT INTO run_inputs (run_id, revision, created_at, payload) "
        "SELECT 'r' || i, revision, now(), '{}' FROM generate_series(1, 300) i, generate_series(0, 9) n(revision)"
    ),
    (
        "INSERT INTO run_signals (run_id, seq, signal_name, payload, received_at, consumed_at, consumed_by) "
        "SELECT 'r' || i, seq, 'go', '1', now(), now(), 'c' || seq "
        "FROM generate_series(1, 300) i, generate_series(0, 9) n(seq)"
    ),
    (
        "INSERT INTO run_events (run_id, seq, type, payload, occurred_at) "
        "SELECT 'r' || i, seq, 'a', '{}', now() FROM generate_series(1, 300) i, generate_series(0, 9) n(seq)"
    ),
    "ANALYZE",
)
"""Rows that let a planner with statistics choose: questions that have all expired, and executions, of 300 runs."""


def test_signals_and_events_are_told_with_who_sent_and_took_them(database: Database) -> None:
    """maintenance OP-13: without their payloads, each at its own time; pages of one show each once."""
    store = database.open()
    run_id = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
    journal, began = store.journal, database.clock.now()
    database.clock.advance(seconds=2)
    journal.signals.send(run_id, "merged", {"secret": 1}, received_by="hook")
    journal.events.append(run_id, "node.started", {"secret": 1}, node_id="build")
    journal.signals.try_take(run_id, "merged", consumer="wait/0")
    journal.events.append(run_id, "replayed", at=began + timedelta(seconds=1))
    told: list[TimelineEntry] = []
    token = None
    while True:
        page = store.maintenance.timeline.list(run_id, limit=1, page_token=token)
        told += page.items
        token = page.next_page_token
        if token is None:
            break
    assert [(entry.source, entry.key, entry.text, entry.actor) for entry in told[1:]] == [
        ("event", "1", "replayed", None),
        ("signal", "0", "signal merged received", "hook"),
        ("signal", "0", "signal merged taken", "wait/0"),
        ("event", "0", "node.started of build", None),
    ]


@pytest.mark.parametrize("paged", [False, True])
def test_each_source_is_read_by_the_index_of_its_run(paged: bool, database: Database) -> None:
    """maintenance OP-75."""
    by_run = r"SEARCH .* \(\w*run_id=\?"
    if database.name == "postgresql":
        by_run = r"Index Cond: \(+\w*run_id = "
        for statement in CROWD:
            database.raw().execute(statement)
    store = database.open()
    for fact in FACTS:
        if isinstance(fact.listing, Phases):
            continue  # in the row of the run itself
        key = [fact.bounds[0]] if fact.at else [database.clock.now(), fact.bounds[0]]
        values = {"run_id": "r7", **after_values(key)}
        plan = plan_of(database, store, fact.listing.statement({"run_id": "r7"}, paged=paged), values)
        assert not plan.scans_the_table
        assert re.search(by_run, plan.text), plan
