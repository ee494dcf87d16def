"""Bundles of runs and sessions: the same state is the same bytes, and everything arrives where they are loaded."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.maintenance.attached import attach_without_a_column
from support.maintenance.whole_runs import Report, whole_run

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.conversations import NewBranch, NewChunk, NewMessage, NewSession, Provenance
from lastlight_state.errors import AlreadyExists, BackendUnavailable, Conflict, InvalidValue, NotFound
from lastlight_state.maintenance.bundles import loading
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import ExecutionOptions, RunOptions

FILLED = {"run": "run", "session": "talk"}


@pytest.fixture(params=("sqlite to postgres", "postgres to sqlite"))
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[StateStore, StateStore]]:
    """A store with a run and a session among others, and an empty one on the other product."""
    server = request.getfixturevalue("postgres_database").open(state_dir=tmp_path / "server", migrate=True)
    with StateStore.open(tmp_path / "file.db", state_dir=tmp_path / "file", clock=_clock(request)) as file:
        source, target = (file, server) if request.param.startswith("sqlite") else (server, file)
        _fill(source)
        yield source, target


@pytest.mark.parametrize("kind", FILLED)
def test_a_bundle_of_a_loaded_bundle_has_the_same_bytes(
    stores: tuple[StateStore, StateStore], tmp_path: Path, kind: Any
) -> None:
    """maintenance OP-60, OP-61."""
    source, target = stores
    paths = [tmp_path / f"{n}.zip" for n in range(4)]
    first = source.maintenance.bundles.export(kind, FILLED[kind], paths[0])
    source.maintenance.bundles.export(kind, FILLED[kind], paths[1])
    loaded = target.maintenance.bundles.load(paths[0])
    target.maintenance.bundles.export(kind, FILLED[kind], paths[2])
    again = target.maintenance.bundles.load(paths[1])
    assert len({path.read_bytes() for path in paths[:3]}) == 1
    assert loaded.receipt is not None
    assert (dict(loaded.receipt.counts), loaded.receipt.state) == (loaded.rows, "done")
    assert sum(loaded.rows.values()) == sum(part.rows or 0 for part in first.parts) - _seeded(first)
    assert (again.rows, again.files, again.receipt) == ({}, (), None)


def test_a_run_comes_with_its_outputs_and_is_used_like_any_other(
    stores: tuple[StateStore, StateStore], tmp_path: Path
) -> None:
    """maintenance OP-60: rows of other runs are not part of it."""
    source, target = stores
    source.maintenance.bundles.export("run", "run", tmp_path / "run.zip")
    target.maintenance.bundles.load(tmp_path / "run.zip")
    report = target.outputs.catalog.define("report", Report)
    assert target.outputs.results.get(report, "run", "n").value.title == "second"
    assert target.workflows.runs.get("run") == source.workflows.runs.get("run")
    assert [run.id for run in target.workflows.runs.list().items] == ["run"]
    target.workflows.executions.start("wf:more", run_id="run", options=ExecutionOptions(id="more"))


def test_a_session_comes_with_the_branches_that_its_own_were_forked_from(
    stores: tuple[StateStore, StateStore], tmp_path: Path
) -> None:
    """maintenance OP-60: they are named as its context, with their sessions."""
    source, target = stores
    bundle = source.maintenance.bundles.export("session", "fork", tmp_path / "fork.zip")
    target.maintenance.bundles.load(tmp_path / "fork.zip")
    assert bundle.context == {"sessions": ("talk",), "branches": ("first",)}
    texts = [_texts(store, "forked") for store in stores]
    assert texts[0] == texts[1] == ["one", "more"]
    assert target.conversations.branches.find("second") is None


def test_what_is_stored_otherwise_refuses_the_bundle_or_stays(every_backend: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61."""
    every_backend.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    bundles, file = every_backend.maintenance.bundles, tmp_path / "run.zip"
    bundles.export("run", "run", file)
    every_backend.workflows.runs.merge_scratch("run", {"later": 1})
    with pytest.raises(AlreadyExists) as caught:
        bundles.load(file)
    assert (caught.value.kind, caught.value.key) == ("workflow_runs", "run")
    assert bundles.load(file, on_conflict="skip").rows == {}
    assert every_backend.receipts.list(kind="bundle").items == ()


def test_logs_come_along_and_are_put_where_nothing_is(stores: tuple[StateStore, StateStore], tmp_path: Path) -> None:
    """maintenance OP-60, OP-61: whole lines only; a file that is there otherwise refuses the bundle."""
    source, target = stores
    source.workflows.executions.start("wf:x", run_id="run", session_id="agent-1-s", options=ExecutionOptions(id="x"))
    source.workflows.executions.start("wf:y", run_id="run", session_id="s_1", options=ExecutionOptions(id="y"))
    _write(source, "s_1.jsonl", '{"a": 1}\n{"torn')
    _write(source, "s_1/raw/result.txt", "long")
    _write(source, "s_2.jsonl", '{"of": "another run"}\n')
    file = tmp_path / "run.zip"
    source.maintenance.bundles.export("run", "run", file)
    assert "logs/agent-sessions/projects/-app/s_1.jsonl" in zipfile.ZipFile(file).namelist()
    _write(target, "s_1/raw/result.txt", "other")
    with pytest.raises(AlreadyExists, match="with other contents"):
        target.maintenance.bundles.load(file)
    loaded = target.maintenance.bundles.load(file, on_conflict="skip")
    assert loaded.files == ("logs/agent-sessions/projects/-app/s_1.jsonl",)
    assert _files(target) == {"s_1.jsonl": '{"a": 1}\n', "s_1/raw/result.txt": "other"}
    _write(target, "s_1/raw/result.txt", "long")
    assert target.maintenance.bundles.load(file).receipt is None


def test_only_whole_files_of_the_sessions_of_a_run_are_in_its_bundle(state_store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-60: no links, no folders, nothing that a writer has not finished, and no log of others."""
    w = state_store.workflows
    for key, session_id in (("run", "s_1"), ("other", "s_2")):
        w.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id=key))
        w.executions.start("wf:x", run_id=key, session_id=session_id)
    for name in ("s_1.jsonl", "s_1/raw/a.txt", "s_1/raw/b.tmp", "s_1/raw/c.lock", "s_1/subagents/agent-1.jsonl"):
        _write(state_store, name, "{}\n")
    _write(state_store, "s_1/raw/one.txt", "x")
    _write(state_store, "s_2.jsonl", "{}\n")
    folder = state_store.settings.agent_sessions / "projects/-app/s_1/raw"
    (folder / "link.txt").symlink_to(folder / "a.txt")
    (folder / "folder.txt").mkdir()
    bundle = state_store.maintenance.bundles.export("run", "run", tmp_path / "run.zip")
    logs = {part.name.removeprefix("logs/agent-sessions/projects/-app/"): part.size_bytes for part in bundle.parts}
    assert {name: size for name, size in logs.items() if name.startswith("s_")} == {
        "s_1.jsonl": 3,
        "s_1/raw/a.txt": 3,
        "s_1/raw/one.txt": 1,
        "s_1/subagents/agent-1.jsonl": 3,
    }


def test_nothing_of_another_session_is_in_a_bundle(state_store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-60: neither its log, nor its words, nor the message that tells its model what it is."""
    c, export = state_store.conversations, state_store.maintenance.bundles.export
    words: dict[str, tuple[Any, Any]] = {"talk": ("agent", "live"), "other": ("flow", "imported_fs")}
    for key, (kind, source) in words.items():
        named = Provenance(invocation_kind=kind, source_kind=source)
        c.sessions.create(NewSession(key, "n", agent_session_id=f"{key}_s", provenance=named))
        c.branches.create(key, NewBranch(id=f"{key}-branch", system=NewMessage("system", key, id=f"{key}-system")))
        c.branches.append(f"{key}-branch", [NewMessage("user", f"said in {key}")])
        _write(state_store, f"{key}_s.jsonl", "{}\n")
    bundle = export("session", "talk", tmp_path / "talk.zip")
    with zipfile.ZipFile(tmp_path / "talk.zip") as packed:
        whole = b"".join(name.encode() + packed.read(name) for name in packed.namelist())
    assert "logs/agent-sessions/projects/-app/talk_s.jsonl" in [part.name for part in bundle.parts]
    assert [word for word in (b"other", b'"flow"', b"imported_fs") if word in whole] == []
    with pytest.raises(NotFound):
        export("session", "none", tmp_path / "none.zip")


def test_tables_are_loaded_in_portions(
    state_store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-61: none of them is lost, nor the rest behind the last whole one."""
    monkeypatch.setattr(loading, "_ROWS", 2)
    c = state_store.conversations
    c.sessions.create(NewSession("talk"))
    c.branches.create("talk", NewBranch(id="b"))
    c.branches.append("b", [_said(text) for text in "abcde"])
    state_store.maintenance.bundles.export("session", "talk", tmp_path / "talk.zip")
    with StateStore.open(tmp_path / "there.db", migrate=True) as there:
        there.maintenance.bundles.load(tmp_path / "talk.zip")
        assert _texts(there, "b") == list("abcde")


@pytest.mark.parametrize("what", ["a link", "a folder", "other bytes", "more bytes"])
def test_what_stands_in_the_place_of_a_log_refuses_the_bundle(
    state_store: StateStore, tmp_path: Path, what: str
) -> None:
    """maintenance OP-61: also a link to a file with the same bytes."""
    w, bundles = state_store.workflows, state_store.maintenance.bundles
    w.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    w.executions.start("wf:x", run_id="run", session_id="s_1")
    _write(state_store, "s_1.jsonl", '{"a":1}\n')
    bundles.export("run", "run", tmp_path / "run.zip")
    log = state_store.settings.agent_sessions / "projects/-app/s_1.jsonl"
    if what == "a link":
        log.symlink_to(log.rename(tmp_path / "moved"))
    elif what == "a folder":
        log.unlink()
        log.mkdir()
    else:
        log.write_text('{"a":2}\n' if what == "other bytes" else '{"a":1}\n{}\n')
    with pytest.raises(AlreadyExists, match="is there with other contents"):
        bundles.load(tmp_path / "run.zip")
    assert bundles.load(tmp_path / "run.zip", on_conflict="skip").files == ()


def test_files_that_a_kill_left_out_come_with_the_next_load(every_backend: StateStore, tmp_path: Path) -> None:
    """maintenance OP-61: rows are there, and their log is not."""
    create, start = every_backend.workflows.runs.create, every_backend.workflows.executions.start
    create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    start("wf:y", run_id="run", session_id="s_1", options=ExecutionOptions(id="y"))
    _write(every_backend, "s_1.jsonl", '{"a": 1}\n')
    bundles = every_backend.maintenance.bundles
    bundles.export("run", "run", tmp_path / "with.zip")
    bundles.export("run", "run", tmp_path / "without.zip", with_logs=False)
    (every_backend.settings.agent_sessions / "projects/-app/s_1.jsonl").unlink()
    assert bundles.load(tmp_path / "without.zip").receipt is None
    assert (len(bundles.plan(tmp_path / "with.zip").files), _files(every_backend)) == (1, {})
    loaded = bundles.load(tmp_path / "with.zip")
    assert (loaded.rows, len(loaded.files), _files(every_backend)) == ({}, 1, {"s_1.jsonl": '{"a": 1}\n'})


def test_bundles_are_used_from_coroutines(every_backend: StateStore, tmp_path: Path) -> None:
    """maintenance OP-60, OP-61."""
    every_backend.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))

    async def use() -> Any:
        async with AsyncStateStore(every_backend) as store:
            bundles = store.maintenance.bundles
            made = await bundles.export("run", "run", tmp_path / "run.zip")
            return made == await bundles.read(tmp_path / "run.zip"), await bundles.plan(tmp_path / "run.zip")

    same, planned = asyncio.run(use())
    assert (same, planned.rows, planned.files) == (True, {}, ())


def test_what_is_unpacked_is_for_its_owner_alone_and_tells_no_time(state_store: StateStore, tmp_path: Path) -> None:
    """maintenance OP-60: so does the file itself; its bytes depend on what it holds."""
    state_store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    state_store.maintenance.bundles.export("run", "run", tmp_path / "run.zip")
    found = zipfile.ZipFile(tmp_path / "run.zip").infolist()
    assert {(one.external_attr >> 16, one.create_system, one.date_time[:3]) for one in found} == {
        (stat.S_IFREG | 0o600, 3, (1980, 1, 1))
    }
    assert stat.S_IMODE((tmp_path / "run.zip").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda bundles, there: bundles.export("run", "none", there / "new"), NotFound),
        (lambda bundles, there: bundles.export("session", "none", there / "new"), NotFound),
        (lambda bundles, there: bundles.export("walk", "none", there / "new"), InvalidValue),
        (lambda bundles, there: bundles.read(there / "new"), NotFound),
        (lambda bundles, there: bundles.load(there / "new", on_conflict="replace"), InvalidValue),
        (lambda bundles, there: bundles.export("run", "run", there), AlreadyExists),
    ],
)
def test_what_cannot_be_exported_or_read_is_refused(
    state_store: StateStore, tmp_path: Path, call: Any, error: type[Exception]
) -> None:
    """maintenance OP-60, OP-61: and nothing is left beside."""
    state_store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    folder = tmp_path / "here"
    folder.mkdir()
    with pytest.raises(error):
        call(state_store.maintenance.bundles, folder)
    assert list(folder.iterdir()) == []


def test_a_disk_that_is_full_before_the_last_bytes_of_a_bundle_leaves_no_bundle(
    state_store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-60."""
    state_store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))

    def full(self: zipfile.ZipFile) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(zipfile.ZipFile, "_write_end_record", full)
    with pytest.raises(BackendUnavailable, match="No space left"):
        state_store.maintenance.bundles.export("run", "run", tmp_path / "run.zip")
    assert list(tmp_path.glob("*.zip*")) == list(tmp_path.glob(".*")) == []


def test_rows_that_a_bundle_would_not_hold_whole_are_not_exported(database: Database, tmp_path: Path) -> None:
    """maintenance OP-60: an attached table has a column that nobody declared; runs without rows in it are exported."""
    store = database.open()
    for key in ("run", "other"):
        store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id=key))
    attach_without_a_column(store, database.raw(), "run")
    export = store.maintenance.bundles.export
    with pytest.raises(Conflict, match=r"mine\.hidden") as caught:
        export("run", "run", tmp_path / "run.zip")
    assert (caught.value.code, list(tmp_path.glob("*.zip"))) == ("unregistered_columns", [])
    export("run", "run", tmp_path / "without.zip", redact=["outputs"])
    assert set(export("run", "other", tmp_path / "other.zip").tables) == {"workflow_runs", "run_transitions"}


def test_a_bundle_names_the_columns_of_other_programs_that_it_has_not(fresh_database: Database, tmp_path: Path) -> None:
    """maintenance OP-60: those that hold anything."""
    store = fresh_database.open()
    store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    for column, value in (("theirs", "'x'"), ("empty", "NULL")):
        fresh_database.raw().execute(f"ALTER TABLE workflow_runs ADD COLUMN {column} text")
        fresh_database.raw().execute(f"UPDATE workflow_runs SET {column} = {value}")
    bundle = store.maintenance.bundles.export("run", "run", tmp_path / "run.zip")
    assert bundle.left_columns == ("workflow_runs.theirs",)
    assert store.maintenance.bundles.read(tmp_path / "run.zip") == bundle


def _write(store: StateStore, name: str, text: str) -> None:
    path = store.settings.agent_sessions / "projects/-app" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _files(store: StateStore) -> dict[str, str]:
    root = store.settings.agent_sessions / "projects/-app"
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


def _clock(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("frozen_clock")


def _fill(store: StateStore) -> None:
    store.outputs.catalog.define("report", Report)
    for key in ("run", "other"):
        whole_run(store, key, end=key == "other")
    c = store.conversations
    c.sessions.create(NewSession("talk", "n", status="running", node_metadata={"n": 1.5}))
    c.sessions.create(NewSession("fork", "n"))
    c.branches.create("talk", NewBranch(id="first"))
    c.branches.create("talk", NewBranch(id="second"))
    c.branches.append("first", [_said("one"), _said("two")])
    point = {"parent_branch_id": "first", "forked_at_ord": 1}
    c.branches.create("fork", NewBranch(id="forked", node_metadata=point))
    c.branches.append("forked", [_said("more")])
    c.exchange.send(NewMessage("user", {"text": "to it"}, id="letter", sender="forked"), to=["first", "ana"])
    c.exchange.join("news", "second")
    c.vectors.put("texts", [NewChunk("one", "one", [1.0, 0.5]), NewChunk("c", "two", [0.0, 1.0], document_id="two")])


def _said(text: str) -> NewMessage:
    return NewMessage("user", {"text": text}, id=text, lion_class=f"class.of.{text}")


def _texts(store: StateStore, branch: str) -> list[str]:
    return [one.message.content["text"] for one in store.conversations.branches.tail(branch)]


def _seeded(bundle: Any) -> int:
    return sum(
        part.rows for part in bundle.parts if part.name in ("rows/source_kinds.jsonl", "rows/invocation_kinds.jsonl")
    )
