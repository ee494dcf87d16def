"""The mapped classes of the library's tables, for your own queries in your own SQLAlchemy sessions.

Relationships are loaded only on request, with ``selectinload`` or ``joinedload``. If a session would write a row
through an object, it raises `MisuseError`, which names the call to use instead.
"""

from __future__ import annotations

from lastlight_state.lazy import public

public(
    globals(),
    {
        "mapped": "BranchModel CheckpointModel CheckpointThreadModel CronFireModel CronOverrideModel "
        "CronScheduleModel ExecutionModel HumanRequestModel MessageModel MessageTypeModel "
        "MessagingMessageModel MessagingSessionModel ProgressionLinkModel ProgressionModel RunEventModel "
        "RunFrameModel RunInputModel RunLoopModel RunNodeModel RunSignalModel RunTransitionModel "
        "SandboxModel ScoreModel SessionModel SessionTransitionModel StateModel ToolCallModel "
        "WorkflowApprovalModel WorkflowOverrideModel WorkflowRunModel",
    },
)
