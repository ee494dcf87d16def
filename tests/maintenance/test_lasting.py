"""What maintenance writes, replaces and removes outlasts a power failure that comes right after the call."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.lasting import Lasting
from support.maintenance.homes import begin, state, write_log, write_state
from support.maintenance.mailbox_trees import write_session
from support.maintenance.threads import logged
from support.run_log.logs import event

from lastlight_state import StateStore
from lastlight_state.codec import dump_line
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import ExecutionOptions, RunOptions

#: What is done before, and what is watched; each with the store and a folder of the test.
Act = Callable[[Any, Path], object]


def _run(store: StateStore, _: Path) -> None:
    """A run that ended, with a log."""
    store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    store.workflows.executions.start("wf:x", run_id="run", session_id="s-1", options=ExecutionOptions(id="x"))
    store.workflows.executions.finish("x", "succeeded")
    store.workflows.runs.cancel("run", by="ana", reason="over")
    logged(store.settings.state_dir, "s-1", "hi")


def _old(store: StateStore, folder: Path) -> None:
    _run(store, folder)
    sql = "UPDATE workflow_runs SET finished_at = '2000-01-01T00:00:00.000Z'"
    with store.transaction() as tx:
        tx.connection.exec_driver_sql(sql)


def _bundle(store: StateStore, folder: Path) -> None:
    _run(store, folder)
    store.maintenance.bundles.export("run", "run", folder / "run.zip")
    shutil.rmtree(store.settings.agent_sessions)


def _backup(store: StateStore, folder: Path) -> None:
    _run(store, folder)
    store.maintenance.backup.create(folder / "backup")


def _damaged(store: StateStore, _: Path) -> None:
    path = logged(store.settings.state_dir, "s-1", "hi")
    path.write_bytes(path.read_bytes() + b'{"torn')


def _logs(_: StateStore, folder: Path) -> None:
    """The logs of another program."""
    log = folder / "agent-sessions" / "projects" / "-app" / "s-2.jsonl"
    log.parent.mkdir(parents=True)
    log.write_bytes(b'{"type":"user","sessionId":"s-2"}\n')


def _import(store: StateStore, folder: Path) -> object:
    return store.maintenance.imports.run(folder / "agent-sessions")


def _more_logs(store: StateStore, folder: Path) -> None:
    _logs(store, folder)
    _import(store, folder)
    with (folder / "agent-sessions" / "projects" / "-app" / "s-2.jsonl").open("ab") as log:
        log.write(b'{"type":"user","sessionId":"s-2"}\n')


def _home(_: StateStore, folder: Path) -> None:
    """The log of a run and the snapshot of a session, of another program."""
    write_log(folder / "home", begin())
    write_state(folder / "home", state("one", invoke_seq=1))


def _import_home(store: StateStore, folder: Path) -> None:
    assert store.maintenance.imports.run(folder / "home").failures == ()


def _more_home(store: StateStore, folder: Path) -> None:
    _home(store, folder)
    _import_home(store, folder)
    with write_log(folder / "home", begin()).open("ab") as log:
        log.write(dump_line(event(1)))
    write_state(folder / "home", state("one", "two", at="2026-02-03T13:00:00.000Z", invoke_seq=2))


def _salvaged(store: StateStore, **given: Any) -> object:
    [path] = store.settings.agent_sessions.rglob("s-1.jsonl")
    return store.maintenance.repair.salvage(path, **given)


def _nothing(_: StateStore, __: Path) -> None:
    """Nothing is done before."""


CALLS: dict[str, tuple[Act, Act]] = {
    "a new store": (_nothing, lambda _, folder: StateStore.open(folder / "new" / "state" / "state.db").close()),
    "an export": (_run, lambda store, folder: store.maintenance.bundles.export("run", "run", folder / "run.zip")),
    "a load": (_bundle, lambda store, folder: store.maintenance.bundles.load(folder / "run.zip")),
    "an archive": (
        _old,
        lambda store, folder: store.maintenance.prune.run(PrunePolicy("runs", keep_n=0, archive=folder)),
    ),
    "a backup": (_run, lambda store, folder: store.maintenance.backup.create(folder / "new" / "backup")),
    "a restore": (
        _backup,
        lambda store, folder: store.maintenance.backup.restore(folder / "backup", folder / "new" / "state.db"),
    ),
    "a clean copy": (_damaged, lambda store, _: _salvaged(store)),
    "a clean copy elsewhere": (_damaged, lambda store, folder: _salvaged(store, to=folder / "new" / "copy.jsonl")),
    "a replaced log": (_damaged, lambda store, _: _salvaged(store, replace=True)),
    "an import of logs": (_logs, _import),
    "an import of logs that have grown": (_more_logs, _import),
    "an import of logs and states of runs": (_home, _import_home),
    "an import of logs and states of runs that have grown": (_more_home, _import_home),
    "an import of a mailbox": (
        lambda _, folder: write_session(folder / "data" / "v2-sessions"),
        lambda store, folder: store.maintenance.imports.run(folder / "data" / "v2-sessions"),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_a_call_leaves_is_on_disk(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """house H-44; maintenance OP-30, OP-46, OP-61, OP-66, OP-85, OP-87."""
    prepare, call = CALLS[name]
    (tmp_path / "files").mkdir()
    with sqlite_database.open() as store:
        prepare(store, tmp_path / "files")
        lasting = Lasting(monkeypatch, tmp_path)
        call(store, tmp_path / "files")
        monkeypatch.undo()
        assert (lasting.early, lasting.lost()) == ([], [])
