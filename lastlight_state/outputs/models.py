"""The library's own tables of the outputs domain. Output tables are made by definitions.

Keys begin with the run where there is one, so that a distributed Postgres can place the rows of a run together.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from lastlight_state.db.base import Base
from lastlight_state.db.declarations import KIB, MIB, described, json_column, text_column
from lastlight_state.db.indexes import where
from lastlight_state.db.runs import run_id_column


class RunInputModel(Base):
    """A revision of a run's input. The highest one is the input."""

    __tablename__ = "run_inputs"
    __table_args__ = described(
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
    """The registry of output tables: what each is called, and which columns it has."""

    __tablename__ = "output_tables"
    __table_args__ = described(
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
    """A row that was in an output table and was replaced or withdrawn."""

    __tablename__ = "output_history"
    __table_args__ = described(
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
    """A result that may be used again while its schema is the same."""

    __tablename__ = "output_cache"
    __table_args__ = described(
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
