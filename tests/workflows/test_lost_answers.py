"""Calls that find, when they are repeated, what they have written already: a lost answer is no error. (Postgres)"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from support.answers import dropped_answers
from support.workflows.asking import asked
from support.workflows.steps import PLAN, paused, started

from lastlight_state import StateStore
from lastlight_state.backends.retry import Retry
from lastlight_state.testing import Database
from lastlight_state.workflows import Claim, Failure, NodePut, NodeRef, Trigger

NODE = NodeRef("build")
COMMIT = "COMMIT\0"


@dataclass(frozen=True)
class Lost:
    """A call, and the word in the statement whose answer is lost; ``given`` makes what the call works on.

    ``later``: how much time passes before the call.
    """

    given: Callable[[Any], Any]
    call: Callable[[Any, Any], Any]
    word: str = COMMIT
    later: timedelta = timedelta(0)


def _run(store: Any) -> str:
    return started(store).id


def _held(store: Any) -> Claim:
    claim: Claim = store.workflows.claims.take(_run(store), owner="a")
    return claim


def _execution(store: Any) -> tuple[str, str]:
    run_id = _run(store)
    return store.workflows.executions.start("deploy:plan", run_id=run_id, node=NODE).id, run_id


def _approved(store: Any) -> tuple[str, str]:
    gate = paused(store)
    store.workflows.approvals.answer(gate.id, "approved", by="ana")
    return gate.id, store.workflows.executions.start("deploy:plan", run_id=gate.run_id).id


def _switched(store: Any) -> str:
    store.workflows.overrides.put("deploy", enabled=False)
    return "deploy"


CALLS: dict[str, Lost] = {
    "runs.ensure": Lost(lambda _: "k", lambda w, k: w.runs.ensure(k, "review", trigger=Trigger("t-1"), phase="plan")),
    "claims.take": Lost(_run, lambda w, r: w.claims.take(r, owner="a"), "UPDATE workflow_runs"),
    "claims.take from another": Lost(_held, lambda w, c: w.claims.take(c.run_id, owner="b"), later=timedelta(hours=1)),
    "claims.heartbeat": Lost(_held, lambda w, c: w.claims.heartbeat(c), "UPDATE workflow_runs"),
    "claims.heartbeat_many": Lost(_held, lambda w, c: w.claims.heartbeat_many([c]), "UPDATE workflow_runs"),
    "executions.update": Lost(_execution, lambda w, e: w.executions.update(e[0], checkpoint=[1]), "UPDATE executions"),
    "executions.finish": Lost(_execution, lambda w, e: w.executions.finish(e[0], "succeeded"), "UPDATE executions"),
    "executions.finish of a node": Lost(
        _execution, lambda w, e: w.executions.finish(e[0], "failed", failure=Failure("x"), node_state="failed")
    ),
    "executions.finish_phase": Lost(_execution, lambda w, e: w.executions.finish_phase(e[0])),
    "executions.save_output": Lost(
        _execution, lambda w, e: w.executions.save_output(e[0], "text"), "UPDATE executions"
    ),
    "loops.put": Lost(_run, lambda w, r: w.loops.put(r, "fix", iteration=3), "INSERT INTO run_loops"),
    "loops.finish": Lost(_run, lambda w, r: w.loops.finish(r, "fix"), "INSERT INTO run_loops"),
    "loops.carry": Lost(_execution, lambda w, e: w.loops.carry(e[1], "fix", execution_id=e[0], text="text")),
    "nodes.put_many": Lost(_run, lambda w, r: w.nodes.put_many(r, [NodePut(NODE)]), "INSERT INTO run_nodes"),
    "approvals.pause": Lost(_run, lambda w, r: w.approvals.pause(r, PLAN)),
    "approvals.answer": Lost(lambda s: paused(s).id, lambda w, g: w.approvals.answer(g, "approved", by="ana")),
    "approvals.consume": Lost(_approved, lambda w, g: w.approvals.consume(g[0], action=PLAN.action, execution_id=g[1])),
    "approvals.cancel": Lost(lambda s: paused(s).id, lambda w, g: w.approvals.cancel(g, by="ana", reason="enough")),
    "human_requests.answer": Lost(lambda s: asked(s).id, lambda w, q: w.human_requests.answer(q, "ana")),
    "overrides.put": Lost(lambda _: "deploy", lambda w, n: w.overrides.put(n, enabled=False), "INSERT INTO"),
    "overrides.clear": Lost(_switched, lambda w, n: w.overrides.clear(n), "DELETE FROM"),
}


@pytest.mark.parametrize("lost", CALLS.values(), ids=list(CALLS))
def test_a_call_that_finds_its_own_work_is_repeated(shared_postgres: Database, lost: Lost) -> None:
    """backends B-51."""
    given = lost.given(shared_postgres.open())
    shared_postgres.clock.advance(lost.later)
    with dropped_answers(shared_postgres.url) as (url, drop), StateStore.open(url, clock=shared_postgres.clock) as far:
        scope: Any = far._scope
        scope.retry = Retry(far.metrics, sleep=lambda _: None)
        drop(lost.word)
        lost.call(far.workflows, given)
        assert far.metrics.retries == 1
