"""Somebody comes in between the statements of a prune: `Prune._next` and `Prune._swept_on` judge all again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.between import before
from support.conversations.talk import begun
from support.maintenance.old_logs import old_log, there
from support.maintenance.rows import insert, run_row

from lastlight_state import Conflict, StateStore
from lastlight_state.files.agent_log import repair
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database, racing

ALL = PrunePolicy("runs", keep_days=30, keep_n=0)


def runs(database: Database) -> set[str]:
    return {row[0] for row in database.raw().execute("SELECT id FROM workflow_runs").fetchall()}


def ended(database: Database, *keys: str, **more: Any) -> None:
    """Runs that ended long ago."""
    at = database.clock.now() - timedelta(days=40)
    insert(database.raw(), "workflow_runs", *(run_row(key, at, **more) for key in keys))


def take_over_logs(database: Database, other: StateStore) -> None:
    """Go on with the prune of an owner that has been silent for ten minutes."""
    database.clock.advance(seconds=600)
    [receipt] = other.receipts.list(state="running")
    assert other.maintenance.prune.resume(receipt.id).counts["line_files"] == 3


def test_a_run_that_is_restarted_between_the_plan_and_its_batch_stays(database: Database) -> None:
    """maintenance OP-28."""
    store, other = database.open(), database.open()
    ended(database, "a", "b", status="failed")
    with racing(store) as race:
        race.before_unit(3, lambda: other.workflows.runs.restart("a", by="ana", reason="again"))
        receipt = store.maintenance.prune.run(ALL)
    assert race.left == 0
    assert receipt.counts == {"workflow_runs": 1}
    assert runs(database) == {"a"}


def test_a_run_that_somebody_has_locked_is_passed_over_and_found_by_the_next_pass(shared_postgres: Database) -> None:
    """maintenance OP-28."""
    store, raw = shared_postgres.open(), shared_postgres.raw()
    ended(shared_postgres, "a", "b")
    raw.execute("BEGIN")
    raw.execute("UPDATE workflow_runs SET updated_at = updated_at WHERE id = 'a'")
    with racing(store) as race:
        race.before_unit(4, lambda: raw.execute("ROLLBACK"))
        receipt = store.maintenance.prune.run(ALL)
    assert (race.left, receipt.counts) == (0, {"workflow_runs": 2})


def test_an_owner_that_wakes_up_after_its_work_was_taken_over_removes_nothing_more(database: Database) -> None:
    """maintenance OP-7, OP-31."""
    store, other = database.open(), database.open()
    ended(database, *"abc")

    def take_over() -> None:
        database.clock.advance(seconds=600)
        [receipt] = other.receipts.list(state="running")
        other.receipts.resume(receipt.id, owner="other")

    with racing(store) as race:
        race.before_unit(4, take_over)
        with pytest.raises(Conflict) as lost:
            store.maintenance.prune.run(PrunePolicy("runs", keep_n=0, batch_rows=1))
    assert (lost.value.code, runs(database)) == ("claim_lost", {*"bc"})
    assert other.receipts.list(state="running").items
    assert getattr(lost.value, "__notes__", []) == [], "it must not be told to resume what another one is doing"


def test_a_session_that_runs_again_between_the_look_and_its_batch_keeps_its_feed(database: Database) -> None:
    """maintenance OP-28, OP-79."""
    store, other = database.open(), database.open()
    session = begun(store, "a").session_id
    database.clock.advance(seconds=31 * 86_400)
    with racing(store) as race:
        race.before_unit(4, lambda: other.conversations.lifecycle.transition(session, "running"))
        receipt = store.maintenance.prune.run(PrunePolicy("changes"))
    assert (race.left, receipt.counts) == (0, {})


def test_logs_go_once_when_another_takes_over_after_their_rows_went(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-7, OP-30: `Prune._remove_archived_logs`; the first owner's count is refused."""
    store, other = database.open(), database.open()
    old_log(store, "s-1")
    ended(database, "a")
    row = {"id": "e", "trigger_type": "chat", "trigger_id": "t", "skill": "s", "started_at": database.clock.now()}
    insert(database.raw(), "executions", {**row, "workflow_run_id": "a", "session_id": "s-1"})
    database.clock.advance(timedelta(days=40))

    happened = before(monkeypatch, repair, "remove", lambda: take_over_logs(database, other))
    with pytest.raises(Conflict):
        store.maintenance.prune.run(replace(ALL, archive=tmp_path, with_logs="yes"))
    [receipt] = store.receipts.list()
    assert (happened, receipt.state, receipt.counts["line_files"], there(store)) == (["remove"], "done", 3, {})


def test_log_files_are_counted_once_when_another_takes_over_while_they_go(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-7, OP-93: `Prune._filed_on`; the first owner finds them gone, and its count is refused."""
    store, other = database.open(), database.open()
    old_log(store, "s-1")
    database.clock.advance(timedelta(days=40))

    happened = before(monkeypatch, repair, "remove", lambda: take_over_logs(database, other))
    with pytest.raises(Conflict):
        store.maintenance.prune.run(PrunePolicy("agent-logs", keep_n=0))
    [receipt] = store.receipts.list()
    assert (happened, receipt.state, receipt.counts["line_files"], there(store)) == (["remove"], "done", 3, {})
