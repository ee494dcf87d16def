"""Later pages of a mailbox's lists."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.dialects import sqlite
from support.mailbox.files import inbound, sql

from lastlight_state.db.listing import Listing
from lastlight_state.mailbox import HostMailbox
from lastlight_state.mailbox.host import statements


@pytest.mark.parametrize("listing", [statements.LIST, statements.LIST_TASKS])
def test_a_later_page_seeks_in_its_index(host: HostMailbox, listing: Listing) -> None:
    """mailbox MB-06: it does not read the pages before."""
    element: Any = listing.statement({}, paged=True).element
    text = str(element.compile(dialect=sqlite.dialect()))
    plan = sql(inbound(host), f"EXPLAIN QUERY PLAN {text}", [None] * text.count("?"))
    assert [row[3].split(" USING")[0] for row in plan] == ["SEARCH messages_in"]
