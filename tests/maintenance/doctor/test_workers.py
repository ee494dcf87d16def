"""The doctor names workflows that nobody serves, and workers that ended without a word."""

from __future__ import annotations

from datetime import timedelta

from lastlight_state.clock import iso_text
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import RunOptions, Trigger


def test_workflows_that_nobody_serves_and_gone_workers_are_found(database: Database, frozen_clock: FrozenClock) -> None:
    """workflows W-215, W-216, maintenance OP-6: a misspelt workflow is a warning, full slots are worth knowing."""
    store = database.open()
    w = store.workflows
    w.workers.announce("gone", workflow_names=["review"])
    for workflow in ("review", "review", "reviwe"):
        w.runs.create(workflow, trigger=Trigger("t"), phase="p", options=RunOptions(offered=True))
    [taken] = w.claims.take_next(owner="busy", workflow_names=["review"], lease=timedelta(hours=1))
    frozen_clock.advance(timedelta(minutes=2))
    w.workers.announce("busy", workflow_names=["review"])
    found = store.maintenance.doctor.examine(only=["DOC-15"]).findings
    told = {(one.severity, one.subject): one for one in found}
    since = iso_text(w.runs.get(taken.run_id).started_at)
    samples = (f"reviwe: 1 run since {since}, no worker that serves 'reviwe' was seen",)
    assert told["warning", "workflow_workers"].samples == samples
    infos = [one for one in found if one.severity == "info"]
    assert [one.samples for one in infos if one.remedy] == [("gone",)]
    assert any("all slots of workers that serve 'review' are taken (1)" in one.samples[0] for one in infos)
