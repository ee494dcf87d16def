"""The records of `lookups`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from lastlight_state.db.rows.records import Record
from lastlight_state.workflows.executions.records import ExecutionSummary
from lastlight_state.workflows.records import Node
from lastlight_state.workflows.repos import split_legacy


class Count(Record):
    """A number of runs. If ``exact`` is false, counting stopped at ``value`` and there are more runs."""

    value: int
    exact: bool


class RunAncestor(Record):
    """A run in a chain of parents: the first run has depth 0, its parent depth 1."""

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
    def of(cls, values: Any) -> Self:
        values["owner"], values["repo"] = split_legacy(values["owner"], values["repo"])
        return super().of(values)


class RunTransition(Record):
    """One change of a run's status, or a note with equal ``from_status`` and ``to_status``. Numbered from 1."""

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
    """A repository: the number of its runs, and the start of the last one. ``owner`` is None if it is unknown."""

    owner: str | None
    repo: str
    runs: int
    last_run_at: datetime

    @property
    def qualified(self) -> str:
        """Return ``owner/repo``, or only the name if the owner is unknown."""
        return self.repo if self.owner is None else f"{self.owner}/{self.repo}"


class RunActivity(Record):
    """The number of runs of one workflow with one status."""

    workflow_name: str
    status: str
    runs: int


class TaskWait(Record):
    """A question of a node. ``kind`` is ``approval`` or ``human_request``; ``answered_by`` is the person who ended it.

    An overdue question reads as expired.
    """

    kind: str
    id: str
    status: str
    asked_at: datetime
    expires_at: datetime | None
    answered_at: datetime | None
    answered_by: str | None


class TaskStory(Record):
    """The history of a node in one iteration.

    ``attempts`` are its executions in order (the last 500), ``waits`` its questions (the last 100). ``started_at`` is
    the start of the first attempt shown, ``finished_at`` the end of the last attempt, None while it runs. ``cached`` is
    true if the last attempt reused a result. ``node`` is None if the node has no row in this iteration;
    ``latest_iteration`` is the highest iteration that has a row.
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
