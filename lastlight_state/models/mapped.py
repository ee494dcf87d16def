"""The public models, with their relationships. Writes through them are refused.

The domains declare tables and do not import each other. So relationships between their models are added here, when a
program first uses a model; a store works without them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NoReturn

from sqlalchemy import ColumnElement, event, inspect
from sqlalchemy.orm import InstrumentedAttribute, Mapper, foreign, relationship

from lastlight_state.checkpoints.models import CheckpointModel, CheckpointThreadModel
from lastlight_state.conversations.models import (
    BranchModel,
    MessageModel,
    MessageTypeModel,
    ProgressionLinkModel,
    ProgressionModel,
    SessionModel,
    SessionTransitionModel,
)
from lastlight_state.db.schema.base import Base, table_of
from lastlight_state.errors import MisuseError
from lastlight_state.journal.models import (
    RunEventModel,
    RunFrameModel,
    RunSignalModel,
    SandboxModel,
    ScoreModel,
    ToolCallModel,
)
from lastlight_state.messaging.models import MessagingMessageModel, MessagingSessionModel
from lastlight_state.outputs.models import RunInputModel
from lastlight_state.schedules.models import CronFireModel, CronOverrideModel, CronScheduleModel
from lastlight_state.states.models import StateModel
from lastlight_state.workflows.models import (
    ExecutionModel,
    HumanRequestModel,
    RunLoopModel,
    RunNodeModel,
    RunTransitionModel,
    WorkflowApprovalModel,
    WorkflowOverrideModel,
    WorkflowRunModel,
)

# Models that sessions may only read: a write raises an error with the call of the store to use instead.
#
# A row written by a session would bypass the claim of a run's holder, and leave no entry in a history. Only the events
# of these mappers are listened to. SQL statements are left to the guards of the database, because detecting them here
# would need a listener on every session of the process.

Deed = Literal["add", "change", "remove"]

#: The calls that write rows of a model, as paths in a store.
_CALLS: dict[type[Base], dict[Deed, tuple[str, ...]]] = {}


def only_read(model: type[Base], add: str, change: str | None, remove: str | None) -> None:
    """Make sessions refuse to write rows of a model.

    The other arguments are paths of the calls that write it, or None if there are none.
    """
    _CALLS[model] = {"add": _paths(add), "change": _paths(change), "remove": _paths(remove)}
    event.listen(model, "before_insert", _refusal_listener("add"))
    event.listen(model, "before_update", _refuse_changes)
    event.listen(model, "before_delete", _refusal_listener("remove"))


def calls_of(model: type[Base]) -> dict[Deed, tuple[str, ...]]:
    """Return the calls that write rows of a model."""
    return _CALLS[model]


def _refusal_listener(deed: Deed) -> Callable[[Mapper[Any], object, Base], None]:
    def refuse(mapper: Mapper[Any], _connection: object, row: Base) -> None:
        _refuse(mapper.class_, deed, repr(row))

    return refuse


def _refuse_changes(mapper: Mapper[Any], _connection: object, row: Base) -> None:
    """Raise an error for an object that differs from its row. Unchanged objects of the session are ignored."""
    state: Any = inspect(row)
    changed = [name for name in mapper.column_attrs.keys() if state.attrs[name].history.has_changes()]  # noqa: SIM118
    if changed:
        _refuse(mapper.class_, "change", f"{', '.join(changed)} of {row!r}")


def _refuse(model: type[Base], deed: Deed, what: str) -> NoReturn:
    calls = [f"store.{path}" for path in _CALLS[model][deed]]
    instead = f"use {' or '.join(calls)}" if calls else "nothing does, as others rely on it"
    raise MisuseError(f"a session does not {deed} {what}: {instead}")


def _paths(written: str | None) -> tuple[str, ...]:
    return tuple((written or "").split())


# Relationships between models of different domains: in both directions, read only, never loaded implicitly.

#: The options of each relationship: no session writes through it, and it loads only if a query says how.
_READ: dict[str, Any] = {"viewonly": True, "lazy": "raise"}


def owns(
    many: str,
    child: type[Base],
    one: str,
    key: InstrumentedAttribute[Any],
    refers: InstrumentedAttribute[Any],
    order: InstrumentedAttribute[Any] | None = None,
) -> None:
    """Add two relationships: from an owner to its sorted children, and from a child to its owner.

    ``key`` refers to the owner. The children are sorted by ``order``, then by their key.
    """
    condition = key == foreign(refers)
    ordered = [*([] if order is None else [order]), *table_of(child).primary_key]
    setattr(key.class_, many, relationship(child, primaryjoin=condition, order_by=ordered, **_READ))
    setattr(child, one, relationship(key.class_, primaryjoin=condition, remote_side=key, **_READ))


def leads_to(name: str, found: type[Base], condition: ColumnElement[bool], *, at: type[Base]) -> None:
    """Add a relationship from a model to the one row of another model that a condition finds."""
    key = table_of(found).primary_key
    setattr(at, name, relationship(found, primaryjoin=condition, foreign_keys=[*key], uselist=False, **_READ))


def ordered_by(many: str, holder: Any, message: Any, link: Any) -> None:
    """Add a relationship from a session or branch to its messages, in the order of the links to them."""
    setattr(
        holder,
        many,
        relationship(
            message,
            secondary=table_of(link),
            primaryjoin=holder.progression_id == foreign(link.progression_id),
            secondaryjoin=message.id == foreign(link.message_id),
            order_by=link.ord,
            **_READ,
        ),
    )


_run = WorkflowRunModel.id

owns("executions", ExecutionModel, "run", _run, ExecutionModel.workflow_run_id, ExecutionModel.started_at)
owns("approvals", WorkflowApprovalModel, "run", _run, WorkflowApprovalModel.workflow_run_id)
owns("human_requests", HumanRequestModel, "run", _run, HumanRequestModel.run_id, HumanRequestModel.requested_at)
owns("transitions", RunTransitionModel, "run", _run, RunTransitionModel.run_id)
owns("nodes", RunNodeModel, "run", _run, RunNodeModel.run_id)
owns("loops", RunLoopModel, "run", _run, RunLoopModel.run_id)
owns("children", WorkflowRunModel, "parent", _run, WorkflowRunModel.parent_run_id, WorkflowRunModel.started_at)
owns("inputs", RunInputModel, "run", _run, RunInputModel.run_id)
owns("events", RunEventModel, "run", _run, RunEventModel.run_id)
owns("signals", RunSignalModel, "run", _run, RunSignalModel.run_id)
owns("frames", RunFrameModel, "run", _run, RunFrameModel.run_id)
owns("tool_calls", ToolCallModel, "run", _run, ToolCallModel.run_id)
owns("sandboxes", SandboxModel, "run", _run, SandboxModel.run_id)
owns("scores", ScoreModel, "run", _run, ScoreModel.run_id, ScoreModel.scored_at)
owns("sessions", SessionModel, "run", _run, SessionModel.workflow_run_id, SessionModel.created_at)
owns("tool_calls", ToolCallModel, "execution", ExecutionModel.id, ToolCallModel.execution_id)

owns("messages", MessagingMessageModel, "session", MessagingSessionModel.id, MessagingMessageModel.session_id)

owns("fires", CronFireModel, "cron", CronScheduleModel.name, CronFireModel.cron_name, CronFireModel.started_at)
leads_to("override", CronOverrideModel, CronScheduleModel.name == CronOverrideModel.name, at=CronScheduleModel)
leads_to("cron", CronScheduleModel, CronScheduleModel.name == CronOverrideModel.name, at=CronOverrideModel)

owns("checkpoints", CheckpointModel, "thread", CheckpointThreadModel.id, CheckpointModel.thread_id, CheckpointModel.seq)

owns("branches", BranchModel, "session", SessionModel.id, BranchModel.session_id, BranchModel.created_at)
owns("transitions", SessionTransitionModel, "session", SessionModel.id, SessionTransitionModel.session_id)
owns("forks", BranchModel, "parent", BranchModel.id, BranchModel.parent_branch_id, BranchModel.created_at)
ordered_by("messages", SessionModel, MessageModel, ProgressionLinkModel)
ordered_by("messages", BranchModel, MessageModel, ProgressionLinkModel)
leads_to("type", MessageTypeModel, MessageModel.lion_class == MessageTypeModel.type_id, at=MessageModel)

_prune = "maintenance.prune.run"

only_read(
    WorkflowRunModel,
    add="workflows.runs.create",
    change="workflows.runs.append_phase workflows.runs.merge_scratch workflows.runs.finish workflows.runs.cancel",
    remove=_prune,
)
only_read(
    ExecutionModel,
    add="workflows.executions.start",
    change="workflows.executions.update workflows.executions.finish",
    remove=_prune,
)
only_read(
    WorkflowApprovalModel,
    add="workflows.approvals.pause workflows.approvals.create",
    change="workflows.approvals.answer workflows.approvals.cancel",
    remove=_prune,
)
only_read(
    HumanRequestModel,
    add="workflows.human_requests.pause workflows.human_requests.create",
    change="workflows.human_requests.answer workflows.human_requests.cancel",
    remove=_prune,
)
only_read(WorkflowOverrideModel, "workflows.overrides.put", "workflows.overrides.put", "workflows.overrides.clear")
only_read(RunTransitionModel, "workflows.runs.finish workflows.runs.cancel", None, _prune)
only_read(RunNodeModel, "workflows.nodes.put", "workflows.nodes.put workflows.nodes.update", _prune)
only_read(RunLoopModel, "workflows.loops.put", "workflows.loops.advance workflows.loops.finish", _prune)

only_read(RunInputModel, "outputs.inputs.ensure outputs.inputs.override", None, _prune)
only_read(RunEventModel, "journal.events.append", None, _prune)
only_read(RunSignalModel, "journal.signals.send", "journal.signals.try_take", _prune)
only_read(RunFrameModel, "journal.frames.append", None, _prune)
only_read(ToolCallModel, "journal.tool_calls.create journal.tool_calls.record", "journal.tool_calls.finish", _prune)
only_read(SandboxModel, "journal.sandboxes.put", "journal.sandboxes.put", _prune)
only_read(ScoreModel, "journal.scores.record", "journal.scores.record", _prune)

only_read(
    MessagingSessionModel,
    add="messaging.sessions.resume messaging.sessions.create",
    change="messaging.sessions.update messaging.sessions.close",
    remove=_prune,
)
only_read(MessagingMessageModel, "messaging.messages.append", None, _prune)

only_read(CronScheduleModel, "schedules.crons.put", "schedules.crons.put", "schedules.crons.retire")
only_read(CronOverrideModel, "schedules.overrides.put", "schedules.overrides.put", "schedules.overrides.clear")
only_read(CronFireModel, "schedules.fires.create", "schedules.fires.finish", _prune)

only_read(CheckpointThreadModel, "checkpoints.put", "checkpoints.put", "checkpoints.delete")
only_read(CheckpointModel, "checkpoints.put", None, "checkpoints.keep_latest checkpoints.delete_runs")
only_read(StateModel, "states.put states.merge", "states.put states.merge", "states.remove states.clear")

only_read(
    SessionModel,
    add="conversations.sessions.create",
    change="conversations.sessions.update conversations.lifecycle.transition",
    remove=_prune,
)
only_read(
    BranchModel,
    add="conversations.branches.create conversations.lineage.fork",
    change="conversations.branches.update conversations.lifecycle.transition",
    remove=_prune,
)
only_read(MessageModel, "conversations.messages.create", "conversations.messages.put", _prune)
only_read(MessageTypeModel, "conversations.message_types.resolve", None, None)
only_read(ProgressionModel, "conversations.progressions.create", "conversations.progressions.append", _prune)
only_read(
    ProgressionLinkModel,
    add="conversations.progressions.append conversations.branches.append",
    change="conversations.progressions.replace",
    remove="conversations.progressions.replace",
)
only_read(SessionTransitionModel, "conversations.lifecycle.transition", None, None)
