"""The library's own tables of the outputs domain. The output tables themselves are created by definitions.

The keys of tables with rows of runs begin with the run's id, so that a distributed Postgres can store the rows of a run
together.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from lastlight_state.db.runs import run_id_column
from lastlight_state.db.schema.base import Base, table_of
from lastlight_state.db.schema.declarations import KIB, MIB, describe_table, json_column, text_column
from lastlight_state.db.schema.guards import Key, append_only, declare, no_replacement, no_replacing_insert, no_update
from lastlight_state.db.schema.indexes import where
from lastlight_state.db.valid import words

# Allowed words of the outputs domain, and limits that are not those of a column.

#: The type of a column, as signatures and the registry name it. ``blob`` occurs only in custom tables.
Token = Literal["text", "integer", "real", "boolean", "decimal", "timestamp", "json", "blob"]
#: The kind of an output table: a column for each field, one column for the whole value, or made by the caller.
Kind = Literal["columns", "payload", "custom"]
#: Why a row left an output table.
Cause = Literal["replaced", "withdrawn"]
#: Which entries of the cache a call clears.
Which = Literal["all", "expired"]

WHICH = words(Which)
REPLACED: Cause = "replaced"
WITHDRAWN: Cause = "withdrawn"

#: The one user column of a payload-only table, and the field that makes a model payload-only.
PAYLOAD = "payload"

#: The columns with which every output table begins.
BOOKKEEPING = ("run_id", "node_id", "iteration", "row_created_at", "row_updated_at")

COLUMN_NAME = 63

# Bytes of UTF-8.
ROW = 1024 * 1024
LARGEST_ROW = 16 * 1024 * 1024
SNAPSHOT = 64 * 1024 * 1024
QUERY = 256 * 1024

# Levels of nesting.
ROW_DEPTH = 64
SCHEMA_DEPTH = 200

FIELDS = 200
QUERY_ROWS = 10_000
QUERY_SECONDS = 3_600
LAST_ITERATION = 2**31 - 1
#: Digits of a decimal before the point, and after it.
DECIMAL_DIGITS = 1_000

# Kinds of record, as `NotFound` and `AlreadyExists` name them.
INPUT_KIND = "run_input"
OUTPUT_TABLE = "output"
OUTPUT = "output_row"


class RunInputModel(Base):
    """A revision of a run's input. The highest revision is the current input."""

    __tablename__ = "run_inputs"
    __table_args__ = describe_table(
        "what each run was started with; the highest revision is in force", pruned_as=("runs",), erased="with_run"
    )

    run_id: Mapped[str] = run_id_column(primary_key=True)
    revision: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    created_at: Mapped[datetime]
    created_by: Mapped[str | None] = text_column(256, personal=True)
    reason: Mapped[str | None] = text_column(4 * KIB, personal=True)
    payload: Mapped[Any] = json_column(MIB, personal=True, shape=dict, nullable=False)
    given: Mapped[Any] = json_column(MIB, personal=True, nullable=True)


class OutputTableModel(Base):
    """The registry of output tables: the key, name and columns of each."""

    __tablename__ = "output_tables"
    __table_args__ = describe_table(
        "the registry of output tables, with their columns and signatures",
        kept="one row for each output table; the rows of those tables go with their run",
    )

    key: Mapped[str] = text_column(48, primary_key=True, personal=False)
    table_name: Mapped[str] = text_column(48, unique=True, personal=False)
    kind: Mapped[str] = text_column(None, personal=False)
    signature: Mapped[str] = text_column(None, personal=False)
    model_digest: Mapped[str | None] = text_column(None, personal=False)
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    columns: Mapped[Any] = json_column(None, personal=False, shape=list, nullable=False)
    json_schema: Mapped[Any] = json_column(None, personal=False, nullable=True)


class OutputHistoryModel(Base):
    """A former row of an output table, which was replaced or withdrawn."""

    __tablename__ = "output_history"
    __table_args__ = describe_table(
        "rows that left output tables, replaced or withdrawn, numbered from 0 for each key",
        pruned_as=("runs",),
        erased="with_run",
    )

    run_id: Mapped[str] = run_id_column(primary_key=True)
    table_name: Mapped[str] = text_column(48, primary_key=True, personal=False)
    node_id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    iteration: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    revision: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    signature: Mapped[str] = text_column(None, personal=False)
    cause: Mapped[str] = text_column(None, personal=False)
    written_at: Mapped[datetime]
    removed_at: Mapped[datetime]
    reason: Mapped[str | None] = text_column(4 * KIB, personal=True)
    value: Mapped[Any] = json_column(None, personal=True, nullable=False)


class OutputCacheModel(Base):
    """A cached result, which may be reused while its schema stays the same."""

    __tablename__ = "output_cache"
    __table_args__ = describe_table(
        "results that may be used again while their schema is the same",
        pruned_as=("cache",),
        stays="derived data, found by its key: a prune of the cache removes it",
    )

    cache_key: Mapped[str] = text_column(None, primary_key=True, personal=False)
    workflow_name: Mapped[str] = text_column(256, personal=False)
    node_id: Mapped[str] = text_column(256, personal=False)
    output_key: Mapped[str] = text_column(48, personal=False)
    table_name: Mapped[str] = text_column(48, personal=False)
    schema_signature: Mapped[str] = text_column(None, personal=False)
    model_digest: Mapped[str | None] = text_column(None, personal=False)
    agent_signature: Mapped[str | None] = text_column(256, personal=False)
    source_run_id: Mapped[str | None] = text_column(256, personal=False)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    payload: Mapped[Any] = json_column(None, personal=True, nullable=False)


_cache = OutputCacheModel.__table__.c

Index("ix_output_cache_node", _cache.workflow_name, _cache.node_id, _cache.created_at, _cache.cache_key)
Index("ix_output_cache_newest", _cache.created_at, _cache.cache_key)
Index("ix_output_cache_expiry", _cache.expires_at, **where("expires_at IS NOT NULL"))


# The library's own tables of this domain, as statements name them.

INPUTS = table_of(RunInputModel)
REGISTRY = table_of(OutputTableModel)
HISTORY = table_of(OutputHistoryModel)
CACHE = table_of(OutputCacheModel)


# Triggers by which the database refuses changes of inputs, of the registry and of the history of outputs.

HISTORY_KEY = ("run_id", "table_name", "node_id", "iteration", "revision")

OUTPUTS = declare(
    [
        *append_only("run_inputs"),
        *no_update("run_inputs"),
        *no_replacing_insert("run_inputs"),
        *append_only("output_history"),
        *no_update("output_history"),
        *no_replacing_insert("output_history"),
        *append_only("output_tables"),
        *no_replacement("output_tables", Key(("key",)), Key(("table_name",))),
    ]
)
