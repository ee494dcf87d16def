"""Running sessions without a sign of life are ended, and those that show one are not."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.conversations.talk import running_hours_apart
from support.guards import unguarded

from lastlight_state import AsyncStateStore, InvalidValue
from lastlight_state.conversations import NewSession
from lastlight_state.errors import Conflict
from lastlight_state.maintenance.upkeep import reap as maintenance_reap
from lastlight_state.testing import Database


def test_silent_sessions_end_at_their_last_sign_of_life(
    store: Any, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-33: one transition each, and no other session is touched; a second time ends none."""
    monkeypatch.setattr(maintenance_reap, "LOOK", 1)
    talks = running_hours_apart(database, "a", "b", "c").conversations
    talks.sessions.create(NewSession("waiting", status="pending"))
    old = timedelta(minutes=90)
    plan = store.maintenance.reap.plan(older_than=old)
    assert (plan.running, plan.retired, [one.id for one in plan.sessions]) == (3, 2, ["a", "b"])
    assert store.maintenance.reap.plan().retired == 0
    receipt = store.maintenance.reap.run(older_than=old, to="failed", actor="ops")
    assert (receipt.kind, receipt.state, receipt.counts) == ("reap", "done", {"retired": 2})
    ended = talks.sessions.get("a")
    assert (ended.status, ended.ended_at, ended.ended_at_is_approximate) == ("failed", plan.sessions[0].last_sign, True)
    last, begin = talks.lifecycle.history("a")
    assert (last.reason_code, last.source, last.actor) == ("session.stale.no_heartbeat", "system", "ops")
    assert begin.status == "running"
    assert [talks.sessions.get(name).status for name in ("c", "waiting")] == ["running", "pending"]
    assert store.maintenance.reap.run(older_than=old).counts == {}


def test_a_session_that_cannot_be_read_holds_up_no_other(sqlite_database: Database) -> None:
    """maintenance OP-33."""
    store = running_hours_apart(sqlite_database, "a", "b")
    unguarded(sqlite_database).execute("UPDATE sessions SET status_reason = x'ff', ended_at = 'never' WHERE id = 'a'")
    assert store.maintenance.reap.run(older_than=timedelta(0)).counts == {"retired": 1, "skipped": 1}
    assert store.conversations.sessions.get("b").status == "aborted"


def test_two_reaps_are_one_conflict_and_wrong_words_are_refused(database: Database) -> None:
    """maintenance OP-7, OP-33, OP-74; coroutines have the same calls."""
    store = running_hours_apart(database, "a")
    wrong: Any = "completed"
    with pytest.raises(InvalidValue):
        store.maintenance.reap.run(to=wrong)
    with pytest.raises(InvalidValue):
        store.maintenance.reap.plan(older_than=timedelta(-1))
    other = store.receipts.begin("reap", scope="sessions", owner="other", policy={})
    with pytest.raises(Conflict, match="reap of sessions is running"):
        store.maintenance.reap.run()
    store.receipts.finish(other)

    async def work() -> Any:
        settings = {"schema": store.settings.schema_name, "clock": database.clock}
        async with await AsyncStateStore.open(database.url, **settings) as awaited:
            reap = awaited.maintenance.reap
            age = timedelta(minutes=1)
            return (await reap.plan(older_than=age)).retired, (await reap.run(older_than=age)).counts

    assert asyncio.run(work()) == (1, {"retired": 1})


def test_the_command_says_which_sessions_it_ends(database: Database) -> None:
    """maintenance OP-33, OP-72: the dry run is the truth, and writes nothing."""
    database.clock.set(datetime(2001, 1, 1, tzinfo=UTC))  # the command goes by the time of this machine
    store = running_hours_apart(database, "a")
    url = ("--url", database.url, "--older-than", "1m")
    said = lastlight_state("reap", "--dry-run", *url, "--json")
    assert (said.code, said.data["running"], said.data["retired"], said.data["receipt"]) == (0, 1, 1, None)
    told = lastlight_state("reap", "--dry-run", *url).out
    assert told.startswith("would end 1 of 1 running sessions\n")
    assert (store.receipts.list().items, store.conversations.sessions.get("a").status) == ((), "running")
    done = lastlight_state("reap", "--to", "failed", *url, "--json")
    assert (done.data["retired"], done.data["skipped"], done.data["receipt"]["state"]) == (1, 0, "done")
    assert lastlight_state("reap", *url).out.endswith("ended 0 of 0 running sessions, skipped 0\n")
    for wrong in (("--older-than", "soon"), ("--to", "completed")):
        assert (lastlight_state("reap", *url, *wrong).code) == 2
