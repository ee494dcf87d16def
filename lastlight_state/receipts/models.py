"""Tables of the receipts domain: receipts of maintenance, permits, and facts that the schema stores about itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import Index, false, text
from sqlalchemy.orm import Mapped, mapped_column

from lastlight_state.db.schema.base import Base, table_of
from lastlight_state.db.schema.declarations import KIB, MIB, describe_table, json_column, text_column
from lastlight_state.db.schema.guards import Guard, Key, append_only, declare, no_replacement
from lastlight_state.db.schema.indexes import where
from lastlight_state.db.valid import words

# Allowed words of receipts.

Kind = Literal["prune", "redact", "reap", "import", "copy", "restore", "repair", "bundle"]
State = Literal["running", "done", "failed", "interrupted"]
End = Literal["done", "failed", "interrupted"]

KINDS = words(Kind)
STATES = words(State)
ENDS = words(End)

#: How long a running receipt must be silent before another owner may take it over.
SILENCE = timedelta(minutes=10)


#: What `NotFound` calls a receipt.
RECEIPT = "receipt"


class MaintenanceReceiptModel(Base):
    """One piece of maintenance work: its policy, its progress, and its counts of rows."""

    __tablename__ = "maintenance_receipts"
    __table_args__ = describe_table(
        "what maintenance did, one row per piece of work",
        kept="the proof of what was removed",
        stays="says who operates the system, and which ids a prune was told",
    )

    id: Mapped[str] = text_column(None, primary_key=True, personal=False)
    kind: Mapped[str] = text_column(None, personal=False)
    scope: Mapped[str] = text_column(256, server_default=text("''"), personal=False)
    state: Mapped[str] = text_column(None, personal=False)
    owner: Mapped[str] = text_column(256, personal=False)
    epoch: Mapped[int] = mapped_column(server_default=text("1"))
    actor: Mapped[str | None] = text_column(256, personal=True)
    library_version: Mapped[str] = text_column(None, personal=False)
    started_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    counts: Mapped[Any] = json_column(64 * KIB, personal=False, shape=dict, nullable=False, server_default=text("'{}'"))
    cursor: Mapped[Any] = json_column(64 * KIB, personal=True, nullable=True)
    error: Mapped[str | None] = text_column(16 * KIB, personal=False)
    # The policy of a prune names up to 500 ids, however long they are.
    policy: Mapped[Any] = json_column(MIB, personal=True, nullable=False)


class LastlightMetaModel(Base):
    """Facts about the schema by name, such as ``min_reader``."""

    __tablename__ = "lastlight_meta"
    __table_args__ = describe_table("facts about this schema", kept="facts about the schema")

    key: Mapped[str] = text_column(None, primary_key=True, personal=False)
    value: Mapped[str] = text_column(None, personal=False)


class MaintenancePermitModel(Base):
    """A permit to delete, for the transaction that inserts and removes it. No committed row ever exists.

    ``probe`` is for the guards of SQLite: only a statement that replaces rows stores its default.
    """

    __tablename__ = "maintenance_permits"
    __table_args__ = describe_table(
        "leave to delete within one transaction; always empty at rest", kept="always empty at rest"
    )

    receipt_id: Mapped[str] = text_column(None, primary_key=True, personal=False)
    probe: Mapped[int] = mapped_column(server_default=text("0"))


class TombstoneModel(Base):
    """A marker of a pruned record, so that an import does not restore the record."""

    __tablename__ = "tombstones"
    __table_args__ = describe_table(
        "what was pruned, by kind and id", kept="what was removed must not come back by an import"
    )

    kind: Mapped[str] = text_column(None, primary_key=True, personal=False)
    id: Mapped[str] = text_column(None, primary_key=True, personal=False)
    receipt_id: Mapped[str] = text_column(None, personal=False)
    digest: Mapped[str | None] = text_column(None, personal=False)
    deleted_at: Mapped[datetime]


class ImportLedgerModel(Base):
    """One imported unit of a source, with the digest of its content."""

    __tablename__ = "import_ledger"
    __table_args__ = describe_table(
        "what was imported, by source, with its digest", kept="what was imported must not be imported twice"
    )

    source_kind: Mapped[str] = text_column(None, primary_key=True, personal=False)
    source_key: Mapped[str] = text_column(None, primary_key=True, personal=False)
    digest: Mapped[str] = text_column(None, personal=False)
    outcome: Mapped[str] = text_column(None, personal=False)
    target_kind: Mapped[str | None] = text_column(None, personal=False)
    target_id: Mapped[str | None] = text_column(None, personal=False)
    receipt_id: Mapped[str] = text_column(None, personal=False)
    imported_at: Mapped[datetime]


class CopyProgressModel(Base):
    """The progress of a copy between databases, table by table."""

    __tablename__ = "copy_progress"
    __table_args__ = describe_table(
        "how far a copy into this database came, by table",
        kept="how far copies came; a few rows for each",
        stays="a key stands here only while its table is copied",
    )

    receipt_id: Mapped[str] = text_column(None, primary_key=True, personal=False)
    table_name: Mapped[str] = text_column(None, primary_key=True, personal=False)
    rows: Mapped[int] = mapped_column(server_default=text("0"))
    done: Mapped[bool] = mapped_column(server_default=false())
    last_key: Mapped[Any] = json_column(None, personal=True, nullable=True)


_receipt = MaintenanceReceiptModel.__table__.c

Index("ix_maintenance_receipts_kind", _receipt.kind, _receipt.started_at, _receipt.id)
# Finds imported units by the record they became. A unit whose record is missing was removed here, wherever its source
# is now.
Index("ix_import_ledger_target", ImportLedgerModel.__table__.c.target_kind, ImportLedgerModel.__table__.c.target_id)
Index("uq_maintenance_receipts_running", _receipt.kind, _receipt.scope, unique=True, **where("state = 'running'"))


# The tables of this domain, as statements name them.

RECEIPTS = table_of(MaintenanceReceiptModel)

PERMITS = table_of(MaintenancePermitModel)

TOMBSTONES = table_of(TombstoneModel)

LEDGER = table_of(ImportLedgerModel)


# Guards of receipts and tombstones. Permits of ordinary maintenance do not open these guards.

FINISHED_RECEIPTS = declare(
    [
        *append_only("maintenance_receipts", permit="reset"),
        *no_replacement("maintenance_receipts", Key(("id",)), Key(("kind", "scope"), among=("state", "'running'"))),
        Guard(
            "maintenance_receipts_finished_stays",
            "maintenance_receipts",
            "update",
            "a finished receipt never changes",
            when="OLD.state IN ('done', 'failed')",
            permit="reset",
        ),
    ]
)

TOMBSTONE_GUARDS = declare(
    [*append_only("tombstones", permit="reset"), *no_replacement("tombstones", Key(("kind", "id")))]
)
