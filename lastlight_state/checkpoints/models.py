"""Tables of the checkpoints domain: threads, checkpoints, values of channels by version, and pending writes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, MappedColumn, mapped_column

from lastlight_state.db.schema.base import Base, table_of
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
from lastlight_state.db.schema.indexes import where
from lastlight_state.db.schema.sealing import Binding
from lastlight_state.db.valid import words

# The vocabularies and limits of checkpoints.

#: How a value is stored: whole, as the change against an earlier value, or as a reference to an equal earlier value.
Encoding = Literal["whole", "change", "same"]
#: How a second write with the same task and ``idx`` is handled: keep the first write, or replace it.
WriteConflictRule = Literal["keep", "replace"]

#: How a new value for a version that has a different value is handled: refuse it, or keep the stored value.
ValueConflictRule = Literal["refuse", "keep"]

ENCODINGS = words(Encoding)
WRITE_CONFLICT_RULES = words(WriteConflictRule)
VALUE_CONFLICT_RULES = words(ValueConflictRule)

#: At least one of so many values is stored whole. A power of two: rebuilding a value reads at most its logarithm of
#: other values.
WHOLE_INTERVAL = 64
#: Most channels of a checkpoint, and most writes of one call.
MANY = 10_000
#: Most bytes of all values, or of all writes, of one call together.
TOGETHER_BYTES = 128 * 1024 * 1024

#: The kinds of records that `NotFound` errors name.
THREAD, CHECKPOINT = "checkpoint_thread", "checkpoint"
#: The kind of record that `AlreadyExists` names for a channel's value.
VALUE = "checkpoint_value"


#: Most bytes of a channel's value or of a write, and of a checkpoint's body.
_VALUE, _BODY = 64 * MIB, 16 * MIB


def _thread() -> MappedColumn[str]:
    return text_column(None, ForeignKey("checkpoint_threads.id"), primary_key=True, personal=False)


def _namespace() -> MappedColumn[str]:
    return text_column(KIB, primary_key=True, server_default=text("''"), personal=False)


def _thread_binding(name: str, *keys: str) -> Binding:
    """Return the columns to which a sealed value of a thread is bound.

    In a copy of the thread, it must be sealed again.
    """
    return Binding(name, ("thread_id", "namespace", *keys))


def _format() -> MappedColumn[str]:
    return text_column(64, personal=False)


class CheckpointThreadModel(Base):
    """A thread: a series of checkpoints, found by a key within a scope."""

    __tablename__ = "checkpoint_threads"
    __table_args__ = (
        UniqueConstraint("scope", "key"),
        describe_table(
            "threads of checkpoints, by scope and key",
            pruned_as=("checkpoints",),
            erased="removed",
            newest=("created_at", "updated_at"),
        ),
    )

    id: Mapped[str] = text_column(None, primary_key=True, personal=False)
    scope: Mapped[str] = text_column(256, server_default=text("''"), personal=False)
    key: Mapped[str] = text_column(512, personal=False)
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    user: Mapped[str | None] = person_column(256)


class CheckpointModel(Base):
    """The state of a thread at one moment: its content as bytes, and the version of each channel."""

    __tablename__ = "checkpoints"
    __table_args__ = describe_table(
        "checkpoints of threads, with the version of each channel",
        pruned_as=("checkpoints",),
        erased="removed",
        newest=("created_at",),
    )

    thread_id: Mapped[str] = _thread()
    namespace: Mapped[str] = _namespace()
    id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    seq: Mapped[int]
    parent_id: Mapped[str | None] = text_column(256, personal=False)
    run_ref: Mapped[str | None] = text_column(256, personal=False)
    created_at: Mapped[datetime]
    format: Mapped[str] = _format()
    metadata_: Mapped[Any] = json_column(256 * KIB, name="metadata", personal=True, shape=dict, nullable=True)
    versions: Mapped[Any] = json_column(MIB, personal=False, shape=dict, nullable=False)
    body: Mapped[bytes] = bytes_column(
        most=_BODY, personal=True, sealed=_thread_binding("checkpoints.body", "id", "format")
    )


class CheckpointValueModel(Base):
    """The value of a channel at a version: stored whole, as a change of an earlier value, or as equal to one."""

    __tablename__ = "checkpoint_values"
    __table_args__ = describe_table(
        "values of channels by version, whole or as changes",
        pruned_as=("checkpoints",),
        erased="removed",
    )

    thread_id: Mapped[str] = _thread()
    namespace: Mapped[str] = _namespace()
    channel: Mapped[str] = text_column(512, primary_key=True, personal=False)
    version: Mapped[str] = text_column(256, primary_key=True, personal=False)
    number: Mapped[int]
    anchor: Mapped[int]
    encoding: Mapped[str] = word_column(ENCODINGS)
    format: Mapped[str] = _format()
    size: Mapped[int]
    digest: Mapped[str] = text_column(None, personal=False)
    body: Mapped[bytes] = bytes_column(
        most=_VALUE,
        personal=True,
        sealed=_thread_binding("checkpoint_values.body", "channel", "number", "anchor", "encoding"),
    )


class CheckpointWriteModel(Base):
    """A task's write to a channel after a checkpoint, before the next one. It may be stored before its checkpoint."""

    __tablename__ = "checkpoint_writes"
    __table_args__ = describe_table(
        "what tasks wrote after a checkpoint, before the next one",
        pruned_as=("checkpoints",),
        erased="removed",
    )

    thread_id: Mapped[str] = _thread()
    namespace: Mapped[str] = _namespace()
    checkpoint_id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    task: Mapped[str] = text_column(256, primary_key=True, personal=False)
    idx: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    path: Mapped[str] = text_column(4 * KIB, server_default=text("''"), personal=False)
    channel: Mapped[str] = text_column(512, personal=False)
    format: Mapped[str] = _format()
    body: Mapped[bytes] = bytes_column(
        most=_VALUE,
        personal=True,
        sealed=_thread_binding("checkpoint_writes.body", "checkpoint_id", "task", "idx", "channel", "format"),
    )


_thread_c, _checkpoint = CheckpointThreadModel.__table__.c, CheckpointModel.__table__.c
_value = CheckpointValueModel.__table__.c

#: For lists of threads, and for prunes by age.
Index("ix_checkpoint_threads_newest", _thread_c.updated_at, _thread_c.id)
#: For prunes of expired threads.
Index("ix_checkpoint_threads_expiry", _thread_c.expires_at, **where("expires_at IS NOT NULL"))
#: For the latest checkpoint of a namespace, and for lists of a namespace.
Index("ix_checkpoints_namespace", _checkpoint.thread_id, _checkpoint.namespace, _checkpoint.seq)
#: For the next number in a thread, and for lists over all its namespaces.
Index("uq_checkpoints_seq", _checkpoint.thread_id, _checkpoint.seq, unique=True)
#: For deletion by run.
Index("ix_checkpoints_run", _checkpoint.run_ref, _checkpoint.thread_id, **where("run_ref IS NOT NULL"))
#: For the stored values that a value is rebuilt from.
Index(
    "uq_checkpoint_values_number",
    _value.thread_id,
    _value.namespace,
    _value.channel,
    _value.number,
    unique=True,
    **where("encoding <> 'same'"),
)


# The tables of this domain, as statements name them.

THREADS = table_of(CheckpointThreadModel)
CHECKPOINTS = table_of(CheckpointModel)
VALUES = table_of(CheckpointValueModel)
WRITES = table_of(CheckpointWriteModel)
