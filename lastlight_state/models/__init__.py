"""The mapped classes of the library's tables, for queries of your own in your own SQLAlchemy sessions.

They have relationships, which are read with ``selectinload`` or ``joinedload`` and never by accident. A session that
would write one by an object raises `MisuseError` with the call that does it.
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
