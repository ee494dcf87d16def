"""Bundles that are ahead of what is stored, or went another way, loaded so that what is stored stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lastlight_state import StateStore
from lastlight_state.conversations import NewBranch, NewMessage, NewSession
from lastlight_state.errors import AlreadyExists
from lastlight_state.journal import NewEvent
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import RunOptions

POINT = {"parent_branch_id": "first", "forked_at_ord": 1}


@pytest.fixture
def store(database: Database) -> StateStore:
    """Where bundles are loaded."""
    return database.open()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[StateStore]:
    """Where they come from."""
    with StateStore.open(tmp_path / "source.db", state_dir=tmp_path / "source") as opened:
        yield opened


def test_a_run_that_stays_goes_on_behind_the_rows_that_it_got(
    store: StateStore, source: StateStore, tmp_path: Path
) -> None:
    """maintenance OP-61: its numbers are raised above theirs."""
    source.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    source.journal.events.append_many("run", [NewEvent("e", {})])
    source.maintenance.bundles.export("run", "run", tmp_path / "early.zip")
    store.maintenance.bundles.load(tmp_path / "early.zip")
    source.journal.events.append_many("run", [NewEvent("e", {})])
    source.workflows.runs.finish("run", "succeeded")
    source.maintenance.bundles.export("run", "run", tmp_path / "late.zip")
    loaded = store.maintenance.bundles.load(tmp_path / "late.zip", on_conflict="skip")
    assert loaded.rows == {"run_events": 1, "run_transitions": 1}
    assert store.maintenance.counters.plan().counts == {}
    store.workflows.runs.finish("run", "failed")
    assert [one.seq for one in store.journal.events.append_many("run", [NewEvent("e", {})])] == [2]
    assert store.workflows.runs.get("run").status == "failed"


@pytest.mark.parametrize("key", ["talk", "fork"], ids=("the session itself", "a session that it was forked from"))
def test_a_session_that_stays_keeps_its_history_and_goes_on(
    store: StateStore, source: StateStore, tmp_path: Path, key: str
) -> None:
    """maintenance OP-61: a transition whose number is taken is left out, and one behind it comes."""
    c = source.conversations
    c.sessions.create(NewSession("talk", "n", status="running"))
    c.branches.create("talk", NewBranch(id="first"))
    c.branches.append("first", [NewMessage("user", "one", id="one")])
    c.sessions.create(NewSession("fork", "n"))
    c.branches.create("fork", NewBranch(id="forked", node_metadata=POINT))
    source.maintenance.bundles.export("session", key, tmp_path / "early.zip")
    store.maintenance.bundles.load(tmp_path / "early.zip")
    c.lifecycle.transition("talk", "failed")
    c.lifecycle.reopen("talk", actor="ana")
    c.branches.append("first", [NewMessage("user", "two", id="two")])
    store.conversations.lifecycle.transition("talk", "aborted")
    source.maintenance.bundles.export("session", key, tmp_path / "late.zip")
    stayed = store.conversations.lifecycle.history("talk").items
    bundle_has = len(c.lifecycle.history("talk").items)
    store.maintenance.bundles.load(tmp_path / "late.zip", on_conflict="skip")
    found = store.conversations.lifecycle.history("talk").items
    assert ({*stayed} < {*found}, len(found)) == (True, bundle_has)
    assert [one.message.id for one in store.conversations.branches.tail("first")] == ["one"]
    assert store.conversations.sessions.get("talk").status == "aborted"
    assert store.maintenance.counters.plan().counts == {}
    assert store.conversations.lifecycle.reopen("talk", actor="ben").seq == max(one.seq for one in found) + 1


def test_a_session_that_went_another_way_refuses_the_bundle(
    store: StateStore, source: StateStore, tmp_path: Path
) -> None:
    """maintenance OP-61: unless what is stored stays, a transition in the place of another one is no part of it."""
    for one in (source, store):
        one.conversations.sessions.create(NewSession("talk", "n", status="running"))
    source.conversations.lifecycle.transition("talk", "failed")
    source.maintenance.bundles.export("session", "talk", tmp_path / "talk.zip")
    before = store.conversations.lifecycle.history("talk").items
    with pytest.raises(AlreadyExists):
        store.maintenance.bundles.load(tmp_path / "talk.zip")
    assert store.conversations.lifecycle.history("talk").items == before
