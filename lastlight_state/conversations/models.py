"""Tables of conversations.

A message belongs to nobody: links and pointers refer to it. The order of messages is in the links of progressions; a
session has a progression with all its messages, and each of its branches has one of its own.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column

from lastlight_state.db import columns
from lastlight_state.db.base import Base, described, json_column
from lastlight_state.db.indexes import where


class MessageTypeModel(Base):
    """A class of messages in the runtime that made them."""

    __tablename__ = "message_types"
    __table_args__ = described("classes of messages, by number; 0 is unknown")

    type_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    lion_class: Mapped[str] = mapped_column(unique=True)


class MessageModel(Base):
    """A message, stored once and referred to by any number of orders."""

    __tablename__ = "messages"
    __table_args__ = described("messages of conversations, each stored once")

    id: Mapped[str] = mapped_column(primary_key=True)
    created_at: Mapped[datetime]
    created_at_unix: Mapped[float | None]
    sender: Mapped[str | None]
    recipient: Mapped[str | None]
    channel: Mapped[str | None]
    role: Mapped[str]
    lion_class: Mapped[int] = mapped_column(ForeignKey("message_types.type_id"), server_default=text("0"))
    revision: Mapped[int] = mapped_column(server_default=text("0"))
    revised_at: Mapped[datetime | None]
    embedding_model: Mapped[str | None]
    node_metadata: Mapped[Any] = json_column(shape=dict, nullable=True)
    extra: Mapped[Any] = json_column(shape=dict, nullable=True)
    content: Mapped[Any] = json_column(nullable=False)
    embedding: Mapped[bytes | None] = mapped_column(columns.Bytes)


class ProgressionModel(Base):
    """An order of messages. Its links have the positions from ``start_ord`` to below ``next_ord``."""

    __tablename__ = "progressions"
    __table_args__ = described("orders of messages, of sessions and branches")

    id: Mapped[str] = mapped_column(primary_key=True)
    created_at: Mapped[datetime]
    created_at_unix: Mapped[float | None]
    name: Mapped[str | None]
    start_ord: Mapped[int] = mapped_column(server_default=text("0"))
    next_ord: Mapped[int] = mapped_column(server_default=text("0"))
    version: Mapped[int] = mapped_column(server_default=text("0"))
    node_metadata: Mapped[Any] = json_column(shape=dict, nullable=True)
    extra: Mapped[Any] = json_column(shape=dict, nullable=True)


class ProgressionLinkModel(Base):
    """Says that a message stands at a position of an order. An order may hold a message twice."""

    __tablename__ = "progression_links"
    __table_args__ = described("which message stands at which position of an order")

    progression_id: Mapped[str] = mapped_column(ForeignKey("progressions.id", ondelete="CASCADE"), primary_key=True)
    ord: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    message_id: Mapped[str] = mapped_column(ForeignKey("messages.id"))


class InvocationKindModel(Base):
    """A word for what a session runs."""

    __tablename__ = "invocation_kinds"
    __table_args__ = described("words for what a conversation session runs")

    word: Mapped[str] = mapped_column(primary_key=True)


class SourceKindModel(Base):
    """A word for where a session comes from."""

    __tablename__ = "source_kinds"
    __table_args__ = described("words for where a conversation session comes from")

    word: Mapped[str] = mapped_column(primary_key=True)


class SessionModel(Base):
    """A conversation session: a pool of messages, and branches over it."""

    __tablename__ = "sessions"
    __table_args__ = described("conversation sessions, each with the pool of its messages")

    id: Mapped[str] = mapped_column(primary_key=True)
    created_at: Mapped[datetime]
    created_at_unix: Mapped[float | None]
    name: Mapped[str | None]
    user: Mapped[str | None]
    progression_id: Mapped[str] = mapped_column(ForeignKey("progressions.id"))
    first_msg_id: Mapped[str | None] = mapped_column(ForeignKey("messages.id"))
    last_msg_id: Mapped[str | None] = mapped_column(ForeignKey("messages.id"))
    updated_at: Mapped[datetime]
    playbook_name: Mapped[str | None]
    agent_name: Mapped[str | None]
    invocation_kind: Mapped[str | None] = mapped_column(ForeignKey("invocation_kinds.word"))
    show_topic: Mapped[str | None]
    show_play_name: Mapped[str | None]
    artifacts_path: Mapped[str | None]
    source_kind: Mapped[str | None] = mapped_column(ForeignKey("source_kinds.word"), server_default="live")
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    last_message_at: Mapped[datetime | None]
    version: Mapped[int] = mapped_column(server_default=text("0"))
    status: Mapped[str | None]
    status_reason: Mapped[str | None]
    transition_seq: Mapped[int] = mapped_column(server_default=text("0"))
    change_seq: Mapped[int] = mapped_column(server_default=text("0"))
    owner: Mapped[str | None]
    heartbeat_at: Mapped[datetime | None]
    ended_at_is_approximate: Mapped[bool] = mapped_column(server_default=false())
    project: Mapped[str | None]
    agent_session_id: Mapped[str | None]
    workflow_run_id: Mapped[str | None]
    hold_reason: Mapped[str | None]
    node_metadata: Mapped[Any] = json_column(shape=dict, nullable=True)
    extra: Mapped[Any] = json_column(shape=dict, nullable=True)
    artifact_contract: Mapped[Any] = json_column(shape=dict, nullable=True)
    artifact_verification: Mapped[Any] = json_column(shape=dict, nullable=True)


class BranchModel(Base):
    """A branch: an order over the messages of a session, and the configuration of an agent.

    A fork has a parent, and inherits the first ``forked_at_ord`` messages of the parent's history.
    """

    __tablename__ = "branches"
    __table_args__ = described("branches of conversation sessions, forks among them")

    id: Mapped[str] = mapped_column(primary_key=True)
    created_at: Mapped[datetime]
    created_at_unix: Mapped[float | None]
    user: Mapped[str | None]
    name: Mapped[str | None]
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"))
    progression_id: Mapped[str] = mapped_column(ForeignKey("progressions.id"))
    system_msg_id: Mapped[str | None] = mapped_column(ForeignKey("messages.id"))
    parent_branch_id: Mapped[str | None] = mapped_column(ForeignKey("branches.id"))
    forked_at_ord: Mapped[int | None]
    fork_depth: Mapped[int] = mapped_column(server_default=text("0"))
    status: Mapped[str | None]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    provider: Mapped[str | None]
    model: Mapped[str | None]
    agent_name: Mapped[str | None]
    node_metadata: Mapped[Any] = json_column(shape=dict, nullable=True)
    extra: Mapped[Any] = json_column(shape=dict, nullable=True)


class VectorNamespaceModel(Base):
    """A set of chunks whose embeddings are compared with one another, all of the same length."""

    __tablename__ = "vector_namespaces"
    __table_args__ = described("sets of chunks whose embeddings have one length")

    namespace: Mapped[str] = mapped_column(primary_key=True)
    dimensions: Mapped[int]
    model: Mapped[str | None]
    created_at: Mapped[datetime]


class VectorModel(Base):
    """A chunk of text with its embedding. ``norm`` is the length of the vector. Derived data: it may be deleted."""

    __tablename__ = "vectors"
    __table_args__ = described("chunks of text with their embeddings")

    namespace: Mapped[str] = mapped_column(ForeignKey("vector_namespaces.namespace"), primary_key=True)
    id: Mapped[str] = mapped_column(primary_key=True)
    document_id: Mapped[str | None]
    chunk_index: Mapped[int] = mapped_column(server_default=text("0"))
    dimensions: Mapped[int]
    norm: Mapped[float]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime | None]
    embedding: Mapped[bytes] = mapped_column(columns.Bytes)
    chunk_metadata: Mapped[Any] = json_column(shape=dict, nullable=True)
    content: Mapped[str]


class SessionTransitionModel(Base):
    """One change of a session's status, or of the status of one of its branches. It outlives the session."""

    __tablename__ = "session_transitions"
    __table_args__ = (UniqueConstraint("session_id", "seq"), described("changes of status of conversation sessions"))

    id: Mapped[str] = mapped_column(primary_key=True)
    session_id: Mapped[str]
    branch_id: Mapped[str | None]
    seq: Mapped[int]
    previous_status: Mapped[str | None]
    status: Mapped[str]
    reason_code: Mapped[str]
    source: Mapped[str]
    actor: Mapped[str | None]
    created_at: Mapped[datetime]
    reason_summary: Mapped[str | None]
    evidence: Mapped[Any] = json_column(nullable=True)


class SessionChangeModel(Base):
    """One entry of a session's feed: that something changed, not what it was before. For readers, not for audits."""

    __tablename__ = "session_changes"
    __table_args__ = described("feeds of conversation sessions: what changed, by number")

    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str]
    branch_id: Mapped[str | None]
    progression_id: Mapped[str | None]
    message_id: Mapped[str | None]
    ord: Mapped[int | None]
    count: Mapped[int | None]
    at: Mapped[datetime]
    details: Mapped[Any] = json_column(shape=dict, nullable=True)


class ExchangeInboxModel(Base):
    """The inbox of an owner. Its deliveries have the positions from 0 to below ``next_ord``."""

    __tablename__ = "exchange_inboxes"
    __table_args__ = described("inboxes of the exchange, and how many deliveries each has had")

    owner: Mapped[str] = mapped_column(primary_key=True)
    next_ord: Mapped[int] = mapped_column(server_default=text("0"))
    created_at: Mapped[datetime]


class ExchangeDeliveryModel(Base):
    """A message in an inbox: who has taken it for how long, and when somebody said that it is done."""

    __tablename__ = "exchange_deliveries"
    __table_args__ = (UniqueConstraint("owner", "message_id"), described("messages in inboxes of the exchange"))

    owner: Mapped[str] = mapped_column(ForeignKey("exchange_inboxes.owner"), primary_key=True)
    ord: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    message_id: Mapped[str] = mapped_column(ForeignKey("messages.id"))
    sender: Mapped[str | None]
    channel: Mapped[str | None]
    delivered_at: Mapped[datetime]
    taken_by: Mapped[str | None]
    taken_until: Mapped[datetime | None]
    takes: Mapped[int] = mapped_column(server_default=text("0"))
    acked_at: Mapped[datetime | None]
    acked_by: Mapped[str | None]


class ExchangeMemberModel(Base):
    """Who gets what is published on a channel, from when on. ``left_at`` is NULL for those who still do."""

    __tablename__ = "exchange_members"
    __table_args__ = described("members of channels of the exchange")

    channel: Mapped[str] = mapped_column(primary_key=True)
    member: Mapped[str] = mapped_column(primary_key=True)
    joined_at: Mapped[datetime]
    left_at: Mapped[datetime | None]


_message = MessageModel.__table__.c
_vector = VectorModel.__table__.c
_link = ProgressionLinkModel.__table__.c
_session = SessionModel.__table__.c
_branch = BranchModel.__table__.c
_transition = SessionTransitionModel.__table__.c
_delivery = ExchangeDeliveryModel.__table__.c


def _newest(column: Any) -> tuple[Any, ...]:
    return column, _message.created_at.desc(), _message.id.desc()


Index("ix_messages_newest", _message.created_at.desc(), _message.id.desc())
Index("ix_messages_role", *_newest(_message.role))
Index("ix_messages_class", _message.lion_class)
for _name in ("sender", "recipient", "channel"):
    Index(f"ix_messages_{_name}", *_newest(_message[_name]), **where(f"{_name} IS NOT NULL"))

Index("ix_messages_embedded", _message.id, **where("embedding IS NOT NULL"))

Index("ix_progression_links_message", _link.message_id, _link.progression_id)

Index("ix_sessions_newest", _session.updated_at.desc(), _session.id.desc())
Index("ix_sessions_progression", _session.progression_id)
Index("ix_sessions_first_msg", _session.first_msg_id, **where("first_msg_id IS NOT NULL"))
Index("ix_sessions_last_msg", _session.last_msg_id, **where("last_msg_id IS NOT NULL"))
Index("ix_sessions_show", _session.show_topic, _session.show_play_name, **where("show_topic IS NOT NULL"))
Index("ix_sessions_playbook", _session.playbook_name, _session.updated_at.desc(), **where("playbook_name IS NOT NULL"))
Index("ix_sessions_status", _session.status, _session.updated_at.desc(), _session.id.desc())
Index("ix_sessions_running", _session.last_message_at, **where("status = 'running'"))
Index("ix_sessions_project", _session.project, _session.updated_at.desc(), **where("project IS NOT NULL"))
for _name in ("agent_session_id", "workflow_run_id"):
    Index(f"ix_sessions_{_name.removesuffix('_id')}", _session[_name], **where(f"{_name} IS NOT NULL"))
Index("ix_session_transitions_newest", _transition.created_at.desc(), _transition.id.desc())

Index("ix_branches_session", _branch.session_id, _branch.created_at, _branch.id)
Index("ix_branches_progression", _branch.progression_id)
Index("ix_branches_system_msg", _branch.system_msg_id, **where("system_msg_id IS NOT NULL"))
Index("ix_branches_parent", _branch.parent_branch_id, **where("parent_branch_id IS NOT NULL"))

Index(
    "ix_vectors_document",
    _vector.namespace,
    _vector.document_id,
    _vector.chunk_index,
    _vector.id,
    **where("document_id IS NOT NULL"),
)
Index("ix_exchange_deliveries_open", _delivery.owner, _delivery.ord, **where("acked_at IS NULL"))
Index("ix_exchange_deliveries_message", _delivery.message_id, _delivery.owner)
