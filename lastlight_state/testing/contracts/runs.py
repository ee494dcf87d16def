"""The contract of workflow runs."""

from __future__ import annotations

from contextlib import suppress

import pytest

from lastlight_state import AlreadyExists, Conflict, NotFound, StateStore
from lastlight_state.testing.clock import FrozenClock
from lastlight_state.testing.contracts.steps import fresh, started
from lastlight_state.workflows import Failure, PhaseEntry, RunOptions, Trigger


class RunsContract:
    """``store.workflows.runs``"""

    def test_a_run_reads_back_as_it_was_created(self, store: StateStore) -> None:
        run = started(store, context={"issue": 7, "text": "ünï"}, scratch={"a": [1, None, 2.5]})
        assert store.workflows.runs.get(run.id) == run
        assert (run.status, run.context["text"], run.scratch) == ("running", "ünï", {"a": [1, None, 2.5]})

    def test_an_unknown_run_is_not_found(self, store: StateStore) -> None:
        with pytest.raises(NotFound):
            store.workflows.runs.get(fresh("run"))

    def test_an_id_in_use_is_refused(self, store: StateStore) -> None:
        run = started(store)
        with pytest.raises(AlreadyExists):
            started(store, options=RunOptions(id=run.id))

    def test_a_key_makes_one_run(self, store: StateStore) -> None:
        key, trigger = fresh("key"), Trigger(fresh("t"))
        first = store.workflows.runs.ensure(key, "contract", trigger=trigger, phase="plan")
        again = store.workflows.runs.ensure(key, "contract", trigger=trigger, phase="plan")
        assert (first.created, again.created, again.run.id) == (True, False, first.run.id)

    def test_phases_grow_the_history_and_merge_the_scratch(self, store: StateStore) -> None:
        run = started(store, scratch={"kept": 1})
        store.workflows.runs.append_phase(run.id, PhaseEntry("plan", success=True), scratch={"files": 2})
        progress = store.workflows.runs.append_phase(run.id, PhaseEntry("build", success=False))
        stored = store.workflows.runs.get(run.id)
        assert (progress.phase, progress.phase_count, stored.current_phase) == ("build", 2, "build")
        assert [phase.phase for phase in stored.phase_history] == ["plan", "build"]
        assert stored.scratch == {"kept": 1, "files": 2}

    def test_an_end_is_final(self, store: StateStore) -> None:
        run = started(store)
        ended = store.workflows.runs.finish(run.id, "succeeded")
        assert (ended.status, ended.finished_at is not None) == ("succeeded", True)
        with pytest.raises(Conflict):
            store.workflows.runs.finish(run.id, "failed", failure=Failure("too late"))
        assert store.workflows.runs.get(run.id) == ended

    def test_restarts_end_at_the_limit(self, store: StateStore) -> None:
        run = started(store, options=RunOptions(max_restarts=1))
        store.workflows.runs.finish(run.id, "failed", failure=Failure("no"))
        assert store.workflows.runs.restart(run.id, by="ana", reason="again").restart_count == 1
        store.workflows.runs.finish(run.id, "failed", failure=Failure("no"))
        with pytest.raises(Conflict) as caught:
            store.workflows.runs.restart(run.id, by="ana", reason="again")
        assert caught.value.code == "restart_limit"

    def test_pages_show_each_run_once_newest_first(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        name, ids = fresh("workflow"), []
        for _ in range(5):
            ids.append(started(store, workflow_name=name).id)
            frozen_clock.advance(seconds=1)
        seen: list[str] = []
        token: str | None = None
        for _ in range(3):
            page = store.workflows.runs.list(workflow_names=[name], limit=2, page_token=token)
            seen += [summary.id for summary in page.items]
            token = page.next_page_token
        assert (seen, token) == (ids[::-1], None)

    def test_what_fails_together_leaves_nothing(self, store: StateStore) -> None:
        run_id = fresh("run")
        with suppress(Conflict), store.transaction() as tx:
            tx.workflows.runs.create("contract", trigger=Trigger("t"), phase="plan", options=RunOptions(id=run_id))
            raise Conflict("the caller's own code failed")
        with pytest.raises(NotFound):
            store.workflows.runs.get(run_id)
