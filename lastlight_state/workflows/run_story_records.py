"""A run and its nodes as a story: what a task did, and what resuming a run begins with."""

from __future__ import annotations

from datetime import datetime

from lastlight_state.db.records import Record
from lastlight_state.workflows.approval_records import Approval
from lastlight_state.workflows.execution_records import Execution, ExecutionSummary
from lastlight_state.workflows.human_records import HumanRequest
from lastlight_state.workflows.node_records import Loop, Node
from lastlight_state.workflows.records import WorkflowRun


class TaskWait(Record):
    """A question that a node asked: ``kind`` is ``approval`` or ``human_request``, ``answered_by`` who ended it."""

    kind: str
    id: str
    status: str
    asked_at: datetime
    expires_at: datetime | None
    answered_at: datetime | None
    answered_by: str | None


class TaskStory(Record):
    """A node of a run in one iteration.

    ``attempts`` are its executions in their order, the last 500 of them, and ``waits`` its questions, the last 100.
    ``started_at`` is when the first of these began, ``finished_at`` when the last ended, None while it runs.
    ``cached``: the last one reused a result. ``node`` is None where no row was put, and ``latest_iteration`` the
    highest that has a row.
    """

    run_id: str
    node_id: str
    iteration: int
    node: Node | None
    latest_iteration: int | None
    attempts: tuple[ExecutionSummary, ...]
    attempt_count: int
    cached: bool
    started_at: datetime | None
    finished_at: datetime | None
    waits: tuple[TaskWait, ...]


class ResumeView(Record):
    """A run with its nodes and loops, what is in flight with its checkpoints, and its pending questions."""

    run: WorkflowRun
    nodes: tuple[Node, ...]
    loops: tuple[Loop, ...]
    executions: tuple[Execution, ...]
    approvals: tuple[Approval, ...]
    human_requests: tuple[HumanRequest, ...]
