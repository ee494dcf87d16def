"""Bundles whose rows refer to nothing, or have words or keys that cannot be, are refused by name, before any write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.each import with_each
from support.maintenance.changed_bundles import change_row
from support.maintenance.whole_runs import Report

from lastlight_state import StateStore
from lastlight_state.conversations import NewBranch, NewChunk, NewMessage, NewSession
from lastlight_state.errors import AlreadyExists, Conflict, StateError
from lastlight_state.maintenance.bundles.incoming_rows import References
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import RunOptions


@pytest.fixture
def store(database: Database) -> StateStore:
    """Where bundles are loaded."""
    return database.open()


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A session with rows of most kinds, as a file."""
    with StateStore.open(tmp_path / "source.db", state_dir=tmp_path / "source") as source:
        c = source.conversations
        c.sessions.create(NewSession("talk", "n", status="running"))
        c.branches.create("talk", NewBranch(id="branch"))
        c.branches.append("branch", [NewMessage("user", "one", id="one")])
        c.exchange.send(NewMessage("user", "one", id="one"), to=["branch"])
        c.vectors.put("texts", [NewChunk("one", "one", [1.0])])
        source.maintenance.bundles.export("session", "talk", tmp_path / "good.zip")
    return tmp_path / "good.zip"


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """Where a changed bundle goes."""
    return tmp_path / "bad.zip"


@with_each(
    ("table", "column"),
    [
        ("sessions", "first_msg_id"),
        ("branches", "parent_branch_id"),
        ("branches", "system_msg_id"),
        ("progression_links", "message_id"),
        ("exchange_deliveries", "owner"),
        ("vectors", "namespace"),
    ],
)
def test_a_row_that_refers_to_nothing_is_refused_by_name(
    store: StateStore, good: Path, bad: Path, table: str, column: str
) -> None:
    """maintenance OP-61: by the plan too, and without a receipt."""
    change_row(good, bad, table, **{column: "nowhere"})
    for refusing in (store.maintenance.bundles.plan, store.maintenance.bundles.load):
        with pytest.raises(Conflict, match=f"{table}.*{column} refers to 'nowhere'") as caught:
            refusing(bad)
        assert caught.value.code == "damaged_bundle"
    assert (store.receipts.list().items, store.conversations.sessions.find("talk")) == ((), None)


def test_a_row_may_refer_to_what_is_stored(store: StateStore, good: Path, bad: Path) -> None:
    """maintenance OP-61."""
    store.conversations.messages.put(NewMessage("system", "stored", id="stored"))
    change_row(good, bad, "branches", system_msg_id="stored")
    store.maintenance.bundles.load(bad)
    assert store.conversations.branches.get("branch").system_msg_id == "stored"


@pytest.mark.parametrize("table", ["sessions", "branches"])
def test_a_word_that_is_not_known_is_refused_unless_it_is_allowed(
    store: StateStore, database: Database, good: Path, bad: Path, table: str
) -> None:
    """maintenance OP-61: another program may have stored one, and what was archived comes back."""
    change_row(good, bad, table, status="foo")
    bundles = store.maintenance.bundles
    for refusing in (bundles.plan, bundles.load):
        with pytest.raises(Conflict) as caught:
            refusing(bad)
        error: Any = caught.value
        assert (error.code, error.table, error.column, error.word) == ("unknown_word", table, "status", "foo")
    assert store.receipts.list().items == ()
    planned = bundles.plan(bad, allow_unknown_words=True)
    assert bundles.load(bad, allow_unknown_words=True).rows == planned.rows
    assert bundles.load(bad, allow_unknown_words=True).receipt is None
    conversations, loaded = store.conversations, {"sessions": "talk", "branches": "branch"}
    assert getattr(conversations, table).get(loaded[table]).status == "foo"
    assert database.raw().execute("SELECT count(*) FROM maintenance_permits").fetchone()[0] == 0


def test_a_run_whose_key_another_run_has_is_refused_by_name(store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61: under new ids it has no key."""
    with StateStore.open(tmp_path / "source.db", state_dir=tmp_path / "source") as source:
        for to, key in ((source, "theirs"), (store, "mine")):
            to.workflows.runs.ensure("key", "wf", trigger=Trigger("t"), phase="p", options=RunOptions(id=key))
        source.maintenance.bundles.export("run", "theirs", tmp_path / "run.zip")
    bundles = store.maintenance.bundles
    for on_conflict in ("refuse", "skip"):
        with pytest.raises(AlreadyExists, match="has the key of the run 'mine'") as caught:
            bundles.load(tmp_path / "run.zip", on_conflict=on_conflict)
        assert (caught.value.kind, caught.value.key) == ("workflow_runs", "theirs")
    assert store.receipts.list().items == ()
    assert bundles.load(tmp_path / "run.zip", on_conflict="new_ids").rows["workflow_runs"] == 1


@pytest.mark.parametrize(("workflow", "key"), [("wf", "another"), ("other", "key")])
def test_a_run_with_another_key_or_workflow_is_in_nobodys_way(
    store: StateStore, tmp_path: Path, workflow: str, key: str
) -> None:
    """maintenance OP-61: and neither is the run itself, when it is loaded again."""
    with StateStore.open(tmp_path / "source.db", state_dir=tmp_path / "source") as source:
        source.workflows.runs.ensure("key", "wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
        source.maintenance.bundles.export("run", "run", tmp_path / "run.zip")
    store.workflows.runs.ensure(key, workflow, trigger=Trigger("t"), phase="p")
    assert store.maintenance.bundles.load(tmp_path / "run.zip").rows["workflow_runs"] == 1
    assert store.maintenance.bundles.load(tmp_path / "run.zip").receipt is None


def test_what_only_the_database_refuses_leaves_a_failed_receipt_and_no_row(
    store: StateStore, good: Path, bad: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-61: here a reference whose row was there when it was looked for."""
    change_row(good, bad, "branches", system_msg_id="gone")
    monkeypatch.setattr(References, "confirm", lambda *_: None)
    with pytest.raises(StateError) as caught:
        store.maintenance.bundles.load(bad)
    (receipt,) = store.receipts.list().items
    assert (caught.value.code, receipt.state, receipt.counts) == ("foreign_key", "failed", {})
    assert not hasattr(caught.value, "__notes__")
    assert store.conversations.sessions.find("talk") is None


@pytest.fixture
def reported(tmp_path: Path) -> Path:
    """A run with a row in the output table ``report``, as a file."""
    with StateStore.open(tmp_path / "source.db", state_dir=tmp_path / "source", migrate=True) as source:
        source.outputs.catalog.define("report", Report)
        source.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
        source.outputs.results.put("report", "run", "n", Report(title="t"))
        source.maintenance.bundles.export("run", "run", tmp_path / "good.zip")
    return tmp_path / "good.zip"


def test_an_output_table_that_is_registered_otherwise_refuses_the_bundle(
    fresh_database: Database, reported: Path
) -> None:
    """maintenance OP-61: rows of one table are not put into another one; without them the run is loaded."""
    store = fresh_database.open(migrate=True)
    store.outputs.catalog.define("report", Report, table="elsewhere")
    for refusing in (store.maintenance.bundles.plan, store.maintenance.bundles.load):
        with pytest.raises(AlreadyExists, match="is registered with another table") as caught:
            refusing(reported)
        assert (caught.value.kind, caught.value.key) == ("output_tables", "report")
    assert (store.receipts.list().items, store.workflows.runs.list().items) == ((), ())


def test_a_table_that_is_no_output_table_here_is_not_written_to(fresh_database: Database, reported: Path) -> None:
    """maintenance OP-61: it is another program's, whatever its columns are."""
    store, raw = fresh_database.open(migrate=True), fresh_database.raw()
    raw.execute("CREATE TABLE report (run_id text, node_id text, iteration integer, title text)")
    with pytest.raises(Conflict, match="the table report is there and is not registered") as caught:
        store.maintenance.bundles.load(reported)
    assert caught.value.code == "collision"
    assert raw.execute("SELECT count(*) FROM report").fetchone()[0] == 0
    assert (store.receipts.list().items, store.workflows.runs.list().items) == ((), ())


def test_an_output_table_that_is_not_here_is_made_with_its_rows(fresh_database: Database, reported: Path) -> None:
    """maintenance OP-61: the plan counts them, and a second load finds them."""
    store = fresh_database.open(migrate=True)
    planned = store.maintenance.bundles.plan(reported)
    loaded = store.maintenance.bundles.load(reported)
    assert (planned.rows, loaded.rows["report"], loaded.rows["output_tables"]) == (loaded.rows, 1, 1)
    assert store.maintenance.bundles.load(reported).receipt is None
    table = store.outputs.catalog.define("report", Report)
    assert store.outputs.results.get(table, "run", "n").value == Report(title="t")
