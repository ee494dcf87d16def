"""A signal wakes the run that waits for it."""

from __future__ import annotations

import threading

import pytest
from support.each import with_each
from support.workflows.steps import Raw, started

from lastlight_state import StateStore


def waiting(store: StateStore, signal: str = "merged", correlation_id: str | None = None) -> str:
    """Return a run that is paused for this signal."""
    run = started(store)
    store.workflows.waits.pause(run.id, signal=signal, correlation_id=correlation_id)
    return run.id


def test_a_signal_resumes_the_run_that_waits_for_it_in_the_same_commit(store: StateStore, raw: Raw) -> None:
    """journal G-8: the run is offered to any worker, and its history says what woke it."""
    run_id = waiting(store)

    def undone() -> None:
        with store.transaction() as tx:
            tx.journal.signals.send(run_id, "merged")
            assert tx.workflows.runs.get(run_id).status == "running"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        undone()
    assert store.workflows.runs.get(run_id).status == "paused"
    assert store.journal.signals.latest_seq(run_id) is None
    store.journal.signals.send(run_id, "merged", received_by="github")
    run = store.workflows.runs.get(run_id)
    assert (run.status, run.status_reason, run.waiting_for) == ("running", "run.resumed.signal", None)
    assert store.workflows.claims.take(run_id, owner="a").restart_count == 0
    raw.check_history(run_id)


@with_each(
    ("waits_for", "sent", "wakes"),
    [
        (("merged", None), ("merged", None), True),
        (("merged", None), ("merged", "pr-7"), True),
        (("merged", "pr-7"), (" merged ", " pr-7 "), True),
        (("merged", "pr-7"), ("merged", "pr-8"), False),
        (("merged", "pr-7"), ("merged", None), False),
        (("merged", None), ("closed", None), False),
    ],
)
def test_only_a_signal_that_fits_wakes(
    store: StateStore, waits_for: tuple[str, str | None], sent: tuple[str, str | None], *, wakes: bool
) -> None:
    """journal G-8."""
    run_id = waiting(store, *waits_for)
    store.journal.signals.send(run_id, sent[0], correlation_id=sent[1])
    assert (store.workflows.runs.get(run_id).status == "running") is wakes


def test_a_repeated_signal_wakes_nobody(store: StateStore) -> None:
    """journal G-8: the signal was there before the run waited for the next one."""
    run = started(store)
    store.journal.signals.send(run.id, "merged", signal_id="once")
    store.workflows.waits.pause(run.id, signal="merged")
    assert not store.journal.signals.send(run.id, "merged", signal_id="once").created
    assert store.workflows.runs.get(run.id).status == "paused"


def test_a_signal_to_a_run_that_has_ended_is_kept(store: StateStore) -> None:
    """journal G-8: only a paused run is woken."""
    run = started(store)
    store.workflows.runs.finish(run.id, "succeeded")
    assert store.journal.signals.send(run.id, "merged").created
    assert store.workflows.runs.get(run.id).status == "succeeded"


def test_no_signal_is_lost_beside_a_run_that_pauses(every_backend: StateStore) -> None:
    """journal G-8: the run pauses and looks in one transaction, while another thread sends."""
    store = every_backend
    for _ in range(25):
        run_id, together = started(store).id, threading.Barrier(2)

        def send(run_id: str = run_id, together: threading.Barrier = together) -> None:
            together.wait()
            store.journal.signals.send(run_id, "merged")

        sender = threading.Thread(target=send)
        sender.start()
        together.wait()
        with store.transaction() as tx:
            tx.workflows.waits.pause(run_id, signal="merged")
            seen = tx.journal.signals.latest_seq(run_id) is not None
        sender.join()
        assert seen or store.workflows.runs.get(run_id).status == "running"
