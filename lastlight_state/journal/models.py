"""Tables of the journal: what happened in runs.

Keys begin with the run's id, so that a distributed Postgres can place a run's rows together.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Index, text
from sqlalchemy.orm import Mapped, mapped_column

from lastlight_state.db.runs import run_id_column
from lastlight_state.db.schema.base import Base, table_of
from lastlight_state.db.schema.declarations import KIB, MIB, describe_table, json_column, text_column, word_column
from lastlight_state.db.schema.indexes import where
from lastlight_state.db.valid import words

# Allowed words of the journal, and limits that are not those of a column.

Order = Literal["oldest_first", "newest_first"]
ToolStatus = Literal["succeeded", "failed", "cancelled", "timed_out"]
SandboxStatus = Literal["pending", "running", "shipped", "completed", "failed", "cancelled"]
ScoreSource = Literal["live", "batch"]
ScoreHistory = Literal["current", "all"]
ScoreGroups = Literal["scorer", "scorer_and_run"]
WhenFull = Literal["wait", "refuse"]

ORDERS = words(Order)
TOOL_STATUSES = words(ToolStatus)
SANDBOX_STATUSES = words(SandboxStatus)
SCORE_SOURCES = words(ScoreSource)
SCORE_HISTORIES = words(ScoreHistory)
SCORE_GROUPS = words(ScoreGroups)
WHEN_FULL = words(WhenFull)

#: The status of a tool call that has not finished.
RUNNING = "running"
#: Final statuses of a sandbox: it keeps them.
SANDBOX_ENDS = ("completed", "failed", "cancelled")


#: The most levels of a frame's tree. Each takes two levels of JSON, of which the JSON library writes at most 254.
FRAME_DEPTH = 120
#: The most events that one call appends.
BATCH = 1000
#: The most types that one filter names.
TYPES = 100
#: The most runs that one filter of scores names.
SCORED_RUNS = 100
#: The most groups of one aggregate.
GROUPS = 500
#: Default number of events or signals in a page.
PAGE = 200

# Kinds of record, as `NotFound` and `AlreadyExists` name them.
EVENT = "run_event"
SIGNAL = "run_signal"
FRAME_KIND = "run_frame"
TOOL_CALL = "tool_call"
SANDBOX = "sandbox"
SCORE = "score"


class RunSequenceModel(Base):
    """A counter: the next number of one stream of a run, for example of its events."""

    __tablename__ = "run_sequences"
    __table_args__ = describe_table("the next number of each stream of a run's journal", pruned_as=("runs",))

    run_id: Mapped[str] = run_id_column(primary_key=True)
    stream: Mapped[str] = text_column(None, primary_key=True, personal=False)
    next_seq: Mapped[int]


class RunEventModel(Base):
    """An event of a run. ``seq`` is the total order of the run's events."""

    __tablename__ = "run_events"
    __table_args__ = describe_table(
        "what happened in runs, numbered without gaps in the order of the commits",
        pruned_as=("runs", "journal"),
        erased="with_run",
        newest=("occurred_at",),
    )

    run_id: Mapped[str] = run_id_column(primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    type: Mapped[str] = text_column(128, personal=False)
    occurred_at: Mapped[datetime]
    node_id: Mapped[str | None] = text_column(256, personal=False)
    event_id: Mapped[str | None] = text_column(256, personal=False)
    payload: Mapped[Any] = json_column(64 * KIB, personal=True, shape=dict, nullable=False)


class RunSignalModel(Base):
    """A message that was sent into a run from outside, and the consumer that took it, if any."""

    __tablename__ = "run_signals"
    __table_args__ = describe_table(
        "messages sent into runs from outside, each taken once", pruned_as=("runs", "journal"), erased="with_run"
    )

    run_id: Mapped[str] = run_id_column(primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    signal_name: Mapped[str] = text_column(256, personal=False)
    correlation_id: Mapped[str | None] = text_column(256, personal=False)
    received_at: Mapped[datetime]
    received_by: Mapped[str | None] = text_column(256, personal=True)
    signal_id: Mapped[str | None] = text_column(256, personal=False)
    consumed_at: Mapped[datetime | None]
    consumed_by: Mapped[str | None] = text_column(256, personal=False)
    payload: Mapped[Any] = json_column(64 * KIB, personal=True, nullable=False)


class RunFrameModel(Base):
    """One rendered frame of a run: a whole tree, or the change since the frame before."""

    __tablename__ = "run_frames"
    __table_args__ = describe_table(
        "rendered frames of runs, whole or as the change since the frame before",
        pruned_as=("runs", "journal"),
        erased="with_run",
    )

    run_id: Mapped[str] = run_id_column(primary_key=True)
    frame_no: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    created_at: Mapped[datetime]
    encoding: Mapped[str] = text_column(None, server_default="full", personal=False)
    content_hash: Mapped[str] = text_column(None, personal=False)
    full_bytes: Mapped[int]
    note: Mapped[str | None] = text_column(4 * KIB, personal=True)
    mounted_task_ids: Mapped[Any] = json_column(64 * KIB, personal=False, shape=list, nullable=True)
    task_index: Mapped[Any] = json_column(64 * KIB, personal=True, shape=dict, nullable=True)
    body: Mapped[str] = text_column(4 * MIB, personal=True)


class ToolCallModel(Base):
    """One invocation of a tool: the task attempt that called it, and how it ended."""

    __tablename__ = "tool_calls"
    __table_args__ = describe_table(
        "invocations of tools, with status and latency", pruned_as=("runs", "journal"), erased="with_run"
    )

    run_id: Mapped[str] = run_id_column(primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    node_id: Mapped[str | None] = text_column(256, personal=False)
    iteration: Mapped[int] = mapped_column(server_default=text("0"))
    attempt: Mapped[int] = mapped_column(server_default=text("1"))
    execution_id: Mapped[str | None] = text_column(256, personal=False)
    call_id: Mapped[str | None] = text_column(256, personal=False)
    tool_name: Mapped[str] = text_column(256, personal=False)
    status: Mapped[str] = word_column({RUNNING, *TOOL_STATUSES}, server_default="running")
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    duration_ms: Mapped[int | None]
    output_ref: Mapped[str | None] = text_column(1024, personal=False)
    input: Mapped[Any] = json_column(256 * KIB, personal=True, nullable=True)
    output: Mapped[Any] = json_column(256 * KIB, personal=True, nullable=True)
    error: Mapped[Any] = json_column(256 * KIB, personal=True, nullable=True)


class SandboxModel(Base):
    """A sandbox in which a part of a run works, or worked."""

    __tablename__ = "sandboxes"
    __table_args__ = describe_table(
        "sandboxes of runs, with where each of them stands", pruned_as=("runs",), erased="with_run"
    )

    run_id: Mapped[str] = run_id_column(primary_key=True)
    sandbox_id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    runtime: Mapped[str] = text_column(256, server_default="bubblewrap", personal=False)
    status: Mapped[str] = word_column(SANDBOX_STATUSES, server_default="pending")
    remote_run_id: Mapped[str | None] = text_column(256, personal=False)
    workspace_id: Mapped[str | None] = text_column(256, personal=False)
    container_id: Mapped[str | None] = text_column(256, personal=False)
    bundle_path: Mapped[str | None] = text_column(4 * KIB, personal=False)
    shipped_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    config: Mapped[Any] = json_column(64 * KIB, personal=True, shape=dict, nullable=False, server_default=text("'{}'"))


class ScoreModel(Base):
    """A scorer's score of one attempt of a task."""

    __tablename__ = "scores"
    __table_args__ = describe_table(
        "scores of task attempts; a rerun supersedes the score before", pruned_as=("runs", "journal"), erased="with_run"
    )

    id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    run_id: Mapped[str] = run_id_column()
    node_id: Mapped[str] = text_column(256, personal=False)
    iteration: Mapped[int] = mapped_column(server_default=text("0"))
    attempt: Mapped[int] = mapped_column(server_default=text("1"))
    scorer_id: Mapped[str] = text_column(256, personal=False)
    scorer_name: Mapped[str] = text_column(256, personal=False)
    source: Mapped[str] = text_column(None, personal=False)
    score: Mapped[float]
    latency_ms: Mapped[float | None]
    duration_ms: Mapped[float | None]
    scored_at: Mapped[datetime]
    superseded_at: Mapped[datetime | None]
    reason: Mapped[str | None] = text_column(4 * KIB, personal=True)
    meta: Mapped[Any] = json_column(64 * KIB, personal=True, nullable=True)
    input: Mapped[Any] = json_column(64 * KIB, personal=True, nullable=True)
    output: Mapped[Any] = json_column(64 * KIB, personal=True, nullable=True)
    expected: Mapped[Any] = json_column(64 * KIB, personal=True, nullable=True)


_event = RunEventModel.__table__.c
_signal = RunSignalModel.__table__.c
_frame = RunFrameModel.__table__.c
_call = ToolCallModel.__table__.c
_sandbox = SandboxModel.__table__.c
_score = ScoreModel.__table__.c

Index("uq_run_events_event_id", _event.run_id, _event.event_id, unique=True, **where("event_id IS NOT NULL"))
Index("ix_run_events_node", _event.run_id, _event.node_id, _event.seq, **where("node_id IS NOT NULL"))
Index("ix_run_events_occurred", _event.run_id, _event.occurred_at)

Index("ix_run_signals_name", _signal.run_id, _signal.signal_name, _signal.correlation_id, _signal.received_at)
Index("ix_run_signals_pending", _signal.run_id, _signal.signal_name, _signal.seq, **where("consumed_at IS NULL"))
Index("uq_run_signals_signal_id", _signal.run_id, _signal.signal_id, unique=True, **where("signal_id IS NOT NULL"))
Index("uq_run_signals_consumer", _signal.run_id, _signal.consumed_by, unique=True, **where("consumed_by IS NOT NULL"))

Index("ix_run_frames_anchors", _frame.run_id, _frame.frame_no, **where("encoding <> 'delta'"))

Index("uq_tool_calls_call_id", _call.run_id, _call.call_id, unique=True, **where("call_id IS NOT NULL"))
Index("ix_tool_calls_task", _call.run_id, _call.node_id, _call.iteration, _call.attempt, _call.seq)
Index("ix_tool_calls_execution", _call.execution_id, **where("execution_id IS NOT NULL"))
Index("ix_tool_calls_open", _call.run_id, _call.seq, **where("finished_at IS NULL"))

Index(
    "ix_sandboxes_status",
    _sandbox.status,
    _sandbox.updated_at,
    _sandbox.run_id,
    _sandbox.sandbox_id,
)
Index("ix_sandboxes_newest", _sandbox.updated_at, _sandbox.run_id, _sandbox.sandbox_id)
Index("ix_sandboxes_run", _sandbox.run_id, _sandbox.updated_at, _sandbox.sandbox_id)

Index(
    "uq_scores_current",
    _score.run_id,
    _score.node_id,
    _score.iteration,
    _score.attempt,
    _score.scorer_id,
    _score.source,
    unique=True,
    **where("superseded_at IS NULL"),
)
Index("ix_scores_run", _score.run_id, _score.scored_at, _score.id)
Index("ix_scores_scorer", _score.scorer_id, _score.scored_at, _score.id)
Index("ix_scores_newest", _score.scored_at, _score.id)


# The tables of this domain, as statements name them.

SEQUENCES = table_of(RunSequenceModel)

EVENTS = table_of(RunEventModel)

SIGNALS = table_of(RunSignalModel)

FRAMES = table_of(RunFrameModel)

TOOL_CALLS = table_of(ToolCallModel)

SANDBOXES = table_of(SandboxModel)

SCORES = table_of(ScoreModel)
