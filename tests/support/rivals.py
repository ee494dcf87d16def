"""Somebody else on the same database, who tries to change what a call has looked at before the call writes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.workflows.steps import Raw, wait_until_blocked

from lastlight_state import Settings, StateStore
from lastlight_state.backends.waiting import Retry
from lastlight_state.errors import BackendBusy, Conflict
from lastlight_state.testing import Database, racing

#: No call sends more statements.
MOST = 30

Act = Callable[[Any, Any], object]


@dataclass(frozen=True)
class Look:
    """A call that looks and then writes, and what nobody else may do in between.

    ``given`` prepares a store and returns what ``call`` and ``rival`` work on. ``since``: before this statement of the
    call, counted from 1, and before each later one the rival must be shut out. ``later``: how much time passes first.
    """

    given: Callable[[Any], Any]
    call: Act
    rival: Act
    since: int = 2
    later: timedelta = timedelta(0)


def parameters(looks: dict[str, Look]) -> pytest.MarkDecorator:
    """Return the looks of a room as parameters of a test."""
    return pytest.mark.parametrize("look", looks.values(), ids=list(looks))


def check(database: Database, look: Look) -> None:
    """Check that the rival, which does not wait for locks, is refused before each statement."""
    store, other = database.open(migrate=True), shut_out(database)
    known = look.given(store)
    database.clock.advance(look.later)
    refused: list[BackendBusy] = []

    def attempt() -> None:
        with pytest.raises(BackendBusy) as refusal:
            look.rival(other, known)
        refused.append(refusal.value)

    with racing(store) as race:
        for number in range(look.since, MOST):
            race.before(number, attempt)
        with suppress(Conflict):  # a call may refuse, too: under the same lock
            look.call(store, known)
    assert len(refused) == len(race.statements) - look.since + 1
    assert refused


def shut_out(database: Database) -> StateStore:
    """Return a store that gives up at the first lock that another holds."""
    store = database.open(migrate=True, settings=Settings(lock_timeout=0.001, busy_timeout=0.001))
    scope: Any = store._scope
    scope.retry = Retry(store.metrics, limit=0)
    return store


@dataclass(frozen=True)
class Wait:
    """A call that must wait for a rival's transaction, and decide by what it finds after it."""

    given: Callable[[Any], Any]
    rival: Act
    call: Act


def after_waiting(database: Database, wait: Wait) -> Any:
    """Return what the call returns or raises that had to wait for the rival's commit. For Postgres: it locks rows."""
    store, other = database.open(migrate=True), database.open(migrate=True)
    known = wait.given(store)
    with ThreadPoolExecutor(1) as pool:
        with other.transaction() as tx:
            wait.rival(tx, known)
            calling = pool.submit(partial(wait.call, store, known))
            wait_until_blocked(Raw(database))
        return calling.exception(30) or calling.result()
