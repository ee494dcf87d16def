"""Databases of every version of the original program, taken over, read and worked on."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from support.migrations.eras import CHAT, ERAS, ERROR, FAILED, OPEN, newest_shape, of_era, read_everything
from support.migrations.populate import contents, layout
from support.migrations.support import Place, with_connection

from lastlight_state import StateStore
from lastlight_state.messaging import ConversationKey
from lastlight_state.migrations import migrate
from lastlight_state.migrations.adoption import fit
from lastlight_state.workflows import Gate, PhaseEntry, Trigger

#: Postgres has never held one of these: three that differ most, and all of them when there is time.
HELD = [pytest.param("sqlite", era, id=f"sqlite-{era.stem}") for era in ERAS] + [
    pytest.param("postgresql", era, id=f"postgresql-{era.stem}", marks=() if era.stem[0] in "246" else pytest.mark.soak)
    for era in ERAS
]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "era"), HELD, indirect=["place"])
def test_a_database_of_any_era_is_taken_over_read_and_worked_on(place: Place, era: Path) -> None:
    """migrations MG-40, MG-41, MG-42: nothing is lost, what lacks is added, and the schema is the newest."""
    of_era(place, era)
    backend = place.backend()
    columns = with_connection(backend, layout)
    before = with_connection(backend, partial(contents, columns=columns))
    assert migrate(backend).adopted
    assert with_connection(backend, partial(contents, columns=columns)) == before
    assert fit.misfits(with_connection(backend, backend.shape), newest_shape(backend)) == []
    with StateStore.open(place.url) as store:
        assert read_everything(store) > 75
        _read(store, columns)
        _work(store)


def _read(store: StateStore, columns: dict[str, list[str]]) -> None:
    runs, executions = store.workflows.runs, store.workflows.executions
    if "workflow_runs" in columns:
        failed, running = runs.get(FAILED), runs.get(OPEN)
        assert (failed.status, failed.phase_count, len(failed.phase_history)) == ("failed", 2, 2)
        assert (failed.error, failed.context["error"]) == (ERROR, ERROR)
        assert (running.status, running.phase_count, running.error, running.restart_count) == ("running", 1, None, 0)
        assert [run.id for run in runs.list().items] == [OPEN, FAILED]
        assert [gate.kind for gate in store.workflows.approvals.list_pending().items] == ["approve"]
    if "executions" in columns:
        assert [execution.outcome for execution in executions.list().items] == ["running", "succeeded"]
        text = "Both workers send it." if "output_text" in columns["executions"] else None
        assert executions.find_output("x-1") == text
    assert store.workflows.overrides.is_enabled("release") == ("workflow_overrides" not in columns)
    if "messaging_messages" in columns:
        assert [message.content for message in store.messaging.messages.history(CHAT)] == ["Why twice? ✓"]


def _work(store: StateStore) -> None:
    runs, executions = store.workflows.runs, store.workflows.executions
    run = runs.create("triage", trigger=Trigger("acme/weather#44", repo="acme/weather"), phase="read")
    execution = executions.start("triage:read", run_id=run.id)
    executions.save_output(execution.id, "read")
    executions.finish(execution.id, "succeeded")
    assert runs.append_phase(run.id, PhaseEntry("read", True), scratch={"done": True}).phase_count == 1
    gate = store.workflows.approvals.create(run.id, Gate("merge", "Merge?"))
    assert store.workflows.approvals.answer(gate.id, "approved", by="ana").approval.status == "approved"
    assert runs.finish(run.id, "succeeded").status == "succeeded"
    store.workflows.overrides.put("triage", enabled=False, by="ana")
    store.schedules.overrides.put("hourly", enabled=False, by="ana")
    resumed = store.messaging.sessions.resume(ConversationKey("slack", "C07", "U1", "T1"), idle_timeout=None)
    assert store.messaging.messages.append(resumed.session.id, role="user", content="thanks").message.id
