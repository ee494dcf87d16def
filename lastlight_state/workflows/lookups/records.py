"""What look-ups give, the story of a task among it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from lastlight_state.db.records import Record
from lastlight_state.workflows.executions.records import ExecutionSummary
from lastlight_state.workflows.nodes.records import Node
from lastlight_state.workflows.repos import split_legacy


class Count(Record):
    """How many there are. Not ``exact``: at least so many, and nobody counted on."""

    value: int
    exact: bool


class RunAncestor(Record):
    """A run in a chain of parents: itself at depth 0, its parent at 1."""

    depth: int
    id: str
    workflow_name: str
    status: str
    trigger_id: str
    owner: str | None
    repo: str | None
    current_phase: str
    started_at: datetime
    finished_at: datetime | None
    restart_count: int
    parent_run_id: str | None

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        values["owner"], values["repo"] = split_legacy(values["owner"], values["repo"])
        return super().of(values)


class RunTransition(Record):
    """One change of a run's status, or a note (``from_status`` and ``to_status`` are equal), numbered from 1."""

    run_id: str
    seq: int
    from_status: str | None
    to_status: str
    reason: str
    detail: str | None
    actor: str | None
    source: str
    claim_epoch: int | None
    at: datetime


class RepoRuns(Record):
    """A repository: how many runs it had, and when the last one began. ``owner`` is None where no row tells it."""

    owner: str | None
    repo: str
    runs: int
    last_run_at: datetime

    @property
    def qualified(self) -> str:
        """``owner/repo``, or the bare name."""
        return self.repo if self.owner is None else f"{self.owner}/{self.repo}"


class RunActivity(Record):
    """How many runs of one workflow have one status."""

    workflow_name: str
    status: str
    runs: int


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
