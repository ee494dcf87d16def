"""The rows of the tables of conversations, written by ``make docs`` from the models. JSON is given as text."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict


class MessageTypeRow(TypedDict):
    """A row of ``message_types``."""

    type_id: int
    lion_class: str


class MessageRow(TypedDict):
    """A row of ``messages``."""

    id: str
    created_at: datetime
    created_at_unix: float | None
    sender: str | None
    recipient: str | None
    channel: str | None
    role: str
    lion_class: int
    revision: int
    revised_at: datetime | None
    embedding_model: str | None
    node_metadata: Any
    extra: Any
    content: Any
    embedding: bytes | None


class ProgressionRow(TypedDict):
    """A row of ``progressions``."""

    id: str
    created_at: datetime
    created_at_unix: float | None
    name: str | None
    start_ord: int
    next_ord: int
    version: int
    node_metadata: Any
    extra: Any


class ProgressionLinkRow(TypedDict):
    """A row of ``progression_links``."""

    progression_id: str
    ord: int
    message_id: str


class InvocationKindRow(TypedDict):
    """A row of ``invocation_kinds``."""

    word: str


class SourceKindRow(TypedDict):
    """A row of ``source_kinds``."""

    word: str


class SessionRow(TypedDict):
    """A row of ``sessions``."""

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
    node_metadata: Any
    extra: Any
    artifact_contract: Any
    artifact_verification: Any


class BranchRow(TypedDict):
    """A row of ``branches``."""

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
    node_metadata: Any
    extra: Any


class VectorNamespaceRow(TypedDict):
    """A row of ``vector_namespaces``."""

    namespace: str
    dimensions: int
    model: str | None
    created_at: datetime
    content_tag: int | None


class VectorRow(TypedDict):
    """A row of ``vectors``."""

    namespace: str
    id: str
    document_id: str | None
    chunk_index: int
    dimensions: int
    norm: float
    created_at: datetime
    updated_at: datetime | None
    embedding: bytes
    chunk_metadata: Any
    content: str


class SessionTransitionRow(TypedDict):
    """A row of ``session_transitions``."""

    id: str
    session_id: str
    branch_id: str | None
    seq: int
    previous_status: str | None
    status: str
    reason_code: str
    source: str
    actor: str | None
    created_at: datetime
    reason_summary: str | None
    evidence: Any


class SessionChangeRow(TypedDict):
    """A row of ``session_changes``."""

    session_id: str
    seq: int
    kind: str
    branch_id: str | None
    progression_id: str | None
    message_id: str | None
    ord: int | None
    count: int | None
    at: datetime
    details: Any


class ExchangeInboxRow(TypedDict):
    """A row of ``exchange_inboxes``."""

    owner: str
    next_ord: int
    created_at: datetime


class ExchangeDeliveryRow(TypedDict):
    """A row of ``exchange_deliveries``."""

    owner: str
    ord: int
    message_id: str
    sender: str | None
    channel: str | None
    delivered_at: datetime
    taken_by: str | None
    taken_until: datetime | None
    takes: int
    acked_at: datetime | None
    acked_by: str | None


class ExchangeMemberRow(TypedDict):
    """A row of ``exchange_members``."""

    channel: str
    member: str
    joined_at: datetime
    left_at: datetime | None
