# What type checkers see of the public models: those of the domains, with their relationships.

from sqlalchemy.orm import Mapped

from lastlight_state.checkpoints import models as _checkpoints
from lastlight_state.conversations import models as _conversations
from lastlight_state.journal import models as _journal
from lastlight_state.messaging import models as _messaging
from lastlight_state.outputs import models as _outputs
from lastlight_state.schedules import models as _schedules
from lastlight_state.states import models as _states
from lastlight_state.workflows import models as _workflows

class WorkflowRunModel(_workflows.WorkflowRunModel):
    approvals: Mapped[list[WorkflowApprovalModel]]
    children: Mapped[list[WorkflowRunModel]]
    events: Mapped[list[RunEventModel]]
    executions: Mapped[list[ExecutionModel]]
    frames: Mapped[list[RunFrameModel]]
    human_requests: Mapped[list[HumanRequestModel]]
    inputs: Mapped[list[RunInputModel]]
    loops: Mapped[list[RunLoopModel]]
    nodes: Mapped[list[RunNodeModel]]
    parent: Mapped[WorkflowRunModel | None]
    sandboxes: Mapped[list[SandboxModel]]
    scores: Mapped[list[ScoreModel]]
    sessions: Mapped[list[SessionModel]]
    signals: Mapped[list[RunSignalModel]]
    tool_calls: Mapped[list[ToolCallModel]]
    transitions: Mapped[list[RunTransitionModel]]

class ExecutionModel(_workflows.ExecutionModel):
    run: Mapped[WorkflowRunModel | None]
    tool_calls: Mapped[list[ToolCallModel]]

class WorkflowApprovalModel(_workflows.WorkflowApprovalModel):
    run: Mapped[WorkflowRunModel]

class HumanRequestModel(_workflows.HumanRequestModel):
    run: Mapped[WorkflowRunModel]

class RunTransitionModel(_workflows.RunTransitionModel):
    run: Mapped[WorkflowRunModel]

class RunNodeModel(_workflows.RunNodeModel):
    run: Mapped[WorkflowRunModel]

class RunLoopModel(_workflows.RunLoopModel):
    run: Mapped[WorkflowRunModel]

class RunInputModel(_outputs.RunInputModel):
    run: Mapped[WorkflowRunModel]

class RunEventModel(_journal.RunEventModel):
    run: Mapped[WorkflowRunModel]

class RunSignalModel(_journal.RunSignalModel):
    run: Mapped[WorkflowRunModel]

class RunFrameModel(_journal.RunFrameModel):
    run: Mapped[WorkflowRunModel]

class SandboxModel(_journal.SandboxModel):
    run: Mapped[WorkflowRunModel]

class ScoreModel(_journal.ScoreModel):
    run: Mapped[WorkflowRunModel]

class ToolCallModel(_journal.ToolCallModel):
    execution: Mapped[ExecutionModel | None]
    run: Mapped[WorkflowRunModel]

class MessagingSessionModel(_messaging.MessagingSessionModel):
    messages: Mapped[list[MessagingMessageModel]]

class MessagingMessageModel(_messaging.MessagingMessageModel):
    session: Mapped[MessagingSessionModel]

class CronScheduleModel(_schedules.CronScheduleModel):
    fires: Mapped[list[CronFireModel]]
    override: Mapped[CronOverrideModel | None]

class CronOverrideModel(_schedules.CronOverrideModel):
    cron: Mapped[CronScheduleModel | None]

class CronFireModel(_schedules.CronFireModel):
    cron: Mapped[CronScheduleModel | None]

class CheckpointThreadModel(_checkpoints.CheckpointThreadModel):
    checkpoints: Mapped[list[CheckpointModel]]

class CheckpointModel(_checkpoints.CheckpointModel):
    thread: Mapped[CheckpointThreadModel]

class SessionModel(_conversations.SessionModel):
    branches: Mapped[list[BranchModel]]
    messages: Mapped[list[MessageModel]]
    run: Mapped[WorkflowRunModel | None]
    transitions: Mapped[list[SessionTransitionModel]]

class BranchModel(_conversations.BranchModel):
    forks: Mapped[list[BranchModel]]
    messages: Mapped[list[MessageModel]]
    parent: Mapped[BranchModel | None]
    session: Mapped[SessionModel]

class MessageModel(_conversations.MessageModel):
    type: Mapped[MessageTypeModel]

class SessionTransitionModel(_conversations.SessionTransitionModel):
    session: Mapped[SessionModel | None]

class WorkflowOverrideModel(_workflows.WorkflowOverrideModel): ...
class MessageTypeModel(_conversations.MessageTypeModel): ...
class ProgressionModel(_conversations.ProgressionModel): ...
class ProgressionLinkModel(_conversations.ProgressionLinkModel): ...
class StateModel(_states.StateModel): ...

__all__ = [
    "BranchModel",
    "CheckpointModel",
    "CheckpointThreadModel",
    "CronFireModel",
    "CronOverrideModel",
    "CronScheduleModel",
    "ExecutionModel",
    "HumanRequestModel",
    "MessageModel",
    "MessageTypeModel",
    "MessagingMessageModel",
    "MessagingSessionModel",
    "ProgressionLinkModel",
    "ProgressionModel",
    "RunEventModel",
    "RunFrameModel",
    "RunInputModel",
    "RunLoopModel",
    "RunNodeModel",
    "RunSignalModel",
    "RunTransitionModel",
    "SandboxModel",
    "ScoreModel",
    "SessionModel",
    "SessionTransitionModel",
    "StateModel",
    "ToolCallModel",
    "WorkflowApprovalModel",
    "WorkflowOverrideModel",
    "WorkflowRunModel",
]
