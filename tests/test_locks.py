"""The rows that a statement locks are not left unlocked by accident, nor more of them locked."""

from __future__ import annotations

import re

from support import locks


def test_statements_lock_the_rows_that_were_written_down() -> None:
    """house H-45: those of new statements are written down when the page is made again."""
    now = locks.statements()
    kept = {name: lock for name, lock in locks.recorded().items() if name in now}
    assert len(kept) > 60
    assert {name: locks.found().get(name, "none") for name in kept} == kept


def test_a_statement_that_is_called_a_lock_is_one() -> None:
    """house H-45: new ones, too."""
    named = {name for name in locks.statements() if re.search(r"\b_?LOCK|_LOCKED$|\.lock$", name)}
    assert named - locks.found().keys() == set()
    assert len(named) > 30
