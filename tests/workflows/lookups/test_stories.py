"""The story of a task, and what resuming a run begins with."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from support.workflows.steps import Raw, started

from lastlight_state.errors import CorruptData, NotFound
from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import ExecutionOptions, Gate, NodeRef, Question

START = FrozenClock().now()
BUILD = NodeRef("build", 1)


def test_a_task_tells_its_attempts_and_whom_it_waited_for(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-96."""
    workflows = store.workflows
    run = started(store)
    first = workflows.executions.start("fix:build", run_id=run.id, node=BUILD)
    frozen_clock.advance(seconds=1)
    workflows.executions.finish(first.id, "failed")
    gate = workflows.approvals.create(run.id, Gate("g", "Again?", node=BUILD))
    workflows.approvals.create(run.id, Gate("g", "Another?", node=NodeRef("build", 2)))
    frozen_clock.advance(seconds=1)
    workflows.approvals.answer(gate.id, "approved", by="ana")
    asked = workflows.human_requests.create(run.id, Question(BUILD, "text", "Which?"))
    second = workflows.executions.start("fix:build", run_id=run.id, node=BUILD, options=ExecutionOptions(cached=True))
    ended = workflows.executions.finish(second.id, "succeeded")
    workflows.nodes.put(run.id, NodeRef("build", 3), label="Build")
    story = workflows.lookups.get_task(run.id, BUILD)
    assert [(each.id, each.attempt) for each in story.attempts] == [(first.id, 1), (second.id, 2)]
    assert (story.attempt_count, story.cached, story.iteration, story.latest_iteration) == (2, True, 1, 3)
    assert (story.started_at, story.finished_at) == (START, ended.finished_at)
    assert [(each.kind, each.id, each.status, each.answered_by) for each in story.waits] == [
        ("approval", gate.id, "approved", "ana"),
        ("human_request", asked.id, "pending", None),
    ]
    assert (story.waits[0].asked_at, story.waits[0].answered_at) == (
        START + timedelta(seconds=1),
        START + timedelta(seconds=2),
    )
    assert story.node == workflows.nodes.get(run.id, BUILD)


def test_a_task_that_never_ran_has_a_story_and_one_that_is_not_there_has_none(store: StateStore) -> None:
    """workflows W-13, W-96."""
    run = started(store)
    store.workflows.nodes.put(run.id, NodeRef("later"))
    story = store.workflows.lookups.get_task(run.id, NodeRef("later"))
    assert (story.attempts, story.attempt_count, story.started_at, story.waits) == ((), 0, None, ())
    for run_id, node in ((run.id, NodeRef("later", 1)), (run.id, NodeRef("never")), ("nobody", NodeRef("later"))):
        with pytest.raises(NotFound):
            store.workflows.lookups.get_task(run_id, node)


def test_a_task_tells_nothing_of_its_neighbours(store: StateStore) -> None:
    """workflows W-96: another node, another iteration, and the same node of another run."""
    workflows = store.workflows
    run, other = started(store), started(store)

    def work(run_id: str, node: NodeRef) -> tuple[str, set[str]]:
        execution = workflows.executions.start("fix:build", run_id=run_id, node=node)
        gate = workflows.approvals.create(run_id, Gate(f"g-{node.node_id}-{node.iteration}", "Go?", node=node))
        asked = workflows.human_requests.create(run_id, Question(node, "text", "Which?"))
        return execution.id, {gate.id, asked.id}

    attempt, waits = work(run.id, BUILD)
    for run_id, node in ((run.id, NodeRef("build", 0)), (run.id, NodeRef("test", 1)), (other.id, BUILD)):
        work(run_id, node)
    workflows.nodes.put(run.id, NodeRef("test", 7))
    workflows.nodes.put(other.id, NodeRef("build", 9))
    story = workflows.lookups.get_task(run.id, BUILD)
    assert ([each.id for each in story.attempts], story.attempt_count) == ([attempt], 1)
    assert ({each.id for each in story.waits}, len(story.waits)) == (waits, 2)
    assert (story.latest_iteration, story.cached) == (1, False)


def test_attempts_of_another_program_have_a_story_without_a_node(store: StateStore, raw: Raw) -> None:
    """workflows W-96."""
    run = started(store)
    attempt = raw.execution(run.id)
    raw("UPDATE executions SET node_id = 'build', iteration = 1, attempt = 1")
    story = store.workflows.lookups.get_task(run.id, BUILD)
    assert (story.node, story.latest_iteration, [each.id for each in story.attempts]) == (None, None, [attempt])


def test_resuming_begins_with_everything_that_is_open(store: StateStore) -> None:
    """workflows W-96."""
    workflows = store.workflows
    run = started(store, scratch={"a": 1})
    ended = workflows.executions.start("fix:a", run_id=run.id)
    workflows.executions.finish(ended.id, "succeeded")
    flying = workflows.executions.start("fix:b", run_id=run.id, node=BUILD)
    flying = workflows.executions.update(flying.id, checkpoint={"step": 2})
    nodes = [workflows.nodes.put(run.id, NodeRef("a", n)) for n in (0, 1)]
    loop = workflows.loops.put(run.id, "l", iteration=3)
    gate = workflows.approvals.create(run.id, Gate("g", "Go?", action={"do": 1}))
    answered = workflows.approvals.create(run.id, Gate("h", "Go?"))
    workflows.approvals.answer(answered.id, "approved", by="ana")
    asked = workflows.human_requests.create(run.id, Question(NodeRef("a"), "text", "Which?"))
    view = workflows.runs.get_resume(run.id)
    assert view.run == workflows.runs.get(run.id)
    assert [(node.node_id, node.iteration) for node in view.nodes] == [("a", 0), ("a", 1), ("build", 1)]
    assert view.nodes[1] == nodes[1]
    assert (view.loops, view.executions) == ((loop,), (flying,))
    assert ([each.id for each in view.approvals], view.approvals[0].action) == ([gate.id], {"do": 1})
    assert [each.id for each in view.human_requests] == [asked.id]
    with pytest.raises(NotFound):
        workflows.runs.get_resume("nobody")


def test_a_run_with_broken_json_is_not_resumed_by_guess(sqlite_database: Database) -> None:
    """workflows W-21: its lists and look-ups work, and other runs read. JSONB holds nothing broken."""
    store, raw = sqlite_database.open(), Raw(sqlite_database)
    run, other = started(store), started(store, workflow_name="other")
    for (name,) in raw("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'workflow_runs'"):
        raw(f"DROP TRIGGER {name}")
    raw("UPDATE workflow_runs SET context = '{broken' WHERE id = ?", run.id)
    lookups, runs = store.workflows.lookups, store.workflows.runs
    assert len(store.workflows.runs.list()) == 2
    assert (lookups.count().value, len(lookups.names()), len(lookups.list_ancestors(run.id))) == (2, 2, 1)
    with pytest.raises(CorruptData) as caught:
        runs.get_resume(run.id)
    assert (caught.value.table, caught.value.column) == ("workflow_runs", "context")
    assert runs.get_resume(other.id).run.id == other.id


def test_a_view_for_resuming_is_of_one_moment(every_backend: StateStore) -> None:
    """workflows W-96: nodes, loops and the run itself, while another writes them together."""
    run = started(every_backend, scratch={"n": 0})
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            with every_backend.transaction() as tx:
                tx.workflows.runs.merge_scratch(run.id, {"n": n})
                tx.workflows.nodes.put(run.id, NodeRef("a"), label=str(n))
                tx.workflows.loops.put(run.id, "l", iteration=n)

    def seen() -> tuple[Any, ...]:
        view = every_backend.workflows.runs.get_resume(run.id)
        parts = (view.run.scratch["n"], *(int(node.label or 0) for node in view.nodes))
        return (*parts, *(loop.iteration for loop in view.loops))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        moments, deadline = [seen()], time.monotonic() + 30
        while len(moments) < 60 or len(set(moments)) < 3:  # the writer may have to wait for its turn
            assert time.monotonic() < deadline
            moments.append(seen())
    finally:
        stop.set()
        writer.join()
    assert all(len(set(moment)) == 1 for moment in moments)
