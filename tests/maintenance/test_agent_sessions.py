"""Log files joined with the newest executions of their sessions."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.maintenance.threads import logged, reads_the_table, turn
from support.sent import recorded
from support.workflows.plans import plan_of
from support.workflows.steps import Raw

from lastlight_state.errors import InvalidValue, UnsafePath
from lastlight_state.maintenance.chats.agent_sessions import NEWEST
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Trigger


def test_each_file_comes_with_the_newest_execution_of_its_session(
    store: Any, state_dir: Path, frozen_clock: FrozenClock
) -> None:
    """agent-log L-100."""
    run = store.workflows.runs.create("wf", trigger=Trigger("t", owner="acme", repo="widget"), phase="p")
    old = store.workflows.executions.start("wf:plan", run_id=run.id, session_id="s-1")
    store.workflows.executions.finish(old.id, "failed")
    frozen_clock.advance(seconds=1)
    new = store.workflows.executions.start("wf:build", run_id=run.id, session_id="s-1")
    now = frozen_clock.now()
    first = logged(state_dir, "s-1", "Build.", cwd="/work", at=now)
    second = logged(state_dir, "s-2", "Nobody knows me.", at=now - timedelta(seconds=1))
    page = store.maintenance.agent_sessions.list()
    assert [session.file.path for session in page] == [first, second]
    found = page.items[0].execution
    assert (found.id, found.skill, found.run_id) == (new.id, "wf:build", run.id)
    assert (found.success, found.repo) == (None, "acme/widget")
    assert page.items[1].execution is None


def test_the_repository_of_a_session_is_named_whole_or_not_at_all(every_backend: Any, database: Database) -> None:
    """agent-log L-100: bare, qualified, none, one text of both, and the newest execution wins."""
    store, raw = every_backend, Raw(database)
    turn(store, "t", "bare", repo="widget")
    turn(store, "t", "whole", owner="acme", repo="widget")
    turn(store, "t", "owner", owner="acme")
    turn(store, "t", "none")
    turn(store, "t", "legacy")
    raw("UPDATE executions SET repo = 'acme/legacy' WHERE session_id = 'legacy'")
    turn(store, "t", "twice", owner="acme", repo="old")
    database.clock.advance(seconds=1)
    turn(store, "t", "twice", owner="acme", repo="new")
    repo_for = store.maintenance.agent_sessions.repo_for_session
    found = [repo_for(session_id) for session_id in ("bare", "owner", "whole", "none", "legacy", "twice", "-")]
    assert found == [None, None, "acme/widget", None, "acme/legacy", "acme/new", None]


def test_a_page_of_files_costs_one_statement(database: Database, state_dir: Path) -> None:
    """agent-log L-100: however many files and executions; pages show each file once."""
    now = database.clock.now()
    names = [f"s-{n}" for n in range(5)]
    for n, name in enumerate(names):
        logged(state_dir, name, "p", at=now - timedelta(seconds=n))
    with recorded(database) as (store, sent):
        for _ in range(3):
            turn(store, "t", "s-1")
        sent.clear()
        first = store.maintenance.agent_sessions.list(limit=3)
        assert len(sent) == 1
        rest = store.maintenance.agent_sessions.list(limit=3, page_token=first.next_page_token)
    assert [session.file.id for session in (*first, *rest)] == names
    assert rest.next_page_token is None


def test_an_empty_directory_asks_nothing(every_backend: Any) -> None:
    """agent-log L-100."""
    page = every_backend.maintenance.agent_sessions.list()
    assert (page.items, page.next_page_token, page.skipped) == ((), None, 0)


def test_what_cannot_be_listed_is_refused(every_backend: Any) -> None:
    """agent-log L-100, L-90."""
    sessions = every_backend.maintenance.agent_sessions
    for bad in ({"limit": 0}, {"limit": 501}, {"scope": "all of it"}, {"page_token": "%"}):
        with pytest.raises(InvalidValue):
            sessions.list(**bad)
    with pytest.raises(UnsafePath):
        sessions.repo_for_session("../x")


def test_the_newest_execution_is_read_by_the_index_of_sessions(database: Database) -> None:
    """agent-log L-100: of each session one entry, whatever the number of its turns."""
    raw = Raw(database)
    raw(
        "INSERT INTO executions (id, trigger_type, trigger_id, skill, started_at, session_id) "
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) "
        "SELECT 'e' || i, 'chat', 't' || (i % 30), 'chat', ?, 's' || (i % 30) FROM n",
        database.clock.now(),
    )
    raw("ANALYZE")
    statement, values = NEWEST.of(["s1", "s2", "s3"])
    plan = plan_of(database, database.open(), statement, values, in_order=True)
    assert "ix_executions_session" in plan.text, plan
    assert not re.search(r"(?<!Incremental )Sort  \(|TEMP B-TREE FOR ORDER", plan.text), plan
    assert all("started_at" in keys for keys in re.findall("Presorted Key: (.*)", plan.text)), plan
    assert not reads_the_table(plan), plan
