"""Tables of the journal: what happened in runs.

Keys begin with the run, so that a distributed Postgres can place a run's rows together.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index, text
from sqlalchemy.orm import Mapped, mapped_column

from lastlight_state.db.base import Base, described, json_column
from lastlight_state.db.indexes import where
from lastlight_state.db.runs import run_id_column


class RunSequenceModel(Base):
    """The next number of one stream of a run."""

    __tablename__ = "run_sequences"
    __table_args__ = described("the next number of each stream of a run's journal")

    run_id: Mapped[str] = run_id_column(primary_key=True)
    stream: Mapped[str] = mapped_column(primary_key=True)
    next_seq: Mapped[int]


class RunEventModel(Base):
    """Something that happened in a run. ``seq`` is the total order of the run's events."""

    __tablename__ = "run_events"
    __table_args__ = described("what happened in runs, numbered without gaps in the order of the commits")

    run_id: Mapped[str] = run_id_column(primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    type: Mapped[str]
    occurred_at: Mapped[datetime]
    node_id: Mapped[str | None]
    event_id: Mapped[str | None]
    payload: Mapped[Any] = json_column(shape=dict, nullable=False)


class RunSignalModel(Base):
    """A message that was sent into a run from outside, and who took it."""

    __tablename__ = "run_signals"
    __table_args__ = described("messages sent into runs from outside, each taken once")

    run_id: Mapped[str] = run_id_column(primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    signal_name: Mapped[str]
    correlation_id: Mapped[str | None]
    received_at: Mapped[datetime]
    received_by: Mapped[str | None]
    signal_id: Mapped[str | None]
    consumed_at: Mapped[datetime | None]
    consumed_by: Mapped[str | None]
    payload: Mapped[Any] = json_column(nullable=False)


class RunFrameModel(Base):
    """One rendered frame of a run: a whole tree, or what changed since the frame before."""

    __tablename__ = "run_frames"
    __table_args__ = described("rendered frames of runs, whole or as the change since the frame before")

    run_id: Mapped[str] = run_id_column(primary_key=True)
    frame_no: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    created_at: Mapped[datetime]
    encoding: Mapped[str] = mapped_column(server_default="full")
    content_hash: Mapped[str]
    full_bytes: Mapped[int]
    note: Mapped[str | None]
    mounted_task_ids: Mapped[Any] = json_column(shape=list, nullable=True)
    task_index: Mapped[Any] = json_column(shape=dict, nullable=True)
    body: Mapped[str]


class ToolCallModel(Base):
    """One invocation of a tool: by which task attempt, and how it ended."""

    __tablename__ = "tool_calls"
    __table_args__ = described("invocations of tools, with status and latency")

    run_id: Mapped[str] = run_id_column(primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    node_id: Mapped[str | None]
    iteration: Mapped[int] = mapped_column(server_default=text("0"))
    attempt: Mapped[int] = mapped_column(server_default=text("1"))
    execution_id: Mapped[str | None]
    call_id: Mapped[str | None]
    tool_name: Mapped[str]
    status: Mapped[str] = mapped_column(server_default="running")
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    duration_ms: Mapped[int | None]
    output_ref: Mapped[str | None]
    input: Mapped[Any] = json_column(nullable=True)
    output: Mapped[Any] = json_column(nullable=True)
    error: Mapped[Any] = json_column(nullable=True)


class SandboxModel(Base):
    """A sandbox in which a part of a run works, or worked."""

    __tablename__ = "sandboxes"
    __table_args__ = described("sandboxes of runs, with where each of them stands")

    run_id: Mapped[str] = run_id_column(primary_key=True)
    sandbox_id: Mapped[str] = mapped_column(primary_key=True)
    runtime: Mapped[str] = mapped_column(server_default="bubblewrap")
    status: Mapped[str] = mapped_column(server_default="pending")
    remote_run_id: Mapped[str | None]
    workspace_id: Mapped[str | None]
    container_id: Mapped[str | None]
    bundle_path: Mapped[str | None]
    shipped_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    config: Mapped[Any] = json_column(shape=dict, nullable=False, server_default=text("'{}'"))


class ScoreModel(Base):
    """What a scorer said about one attempt of a task."""

    __tablename__ = "scores"
    __table_args__ = described("scores of task attempts; a rerun supersedes the score before")

    id: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[str] = run_id_column()
    node_id: Mapped[str]
    iteration: Mapped[int] = mapped_column(server_default=text("0"))
    attempt: Mapped[int] = mapped_column(server_default=text("1"))
    scorer_id: Mapped[str]
    scorer_name: Mapped[str]
    source: Mapped[str]
    score: Mapped[float]
    latency_ms: Mapped[float | None]
    duration_ms: Mapped[float | None]
    scored_at: Mapped[datetime]
    superseded_at: Mapped[datetime | None]
    reason: Mapped[str | None]
    meta: Mapped[Any] = json_column(nullable=True)
    input: Mapped[Any] = json_column(nullable=True)
    output: Mapped[Any] = json_column(nullable=True)
    expected: Mapped[Any] = json_column(nullable=True)


_event = RunEventModel.__table__.c
_signal = RunSignalModel.__table__.c
_frame = RunFrameModel.__table__.c
_call = ToolCallModel.__table__.c
_sandbox = SandboxModel.__table__.c
_score = ScoreModel.__table__.c

Index("uq_run_events_event_id", _event.run_id, _event.event_id, unique=True, **where("event_id IS NOT NULL"))
Index("ix_run_events_type", _event.run_id, _event.type, _event.seq)
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
    _sandbox.updated_at.desc(),
    _sandbox.run_id.desc(),
    _sandbox.sandbox_id.desc(),
)
Index("ix_sandboxes_newest", _sandbox.updated_at.desc(), _sandbox.run_id.desc(), _sandbox.sandbox_id.desc())
Index("ix_sandboxes_run", _sandbox.run_id, _sandbox.updated_at.desc(), _sandbox.sandbox_id.desc())

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
Index("ix_scores_run", _score.run_id, _score.scored_at.desc(), _score.id.desc())
Index("ix_scores_scorer", _score.scorer_id, _score.scored_at.desc(), _score.id.desc())
Index("ix_scores_newest", _score.scored_at.desc(), _score.id.desc())
