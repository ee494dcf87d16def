"""Somebody comes in between the statements of `Counters.run` and `Reap.run`.

Each batch looks again, under its locks.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.conversations.talk import begun, running_hours_apart

from lastlight_state.errors import ClaimLost
from lastlight_state.testing import Database, racing


def test_a_counter_that_is_raised_meanwhile_is_not_raised_again(database: Database) -> None:
    """maintenance OP-67: nor is one that is ahead by then brought back."""
    store, raw = database.open(), database.raw()
    order = begun(store, "a", "b").progression_id
    raw.execute(f"UPDATE progressions SET next_ord = 1 WHERE id = '{order}'")
    with racing(store) as race:
        raising = f"UPDATE progressions SET next_ord = 7 WHERE id = '{order}'"
        race.before_unit(3, lambda: raw.execute(raising))
        assert store.maintenance.counters.run().counts == {}
    assert race.left == 0
    assert raw.execute(f"SELECT next_ord FROM progressions WHERE id = '{order}'").fetchone()[0] == 7


def test_work_that_was_taken_over_is_left_to_its_new_owner(database: Database) -> None:
    """maintenance OP-7: nobody is told to go on with it."""
    store, other = running_hours_apart(database, "silent"), database.open()

    def take_over() -> None:
        [running] = other.receipts.list(state="running")
        database.clock.advance(timedelta(minutes=10))
        other.receipts.resume(running.id, owner="other")

    with racing(store) as race:
        race.before_unit(3, take_over)
        with pytest.raises(ClaimLost) as lost:
            store.maintenance.reap.run(older_than=timedelta(0))
    assert (race.left, getattr(lost.value, "__notes__", [])) == (0, [])
    assert [(one.owner, one.state) for one in other.receipts.list()] == [("other", "running")]


def test_a_session_that_wakes_up_meanwhile_is_skipped(database: Database) -> None:
    """maintenance OP-33: as is one that somebody else ended."""
    store, other = running_hours_apart(database, "ended", "silent", "woken"), database.open()
    with racing(store) as race:
        race.before_unit(3, lambda: other.conversations.lifecycle.heartbeat("woken", "w"))
        race.before_unit(3, lambda: other.conversations.lifecycle.transition("ended", "completed"))
        receipt = store.maintenance.reap.run(older_than=timedelta(0))
    assert (race.left, receipt.counts) == (0, {"retired": 1, "skipped": 2})
    found = [store.conversations.sessions.get(name).status for name in ("ended", "silent", "woken")]
    assert found == ["completed", "aborted", "running"]
