"""Sweeps and what they meet. Only SQLite can hold JSON that does not parse."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.workflows.asking import WHO
from support.workflows.steps import PLAN, Raw, started

from lastlight_state.errors import CorruptData
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, Question

SOON = timedelta(seconds=5)


@pytest.mark.logs("a sweep skipped run")
def test_a_row_that_cannot_be_read_holds_up_no_sweep_and_no_inbox(
    sqlite_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """workflows W-21: everything else that is due expires or is given up, whatever comes before it in the line."""
    store, raw, clock = sqlite_database.open(), Raw(sqlite_database), sqlite_database.clock
    broken, sound = (started(store, max_restarts=0) for _ in range(2))
    waiting = [started(store, status="queued").id for _ in range(2)]
    gate = Gate(PLAN.gate, PLAN.summary, expires_at=clock.now() + SOON, on_reject="resume")
    question = Question(WHO.node, WHO.kind, WHO.prompt, expires_at=clock.now() + SOON)
    for run in (broken, sound):
        store.workflows.approvals.pause(run.id, gate)
        store.workflows.human_requests.create(run.id, question)
    raw("DROP TRIGGER workflow_runs_context_is_immutable")
    raw("UPDATE workflow_runs SET context = '{broken' WHERE id IN (?, ?)", broken.id, waiting[0])
    clock.advance(timedelta(minutes=1))

    assert len(store.workflows.approvals.expire_due()) == 1
    assert len(store.workflows.human_requests.expire_due()) == 1
    assert store.workflows.human_requests.list_pending().items == ()
    assert store.workflows.queue.expire(SOON, reason="too late") == (waiting[1],)
    raw("UPDATE workflow_runs SET status = 'running', lease_expires_at = updated_at WHERE id = ?", broken.id)
    raw("UPDATE workflow_runs SET lease_expires_at = started_at WHERE id = ?", sound.id)
    raw("UPDATE workflow_runs SET claim_owner = 'gone' WHERE status = 'running'")
    clock.advance(timedelta(minutes=1))
    assert store.workflows.claims.give_up() == (sound.id,)
    assert len([each for each in caplog.records if broken.id in each.getMessage()]) == 6
    with pytest.raises(CorruptData):
        store.workflows.runs.cancel(broken.id, by="ana", reason="it cannot go on")
