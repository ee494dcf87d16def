"""Bundles from which something was left out, and those of other versions."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support.journal.trees import element, text
from support.maintenance.whole_runs import Report

from lastlight_state import StateStore
from lastlight_state.conversations import NewBranch, NewChunk, NewMessage, NewSession
from lastlight_state.conversations.tables import BRANCHES, SESSIONS
from lastlight_state.db.schema.declarations import is_personal
from lastlight_state.errors import Conflict, InvalidValue
from lastlight_state.journal import NewEvent, NewScore, ToolOutcome
from lastlight_state.maintenance.bundles import writing
from lastlight_state.maintenance.bundles.records import REDACTIONS
from lastlight_state.maintenance.bundles.selection import TABLES
from lastlight_state.maintenance.copy.tables import is_json
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, Trigger
from lastlight_state.workflows.arguments import ExecutionOptions, RunOptions

#: What must not be in a redacted bundle.
SECRET = "classified"
ALL: Any = tuple(sorted(REDACTIONS))
#: JSON without contents: phases with their outcome, states of nodes, and what columns output tables have.
STAYS = {
    "workflow_runs.phase_history",
    "workflow_runs.node_statuses",
    "output_tables.columns",
    "output_tables.json_schema",
}


@pytest.fixture
def source(tmp_path: Path) -> Any:
    """A store that holds the secret wherever it can be left out."""
    with StateStore.open(tmp_path / "source.db", state_dir=tmp_path / "source") as store:
        w, c = store.workflows, store.conversations
        options = RunOptions(id="run")
        w.runs.create(
            "wf", trigger=Trigger("t"), phase="p", context={"a": SECRET}, scratch={"b": SECRET}, options=options
        )
        w.executions.start("wf:x", run_id="run", session_id="s_1", options=ExecutionOptions(id="x"))
        w.executions.save_output("x", SECRET)
        store.outputs.catalog.define("report", Report)
        j = store.journal
        store.outputs.inputs.ensure("run", {"a": SECRET})
        j.events.append_many("run", [NewEvent("e", {"a": SECRET})])
        j.signals.send("run", "go", {"a": SECRET})
        j.frames.append("run", element("step", text(SECRET), id="s"))
        call = j.tool_calls.create("run", "grep", input={"a": SECRET})
        j.tool_calls.finish("run", call.seq, ToolOutcome("failed", error={"a": SECRET}))
        j.scores.record(NewScore("run", "n", "scorer", "Scorer", "live", 1.0, reason=SECRET))
        for title in (SECRET, f"{SECRET} again"):
            store.outputs.results.put("report", "run", "n", Report(title=title))
        w.approvals.create("run", Gate("g", SECRET, id="ap"))
        log = store.settings.agent_sessions / "projects/-app/s_1.jsonl"
        log.parent.mkdir(parents=True)
        log.write_text(f'{{"a": "{SECRET}"}}\n')
        c.sessions.create(NewSession("talk", "n"))
        c.branches.create("talk", NewBranch(id="branch"))
        c.branches.append("branch", [NewMessage("user", SECRET, id="m", embedding=[1.0], node_metadata={"a": SECRET})])
        c.vectors.put("texts", [NewChunk("m", SECRET, [1.0])])
        yield store


@pytest.mark.parametrize(("kind", "key"), [("run", "run"), ("session", "talk")])
def test_a_redacted_bundle_has_nothing_of_what_was_left_out(
    source: StateStore, tmp_path: Path, kind: Any, key: str
) -> None:
    """maintenance OP-60: the manifest names it, and the same state gives the same bytes."""
    files = [tmp_path / f"{n}.zip" for n in range(2)]
    made = [source.maintenance.bundles.export(kind, key, file, redact=ALL) for file in files]
    assert made[0].redacted == ALL
    assert SECRET.encode() not in files[0].read_bytes() == files[1].read_bytes()
    source.maintenance.bundles.export(kind, key, tmp_path / "whole.zip")
    assert (tmp_path / "whole.zip").read_bytes().count(SECRET.encode()) == (14 if kind == "run" else 3)


def test_every_personal_column_and_all_json_can_be_left_out_or_is_known_to_stay() -> None:
    """maintenance OP-60: what is added later is in one of the groups, too."""
    columns = {column for names in TABLES.values() for name in names for column in METADATA.tables[name].columns}
    marked = {column for columns in writing._COLUMNS.values() for column in columns}
    left_out = {column for some in writing._TABLES.values() for table in some for column in table.columns}
    stays = {column for column in columns if str(column) in STAYS} | writing._STAYS
    people = {column for column in columns if column.info.get("person") or column.primary_key}
    told = {column for column in columns if is_json(column) or is_personal(column)}
    assert told - marked - left_out - people == stays
    assert not stays & marked


def test_a_personal_column_that_is_added_is_left_out_with_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-60: under the name of the table, without a line here."""
    session, branch = SESSIONS.c.project, BRANCHES.c.provider
    assert not {session, branch} & {column for columns in writing._COLUMNS.values() for column in columns}
    for column in (session, branch):
        monkeypatch.setitem(column.info, "personal", True)
    assert {session, branch} <= set(writing._columns_of("metadata"))


def test_each_name_leaves_out_its_own(source: StateStore, tmp_path: Path) -> None:
    """maintenance OP-60."""
    left = {}
    names: Any = ("context", "scratch", "output_text", "logs", "inputs", "errors", "questions", "scores")
    for name in (*names, "outputs", "events"):
        source.maintenance.bundles.export("run", "run", tmp_path / name, redact=[name])
        left[name] = (tmp_path / name).read_bytes().count(SECRET.encode())
    assert left == {**dict.fromkeys(names, 13), "outputs": 12, "events": 10}


def test_what_comes_of_a_redacted_bundle_can_be_read(source: StateStore, database: Database, tmp_path: Path) -> None:
    """maintenance OP-61: with marks in place of values."""
    store = database.open()
    for kind, key in (("run", "run"), ("session", "talk")):
        source.maintenance.bundles.export(kind, key, tmp_path / f"{key}.zip", redact=ALL)  # type: ignore[arg-type]
        store.maintenance.bundles.load(tmp_path / f"{key}.zip", allow_redacted=True)
    mark = {"lastlight_redacted": True}
    (event,), (call,) = store.journal.events.list("run").items, store.journal.tool_calls.list("run").items
    assert (event.payload, call.status, store.workflows.approvals.get("ap").summary) == (mark, "failed", "[redacted]")
    assert (store.outputs.inputs.get("run").payload, store.journal.frames.list("run").items) == (mark, ())
    assert store.conversations.messages.get("m").node_metadata == mark


def test_a_redacted_bundle_is_refused_by_name_unless_it_is_allowed(
    source: StateStore, database: Database, tmp_path: Path
) -> None:
    """maintenance OP-61: a bundle of what was loaded has the same bytes."""
    store, file = database.open(), tmp_path / "talk.zip"
    source.maintenance.bundles.export("session", "talk", file, redact={"content"})
    bundles = store.maintenance.bundles
    for refusing in (bundles.plan, bundles.load):
        with pytest.raises(Conflict, match="content") as caught:
            refusing(file)
        assert caught.value.code == "redacted_bundle"
    assert store.conversations.sessions.find("talk") is None
    assert bundles.plan(file, allow_redacted=True).rows == bundles.load(file, allow_redacted=True).rows
    assert store.conversations.messages.get("m").content == {"lastlight_redacted": True}
    bundles.export("session", "talk", tmp_path / "again.zip", redact={"content"})
    assert (tmp_path / "again.zip").read_bytes() == file.read_bytes()


def test_what_cannot_be_left_out_is_refused(source: StateStore, tmp_path: Path) -> None:
    """maintenance OP-60."""
    for wrong in (["names"], "context", [1]):
        with pytest.raises(InvalidValue, match="redact"):
            source.maintenance.bundles.export("run", "run", tmp_path / "new", redact=wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


def test_columns_that_an_older_bundle_lacks_have_their_defaults(
    source: StateStore, database: Database, tmp_path: Path
) -> None:
    """maintenance OP-61: a bundle of an older schema, also of one that was never released."""
    store, file = database.open(), tmp_path / "talk.zip"
    source.maintenance.bundles.export("session", "talk", file)
    _aged(file, "0015", {"sessions": ("transition_seq", "project"), "branches": ("model",)})
    store.maintenance.bundles.load(file)
    assert store.conversations.sessions.get("talk").project is None
    assert store.conversations.branches.get("branch").model is None
    assert [one.message.content for one in store.conversations.branches.tail("branch")] == [SECRET]
    assert store.maintenance.bundles.load(file).receipt is None


def _aged(file: Path, revision: str, lacking: dict[str, tuple[str, ...]]) -> None:
    """Write the bundle anew, as if an older version had written it, whose tables lacked these columns."""
    with zipfile.ZipFile(file) as packed:
        parts = {info: packed.read(info) for info in packed.infolist()}
    manifest = json.loads(parts[next(info for info in parts if info.filename == "manifest.json")])
    with zipfile.ZipFile(file, "w") as packed:
        for info, found in parts.items():
            content = found
            table = info.filename.removeprefix("rows/").removesuffix(".jsonl")
            if table in lacking:
                rows = [json.loads(line) for line in content.splitlines()]
                kept = [{name: row[name] for name in row if name not in lacking[table]} for row in rows]
                content = b"".join(json.dumps(row).encode() + b"\n" for row in kept)
                (part,) = (one for one in manifest["parts"] if one["name"] == info.filename)
                part.update(size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
            if info.filename == "manifest.json":
                content = json.dumps({**manifest, "revision": revision}).encode()
            packed.writestr(info, content)
