"""The tables of this domain, as statements name them."""

from __future__ import annotations

from lastlight_state.db.base import table_of
from lastlight_state.receipts.models import (
    ImportLedgerModel,
    MaintenancePermitModel,
    MaintenanceReceiptModel,
    TombstoneModel,
)

RECEIPTS = table_of(MaintenanceReceiptModel)

PERMITS = table_of(MaintenancePermitModel)

TOMBSTONES = table_of(TombstoneModel)

LEDGER = table_of(ImportLedgerModel)
