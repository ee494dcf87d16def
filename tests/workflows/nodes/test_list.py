"""Nodes in lists: of a run, of one node, and over all live runs those that are due or that a signal concerns."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.stored_words import unguarded_words
from support.workflows.plans import plan_of
from support.workflows.steps import Raw, all_pages, started

from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.lists.pages import after_values
from lastlight_state.errors import InvalidValue
from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Node, NodePut, NodeRef, Wait
from lastlight_state.workflows.nodes import statements as sql
from lastlight_state.workflows.shared import executions, run_rows
from lastlight_state.workflows.words import WAITING_NODE

SECOND = timedelta(seconds=1)


def refs(nodes: Any) -> list[tuple[str, int]]:
    return [(node.node_id, node.iteration) for node in nodes]


def test_nodes_are_listed_by_id_and_iteration(store: StateStore) -> None:
    """workflows W-70, W-20."""
    nodes, run = store.workflows.nodes, started(store)
    graph = [
        ("b", 0, "running"),
        ("a", 10, "failed"),
        ("a", 2, "finished"),
        ("B", 0, "pending"),
        ("\u00e9", 0, "failed"),
    ]
    nodes.put_many(run.id, [NodePut(NodeRef(name, n), state) for name, n, state in graph])  # type: ignore[arg-type]
    nodes.put(started(store).id, NodeRef("a", 3))
    everything = [("B", 0), ("a", 2), ("a", 10), ("b", 0), ("\u00e9", 0)]
    assert refs(nodes.list(run.id)) == everything
    assert refs(all_pages(lambda **given: nodes.list(run.id, limit=2, **given))) == everything
    assert refs(nodes.list(run.id, states=["failed", "running", "failed"])) == [("a", 10), ("b", 0), ("\u00e9", 0)]
    assert refs(nodes.list(run.id, node_id="a")) == [("a", 2), ("a", 10)]
    assert refs(nodes.list(run.id, node_id="a", states=["failed"])) == [("a", 10)]
    assert refs(nodes.list(run.id, states=[])) == []
    assert refs(all_pages(lambda **given: nodes.list(run.id, node_id="a", limit=1, **given))) == [("a", 2), ("a", 10)]
    assert nodes.counts(run.id) == {"failed": 2, "finished": 1, "pending": 1, "running": 1}


def test_filters_are_checked_and_tokens_belong_to_theirs(store: StateStore) -> None:
    """workflows W-1, W-20."""
    nodes, run = store.workflows.nodes, started(store)
    nodes.put_many(run.id, [NodePut(NodeRef(name)) for name in "abc"])
    token = nodes.list(run.id, limit=1).next_page_token
    each: list[Any] = [
        lambda: nodes.list(run.id, states=["asleep"]),  # type: ignore[list-item]
        lambda: nodes.list(run.id, states="running"),  # type: ignore[arg-type]
        lambda: nodes.list(run.id, limit=0),
        lambda: nodes.list(run.id, states=["pending"], page_token=token),
        lambda: nodes.list_waiting(" "),
    ]
    for call in each:
        with pytest.raises(InvalidValue):
            call()


def waiting(store: StateStore, state: Any, wait: Wait, node_id: str = "n") -> Node:
    """A node of a new run that waits."""
    node: Node = store.workflows.nodes.put(started(store).id, NodeRef(node_id), state=state, wait=wait)
    return node


def test_a_node_is_due_from_the_instant_that_it_waits_for(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-70: in every waiting state, the longest overdue first."""
    nodes, now = store.workflows.nodes, frozen_clock.now()
    late = [waiting(store, state, Wait(now + n * SECOND)) for n, state in enumerate(reversed(WAITING_NODE))]
    waiting(store, "waiting_signal", Wait(signal="merged"))
    nodes.put(late[3].run_id, NodeRef("other"), state="running")
    assert [list(nodes.list_due(now + n * SECOND)) for n in (-1, 0, 2)] == [[], late[:1], late[:3]]
    frozen_clock.advance(seconds=3)
    assert list(nodes.list_due()) == late
    assert all_pages(lambda **given: nodes.list_due(limit=1, **given)) == late


def test_nodes_that_are_due_at_one_instant_are_all_listed_once(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-101."""
    wait = Wait(frozen_clock.now())
    run = started(store)
    puts = [NodePut(NodeRef(name, n), state, wait=wait) for name in "ab" for n in (0, 1) for state in WAITING_NODE[2:3]]
    put = [*store.workflows.nodes.put_many(run.id, puts), waiting(store, "waiting_person", wait)]
    listed = all_pages(lambda **given: store.workflows.nodes.list_due(limit=2, **given))
    assert sorted(map(repr, listed)) == sorted(map(repr, put))


def test_a_signal_finds_who_waits_for_it(store: StateStore) -> None:
    """workflows W-70."""
    nodes = store.workflows.nodes
    any_of_them = waiting(store, "waiting_signal", Wait(signal="merged"))
    one = waiting(store, "waiting_signal", Wait(signal="merged", correlation_id="pr-7"))
    waiting(store, "waiting_signal", Wait(signal="closed", correlation_id="pr-7"))
    gone_on = waiting(store, "waiting_signal", Wait(signal="merged", correlation_id="pr-7"))
    nodes.put(gone_on.run_id, gone_on.ref, state="running")
    assert list(nodes.list_waiting("merged")) == [any_of_them, one]
    assert all_pages(lambda **given: nodes.list_waiting("merged", limit=1, **given)) == [any_of_them, one]
    assert list(nodes.list_waiting("merged", correlation_id="pr-7")) == [one]
    assert list(nodes.list_waiting("merged", correlation_id="pr-8")) == []


def test_nodes_of_runs_that_have_ended_wait_for_nothing(store: StateStore, frozen_clock: FrozenClock, raw: Raw) -> None:
    """workflows W-70, W-18: nor those that another program left waiting, in a status that may be its own."""
    nodes = store.workflows.nodes
    paused = waiting(store, "waiting_signal", Wait(frozen_clock.now(), "merged"))
    store.workflows.waits.pause(paused.run_id)
    ended = waiting(store, "waiting_signal", Wait(frozen_clock.now(), "merged"))
    store.workflows.runs.cancel(ended.run_id, by="ana", reason="no")
    for status in ("failed", "hibernating"):
        left = waiting(store, "waiting_signal", Wait(frozen_clock.now(), "merged"))
        with unguarded_words(raw.name, raw):
            raw("UPDATE workflow_runs SET status = ? WHERE id = ?", status, left.run_id)
    assert list(nodes.list_due()) == list(nodes.list_waiting("merged")) == [paused]


NODES = """
INSERT INTO run_nodes (run_id, node_id, iteration, state, wake_at, waiting_for, correlation_id, updated_at)
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 4)
SELECT id, 'n' || i, i, CASE WHEN i = 0 AND status = 'paused' THEN 'waiting_signal' ELSE 'finished' END,
       CASE WHEN i = 0 AND status = 'paused' THEN started_at END,
       CASE WHEN i = 0 AND status = 'paused' THEN 's' || (length(id) % 3) END, trigger_id, started_at
FROM workflow_runs, n
"""


@pytest.mark.plain_postgres("fills tables by a statement that Citus refuses")
def test_lists_of_nodes_read_what_they_show(every_backend: StateStore, database: Database, raw: Raw) -> None:
    """workflows W-101, W-103: no scan and no sort, and over all runs only the nodes that wait."""
    if database.name == "postgresql":
        raw.many_runs(1_000)
        raw(NODES)
        raw.analyze()
    now = database.clock.now()
    of_run: dict[str, Any] = {"run_id": "r7"}
    due = {f"states_{n}": state for n, state in enumerate(WAITING_NODE)}
    lists: list[tuple[Listing[Any], dict[str, Any], tuple[Any, ...], str]] = [
        (sql.LIST, of_run, ("n1", 1), "run_nodes"),
        (sql.LIST, {**of_run, "node_id": "n1"}, ("n1", 1), "run_nodes"),
        (sql.DUE, {"states": list(WAITING_NODE)}, (now, "r1", "n1", 1), "ix_run_nodes_wake"),
        (sql.WAITING, {"signal": "s1"}, ("s1", "r1", "n1", 1), "ix_run_nodes_waiting"),
        (sql.WAITING, {"signal": "s1", "correlation_id": "t1"}, ("s1", "r1", "n1", 1), "ix_run_nodes_waiting"),
    ]
    for listing, chosen, key, index in lists:
        values = {**chosen, **due, "now": now, **after_values(key)}
        for paged in (False, True):
            statement = listing.statement(chosen, paged=paged)
            plan = plan_of(database, every_backend, statement, values, in_order=True)
            assert not plan.scans_the_table, plan
            assert not plan.sorts_the_table, plan
            assert index in plan.text, plan
    states = sql.ANY_STATE.of(["failed"])
    one: list[tuple[Any, dict[str, Any]]] = [
        (sql.COUNTS, {"run_id": "r7"}),
        (run_rows.GET, {"run_id": "r7"}),
        (executions.NODE_CLOSE, {"run_id": "r7", "at": now}),
        (sql.LIST.statement({**of_run, "states": states}, paged=False), {**of_run, **states}),
    ]
    for statement, values in one:
        plan = plan_of(database, every_backend, statement, values, in_order=True)
        assert not plan.scans_the_table, plan
