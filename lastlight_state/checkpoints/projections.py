"""Row types of statements that return some columns of a table, or columns of several. Whole rows are in `rows`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict


class CheckpointSummaryRow(TypedDict):
    """What a `CheckpointSummary` is made of."""

    thread_id: str
    namespace: str
    id: str
    seq: int
    parent_id: str | None
    run_ref: str | None
    created_at: datetime
    format: str
    metadata: Any


class WholeRow(CheckpointSummaryRow):
    """What is read of a whole checkpoint."""

    versions: Any
    body: bytes


class WriteRow(TypedDict):
    """What a `CheckpointWrite` is made of, and which checkpoint it belongs to."""

    thread_id: str
    namespace: str
    checkpoint_id: str
    task: str
    idx: int
    path: str
    channel: str
    format: str
    body: bytes


class NamedRow(TypedDict):
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


class StoredRow(TypedDict):
    """A value as it is stored."""

    thread_id: str
    namespace: str
    channel: str
    number: int
    anchor: int
    encoding: str
    body: bytes


class BeforeRow(TypedDict):
    """What there is of the channel of a new value: None where there is nothing. A row for each of its base."""

    new_channel: str
    known_format: str | None
    known_digest: str | None
    last_number: int | None
    last_anchor: int | None
    last_digest: str | None
    thread_id: str | None
    namespace: str | None
    channel: str | None
    number: int | None
    anchor: int | None
    encoding: str | None
    body: bytes | None


class IdRow(TypedDict):
    """A thread."""

    id: str


class SeqRow(TypedDict):
    """The number of a checkpoint."""

    seq: int


class ThreadIdRow(TypedDict):
    """The thread of a checkpoint."""

    thread_id: str


class VersionsRow(TypedDict):
    """Which version each channel had in a checkpoint."""

    id: str
    versions: Any


class AncestorRow(TypedDict):
    """An ancestor of a checkpoint, as it is seen for one channel."""

    channel: str
    id: str
    parent_id: str | None
    version: str | None
    is_valued: bool


class ParentRow(TypedDict):
    """The thread of a checkpoint, and its parent."""

    thread_id: str
    parent_id: str | None
