"""Records of receipts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lastlight_state.db.rows.records import Record


class ReceiptSummary(Record):
    """A piece of maintenance work as lists show it.

    ``state`` is ``running``, ``done``, ``failed`` or ``interrupted``. ``counts`` has the number of rows handled, by
    table. ``epoch`` increases whenever another owner continues the work.
    """

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
    counts: dict[str, Any]


class Receipt(ReceiptSummary):
    """A piece of maintenance work with its ``policy``, its progress (``cursor``), and the ``error`` that stopped it."""

    cursor: Any
    error: str | None
    policy: Any
