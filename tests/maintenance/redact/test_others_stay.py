"""What belongs to others stays to the byte where messages are emptied."""

from __future__ import annotations

from typing import Any

from support.maintenance.others import changed_keys, fill_life, rows_by_key

from lastlight_state.maintenance import RedactPolicy
from lastlight_state.testing import Database


def test_a_redaction_changes_no_message_but_those_that_it_names(store: Any, database: Database) -> None:
    """maintenance OP-32."""
    talks = database.open()
    for name in ("bob", "cy"):
        fill_life(talks, name)
    before = rows_by_key(database)
    store.maintenance.redact.run(RedactPolicy(message_ids=["of bob"]))
    assert changed_keys(before, rows_by_key(database)) == {"messages": {"of bob"}, "vectors": {"texts of bob"}}
