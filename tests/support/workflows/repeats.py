"""The calls of workflows that find, when they are repeated, what they have written already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from support.workflows.asking import asked
from support.workflows.steps import PLAN, paused, started

from lastlight_state.workflows import Claim, Failure, NodePut, NodeRef, Trigger

NODE = NodeRef("build")
COMMIT = "COMMIT\0"


@dataclass(frozen=True)
class Repeat:
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


def _announced(store: Any) -> str:
    store.workflows.workers.announce("w-1", workflow_names=["deploy"])
    return "w-1"


def _switched(store: Any) -> str:
    store.workflows.overrides.put("deploy", enabled=False)
    return "deploy"


REPEATS: dict[str, Repeat] = {
    "runs.ensure": Repeat(lambda _: "k", lambda w, k: w.runs.ensure(k, "review", trigger=Trigger("t-1"), phase="plan")),
    "claims.take": Repeat(_run, lambda w, r: w.claims.take(r, owner="a"), "UPDATE workflow_runs"),
    "claims.take from another": Repeat(
        _held, lambda w, c: w.claims.take(c.run_id, owner="b"), later=timedelta(hours=1)
    ),
    "claims.heartbeat": Repeat(_held, lambda w, c: w.claims.heartbeat(c), "UPDATE run_leases"),
    "claims.heartbeat_many": Repeat(_held, lambda w, c: w.claims.heartbeat_many([c]), "UPDATE run_leases"),
    "executions.update": Repeat(
        _execution, lambda w, e: w.executions.update(e[0], checkpoint=[1]), "UPDATE executions"
    ),
    "executions.finish": Repeat(_execution, lambda w, e: w.executions.finish(e[0], "succeeded"), "UPDATE executions"),
    "executions.finish of a node": Repeat(
        _execution, lambda w, e: w.executions.finish(e[0], "failed", failure=Failure("x"), node_state="failed")
    ),
    "executions.finish_phase": Repeat(_execution, lambda w, e: w.executions.finish_phase(e[0])),
    "executions.save_output": Repeat(
        _execution, lambda w, e: w.executions.save_output(e[0], "text"), "UPDATE executions"
    ),
    "loops.put": Repeat(_run, lambda w, r: w.loops.put(r, "fix", iteration=3), "INSERT INTO run_loops"),
    "loops.finish": Repeat(_run, lambda w, r: w.loops.finish(r, "fix"), "INSERT INTO run_loops"),
    "loops.carry": Repeat(_execution, lambda w, e: w.loops.carry(e[1], "fix", execution_id=e[0], text="text")),
    "nodes.put_many": Repeat(_run, lambda w, r: w.nodes.put_many(r, [NodePut(NODE)]), "INSERT INTO run_nodes"),
    "approvals.pause": Repeat(_run, lambda w, r: w.approvals.pause(r, PLAN)),
    "approvals.answer": Repeat(lambda s: paused(s).id, lambda w, g: w.approvals.answer(g, "approved", by="ana")),
    "approvals.consume": Repeat(
        _approved, lambda w, g: w.approvals.consume(g[0], action=PLAN.action, execution_id=g[1])
    ),
    "approvals.cancel": Repeat(lambda s: paused(s).id, lambda w, g: w.approvals.cancel(g, by="ana", reason="enough")),
    "human_requests.answer": Repeat(lambda s: asked(s).id, lambda w, q: w.human_requests.answer(q, "ana")),
    "overrides.put": Repeat(lambda _: "deploy", lambda w, n: w.overrides.put(n, enabled=False), "INSERT INTO"),
    "workers.announce": Repeat(
        lambda _: "w-1", lambda w, n: w.workers.announce(n, workflow_names=["deploy"]), "INSERT INTO"
    ),
    "workers.remove": Repeat(_announced, lambda w, n: w.workers.remove(n), "DELETE FROM"),
    "overrides.clear": Repeat(_switched, lambda w, n: w.overrides.clear(n), "DELETE FROM"),
}
