"""Bundles that are loaded under new ids: copies that know nothing of what they were made from."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from support.between import before
from support.maintenance.whole_runs import Report, whole_run

from lastlight_state import StateStore
from lastlight_state.conversations import NewBranch, NewChunk, NewMessage, NewSession
from lastlight_state.errors import Conflict
from lastlight_state.maintenance import LoadedBundle
from lastlight_state.maintenance.bundles import row_lines
from lastlight_state.maintenance.bundles.loading import Loading
from lastlight_state.receipts import Receipts
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, Trigger
from lastlight_state.workflows.arguments import ExecutionOptions, RunOptions

#: Every id of the originals has this in it, and nothing else of them.
OLD = b"zebra"


class Asked(BaseModel):
    """What a task that asks somebody produces."""

    status: str
    action_digest: str
    consumed_by: str | None


@pytest.fixture
def store(fresh_database: Database) -> StateStore:
    """A store with a run that has rows in every table, and the output table."""
    store = fresh_database.open(migrate=True)
    store.outputs.catalog.define("report", Report)
    return store


def test_two_copies_of_a_run_are_independent_and_point_into_themselves(store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61: every reference is rewritten, scratch pointers and names of logs included."""
    w = store.workflows
    whole_run(store, "zebra", end=False)
    w.executions.start("wf:l", run_id="zebra", session_id="zebra_s", options=ExecutionOptions(id="zebra-loop"))
    w.executions.save_output("zebra-loop", "text", loop="loop")
    w.runs.merge_scratch("zebra", {"of": {"lastOutputExecutionId": "elsewhere"}, "n": 1})
    _write_log(store, "zebra_s.jsonl")
    _write_log(store, "zebra_s/raw/result.txt")
    first, second = _twice(store, "run", "zebra", tmp_path)
    assert len({first.id, second.id, "zebra"}) == 3
    assert first.rows == second.rows == _counted(tmp_path / "zebra.zip")
    assert _leftovers(tmp_path / "copy.zip") == []
    for copy in (first, second):
        scratch = w.runs.get(copy.id).scratch
        pointed = w.executions.get(scratch["loop"]["lastOutputExecutionId"])
        assert (pointed.run_id, scratch["of"], scratch["n"]) == (copy.id, {"lastOutputExecutionId": "elsewhere"}, 1)
        assert {name.split("/")[4].removesuffix(".jsonl") for name in copy.files} == {pointed.session_id}
        assert len(list(store.settings.agent_sessions.rglob(f"{pointed.session_id}*"))) == 2
    w.runs.finish(first.id, "failed")
    texts = [w.loops.find_output(key, "loop") for key in ("zebra", first.id, second.id)]
    assert (texts, w.runs.get(second.id).status, w.runs.get("zebra").status) == (["text"] * 3, "running", "running")


def test_a_copy_of_a_run_has_no_key_and_no_permission_that_was_given_once(store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61: so the key still finds one run, and an approved action is done once."""
    w = store.workflows
    w.runs.ensure("zebra-key", "wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="zebra"))
    gate = w.approvals.create("zebra", Gate("g", "Go?", id="zebra-ap", action={"do": "it"}))
    w.approvals.answer("zebra-ap", "approved", by="ana", digest=gate.action_digest)
    copy, _ = _twice(store, "run", "zebra", tmp_path)
    execution = w.executions.start("wf:x", run_id=copy.id)
    (copied,) = w.approvals.list_for_run(copy.id).items
    with pytest.raises(Conflict) as caught:
        w.approvals.consume(copied.id, action={"do": "it"}, execution_id=execution.id)
    assert (caught.value.code, w.runs.get(copy.id).run_key) == ("approval_consumed", None)
    assert w.approvals.get("zebra-ap").consumed_by is None
    assert w.runs.ensure("zebra-key", "wf", trigger=Trigger("t"), phase="p").run.id == "zebra"


def test_a_copy_of_a_run_keeps_what_permits_nothing_any_more_or_never_did(store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61: a gate without an action, one that waits or was refused, and one that was used."""
    w = store.workflows
    w.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="zebra"))
    execution = w.executions.start("wf:x", run_id="zebra", options=ExecutionOptions(id="zebra-x"))
    digests: dict[str, str | None] = {}
    for name, action in (("plain", None), ("open", {"a": 1}), ("refused", {"a": 2}), ("used", {"a": 3})):
        gate = w.approvals.create("zebra", Gate(name, "Go?", id=f"zebra-{name}", action=action))
        digests[name] = gate.action_digest
    for name in ("plain", "used"):
        w.approvals.answer(f"zebra-{name}", "approved", by="ana", digest=digests[name])
    w.approvals.consume("zebra-used", action={"a": 3}, execution_id=execution.id)
    w.approvals.answer("zebra-refused", "rejected", by="ana", digest=digests["refused"])
    copy, _ = _twice(store, "run", "zebra", tmp_path)
    (own,) = w.executions.list(run_id=copy.id).items
    found = {one.gate: one.consumed_by for one in w.approvals.list_for_run(copy.id).items}
    assert found == {"plain": None, "open": None, "refused": None, "used": own.id}


def test_what_a_task_produced_is_copied_as_it_is(store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61: also where its columns are called like those of a permission."""
    store.outputs.catalog.define("asked", Asked)
    store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="zebra"))
    store.outputs.results.put("asked", "zebra", "n", Asked(status="approved", action_digest="d", consumed_by=None))
    copy, _ = _twice(store, "run", "zebra", tmp_path)
    found: Any = store.outputs.results.get("asked", copy.id, "n").value
    assert (found.status, found.action_digest, found.consumed_by) == ("approved", "d", None)


def test_two_copies_of_a_session_are_independent_and_forked_from_their_own(store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61: the mirror of a fork, inboxes and chunks included; inboxes of others get nothing."""
    c = store.conversations
    _fork(c)
    was = c.exchange.inbox("ana", state="all").items
    first, second = _twice(store, "session", "zebra-fork", tmp_path)
    assert _leftovers(tmp_path / "copy.zip") == []
    for copy in (first, second):
        (branch,) = c.branches.list(copy.id).items
        assert [one.message.content for one in c.branches.tail(branch.id)] == ["one", "more"]
        origin = c.branches.get(branch.id).node_metadata
        assert origin == {"parent_branch_id": branch.parent_branch_id, "forked_at_ord": 1}
        (letter,) = c.exchange.inbox(branch.id).items
        assert c.messages.get(letter.message_id).content == "to it"
        assert c.exchange.join("news", branch.id) is False
    c.branches.append(c.branches.list(first.id).items[0].id, [NewMessage("user", "new")])
    assert len(c.branches.tail(c.branches.list(second.id).items[0].id)) == len(c.branches.tail("zebra-forked")) == 2
    assert (c.exchange.inbox("ana", state="all").items, len(c.vectors.list("texts").items)) == (was, 6)


@pytest.mark.parametrize("cut", ["after the commit", "after the logs"])
def test_a_load_that_was_cut_off_is_finished_and_makes_no_second_copy(
    store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    """maintenance OP-61: its logs get the names that its rows have, and the load after it makes another copy."""
    w, file, bundles = store.workflows, tmp_path / "zebra.zip", store.maintenance.bundles
    w.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="zebra"))
    w.executions.start("wf:l", run_id="zebra", session_id="zebra_s", options=ExecutionOptions(id="zebra-x"))
    _write_log(store, "zebra_s.jsonl")
    bundles.export("run", "zebra", file)
    with monkeypatch.context() as patched:
        before(patched, *{"after the commit": (row_lines, "put"), "after the logs": (Receipts, "finish")}[cut], _killed)
        with pytest.raises(KeyboardInterrupt):
            bundles.load(file, on_conflict="new_ids")
    missing = 1 if cut == "after the commit" else 0
    planned = bundles.plan(file, on_conflict="new_ids")
    assert (planned.rows, len(planned.files)) == ({}, missing)
    loaded = bundles.load(file, on_conflict="new_ids")
    assert (len(w.runs.list().items), len(loaded.files), loaded.rows) == (2, missing, _counted(file))
    (execution,) = w.executions.list(run_id=loaded.id).items
    assert len(list(store.settings.agent_sessions.rglob(f"{execution.session_id}.jsonl"))) == 1
    assert bundles.load(file, on_conflict="new_ids").id != loaded.id
    assert (len(w.runs.list().items), [one.state for one in store.receipts.list().items]) == (3, ["done"] * 2)


@pytest.mark.parametrize(
    ("first", "cut_before", "then", "copies"),
    [
        pytest.param("new_ids", "the logs", "late", 2, id="a bundle that has other rows"),
        pytest.param("refuse", "the logs", "early", 1, id="a load under the ids that it has"),
        pytest.param("new_ids", "the rows", "early", 1, id="a load that has stored nothing"),
    ],
)
def test_a_load_finishes_none_but_the_same_that_has_stored_its_rows(
    store: StateStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: Any,
    cut_before: str,
    then: str,
    copies: int,
) -> None:
    """maintenance OP-61: any other one makes its copy."""
    runs, bundles = store.workflows.runs, store.maintenance.bundles
    with StateStore.open(tmp_path / "source.db", state_dir=tmp_path / "source") as source:
        source.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="zebra"))
        for name in ("early", "late"):
            source.maintenance.bundles.export("run", "zebra", tmp_path / f"{name}.zip")
            source.workflows.runs.merge_scratch("zebra", {"is": "late"})
    with monkeypatch.context() as patched:
        before(patched, *{"the rows": (Loading, "store"), "the logs": (row_lines, "put")}[cut_before], _killed)
        with pytest.raises(KeyboardInterrupt):
            bundles.load(tmp_path / "early.zip", on_conflict=first)
    copy = bundles.load(tmp_path / f"{then}.zip", on_conflict="new_ids")
    found = {run.id: runs.get(run.id).scratch for run in runs.list().items if run.id != "zebra"}
    assert (len(found), found[copy.id]) == (copies, {"is": "late"} if then == "late" else None)


def test_a_plan_under_new_ids_counts_everything_and_writes_nothing(store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61."""
    whole_run(store, "zebra")
    bundle = store.maintenance.bundles.export("run", "zebra", tmp_path / "zebra.zip")
    planned = store.maintenance.bundles.plan(tmp_path / "zebra.zip", on_conflict="new_ids")
    assert (planned.id, planned.rows, planned.receipt) == ("zebra", _counted(tmp_path / "zebra.zip"), None)
    assert ([run.id for run in store.workflows.runs.list().items], bundle.id) == (["zebra"], "zebra")


def _killed() -> None:
    raise KeyboardInterrupt


def _fork(c: Any) -> None:
    c.sessions.create(NewSession("zebra-talk", "n", agent_session_id="zebra_s"))
    c.branches.create("zebra-talk", NewBranch(id="zebra-first"))
    c.branches.append("zebra-first", [NewMessage("user", text, id=f"zebra-{text}") for text in ("one", "two")])
    c.sessions.create(NewSession("zebra-fork", "n"))
    point = {"parent_branch_id": "zebra-first", "forked_at_ord": 1}
    c.branches.create("zebra-fork", NewBranch(id="zebra-forked", node_metadata=point))
    c.branches.append("zebra-forked", [NewMessage("user", "more", id="zebra-more", sender="zebra-forked")])
    c.exchange.send(NewMessage("user", "to it", id="zebra-letter"), to=["zebra-forked", "ana"])
    c.exchange.join("news", "zebra-forked")
    chunks = [NewChunk("zebra-one", "t", [1.0]), NewChunk("zebra-c", "t", [1.0], document_id="zebra-more")]
    c.vectors.put("texts", chunks)


def _twice(store: StateStore, kind: Any, key: str, folder: Path) -> tuple[LoadedBundle, LoadedBundle]:
    """Two copies of a record, made from one bundle; the first of them as a bundle again."""
    bundles = store.maintenance.bundles
    bundles.export(kind, key, folder / "zebra.zip")
    first, second = (bundles.load(folder / "zebra.zip", on_conflict="new_ids") for _ in range(2))
    bundles.export(kind, first.id, folder / "copy.zip")
    return first, second


def _counted(file: Path) -> dict[str, int]:
    """The rows of a bundle by table, without the registry's."""
    with zipfile.ZipFile(file) as packed:
        names = [name for name in packed.namelist() if name.startswith("rows/") and "output_tables" not in name]
        return {name[5:-6]: len(packed.read(name).splitlines()) for name in sorted(names)}


def _leftovers(file: Path) -> list[str]:
    """The parts of a copy that know an id of its original."""
    with zipfile.ZipFile(file) as packed:
        return [name for name in packed.namelist() if OLD in name.encode() or OLD in packed.read(name)]


def _write_log(store: StateStore, name: str) -> None:
    path = store.settings.agent_sessions / "projects/-app" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}\n")
