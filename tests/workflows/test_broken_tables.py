"""What callers are told when a table is not there any more in the middle of their work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from support.workflows.steps import Raw, started

from lastlight_state import StateStore
from lastlight_state.errors import BackendError
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import Claim, Gate, Usage

HOUR = timedelta(hours=1)


@contextmanager
def without(raw: Raw, table: str) -> Iterator[None]:
    """A block in which a table is not there."""
    raw(f"ALTER TABLE {table} RENAME TO lost_table")
    yield
    raw(f"ALTER TABLE lost_table RENAME TO {table}")


def _offered(store: Any) -> str:
    return started(store).id


def _queued(store: Any) -> str:
    return started(store, status="queued").id


def _spent(store: Any) -> str:
    claim: Claim = store.workflows.claims.take(started(store, max_restarts=0).id, owner="gone")
    return claim.run_id


def _overdue_gate(store: Any) -> str:
    run = started(store)
    store.workflows.approvals.pause(run.id, Gate("late", "Go on?", expires_at=run.started_at + HOUR))
    return run.id


#: What is given, the table that is lost, and a call that does not say "no" because of that.
CALLS: dict[str, tuple[Callable[[Any], str], str, Callable[[Any, str], object]]] = {
    "try_take": (_offered, "workflow_runs", lambda w, run_id: w.claims.try_take(run_id, owner="a")),
    "admit": (_queued, "run_transitions", lambda w, run_id: w.queue.admit(run_id)),
    "expire": (_queued, "run_transitions", lambda w, _: w.queue.expire(HOUR, reason="too late")),
    "give_up": (_spent, "run_transitions", lambda w, _: w.claims.give_up()),
    "expire_due": (_overdue_gate, "run_transitions", lambda w, _: w.approvals.expire_due()),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_a_call_that_could_not_be_carried_out_is_no_refusal(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock, call: Any
) -> None:
    """workflows W-21, W-35, W-47: a sweep skips runs that cannot be read, and nothing else."""
    given, table, attempt = call
    run_id = given(store)
    frozen_clock.advance(HOUR * 2)
    with without(raw, table), pytest.raises(BackendError):
        attempt(store.workflows, run_id)
    store.workflows.runs.get(run_id)


def test_a_run_that_could_not_be_given_back_is_told(store: StateStore, raw: Raw) -> None:
    """workflows W-39: it was not lost, and another takes it when its lease is over."""
    claim = store.workflows.claims.take(started(store).id, owner="a", lease=HOUR)
    with pytest.raises(BackendError), store.workflows.claims.driving(claim) as driven:
        raw("ALTER TABLE workflow_runs RENAME TO lost_table")
    raw("ALTER TABLE lost_table RENAME TO workflow_runs")
    assert not driven.lost
    assert store.workflows.claims.find(claim.run_id) is not None


def test_an_execution_that_could_not_be_ended_is_told_once(store: StateStore, raw: Raw) -> None:
    """workflows W-59: with the error of its end, and none on top of it."""
    executions, run_id = store.workflows.executions, started(store).id

    def work() -> None:
        with executions.running("deploy:plan", run_id=run_id) as execution:
            execution.usage = Usage(turns=2)
            raw("ALTER TABLE executions RENAME TO lost_table")

    with pytest.raises(BackendError) as caught:
        work()
    raw("ALTER TABLE lost_table RENAME TO executions")
    assert [error for error in _chain(caught.value) if isinstance(error, BackendError)] == [caught.value]
    [left] = executions.list(run_id=run_id)
    assert left.outcome == "running"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those in whose handling it was raised."""
    while error is not None:
        yield error
        error = error.__context__
