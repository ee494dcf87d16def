"""Calls of many threads that wait for one writer, and the units that they run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from support.scratch import THINGS

from lastlight_state import InvalidValue, StateStore
from lastlight_state.backends.fair_lock import FairLock
from lastlight_state.backends.sqlite import group_commit
from lastlight_state.db.rows.statements import bind, statement_of
from lastlight_state.db.units.unit import Unit

AT = datetime(2026, 2, 3, tzinfo=UTC)
INSERT = statement_of(sa.insert(THINGS).values({name: bind(name, THINGS.c[name]) for name in ("id", "at")}))


def line_of(store: StateStore) -> FairLock:
    """Return the line of those who want to write."""
    backend: Any = store.backend
    found: FairLock = backend._connections.line
    return found


def wait_for(store: StateStore, waiting: int) -> None:
    """Wait until so many stand in the line behind the first, and wait at their gates."""
    deadline = time.monotonic() + 30
    while sum(turn.gate is not None for turn in line_of(store).waiting_turns()) < waiting:
        assert time.monotonic() < deadline
        time.sleep(0.0005)


class Crowd:
    """Calls that wait behind a transaction, from a thread each. The first of them finds all others waiting."""

    def __init__(self, store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(group_commit, "MOST_SECONDS", 60.0)
        self.store = store
        self.sent: list[str] = []

    @property
    def commits(self) -> int:
        """Return how often something was committed."""
        return self.sent.count("COMMIT")

    def calls(self, calls: Sequence[Callable[[], object]], meanwhile: Callable[[], object] | None = None) -> list[Any]:
        """Return what each call returned or raised."""
        outcomes: list[Future[Any]] = []
        with self.store.transaction():
            for number, call in enumerate(calls, 1):
                outcomes.append(_begun(call))
                wait_for(self.store, number)
            if meanwhile is not None:
                meanwhile()
            connection: Any = self.store.backend
            writer = connection._connections._writer
            writer.set_trace_callback(self.sent.append)
        found = [outcome.exception(30) or outcome.result(30) for outcome in outcomes]
        self.sent[:] = self.sent[1:]  # the end of the transaction that all waited for
        return found


def _begun(call: Callable[[], object]) -> Future[Any]:
    """Begin a call on a thread of its own."""
    outcome: Future[Any] = Future()

    def make() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            outcome.set_exception(error)

    threading.Thread(target=make, daemon=True).start()
    return outcome


def put(name: str) -> Callable[[Unit], str]:
    """Insert a row, and give its id back."""

    def work(unit: Unit) -> str:
        unit.change(INSERT, {"id": name, "at": AT})
        return name

    return work


def failing(name: str, kind: int) -> Callable[[Unit], str]:
    """Insert a row and fail: by a constraint, by a value that is refused, or by an exception of the work itself."""

    def work(unit: Unit) -> str:
        put(name)(unit)
        if kind == 0:
            put(name)(unit)
        if kind == 1:
            raise InvalidValue("id", "not today")
        raise ZeroDivisionError(name)

    return work
