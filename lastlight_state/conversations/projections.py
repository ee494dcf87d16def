"""Row types of statements that return some columns of a table, or columns of several. Whole rows are in `rows`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NotRequired, TypedDict

from lastlight_state.conversations.rows import BranchRow, SessionRow, VectorRow


class MessageSummaryRow(TypedDict):
    """The columns of a `MessageSummary`: the class by its name."""

    id: str
    created_at: datetime
    created_at_unix: float | None
    sender: str | None
    recipient: str | None
    channel: str | None
    role: str
    lion_class: str
    revision: int
    revised_at: datetime | None


class WholeMessageRow(MessageSummaryRow):
    """The columns of a `Message`."""

    embedding_model: str | None
    node_metadata: Any
    extra: Any
    content: Any
    embedding: Any


class MessageDraft(MessageSummaryRow):
    """The row of a message to store, with its class by its name."""

    embedding_model: str | None
    node_metadata: str | None
    extra: str | None
    content: str
    embedding: bytes | None


class SessionSummaryRow(TypedDict):
    """The columns of a `SessionSummary`."""

    id: str
    created_at: datetime
    created_at_unix: float | None
    name: str | None
    user: str | None
    progression_id: str
    first_msg_id: str | None
    last_msg_id: str | None
    updated_at: datetime
    playbook_name: str | None
    agent_name: str | None
    invocation_kind: str | None
    show_topic: str | None
    show_play_name: str | None
    artifacts_path: str | None
    source_kind: str | None
    started_at: datetime | None
    ended_at: datetime | None
    last_message_at: datetime | None
    version: int
    status: str | None
    status_reason: str | None
    transition_seq: int
    change_seq: int
    owner: str | None
    heartbeat_at: datetime | None
    ended_at_is_approximate: bool
    project: str | None
    agent_session_id: str | None
    workflow_run_id: str | None
    hold_reason: str | None
    message_count: int
    branch_count: int


class WholeSessionRow(SessionRow):
    """The columns of a `ConversationSession`."""

    message_count: int
    branch_count: int


class BranchSummaryRow(TypedDict):
    """The columns of a `BranchSummary`."""

    id: str
    created_at: datetime
    created_at_unix: float | None
    user: str | None
    name: str | None
    session_id: str
    progression_id: str
    system_msg_id: str | None
    parent_branch_id: str | None
    forked_at_ord: int | None
    fork_depth: int
    status: str | None
    started_at: datetime | None
    ended_at: datetime | None
    provider: str | None
    model: str | None
    agent_name: str | None
    length: int


class WholeBranchRow(BranchRow):
    """The columns of a `Branch`."""

    length: int


class LinkRow(TypedDict):
    """A message at a position of an order."""

    ord: int
    message_id: str


class PlaceRow(TypedDict):
    """An order that holds a message, and where."""

    progression_id: str
    ord: int


class BranchLinkRow(LinkRow):
    """A position of a branch's history: which message, and which branch it was appended to."""

    branch_id: str


class BranchMessageRow(WholeMessageRow):
    """A message at a position of a branch's history, and the branch that it was appended to.

    A message has no position of its own: both are taken off.
    """

    ord: NotRequired[int]
    branch_id: NotRequired[str]


class UseRow(TypedDict):
    """The holder of a message. ``ord`` is below every position for what has no order."""

    kind: str
    id: str
    ord: int


class StaleSessionRow(TypedDict):
    """A running session, and its last sign of life."""

    id: str
    owner: str | None
    last_sign: datetime


class NamespaceRow(TypedDict):
    """The columns of a `VectorNamespace`."""

    namespace: str
    dimensions: int
    model: str | None
    created_at: datetime


class ChunkSummaryRow(TypedDict):
    """The columns of a `ChunkSummary`."""

    namespace: str
    id: str
    document_id: str | None
    chunk_index: int
    dimensions: int
    created_at: datetime
    updated_at: datetime | None


class ChunkTextRow(ChunkSummaryRow):
    """The columns of a `ChunkText`."""

    chunk_metadata: Any
    content: str


class ChunkRow(ChunkTextRow):
    """The columns of a `Chunk`."""

    embedding: Any


class ChunkDraft(VectorRow):
    """The row of a chunk to store."""


class MemberRow(TypedDict):
    """A member of a channel."""

    channel: str
    member: str
    joined_at: datetime
