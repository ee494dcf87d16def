"""Records of checkpoints, and the rows of values that they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple, Self

from pydantic import ConfigDict

from lastlight_state.checkpoints.checks import Content
from lastlight_state.db.rows.records import Record


class CheckpointThread(Record):
    """A thread: a series of checkpoints. After ``expires_at`` a prune may remove it; None means never."""

    id: str
    scope: str
    key: str
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    user: str | None


class CheckpointSummary(Record):
    """A checkpoint as lists show it, without its content, values and writes.

    ``seq`` is its number, which increases with each checkpoint of a thread. ``thread_id`` is the ``id`` of the
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


class CheckpointWrite(Record):
    """A task's write to a channel after a checkpoint. ``idx`` is its index among the task's writes."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    task: str
    idx: int
    path: str
    channel: str
    content: Content

    _computed = frozenset({"content"})
    #: Beside the content, what it is bound to where it is sealed.
    _consumed = frozenset({"thread_id", "namespace", "checkpoint_id", "format", "body"})

    @classmethod
    def of(cls, values: Any) -> Self:
        content = Content(values["format"], values["body"])
        shown = {name: values[name] for name in ("task", "idx", "path", "channel")}
        return super().of({**shown, "content": content})


class Checkpoint(CheckpointSummary):
    """A whole checkpoint: its content, the version of each channel, the values of versions that have one, and writes.

    The writes are ordered by path, task and ``idx``.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    content: Content
    versions: Mapping[str, str]
    values: Mapping[str, Content]
    writes: tuple[CheckpointWrite, ...]

    #: Its values and writes have rows of their own.
    _computed = frozenset({"content", "values", "writes"})
    _consumed = frozenset({"body"})

    @classmethod
    def of(cls, values: Any) -> Self:
        body, valued, writes = values.pop("body"), values.pop("values"), values.pop("writes")
        content = Content(values["format"], body)
        return super().of({**values, "content": content, "values": valued, "writes": writes})


class ChannelHistory(Record):
    """The writes to a channel after its stored ``value``, oldest first.

    If ``value`` is None, all writes to the channel.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    writes: tuple[CheckpointWrite, ...]
    value: Content | None


# Rows of values, as they are read for the records.


class NamedValue(NamedTuple):
    """A value as it is named by its version, without its bytes."""

    thread_id: str
    namespace: str
    channel: str
    version: str
    number: int
    anchor: int
    encoding: str
    format: str
    size: int
    digest: str


class StoredValue(NamedTuple):
    """A value as it is stored."""

    thread_id: str
    namespace: str
    channel: str
    number: int
    anchor: int
    encoding: str
    body: bytes
