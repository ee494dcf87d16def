"""Records of prunes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from lastlight_state.db.records import Record

#: How the counts of plans and receipts name line files, and their bytes, beside the rows of tables.
LINE_FILES, LINE_BYTES = "line_files", "line_bytes"


class PrunePlan(Record):
    """What a prune would remove at this moment: nothing is written to find out.

    ``counts`` are rows by table, ``records`` the number of records (such as runs) and ``victims`` the ids of the first
    20, in the order of their end. ``protected`` says how many records are old enough and stay, by the reason why.
    ``counts`` has ``line_files`` and ``line_bytes``, too, where log files would go.
    Of the kinds ``exchange``, ``changes`` and ``journal`` a record is an inbox, a feed or a run that loses its oldest
    rows; of ``orphans`` it is an order or a message, the orders first.
    """

    kind: str
    cutoff: datetime
    records: int
    counts: Mapping[str, int]
    protected: Mapping[str, int]
    victims: tuple[str, ...]
