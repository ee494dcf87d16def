"""A row that somebody damaged is named where it would stand, and harms no other."""

from __future__ import annotations

from support.conversations.talk import begun
from support.workflows.steps import Raw

from lastlight_state import StateStore


def test_a_damaged_entry_of_a_feed_is_not_taken_for_one_that_was_removed(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-29, CV-32: the first of a page, or the only one."""
    changes = every_backend.conversations.changes
    session_id = begun(every_backend, "a").session_id
    raw("UPDATE session_changes SET details = '[1]' WHERE seq = 2")
    for limit, seqs in ((50, [3]), (1, [])):
        page = changes.after(session_id, 1, limit=limit)
        assert ([one.seq for one in page], len(page.damaged)) == (seqs, 1)
