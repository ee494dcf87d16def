"""The calls of workflows that look and then write: what each works on, and who would like to come in between."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from support.rivals import Look
from support.workflows.asking import WHO, asked
from support.workflows.steps import paused, started

from lastlight_state.workflows import Failure, Gate, NodeRef, PhaseEntry, Trigger

NODE = NodeRef("build")
NEXT = Gate("next", "Go on?")
CANCEL = {"by": "ben", "reason": "enough"}
OVERDUE = timedelta(minutes=1)
ABANDONED = timedelta(seconds=31)


def _run(store: Any) -> str:
    return started(store).id


def _ended(store: Any) -> str:
    run_id = _run(store)
    store.workflows.runs.finish(run_id, "failed", failure=Failure("broke"))
    return run_id


def _queued(store: Any) -> str:
    return started(store, status="queued").id


def _held(store: Any) -> Any:
    return store.workflows.claims.take(_run(store), owner="a")


def _last_claim(store: Any) -> Any:
    return store.workflows.claims.take(started(store, max_restarts=0).id, owner="a")


def _gate(store: Any) -> str:
    return paused(store).id


def _gate_of_running(store: Any) -> tuple[str, str]:
    run_id = _run(store)
    return run_id, store.workflows.approvals.create(run_id, NEXT).id


def _overdue_gate(store: Any) -> str:
    return paused(store, Gate("late", "Go on?", expires_at=store._context.clock.now() + OVERDUE)).id


def _approved(store: Any) -> tuple[str, str, str]:
    gate = paused(store)
    store.workflows.approvals.answer(gate.id, "approved", by="ana")
    first, second = (store.workflows.executions.start("deploy:plan", run_id=gate.run_id).id for _ in range(2))
    return gate.id, first, second


def _answered_request(store: Any) -> Any:
    request = asked(store)
    store.workflows.human_requests.answer(request.id, "ana")
    return request


def _execution(store: Any) -> tuple[str, str]:
    run_id = _run(store)
    return run_id, store.workflows.executions.start("deploy:plan", run_id=run_id, node=NODE).id


def _execution_of_held(store: Any) -> tuple[Any, str]:
    claim = _held(store)
    return claim, store.workflows.executions.start("deploy:plan", run_id=claim.run_id, claim=claim).id


def _node(store: Any) -> str:
    run_id = _run(store)
    store.workflows.nodes.put(run_id, NODE)
    return run_id


def _cancel(other: Any, run_id: Any) -> None:
    other.workflows.runs.cancel(run_id, **CANCEL)


def _merge(other: Any, run_id: Any) -> None:
    other.workflows.runs.merge_scratch(run_id, {"theirs": 1})


def _confirmed(store: Any, claim: Any) -> None:
    with store.transaction() as tx:
        tx.workflows.claims.confirm(claim)
        tx.journal.events.append(claim.run_id, "NodeStarted", {})


_ensure = {"trigger": Trigger("t-1"), "phase": "plan"}

LOOKS = {
    "Runs.append_phase": Look(
        _run, lambda s, r: s.workflows.runs.append_phase(r, PhaseEntry("build", success=True)), _cancel
    ),
    "Runs.merge_scratch": Look(_run, lambda s, r: s.workflows.runs.merge_scratch(r, {"ours": 1}), _merge),
    "Runs.finish": Look(_run, lambda s, r: s.workflows.runs.finish(r, "succeeded"), _cancel),
    "Runs.restart": Look(
        _ended,
        lambda s, r: s.workflows.runs.restart(r, by="ana", reason="again"),
        lambda o, r: o.workflows.runs.restart(r, by="ben", reason="again"),
    ),
    "Runs.allow_restarts": Look(
        _run,
        lambda s, r: s.workflows.runs.allow_restarts(r, 5, by="ana", reason="more"),
        lambda o, r: o.workflows.runs.allow_restarts(r, 7, by="ben", reason="more"),
    ),
    "Runs._cancel": Look(
        _run,
        lambda s, r: s.workflows.runs.cancel(r, by="ana", reason="enough"),
        lambda o, r: o.workflows.runs.finish(r, "succeeded"),
    ),
    "Runs._cancel of a tree": Look(
        _run,
        lambda s, r: s.workflows.runs.cancel(r, by="ana", reason="enough", scope="tree"),
        lambda o, r: o.workflows.runs.cancel(r, **CANCEL, scope="tree"),
        since=1,
    ),
    "Runs.ensure": Look(
        lambda _: "k",
        lambda s, key: s.workflows.runs.ensure(key, "review", **_ensure),
        lambda o, key: o.workflows.runs.ensure(key, "review", **_ensure),
    ),
    "Approvals.answer": Look(
        _gate,
        lambda s, g: s.workflows.approvals.answer(g, "approved", by="ana"),
        lambda o, g: o.workflows.approvals.cancel(g, **CANCEL),
    ),
    "Approvals.consume": Look(
        _approved,
        lambda s, g: s.workflows.approvals.consume(g[0], action=None, execution_id=g[1]),
        lambda o, g: o.workflows.approvals.consume(g[0], action=None, execution_id=g[2]),
    ),
    "QuestionRepository._open beside": Look(
        _run,
        lambda s, r: s.workflows.approvals.create(r, NEXT),
        lambda o, r: o.workflows.runs.finish(r, "succeeded"),
    ),
    "QuestionRepository._open and pause": Look(
        _run, lambda s, r: s.workflows.human_requests.pause(r, WHO), lambda o, r: o.workflows.approvals.pause(r, NEXT)
    ),
    "QuestionRepository._cancel": Look(
        _gate,
        lambda s, g: s.workflows.approvals.cancel(g, by="ana", reason="enough"),
        lambda o, g: o.workflows.approvals.answer(g, "approved", by="ben"),
    ),
    "QuestionRepository._expire": Look(
        _overdue_gate,
        lambda s, _: s.workflows.approvals.expire_due(),
        lambda o, g: o.workflows.approvals.cancel(g, **CANCEL),
        since=3,
        later=OVERDUE * 2,
    ),
    "HumanRequests.answer": Look(
        lambda s: asked(s).id,
        lambda s, q: s.workflows.human_requests.answer(q, "ana"),
        lambda o, q: o.workflows.human_requests.cancel(q, **CANCEL),
        since=3,
    ),
    "HumanRequests.reopen": Look(
        _answered_request,
        lambda s, q: s.workflows.human_requests.reopen(q.id, reason="not clear"),
        lambda o, q: _cancel(o, q.run_id),
    ),
    "Claims.take": Look(
        _held,
        lambda s, c: s.workflows.claims.take(c.run_id, owner="b"),
        lambda o, c: o.workflows.claims.heartbeat(c),
        since=5,  # the lease is looked at and locked by the statement that takes the run
        later=ABANDONED,
    ),
    "Claims.take_next": Look(
        _held,
        lambda s, _: s.workflows.claims.take_next(owner="b"),
        lambda o, c: o.workflows.claims.heartbeat(c),
        since=5,
        later=ABANDONED,
    ),
    "Claims.confirm": Look(_held, _confirmed, lambda o, c: o.workflows.claims.transfer(c, owner="b")),
    "Claims.release": Look(
        _held,
        lambda s, c: s.workflows.claims.release(c),
        lambda o, c: o.workflows.claims.transfer(c, owner="b"),
    ),
    "Claims._give_up": Look(
        _last_claim,
        lambda s, _: s.workflows.claims.give_up(),
        lambda o, c: o.workflows.claims.heartbeat(c),
        since=5,
        later=ABANDONED,
    ),
    "Executions.finish": Look(
        _execution,
        lambda s, e: s.workflows.executions.finish(e[1], "succeeded", node_state="finished"),
        lambda o, e: o.workflows.nodes.update(e[0], NODE, state="failed", expected="running"),
    ),
    "Executions.finish_phase": Look(
        _execution,
        lambda s, e: s.workflows.executions.finish_phase(e[1]),
        lambda o, e: _merge(o, e[0]),
    ),
    "Executions.interrupt": Look(
        _execution,
        lambda s, e: s.workflows.executions.interrupt(e[0], reason="a new holder"),
        lambda o, e: o.workflows.executions.finish(e[1], "succeeded"),
    ),
    "Executions.save_output": Look(
        _execution,
        lambda s, e: s.workflows.executions.save_output(e[1], "text", loop="fix"),
        lambda o, e: _merge(o, e[0]),
    ),
    "Executions._insert_into_run": Look(
        _run,
        lambda s, r: s.workflows.executions.start("deploy:plan", run_id=r, node=NODE),
        lambda o, r: o.workflows.executions.start("deploy:plan", run_id=r, node=NODE),
    ),
    "Executions._change": Look(
        _execution_of_held,
        lambda s, e: s.workflows.executions.update(e[1], checkpoint=[1]),
        lambda o, e: o.workflows.claims.transfer(e[0], owner="b"),
        since=3,
    ),
    "Loops.advance": Look(_run, lambda s, r: s.workflows.loops.advance(r, "fix", expected=4), _cancel, since=3),
    "Loops.carry": Look(
        _execution,
        lambda s, e: s.workflows.loops.carry(e[0], "fix", execution_id=e[1], text="text"),
        lambda o, e: _merge(o, e[0]),
    ),
    "Nodes.update": Look(
        _node,
        lambda s, r: s.workflows.nodes.update(r, NODE, state="finished", expected="running"),
        _cancel,
        since=3,
    ),
    "Queue.admit_next": Look(
        _queued,
        lambda s, _: s.workflows.queue.admit_next(cap=1, owner="a", workflow_caps={"deploy": 1}),  # else one statement
        lambda o, _: o.workflows.queue.admit_next(cap=1, owner="b"),
        since=1,
    ),
    "Queue.admit_next of one run": Look(
        _queued,
        lambda s, _: s.workflows.queue.admit_next(cap=1, owner="a", workflow_caps={"deploy": 1}),  # else one statement
        lambda o, r: o.workflows.queue.admit(r),
        since=4,
    ),
    "Queue.requeue": Look(_run, lambda s, r: s.workflows.queue.requeue(r, reason="full"), _cancel),
    "Queue._expire": Look(
        _queued,
        lambda s, _: s.workflows.queue.expire(timedelta(hours=1), reason="too old"),
        lambda o, r: o.workflows.queue.requeue(r, reason="again"),
        since=3,
        later=timedelta(hours=2),
    ),
    "Waits.pause": Look(
        _gate_of_running,
        lambda s, g: s.workflows.waits.pause(g[0], gates=[g[1]]),
        lambda o, g: o.workflows.approvals.answer(g[1], "approved", by="ben"),
    ),
    "Waits.resume": Look(
        lambda s: s.workflows.waits.pause(_run(s)).id,
        lambda s, r: s.workflows.waits.resume(r, by="ana", reason="go"),
        _cancel,
    ),
}
