"""Calls of many threads that wait for one writer, and are then made in the order in which they came."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from lastlight_state import StateStore
from lastlight_state.backends.fair_lock import FairLock
from lastlight_state.backends.sqlite import group_commit


def line_of(store: StateStore) -> FairLock:
    """Return the line of those who want to write."""
    backend: Any = store.backend
    found: FairLock = backend._connections.line
    return found


def wait_for(store: StateStore, waiting: int) -> None:
    """Wait until so many stand in the line behind the first, and wait at their gates."""
    deadline = time.monotonic() + 30
    while sum(turn.gate is not None for turn in line_of(store).waiting()) < waiting:
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
