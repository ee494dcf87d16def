"""The rows of the tables of receipts, written by ``make docs`` from the models. JSON is given as text."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict


class MaintenanceReceiptRow(TypedDict):
    """A row of ``maintenance_receipts``."""

    id: str
    kind: str
    scope: str
    state: str
    owner: str
    epoch: int
    actor: str | None
    library_version: str
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    counts: Any
    cursor: Any
    error: str | None
    policy: Any


class LastlightMetaRow(TypedDict):
    """A row of ``lastlight_meta``."""

    key: str
    value: str


class MaintenancePermitRow(TypedDict):
    """A row of ``maintenance_permits``."""

    receipt_id: str
    probe: int


class TombstoneRow(TypedDict):
    """A row of ``tombstones``."""

    kind: str
    id: str
    receipt_id: str
    digest: str | None
    deleted_at: datetime


class ImportLedgerRow(TypedDict):
    """A row of ``import_ledger``."""

    source_kind: str
    source_key: str
    digest: str
    outcome: str
    target_kind: str | None
    target_id: str | None
    receipt_id: str
    imported_at: datetime


class CopyProgressRow(TypedDict):
    """A row of ``copy_progress``."""

    receipt_id: str
    table_name: str
    rows: int
    done: bool
    last_key: Any
