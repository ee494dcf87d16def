"""Arranged race conditions for tests: another action happens between two statements of one call.

A call that reads, decides and then writes is wrong if the rows that it read may change in between. With `racing` a test
makes that change once, at an exact statement, instead of hoping that threads collide there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lastlight_state.aio import AsyncStateStore
from lastlight_state.store import StateStore

#: How transaction statements begin. They are not counted, because databases need them at different places.
TRANSACTION_WORDS = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA", "SET ")


class Race:
    """The statements sent in the block of `racing`, and the actions still planned between them.

    ``statements`` holds the statements' texts in order, except those that begin or end transactions.
    """

    def __init__(self) -> None:
        self.statements: list[str] = []
        self._units = 0
        self._planned: list[tuple[int | str, Callable[[], object]]] = []
        self._units_planned: list[tuple[int, Callable[[], object]]] = []
        self._acting = threading.local()

    def before(self, statement: int | str, act: Callable[[], object]) -> None:
        """Plan one call of ``act`` just before a statement is sent.

        ``statement`` is the statement's number in the block, from 1, or its first characters. In the second case,
        ``act`` is called before the next statement that matches. ``act`` runs in the thread that sends the statement,
        and must use another store or connection. On SQLite it cannot write while the call holds the file's write lock.
        """
        self._planned.append((statement, act))

    def before_unit(self, number: int, act: Callable[[], object]) -> None:
        """Plan one call of ``act``, just before the unit with this number in the block begins, counted from 1.

        A unit is one call through the store, or one block of `StateStore.transaction` or `StateStore.view`. Some calls
        take several units. No lock is held yet, so ``act`` may write on either database.
        """
        self._units_planned.append((number, act))

    @property
    def left(self) -> int:
        """Return the number of planned actions that have not run.

        A test must assert that it is 0, or it proves nothing.
        """
        return len(self._planned) + len(self._units_planned)

    def _act_before_unit(self) -> None:
        if getattr(self._acting, "now", False):
            return
        self._units += 1
        for planned in [planned for planned in self._units_planned if planned[0] == self._units]:
            self._units_planned.remove(planned)
            self._act(planned[1])

    def _act_before_statement(self, sql: Any) -> None:
        text = str(sql)
        if text.startswith(TRANSACTION_WORDS) or getattr(self._acting, "now", False):
            return
        self.statements.append(text)
        number = len(self.statements)
        for planned in list(self._planned):
            at, act = planned
            if at == number or (isinstance(at, str) and text.startswith(at)):
                self._planned.remove(planned)
                self._act(act)

    def _act(self, act: Callable[[], object]) -> None:
        self._acting.now = True
        try:
            act()
        finally:
            self._acting.now = False


@contextmanager
def racing(store: StateStore | AsyncStateStore) -> Iterator[Race]:
    """Watch the statements of this store's calls inside the block, and run planned actions between them.

    ::

        with racing(store) as race:
            race.before("UPDATE workflow_runs", lambda: other.workflows.claims.heartbeat(claim))
            store.workflows.claims.give_up(...)
        assert race.left == 0

    Use it for one test at a time: all threads that use the store are watched.
    """
    backend = _sync(store).backend
    race = Race()
    acquire = backend.acquire

    def acquire_watched(*args: Any, **options: Any) -> Any:
        race._act_before_unit()
        checkout = acquire(*args, **options)
        execute = checkout.execute

        def send(sql: Any, *given: Any, **more: Any) -> Any:
            race._act_before_statement(sql)
            return execute(sql, *given, **more)

        checkout.execute = send
        return checkout

    backend.acquire = acquire_watched  # type: ignore[method-assign]
    try:
        yield race
    finally:
        del backend.acquire  # makes the class's method visible again


def _sync(store: Any) -> StateStore:
    """Return the sync store below an async store or a `Blocking` wrapper."""
    if isinstance(store, StateStore):
        return store
    if isinstance(store, AsyncStateStore):
        return store._store
    return _sync(store._target)
