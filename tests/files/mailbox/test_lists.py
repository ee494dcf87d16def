"""Later pages of a mailbox's lists."""

from __future__ import annotations

from pathlib import Path
from stat import S_IFREG
from types import SimpleNamespace

import pytest
from support.each import with_each
from support.mailbox.files import inbound, sql
from support.mailbox.pairs import mailbox_pair

from lastlight_state.db.lists.listing import Listing
from lastlight_state.files.mailbox.folder import creation
from lastlight_state.files.mailbox.host import statements
from lastlight_state.testing import FrozenClock


@with_each("listing", [statements.LIST, statements.LIST_TASKS])
def test_a_later_page_seeks_in_its_index(tmp_path: Path, frozen_clock: FrozenClock, listing: Listing) -> None:
    """mailbox MB-06: it does not read the pages before."""
    host, _ = mailbox_pair(tmp_path, frozen_clock)
    text = listing.statement({}, paged=True).on(host._pair.own.backend).sql
    plan = sql(inbound(host), f"EXPLAIN QUERY PLAN {text}", [None] * text.count("?"))
    assert [row[3].split(" USING")[0] for row in plan] == ["SEARCH messages_in"]


def test_a_heartbeat_beyond_the_calendar_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mailbox MB-06, house H-30: the agent sets its time, on some file systems far beyond the year 9999."""
    beyond = SimpleNamespace(st_mode=S_IFREG, st_mtime_ns=2**70)
    monkeypatch.setattr(Path, "lstat", lambda _: beyond)
    found = creation.last_beat(tmp_path)
    assert found is not None
    assert found.year == 8999
