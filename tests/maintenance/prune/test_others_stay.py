"""What belongs to others stays to the byte where records are pruned."""

from __future__ import annotations

from typing import Any

from support.conversations.talk import said
from support.maintenance.others import fill_life, rows_by_key

from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database
from lastlight_state.workflows import RunOptions, Trigger


def test_a_prune_changes_no_row_that_it_leaves(store: Any, database: Database) -> None:
    """maintenance OP-26, OP-29: of what was shared with a record that goes."""
    talks = database.open()
    for name in ("bob", "cy"):
        fill_life(talks, name)
    database.clock.advance(seconds=31 * 86_400)
    talks.conversations.branches.append("cy", ["of bob", *said("new")])
    for key in ("old", "young"):
        talks.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id=key))
    before = rows_by_key(database)
    for kind in ("sessions", "executions", "messaging"):
        store.maintenance.prune.run(PrunePolicy(kind, keep_n=0, ids=["bob"] if kind == "sessions" else None))
    after = rows_by_key(database)
    left = {table: rows.keys() & after[table].keys() for table, rows in before.items()}
    assert {
        table for table, keys in left.items() if any(before[table][key] != after[table][key] for key in keys)
    } == set()
    assert {"cy", "of bob", "new"} <= {key for table in ("sessions", "messages") for key in after[table]}
