"""What belongs to others stays to the byte where people are erased."""

from __future__ import annotations

from typing import Any

from support.maintenance.others import changed_keys, fill_life, rows_by_key, run_execution
from support.maintenance.people import shared_place

from lastlight_state.testing import Database


def test_an_erasure_changes_no_row_that_is_not_the_persons(store: Any, database: Database) -> None:
    """maintenance OP-77: names, metadata, texts and times of others among them."""
    talks = database.open()
    own, chat = shared_place(talks)
    for name in ("bob", "cy"):
        fill_life(talks, name)
    run_execution(talks, "agent-1")
    before = rows_by_key(database)
    store.maintenance.erase.run("ana")
    assert changed_keys(before, rows_by_key(database)) == {
        "branches": {"own"},
        "executions": {"agent-1"},
        "messages": {"a", "sender", "recipient"},
        "messaging_messages": {key for key, row in before["messaging_messages"].items() if chat in row},
        "messaging_sessions": {chat},
        "sessions": {own},
    }
