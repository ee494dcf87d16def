"""Why runs failed, for lists of runs: `lookups.get_errors`."""

from __future__ import annotations

from typing import Any

import pytest

from lastlight_state.errors import InvalidValue
from lastlight_state.workflows import Failure, Gate, Trigger


def begun(store: Any) -> str:
    run = store.workflows.runs.create("review", trigger=Trigger("t"), phase="p")
    return str(run.id)


def test_failed_and_cancelled_runs_say_why_in_one_line(store: Any) -> None:
    """workflows W-96: the first line of the error, or the reason that was given."""
    w = store.workflows
    failed, cancelled, rejected, done, lives = [begun(store) for _ in range(5)]
    w.runs.finish(failed, "failed", failure=Failure("KeyError: 'x'\nTraceback"))
    w.runs.cancel(cancelled, by="ana", reason="not needed")
    gate = w.approvals.pause(rejected, Gate("ship", "Ship?"))
    w.approvals.answer(gate.id, "rejected", by="ana", response="the tests are red\nall of them")
    w.runs.finish(done, "succeeded")
    found = w.lookups.get_errors([failed, cancelled, rejected, done, lives, "nobody"])
    assert found == {
        failed: "KeyError: 'x'",
        cancelled: "not needed",
        rejected: "approval ship: rejected: the tests are red",
    }
    assert w.lookups.get_errors([]) == {}


def test_a_run_that_began_again_has_no_error(store: Any) -> None:
    """workflows W-96: and one that was only noted upon keeps its own."""
    w = store.workflows
    first, second = begun(store), begun(store)
    for run_id in (first, second):
        w.runs.finish(run_id, "failed", failure=Failure("broke"))
    w.runs.restart(first, by="ana", reason="again")
    w.runs.allow_restarts(second, 9, by="ana", reason="more")
    assert w.lookups.get_errors([first, second]) == {second: "broke"}


def test_too_many_runs_are_refused(store: Any) -> None:
    """workflows W-96."""
    with pytest.raises(InvalidValue, match="run_ids"):
        store.workflows.lookups.get_errors(["r"] * 501)
