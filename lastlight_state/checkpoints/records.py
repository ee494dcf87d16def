"""Records of checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self

from pydantic import ConfigDict

from lastlight_state.checkpoints.checks import Content
from lastlight_state.checkpoints.projections import CheckpointSummaryRow, WriteRow
from lastlight_state.checkpoints.rows import CheckpointThreadRow
from lastlight_state.db.rows.records import Record


class CheckpointThread(Record):
    """A thread: a series of checkpoints. A prune may remove it after ``expires_at``; None means never."""

    id: str
    scope: str
    key: str
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    user: str | None

    @classmethod
    def of(cls, values: CheckpointThreadRow) -> Self:
        return super().of(values)


class CheckpointSummary(Record):
    """A checkpoint as lists show it, without its content, values and writes.

    ``seq`` is its number, which rises with each checkpoint of a thread. ``thread_id`` is the ``id`` of the
    `CheckpointThread`.
    """

    thread_id: str
    namespace: str
    id: str
    seq: int
    parent_id: str | None
    run_ref: str | None
    created_at: datetime
    format: str
    metadata: dict[str, Any] | None

    @classmethod
    def of(cls, values: CheckpointSummaryRow) -> Self:
        return super().of(values)


class CheckpointWrite(Record):
    """A task's write to a channel after a checkpoint. ``idx`` is its index among the task's writes."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    task: str
    idx: int
    path: str
    channel: str
    content: Content

    @classmethod
    def of(cls, values: WriteRow) -> Self:
        content = Content(values["format"], values["body"])
        shown = {name: values[name] for name in ("task", "idx", "path", "channel")}
        return super().of({**shown, "content": content})


class WholeCheckpoint(CheckpointSummaryRow):
    """What a `Checkpoint` is made of."""

    content: Content
    versions: Mapping[str, str]
    values: Mapping[str, Content]
    writes: tuple[CheckpointWrite, ...]


class Checkpoint(CheckpointSummary):
    """A whole checkpoint: its content, the version of each channel, the values of versions that have one, and writes.

    The writes are ordered by path, task and ``idx``.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    content: Content
    versions: Mapping[str, str]
    values: Mapping[str, Content]
    writes: tuple[CheckpointWrite, ...]

    @classmethod
    def of(cls, values: WholeCheckpoint) -> Self:  # type: ignore[override]
        return super().of(values)


class ChannelHistory(Record):
    """The writes to a channel since its stored ``value``, oldest first: all writes if ``value`` is None."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    writes: tuple[CheckpointWrite, ...]
    value: Content | None
