"""Named locks: one holder at a time, per schema and name."""

from __future__ import annotations

import threading

from lastlight_state import StateStore
from lastlight_state.testing import Database
from lastlight_state.testing.postgres import connect


def _hold(store: StateStore, name: str, entered: threading.Event, leave: threading.Event) -> None:
    def work(unit: object) -> None:
        unit.named_lock(name)  # type: ignore[attr-defined]
        entered.set()
        assert leave.wait(30)

    store._scope.write(work)


def test_the_second_who_asks_waits_for_the_first_to_end(database: Database) -> None:
    """backends B-48: a transaction-scoped named lock."""
    first, second = database.open(), database.open()
    entered, leave, entered_too, leave_too = (threading.Event() for _ in range(4))
    holder = threading.Thread(target=_hold, args=(first, "admission", entered, leave))
    waiter = threading.Thread(target=_hold, args=(second, "admission", entered_too, leave_too))
    holder.start()
    assert entered.wait(30)
    waiter.start()
    assert not entered_too.wait(0.2)
    leave.set()
    leave_too.set()
    assert entered_too.wait(30)
    holder.join()
    waiter.join()


def test_a_schema_that_is_named_and_the_same_one_by_default_share_their_locks(postgres_url: str) -> None:
    """backends B-48: the lock is the schema's, however the store came to it."""
    entered, leave, entered_too, leave_too = (threading.Event() for _ in range(4))
    with connect(postgres_url) as connection:
        [schema] = connection.execute("SELECT current_schema()").fetchone()  # type: ignore[misc]
    with (
        StateStore.open(postgres_url, migrate=True) as by_default,
        StateStore.open(postgres_url, schema=schema) as by_name,
    ):
        holder = threading.Thread(target=_hold, args=(by_default, "admission", entered, leave))
        waiter = threading.Thread(target=_hold, args=(by_name, "admission", entered_too, leave_too))
        holder.start()
        assert entered.wait(30)
        waiter.start()
        assert not entered_too.wait(0.2)
        leave.set()
        leave_too.set()
        holder.join()
        waiter.join()
    assert entered_too.is_set()
