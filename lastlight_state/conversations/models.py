"""Tables of conversations.

A message has no owner: links and pointers refer to it by id. The links of a progression are an order of messages. A
session has a progression with all its messages (its pool), and each of its branches has a progression of its own.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column

from lastlight_state.conversations.words import SOURCES, STATUSES, is_redacted
from lastlight_state.db.schema.base import Base
from lastlight_state.db.schema.declarations import (
    KIB,
    MIB,
    bytes_column,
    describe_table,
    json_column,
    person_column,
    text_column,
    word_column,
)
from lastlight_state.db.schema.sealing import Binding


class MessageTypeModel(Base):
    """A message class: a type name that runtimes give their messages, with its number."""

    __tablename__ = "message_types"
    __table_args__ = describe_table(
        "classes of messages, by number; 0 is unknown", kept="words that rows of conversations name"
    )

    type_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    lion_class: Mapped[str] = text_column(256, unique=True, personal=False)


class MessageModel(Base):
    """A message, stored once and referred to by any number of orders."""

    __tablename__ = "messages"
    __table_args__ = describe_table(
        "messages of conversations, each stored once",
        pruned_as=("sessions", "exchange", "orphans"),
        erased="emptied",
        newest=("created_at",),
    )

    id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    created_at: Mapped[datetime]
    created_at_unix: Mapped[float | None]
    sender: Mapped[str | None] = person_column(256)
    recipient: Mapped[str | None] = person_column(256)
    channel: Mapped[str | None] = text_column(256, personal=False)
    role: Mapped[str] = text_column(64, personal=False)
    lion_class: Mapped[int] = mapped_column(ForeignKey("message_types.type_id"), server_default=text("0"))
    revision: Mapped[int] = mapped_column(server_default=text("0"))
    revised_at: Mapped[datetime | None]
    embedding_model: Mapped[str | None] = text_column(256, personal=False)
    node_metadata: Mapped[Any] = json_column(256 * KIB, personal=True, redacted=False, shape=dict, nullable=True)
    extra: Mapped[Any] = json_column(8 * MIB, personal=True, shape=dict, nullable=True)
    content: Mapped[Any] = json_column(
        8 * MIB, personal=True, sealed=Binding("messages.content", ("id", "role"), is_redacted), nullable=False
    )
    embedding: Mapped[bytes | None] = bytes_column(personal=True)


class ProgressionModel(Base):
    """A message order. Its links have the positions ``start_ord`` to ``next_ord - 1``."""

    __tablename__ = "progressions"
    __table_args__ = describe_table(
        "orders of messages, of sessions and branches", pruned_as=("sessions", "orphans"), erased="emptied"
    )

    id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    created_at: Mapped[datetime]
    created_at_unix: Mapped[float | None]
    name: Mapped[str | None] = text_column(256, personal=True)
    start_ord: Mapped[int] = mapped_column(server_default=text("0"))
    next_ord: Mapped[int] = mapped_column(server_default=text("0"))
    version: Mapped[int] = mapped_column(server_default=text("0"))
    node_metadata: Mapped[Any] = json_column(256 * KIB, personal=True, shape=dict, nullable=True)
    extra: Mapped[Any] = json_column(8 * MIB, personal=True, shape=dict, nullable=True)


class ProgressionLinkModel(Base):
    """A link: a message at a position of a message order. An order may hold a message twice."""

    __tablename__ = "progression_links"
    __table_args__ = describe_table(
        "which message stands at which position of an order", pruned_as=("sessions", "orphans")
    )

    progression_id: Mapped[str] = text_column(
        256, ForeignKey("progressions.id", ondelete="CASCADE"), primary_key=True, personal=False
    )
    ord: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    message_id: Mapped[str] = text_column(256, ForeignKey("messages.id"), personal=False)


class InvocationKindModel(Base):
    """A word of the vocabulary for what a session runs, such as ``agent`` or ``flow``."""

    __tablename__ = "invocation_kinds"
    __table_args__ = describe_table(
        "words for what a conversation session runs", kept="words that rows of conversations name"
    )

    word: Mapped[str] = text_column(None, primary_key=True, personal=False)


class SourceKindModel(Base):
    """A word of the vocabulary for a session's source, such as ``live``."""

    __tablename__ = "source_kinds"
    __table_args__ = describe_table(
        "words for where a conversation session comes from", kept="words that rows of conversations name"
    )

    word: Mapped[str] = text_column(None, primary_key=True, personal=False)


class SessionModel(Base):
    """A conversation session: a pool of messages, and branches over it."""

    __tablename__ = "sessions"
    __table_args__ = describe_table(
        "conversation sessions, each with the pool of its messages",
        pruned_as=("sessions",),
        erased="emptied",
        newest=("updated_at",),
    )

    id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    created_at: Mapped[datetime]
    created_at_unix: Mapped[float | None]
    name: Mapped[str | None] = text_column(256, personal=True)
    user: Mapped[str | None] = person_column(256)
    progression_id: Mapped[str] = text_column(256, ForeignKey("progressions.id"), personal=False)
    first_msg_id: Mapped[str | None] = text_column(256, ForeignKey("messages.id"), personal=False)
    last_msg_id: Mapped[str | None] = text_column(256, ForeignKey("messages.id"), personal=False)
    updated_at: Mapped[datetime]
    playbook_name: Mapped[str | None] = text_column(256, personal=False)
    agent_name: Mapped[str | None] = text_column(256, personal=False)
    invocation_kind: Mapped[str | None] = text_column(None, ForeignKey("invocation_kinds.word"), personal=False)
    show_topic: Mapped[str | None] = text_column(256, personal=False)
    show_play_name: Mapped[str | None] = text_column(256, personal=False)
    artifacts_path: Mapped[str | None] = text_column(4 * KIB, personal=False)
    source_kind: Mapped[str | None] = text_column(
        None, ForeignKey("source_kinds.word"), server_default="live", personal=False
    )
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    last_message_at: Mapped[datetime | None]
    version: Mapped[int] = mapped_column(server_default=text("0"))
    status: Mapped[str | None] = word_column(STATUSES)
    status_reason: Mapped[str | None] = text_column(None, personal=False)
    transition_seq: Mapped[int] = mapped_column(server_default=text("0"))
    change_seq: Mapped[int] = mapped_column(server_default=text("0"))
    owner: Mapped[str | None] = text_column(256, personal=False)
    heartbeat_at: Mapped[datetime | None]
    ended_at_is_approximate: Mapped[bool] = mapped_column(server_default=false())
    project: Mapped[str | None] = text_column(256, personal=False)
    agent_session_id: Mapped[str | None] = text_column(256, personal=False)
    workflow_run_id: Mapped[str | None] = text_column(256, personal=False)
    hold_reason: Mapped[str | None] = text_column(1024, personal=True)
    node_metadata: Mapped[Any] = json_column(256 * KIB, personal=True, shape=dict, nullable=True)
    extra: Mapped[Any] = json_column(8 * MIB, personal=True, shape=dict, nullable=True)
    artifact_contract: Mapped[Any] = json_column(256 * KIB, personal=True, shape=dict, nullable=True)
    artifact_verification: Mapped[Any] = json_column(256 * KIB, personal=True, shape=dict, nullable=True)


class BranchModel(Base):
    """A branch of a session: a message order of its own, and the configuration of an agent.

    A fork is a branch with a parent. It inherits the first ``forked_at_ord`` messages of the parent's history.
    """

    __tablename__ = "branches"
    __table_args__ = describe_table(
        "branches of conversation sessions, forks among them", pruned_as=("sessions",), erased="emptied"
    )

    id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    created_at: Mapped[datetime]
    created_at_unix: Mapped[float | None]
    user: Mapped[str | None] = person_column(256)
    name: Mapped[str | None] = text_column(256, personal=True)
    session_id: Mapped[str] = text_column(256, ForeignKey("sessions.id", ondelete="CASCADE"), personal=False)
    progression_id: Mapped[str] = text_column(256, ForeignKey("progressions.id"), personal=False)
    system_msg_id: Mapped[str | None] = text_column(256, ForeignKey("messages.id"), personal=False)
    parent_branch_id: Mapped[str | None] = text_column(256, ForeignKey("branches.id"), personal=False)
    forked_at_ord: Mapped[int | None]
    fork_depth: Mapped[int] = mapped_column(server_default=text("0"))
    status: Mapped[str | None] = word_column(STATUSES)
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    provider: Mapped[str | None] = text_column(256, personal=False)
    model: Mapped[str | None] = text_column(256, personal=False)
    agent_name: Mapped[str | None] = text_column(256, personal=False)
    node_metadata: Mapped[Any] = json_column(256 * KIB, personal=False, shape=dict, nullable=True)
    extra: Mapped[Any] = json_column(8 * MIB, personal=True, shape=dict, nullable=True)


class VectorNamespaceModel(Base):
    """A set of chunks whose embeddings have the same length and are compared with one another.

    On SQLite only, triggers set ``content_tag`` to a new random number after each change of a chunk. So an equal tag
    means equal chunks, even if a backup was restored over the file, or the namespace was deleted and created again.
    """

    __tablename__ = "vector_namespaces"
    __table_args__ = describe_table(
        "sets of chunks whose embeddings have one length",
        kept="derived data: `store.conversations.vectors.clear` removes them",
    )

    namespace: Mapped[str] = text_column(256, primary_key=True, personal=False)
    dimensions: Mapped[int]
    model: Mapped[str | None] = text_column(256, personal=False)
    created_at: Mapped[datetime]
    content_tag: Mapped[int | None]


class VectorModel(Base):
    """A chunk of text with its embedding. ``norm`` is the length of the vector. Derived data: it may be deleted."""

    __tablename__ = "vectors"
    __table_args__ = describe_table(
        "chunks of text with their embeddings",
        kept="derived data: `store.conversations.vectors.clear` removes them",
        erased="removed",
    )

    namespace: Mapped[str] = text_column(
        256, ForeignKey("vector_namespaces.namespace"), primary_key=True, personal=False
    )
    id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    document_id: Mapped[str | None] = text_column(256, personal=False)
    chunk_index: Mapped[int] = mapped_column(server_default=text("0"))
    dimensions: Mapped[int]
    norm: Mapped[float]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime | None]
    embedding: Mapped[bytes] = bytes_column(personal=True)
    chunk_metadata: Mapped[Any] = json_column(256 * KIB, personal=True, shape=dict, nullable=True)
    content: Mapped[str] = text_column(MIB, personal=True)


class SessionTransitionModel(Base):
    """A change of status of a session, or of one of its branches. The row is kept when the session is deleted."""

    __tablename__ = "session_transitions"
    __table_args__ = (
        UniqueConstraint("session_id", "seq"),
        describe_table(
            "changes of status of conversation sessions",
            kept="the history of statuses outlives its session",
            erased="emptied",
        ),
    )

    id: Mapped[str] = text_column(None, primary_key=True, personal=False)
    session_id: Mapped[str] = text_column(256, personal=False)
    branch_id: Mapped[str | None] = text_column(256, personal=False)
    seq: Mapped[int]
    previous_status: Mapped[str | None] = text_column(None, personal=False)
    status: Mapped[str] = text_column(None, personal=False)
    reason_code: Mapped[str] = text_column(None, personal=False)
    source: Mapped[str] = word_column(SOURCES)
    actor: Mapped[str | None] = text_column(256, personal=True)
    created_at: Mapped[datetime]
    reason_summary: Mapped[str | None] = text_column(1024, personal=True)
    evidence: Mapped[Any] = json_column(64 * KIB, personal=True, nullable=True)


class SessionChangeModel(Base):
    """An entry of a session's feed.

    It records what was changed, but not the old value: for followers, not for audits.
    """

    __tablename__ = "session_changes"
    __table_args__ = describe_table(
        "feeds of conversation sessions: what changed, by number", pruned_as=("sessions", "changes")
    )

    session_id: Mapped[str] = text_column(
        256, ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True, personal=False
    )
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str] = text_column(None, personal=False)
    branch_id: Mapped[str | None] = text_column(256, personal=False)
    progression_id: Mapped[str | None] = text_column(256, personal=False)
    message_id: Mapped[str | None] = text_column(256, personal=False)
    ord: Mapped[int | None]
    count: Mapped[int | None]
    at: Mapped[datetime]
    details: Mapped[Any] = json_column(16 * KIB, personal=False, shape=dict, nullable=True)


class ExchangeInboxModel(Base):
    """The inbox of an owner. Its deliveries have the positions 0 to ``next_ord - 1``."""

    __tablename__ = "exchange_inboxes"
    __table_args__ = describe_table(
        "inboxes of the exchange, and how many deliveries each has had",
        kept="one row for each owner, with the number of the next delivery",
        erased="removed",
    )

    owner: Mapped[str] = text_column(256, primary_key=True, personal=True)
    next_ord: Mapped[int] = mapped_column(server_default=text("0"))
    created_at: Mapped[datetime]


class ExchangeDeliveryModel(Base):
    """A delivery: a message in an inbox, the reader that has taken it until when, and its acknowledgement."""

    __tablename__ = "exchange_deliveries"
    __table_args__ = (
        UniqueConstraint("owner", "message_id"),
        describe_table("messages in inboxes of the exchange", pruned_as=("sessions", "exchange"), erased="removed"),
    )

    owner: Mapped[str] = text_column(256, ForeignKey("exchange_inboxes.owner"), primary_key=True, personal=True)
    ord: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    message_id: Mapped[str] = text_column(256, ForeignKey("messages.id"), personal=False)
    sender: Mapped[str | None] = person_column(256)
    channel: Mapped[str | None] = text_column(256, personal=False)
    delivered_at: Mapped[datetime]
    taken_by: Mapped[str | None] = person_column(256)
    taken_until: Mapped[datetime | None]
    takes: Mapped[int] = mapped_column(server_default=text("0"))
    acked_at: Mapped[datetime | None]
    acked_by: Mapped[str | None] = person_column(256)


class ExchangeMemberModel(Base):
    """A member of a channel, who receives messages published there since ``joined_at``.

    ``left_at`` is NULL for a current member.
    """

    __tablename__ = "exchange_members"
    __table_args__ = describe_table(
        "members of channels of the exchange", kept="one row for each member of a channel", erased="removed"
    )

    channel: Mapped[str] = text_column(256, primary_key=True, personal=False)
    member: Mapped[str] = text_column(256, primary_key=True, personal=True)
    joined_at: Mapped[datetime]
    left_at: Mapped[datetime | None]
