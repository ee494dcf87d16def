"""The receipts domain: records of maintenance work, and the permit to delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastlight_state.lazy import public

if TYPE_CHECKING:
    from lastlight_state.receipts.face import Receipts as Receipts
    from lastlight_state.receipts.records import Receipt as Receipt, ReceiptSummary as ReceiptSummary

public(globals(), {"face": "Receipts", "records": "Receipt ReceiptSummary"})
