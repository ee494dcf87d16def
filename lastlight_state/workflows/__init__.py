"""What is running and what to do next: workflow runs, their executions, gates and kill switches."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from lastlight_state.db.repository import Context
from lastlight_state.workflows.approval_records import Answered, Approval, ApprovalSummary, PendingApproval
from lastlight_state.workflows.approvals import Approvals
from lastlight_state.workflows.arguments import (
    Claim,
    ExecutionOptions,
    Failure,
    Gate,
    NodePut,
    NodeRef,
    PhaseEntry,
    Provenance,
    Question,
    RunFilter,
    RunOptions,
    Trigger,
    Usage,
    Wait,
)
from lastlight_state.workflows.claim_records import ClaimableRun, ClaimHolder
from lastlight_state.workflows.claims import Claims
from lastlight_state.workflows.execution_records import Execution, ExecutionSummary
from lastlight_state.workflows.executions import Executions
from lastlight_state.workflows.health import Health
from lastlight_state.workflows.health_records import Blocked, RunState, UnhealthyRun
from lastlight_state.workflows.human_records import (
    AnsweredRequest,
    HumanRequest,
    HumanRequestSummary,
    PendingRequest,
)
from lastlight_state.workflows.human_requests import HumanRequests
from lastlight_state.workflows.lookup_records import Count, RepoRuns, RunActivity, RunAncestor, RunTransition
from lastlight_state.workflows.lookups import Lookups
from lastlight_state.workflows.loops import Loops
from lastlight_state.workflows.node_records import Loop, Node
from lastlight_state.workflows.nodes import Nodes
from lastlight_state.workflows.overrides import Overrides
from lastlight_state.workflows.queue import Queue
from lastlight_state.workflows.records import (
    EnsuredRun,
    RunProgress,
    RunSummary,
    Totals,
    WorkflowOverride,
    WorkflowRun,
)
from lastlight_state.workflows.run_story_records import ResumeView, TaskStory, TaskWait
from lastlight_state.workflows.runs import Runs
from lastlight_state.workflows.transitions import TERMINAL_TOPIC
from lastlight_state.workflows.usage import Rollups
from lastlight_state.workflows.usage_records import ThreadUsage, UsageBucket, UsageGroup, UsageStats, UsageTotals
from lastlight_state.workflows.waits import Waits

__all__ = [
    "Answered",
    "AnsweredRequest",
    "Approval",
    "ApprovalSummary",
    "Blocked",
    "Claim",
    "ClaimHolder",
    "ClaimableRun",
    "Count",
    "EnsuredRun",
    "Execution",
    "ExecutionOptions",
    "ExecutionSummary",
    "Failure",
    "Gate",
    "HumanRequest",
    "HumanRequestSummary",
    "Loop",
    "Node",
    "NodePut",
    "NodeRef",
    "PendingApproval",
    "PendingRequest",
    "PhaseEntry",
    "Provenance",
    "Question",
    "RepoRuns",
    "ResumeView",
    "RunActivity",
    "RunAncestor",
    "RunFilter",
    "RunOptions",
    "RunProgress",
    "RunState",
    "RunSummary",
    "RunTransition",
    "TaskStory",
    "TaskWait",
    "ThreadUsage",
    "Totals",
    "Trigger",
    "UnhealthyRun",
    "Usage",
    "UsageBucket",
    "UsageGroup",
    "UsageStats",
    "UsageTotals",
    "Wait",
    "WorkflowOverride",
    "WorkflowRun",
    "Workflows",
]


class Workflows:
    """``store.workflows``"""

    def __init__(self, context: Context) -> None:
        self._context = context

    @cached_property
    def runs(self) -> Runs:
        """Workflow runs."""
        return Runs(self._context)

    @cached_property
    def executions(self) -> Executions:
        """Phase executions, chat turns and node attempts."""
        return Executions(self._context)

    @cached_property
    def claims(self) -> Claims:
        """Who drives which run."""
        return Claims(self._context)

    @cached_property
    def nodes(self) -> Nodes:
        """States of the nodes of runs' graphs."""
        return Nodes(self._context)

    @cached_property
    def loops(self) -> Loops:
        """Where runs' loops stand, and what their iterations hand on."""
        return Loops(self._context)

    @cached_property
    def overrides(self) -> Overrides:
        """Kill switches of workflows."""
        return Overrides(self._context)

    @cached_property
    def approvals(self) -> Approvals:
        """Gates: questions that runs wait for."""
        return Approvals(self._context)

    @cached_property
    def human_requests(self) -> HumanRequests:
        """Requests to people: forms, choices, confirmations, free text."""
        return HumanRequests(self._context)

    @cached_property
    def queue(self) -> Queue:
        """Admission: what waits for a place to run."""
        return Queue(self._context)

    @cached_property
    def waits(self) -> Waits:
        """Pauses until a time, for a signal, or by an operator."""
        return Waits(self._context)

    @cached_property
    def lookups(self) -> Lookups:
        """Questions about runs."""
        return Lookups(self._context)

    @cached_property
    def health(self) -> Health:
        """How runs stand at this moment."""
        return Health(self._context)

    @cached_property
    def usage(self) -> Rollups:
        """What executions cost, rolled up."""
        return Rollups(self._context)

    def on_terminal(self, callback: Callable[[WorkflowRun], object]) -> Callable[[], None]:
        """Call ``callback(run)`` after the commit of each terminal transition that this store makes, once each.

        Every callback runs although another raised (logged and counted). Returns the function that unsubscribes.
        """
        return self._context.listeners.subscribe(TERMINAL_TOPIC, callback)
