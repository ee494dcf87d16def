"""Gates: pause a run at one, and answer it."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.databases import Side
from benchmarks.goals import goal
from benchmarks.measure import Result, compare
from benchmarks.runs import TRIGGER
from lastlight_state.ids import new_id
from lastlight_state.workflows import Gate

_LOCK = "SELECT status, claim_owner, claim_epoch, transition_seq FROM workflow_runs WHERE id = ? {lock}"
_PENDING = "SELECT id FROM workflow_approvals WHERE workflow_run_id = ? AND request_key = ? AND status = 'pending'"
_INSERT = (
    "INSERT INTO workflow_approvals (id, workflow_run_id, gate, summary, status, kind, created_at, iteration, "
    "request_key, on_reject, blocks_run) VALUES (?, ?, 'plan', 'Go ahead', 'pending', 'approve', ?, 0, ?, 'fail', "
    "{true}) RETURNING id"
)
_MOVE = (
    "UPDATE workflow_runs SET status = ?, status_reason = ?, pause_reason = ?, transition_seq = transition_seq + 1, "
    "updated_at = ? WHERE id = ? AND status = ? RETURNING id"
)
_TRANSITION = (
    "INSERT INTO run_transitions (run_id, seq, from_status, to_status, reason, source, at) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_GATE = "SELECT * FROM workflow_approvals WHERE id = ?"
_ANSWER = (
    "UPDATE workflow_approvals SET status = 'approved', responded_by = 'ana', responded_at = ?, "
    "answered_via = 'person' WHERE id = ? AND status = 'pending' RETURNING id"
)
_LEFT = "SELECT id FROM workflow_approvals WHERE workflow_run_id = ? AND status = 'pending' AND blocks_run = {true}"
_RUN = "SELECT * FROM workflow_runs WHERE id = ?"
_CALLS = 100


def results(side: Side) -> Iterator[Result]:
    """Pause runs that were just made, then answer what they wait for."""
    approvals, runs = side.store.workflows.approvals, side.store.workflows.runs
    made = [runs.create("triage", trigger=TRIGGER, phase="start").id for _ in range(24 * _CALLS)]
    ours, theirs = made[::2], made[1::2]
    waiting: list[str] = []
    paused: list[tuple[str, str]] = []
    words = {"true": "1", "lock": ""} if side.name == "sqlite" else {"true": "true", "lock": "FOR NO KEY UPDATE"}

    def begun() -> tuple[object, ...]:
        paused.append((theirs.pop(), new_id()))
        return (paused[-1][0],)

    def recorded(seq: int, before: str, after: str) -> tuple[object, ...]:
        return paused[-1][0], seq, before, after, f"run.{after}.gate", "engine", side.now()

    yield compare(
        "pause at a gate",
        side.name,
        lambda: waiting.append(approvals.pause(ours.pop(), Gate("plan", "Go ahead")).id),
        side.unit(
            (_LOCK.format(**words), begun),
            (_GATE, lambda: (paused[-1][1],)),
            (_PENDING, lambda: (paused[-1][0], "plan")),
            (_INSERT.format(**words), lambda: (paused[-1][1], paused[-1][0], side.now(), "plan")),
            (_MOVE, lambda: ("paused", "run.paused.gate", "gate", side.now(), paused[-1][0], "running")),
            (_TRANSITION, lambda: recorded(2, "running", "paused")),
        ),
        goal=goal("pause at a gate", side.name),
        calls=_CALLS,
    )
    yield compare(
        "answer a gate",
        side.name,
        lambda: approvals.answer(waiting.pop(), "approved", by="ana"),
        side.unit(
            (_LOCK.format(**words), lambda: (paused[-1][0],)),
            (_GATE, lambda: (paused[-1][1],)),
            (_ANSWER, lambda: (side.now(), paused[-1][1])),
            (_LEFT.format(**words), lambda: (paused[-1][0],)),
            (_MOVE, lambda: ("running", "run.resumed.gate", None, side.now(), paused[-1][0], "paused")),
            (_TRANSITION, lambda: recorded(3, "paused", "running")),
            (_RUN, lambda: (paused.pop()[0],)),
        ),
        goal=goal("answer a gate", side.name),
        calls=_CALLS,
    )
