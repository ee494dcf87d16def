"""Conversations that several processes change, and those that are killed while they do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.conversations import talkers
from support.conversations.talk import begun
from support.preloaded import run_program

from lastlight_state.conversations import NewBranch, NewSession
from lastlight_state.testing import Database


def _run(database: Database, *given: object) -> str:
    """What the program of `talkers` prints."""
    command = [sys.executable, "-W", "error", str(Path(talkers.__file__)), database.url, *map(str, given)]
    finished = run_program(command, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    return finished.stdout


@pytest.mark.parametrize(
    ("processes", "appends", "shared"), [(2, 6, 4), pytest.param(4, 50, 20, marks=pytest.mark.soak)]
)
def test_processes_that_append_at_once_leave_each_message_once(
    fresh_database: Database, processes: int, appends: int, shared: int
) -> None:
    """conversations CV-17, CV-19: by positions without gaps, equal in branch and pool."""
    store = fresh_database.open(migrate=True)
    branch = begun(store)
    _run(fresh_database, "append", processes, appends, shared)
    c = store.conversations
    order = c.progressions.collection(branch.progression_id)
    assert len(order) == len(set(order)) == processes * appends + shared
    assert [link.ord for link in c.progressions.ids(branch.progression_id, limit=500)] == list(range(len(order)))
    session = c.sessions.get(branch.session_id)
    assert c.progressions.collection(session.progression_id) == order
    assert (session.last_msg_id, session.first_msg_id) == (order[-1], order[0])
    assert session.change_seq == 2 + processes * appends


@pytest.mark.parametrize(
    ("senders", "readers", "messages"), [(2, 2, 5), pytest.param(4, 4, 100, marks=pytest.mark.soak)]
)
def test_what_is_sent_is_acknowledged_once_though_a_reader_is_killed(
    fresh_database: Database, senders: int, readers: int, messages: int
) -> None:
    """conversations CV-33, CV-34: by positions without gaps; what the dead reader had taken goes to another one."""
    store = fresh_database.open(migrate=True)
    _run(fresh_database, "exchange", senders, readers, messages)
    inbox = store.conversations.exchange.inbox("box", state="all", limit=500).items
    assert [one.ord for one in inbox] == list(range(senders * messages))
    sent = {f"sent-{number}-{i}" for number in range(senders) for i in range(messages)}
    assert {one.message_id for one in inbox} == sent
    assert {one.acked_by for one in inbox} <= {f"reader-{number}" for number in range(readers)}
    assert sum(one.takes for one in inbox) == senders * messages + 2


@pytest.mark.slow
def test_a_killed_call_leaves_all_or_nothing(fresh_database: Database) -> None:
    """conversations CV-15, CV-17, CV-33, CV-40: with ``kill -9``, before any of its statements."""
    store = fresh_database.open(migrate=True)
    c = store.conversations
    c.sessions.create(NewSession("s"))
    c.branches.create("s", NewBranch(id="main"))
    for n in range(1, 9):
        c.sessions.create(NewSession(f"s-{n}", status="running"))
    last = json.loads(_run(fresh_database, "kill"))

    assert [branch.id for branch in c.branches.list("s")] == ["main", f"branch-{last['create']}"]
    assert c.branches.get(f"branch-{last['create']}").system_msg_id == f"system-{last['create']}"
    sent = f"sent-{last['send']}"
    assert [(one.ord, one.message_id) for one in c.exchange.inbox("box").items] == [(0, sent)]
    stored = [f"system-{last['create']}", f"said-{last['append']}"]
    assert sorted(one.id for one in c.messages.list()) == sorted([*stored, sent])
    assert c.progressions.collection(c.sessions.get("s").progression_id) == stored
    assert [one.message.id for one in c.branches.history("main")] == stored[1:]
    assert [one.kind for one in c.changes.after("s", 2)] == ["branch.created", "messages.appended"]

    ended = {one.id for one in c.sessions.list() if one.status == "failed"}
    assert ended == {f"s-{last['transition']}"}
    for n in range(1, 9):
        history = [one.status for one in c.lifecycle.history(f"s-{n}")]
        assert history == (["failed", "running"] if f"s-{n}" in ended else ["running"])
        assert c.changes.head(f"s-{n}") == len(history)
    assert min(last.values()) > 2
