"""Workflow runs and what belongs to them: executions, claims, nodes, gates, requests, waits and kill switches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lastlight_state.db.repository import Context, Face
from lastlight_state.db.runs import TERMINAL_TOPIC
from lastlight_state.lazy import Part, public
from lastlight_state.workflows.shared.presenting import with_claim

if TYPE_CHECKING:
    from lastlight_state.workflows.approvals import Approvals
    from lastlight_state.workflows.approvals.records import (
        Answered as Answered,
        Approval as Approval,
        ApprovalSummary as ApprovalSummary,
        PendingApproval as PendingApproval,
    )
    from lastlight_state.workflows.arguments import (
        Claim as Claim,
        ExecutionOptions as ExecutionOptions,
        Failure as Failure,
        Gate as Gate,
        LoopStep as LoopStep,
        NodePut as NodePut,
        NodeRef as NodeRef,
        PhaseEntry as PhaseEntry,
        Provenance as Provenance,
        Question as Question,
        RunFilter as RunFilter,
        RunOptions as RunOptions,
        Trigger as Trigger,
        Usage as Usage,
        Wait as Wait,
    )
    from lastlight_state.workflows.claims import Claims
    from lastlight_state.workflows.claims.checks import (
        ClaimableRun as ClaimableRun,
        ClaimHolder as ClaimHolder,
    )
    from lastlight_state.workflows.claims.driving import Driven as Driven, DrivenRun as DrivenRun
    from lastlight_state.workflows.executions import Executions
    from lastlight_state.workflows.executions.records import (
        Execution as Execution,
        ExecutionSummary as ExecutionSummary,
    )
    from lastlight_state.workflows.executions.running import RunningExecution as RunningExecution
    from lastlight_state.workflows.health import Health
    from lastlight_state.workflows.health.state import (
        Blocked as Blocked,
        RunState as RunState,
        UnhealthyRun as UnhealthyRun,
    )
    from lastlight_state.workflows.human_requests import HumanRequests
    from lastlight_state.workflows.human_requests.records import (
        AnsweredRequest as AnsweredRequest,
        HumanRequest as HumanRequest,
        HumanRequestSummary as HumanRequestSummary,
        PendingRequest as PendingRequest,
    )
    from lastlight_state.workflows.lookups import Lookups
    from lastlight_state.workflows.lookups.records import (
        Count as Count,
        RepoRuns as RepoRuns,
        RunActivity as RunActivity,
        RunAncestor as RunAncestor,
        RunTransition as RunTransition,
        TaskStory as TaskStory,
        TaskWait as TaskWait,
    )
    from lastlight_state.workflows.loops import Loops
    from lastlight_state.workflows.nodes import Nodes
    from lastlight_state.workflows.overrides import Overrides
    from lastlight_state.workflows.queue import Queue
    from lastlight_state.workflows.records import (
        CompletedPhase as CompletedPhase,
        EnsuredRun as EnsuredRun,
        Loop as Loop,
        Node as Node,
        RunProgress as RunProgress,
        RunSummary as RunSummary,
        Totals as Totals,
        WorkflowOverride as WorkflowOverride,
        WorkflowRun as WorkflowRun,
    )
    from lastlight_state.workflows.runs import Runs
    from lastlight_state.workflows.runs.resume import ResumeView as ResumeView
    from lastlight_state.workflows.usage import Rollups
    from lastlight_state.workflows.usage.records import (
        ThreadUsage as ThreadUsage,
        UsageBucket as UsageBucket,
        UsageGroup as UsageGroup,
        UsageStats as UsageStats,
        UsageTotals as UsageTotals,
    )
    from lastlight_state.workflows.waits import Waits
    from lastlight_state.workflows.workers import Workers
    from lastlight_state.workflows.workers.records import (
        WaitingWorkflow as WaitingWorkflow,
        WorkerStatus as WorkerStatus,
    )

public(
    globals(),
    {
        "approvals.records": "Answered Approval ApprovalSummary PendingApproval",
        "arguments": "Claim ExecutionOptions Failure Gate LoopStep NodePut NodeRef PhaseEntry Provenance Question "
        "RunFilter RunOptions Trigger Usage Wait",
        "claims.driving": "Driven DrivenRun",
        "claims.checks": "ClaimHolder ClaimableRun",
        "executions.records": "Execution ExecutionSummary",
        "executions.running": "RunningExecution",
        "health.state": "Blocked RunState UnhealthyRun",
        "human_requests.records": "AnsweredRequest HumanRequest HumanRequestSummary PendingRequest",
        "lookups.records": "Count RepoRuns RunActivity RunAncestor RunTransition TaskStory TaskWait",
        "records": "Node CompletedPhase EnsuredRun Loop RunProgress RunSummary Totals WorkflowOverride WorkflowRun",
        "runs.resume": "ResumeView",
        "usage.records": "ThreadUsage UsageBucket UsageGroup UsageStats UsageTotals",
        "workers.records": "WaitingWorkflow WorkerStatus",
    },
    "Workflows",
)


class Workflows(Face):
    """``store.workflows``: the repositories of this domain.

    If it was created with a claim, its repositories pass the claim to every engine write.
    """

    def __init__(self, context: Context, claim: Claim | None = None) -> None:
        super().__init__(context)
        self._claim = claim

    def _make_part(self, kind: type[Any], name: str) -> Any:
        return self._bind_claim(super()._make_part(kind, name))

    def _bind_claim(self, made: Any) -> Any:
        return made if self._claim is None else with_claim(made, self._claim)

    #: Workflow runs.
    runs: Part[Runs] = Part("lastlight_state.workflows.runs.Runs")
    #: Phase executions, chat turns and node attempts.
    executions: Part[Executions] = Part("lastlight_state.workflows.executions.Executions")
    #: Claims: which owner drives which run.
    claims: Part[Claims[Workflows]] = Part(
        "lastlight_state.workflows.claims.Claims",
        lambda face, kind: kind(face._context, partial(Workflows, face._context), partial(_expire_due, face._context)),
    )
    #: States of the nodes of runs' graphs.
    nodes: Part[Nodes] = Part("lastlight_state.workflows.nodes.Nodes")
    #: Loops of runs: their iterations, and the text that one iteration hands to the next.
    loops: Part[Loops] = Part("lastlight_state.workflows.loops.Loops")
    #: Kill switches of workflows.
    overrides: Part[Overrides] = Part("lastlight_state.workflows.overrides.Overrides")
    #: Gates: questions that runs wait for.
    approvals: Part[Approvals] = Part("lastlight_state.workflows.approvals.Approvals")
    #: Requests to people: forms, choices, confirmations, free text.
    human_requests: Part[HumanRequests] = Part("lastlight_state.workflows.human_requests.HumanRequests")
    #: The queue: runs that wait to be admitted.
    queue: Part[Queue] = Part(
        "lastlight_state.workflows.queue.Queue",
        lambda face, kind: face._bind_claim(kind(face._context, partial(_expire_due, face._context))),
    )
    #: Pauses until a time, for a signal, or by an operator.
    waits: Part[Waits] = Part("lastlight_state.workflows.waits.Waits")
    #: Queries about runs: find, count, ancestors, transitions, tasks and errors.
    lookups: Part[Lookups] = Part("lastlight_state.workflows.lookups.Lookups")
    #: The state of runs now: who drives them and what blocks them.
    health: Part[Health] = Part("lastlight_state.workflows.health.Health")
    #: Workers that reported themselves, and the workflows whose runs wait for a worker.
    workers: Part[Workers] = Part("lastlight_state.workflows.workers.Workers")
    #: Sums of the tokens and costs of executions.
    usage: Part[Rollups] = Part("lastlight_state.workflows.usage.Rollups")

    def on_terminal(self, callback: Callable[[WorkflowRun], object]) -> Callable[[], None]:
        """Subscribe ``callback(run)``: it is called once each time this store ends a run, after the commit.

        An error of one callback does not stop the others; it is logged and counted. Returns a function that
        unsubscribes.
        """
        return self._context.listeners.subscribe(TERMINAL_TOPIC, callback)


def _expire_due(context: Context, names: Sequence[str] | None) -> tuple[str, ...]:
    """Expire overdue gates and requests of these workflows, or of all workflows if ``names`` is None.

    Return their ids.
    """
    flows = Workflows(context)
    return flows.approvals.expire_due(workflow_names=names) + flows.human_requests.expire_due(workflow_names=names)
