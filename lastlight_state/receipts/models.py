"""Tables of the receipts domain: what maintenance did, and the two facts that the schema keeps about itself."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index, false, text
from sqlalchemy.orm import Mapped, mapped_column

from lastlight_state.db.base import Base, described, json_column
from lastlight_state.db.indexes import where


class MaintenanceReceiptModel(Base):
    """One piece of maintenance work: under which policy, how far it came, what it did."""

    __tablename__ = "maintenance_receipts"
    __table_args__ = described("what maintenance did, one row per piece of work")

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    scope: Mapped[str] = mapped_column(server_default=text("''"))
    state: Mapped[str]
    owner: Mapped[str]
    epoch: Mapped[int] = mapped_column(server_default=text("1"))
    actor: Mapped[str | None]
    library_version: Mapped[str]
    started_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    counts: Mapped[Any] = json_column(shape=dict, nullable=False, server_default=text("'{}'"))
    cursor: Mapped[Any] = json_column(nullable=True)
    error: Mapped[str | None]
    policy: Mapped[Any] = json_column(nullable=False)


class LastlightMetaModel(Base):
    """Facts about the schema by name, such as ``min_reader``."""

    __tablename__ = "lastlight_meta"
    __table_args__ = described("facts about this schema")

    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class MaintenancePermitModel(Base):
    """The leave to delete, for the transaction that inserts and removes it. Never holds a committed row.

    ``probe`` is for the guards of SQLite: its default is stored only by a statement that replaces rows.
    """

    __tablename__ = "maintenance_permits"
    __table_args__ = described("leave to delete within one transaction; always empty at rest")

    receipt_id: Mapped[str] = mapped_column(primary_key=True)
    probe: Mapped[int] = mapped_column(server_default=text("0"))


class TombstoneModel(Base):
    """What was pruned, so that an import does not bring it back."""

    __tablename__ = "tombstones"
    __table_args__ = described("what was pruned, by kind and id")

    kind: Mapped[str] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(primary_key=True)
    receipt_id: Mapped[str]
    digest: Mapped[str | None]
    deleted_at: Mapped[datetime]


class ImportLedgerModel(Base):
    """What was imported from where, with the digest of what was seen."""

    __tablename__ = "import_ledger"
    __table_args__ = described("what was imported, by source, with its digest")

    source_kind: Mapped[str] = mapped_column(primary_key=True)
    source_key: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str]
    outcome: Mapped[str]
    target_kind: Mapped[str | None]
    target_id: Mapped[str | None]
    receipt_id: Mapped[str]
    imported_at: Mapped[datetime]


class CopyProgressModel(Base):
    """How far a copy between databases came, table by table."""

    __tablename__ = "copy_progress"
    __table_args__ = described("how far a copy into this database came, by table")

    receipt_id: Mapped[str] = mapped_column(primary_key=True)
    table_name: Mapped[str] = mapped_column(primary_key=True)
    rows: Mapped[int] = mapped_column(server_default=text("0"))
    done: Mapped[bool] = mapped_column(server_default=false())
    last_key: Mapped[Any] = json_column(nullable=True)


_receipt = MaintenanceReceiptModel.__table__.c

Index("ix_maintenance_receipts_kind", _receipt.kind, _receipt.started_at.desc(), _receipt.id.desc())
Index("uq_maintenance_receipts_running", _receipt.kind, _receipt.scope, unique=True, **where("state = 'running'"))
