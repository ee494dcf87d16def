"""What a piece of maintenance brings to disk, and in which order: what it says is done outlasts a power failure."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from support.maintenance.homes import begin, write_log
from support.maintenance.mailbox_trees import attach, write_session
from support.run_log.logs import RUN, event
from support.to_disk import ToDisk

from lastlight_state import StateStore
from lastlight_state.codec import dump_line
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import ExecutionOptions, RunOptions

Calls = Callable[..., list[str]]

LINE = b'{"type":"user","message":{"role":"user"},"timestamp":"2026-01-05T10:00:00.000Z","sessionId":"s1"}\n'


@pytest.fixture
def store(sqlite_database: Database) -> StateStore:
    """A store whose files lie below ``state``."""
    return sqlite_database.open()


@pytest.fixture
def calls(store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """A function that makes a call, and gives what it brought to disk.

    What is synced between two names is sorted: a folder lists its files in any order.
    """

    def of(call: Callable[..., object], *given: Any) -> list[str]:
        with monkeypatch.context() as patched:
            noted = ToDisk(patched, tmp_path).calls
            call(*given)
        found: list[str] = []
        for is_sync, group in groupby(noted, lambda one: one.startswith("sync")):
            some = list(group)
            found += sorted(some) if is_sync else some
        return [re.sub(r"[0-9a-f]{64}", "*", one) for one in found]

    return of


def log_of(store: StateStore) -> Path:
    """The log of an agent."""
    path = store.settings.agent_sessions / "projects" / "-app" / "s1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(LINE)
    return path


def test_an_imported_log_is_on_disk_before_its_name_and_with_its_folders(
    store: StateStore, tmp_path: Path, calls: Calls
) -> None:
    """maintenance OP-85: and so is what it has grown by."""
    log, logs = tmp_path / "other" / "agent-sessions" / "projects" / "-app" / "s1.jsonl", "state/agent-sessions"
    log.parent.mkdir(parents=True)
    log.write_bytes(LINE)
    assert calls(store.maintenance.imports.run, log.parents[3]) == [
        f"sync {logs}/projects/-app/.*.tmp",
        "name s1.jsonl",
        "remove .*.tmp",
        "sync state",
        f"sync {logs}",
        f"sync {logs}/projects",
        f"sync {logs}/projects/-app",
    ]
    log.write_bytes(LINE * 2)
    grown = calls(store.maintenance.imports.run, log.parents[3])
    assert grown == [f"sync {logs}/projects/-app", f"sync {logs}/projects/-app/s1.jsonl"]


def test_an_imported_run_log_is_on_disk_before_its_name_and_with_its_folders(
    store: StateStore, tmp_path: Path, calls: Calls
) -> None:
    """maintenance OP-83: and so is what it has grown by."""
    home, day = tmp_path / "program", "state/sessions/2026/02/03"
    home.mkdir()
    log = write_log(home, begin())
    assert calls(store.maintenance.imports.run, home) == [
        "sync state",
        "sync state/sessions",
        f"sync {day}/.{RUN}.jsonl.tmp",
        f"name {RUN}.jsonl",
        "sync state/sessions",
        "sync state/sessions/2026",
        "sync state/sessions/2026/02",
        f"sync {day}",
        f"remove {RUN}",  # its lock
    ]
    with log.open("ab") as file:
        file.write(dump_line(event(1)))
    grown = calls(store.maintenance.imports.run, home)
    assert grown == [f"sync {day}", f"sync {day}/{RUN}.jsonl", f"remove {RUN}"]


def test_an_imported_mailbox_is_on_disk_with_its_attachments_before_its_name(
    store: StateStore, tmp_path: Path, calls: Calls
) -> None:
    """maintenance OP-87."""
    write_session(tmp_path / "other" / "v2-sessions")
    made = "sync state/v2-sessions/ag-1/.new-*"
    assert calls(store.maintenance.imports.run, tmp_path / "other") == [
        made,
        f"{made}/inbound.db",
        f"{made}/inbox",
        f"{made}/inbox/m-1",
        f"{made}/inbox/m-1/a.txt",
        f"{made}/outbound.db",
        f"{made}/outbox",
        f"{made}/outbox/a-1",
        f"{made}/outbox/a-1/b.bin",
        "name sess-1",
        "sync state",
        "sync state/v2-sessions",
        "sync state/v2-sessions/ag-1",
    ]


def test_a_bundle_and_the_logs_that_are_loaded_from_it_are_on_disk_before_their_names(
    store: StateStore, tmp_path: Path, calls: Calls
) -> None:
    """maintenance OP-60, OP-61."""
    store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    store.workflows.executions.start("wf:y", run_id="run", session_id="s1", options=ExecutionOptions(id="y"))
    log, place = log_of(store), tmp_path / "run.zip"
    exported = calls(store.maintenance.bundles.export, "run", "run", place)
    assert exported == ["sync .run.zip*.tmp", "name run.zip", "sync ."]
    log.unlink()
    folder = "state/agent-sessions/projects/-app"
    loaded = calls(store.maintenance.bundles.load, place)
    assert loaded == [f"sync {folder}/.s1.jsonl*.tmp", "name s1.jsonl", f"sync {folder}"]


def test_a_backup_and_what_is_restored_from_it_are_on_disk_before_their_names(
    store: StateStore, tmp_path: Path, calls: Calls
) -> None:
    """maintenance OP-45, OP-46, OP-47: files, folders, and the folders above them."""
    log_of(store)
    attach(store.mailbox.create("g", "s").folder, "inbox/m/a.txt", b"in")
    folders = ("", "/g", "/g/s", "/g/s/inbox", "/g/s/inbox/m", "/g/s/outbox")
    mailbox = (*folders, "/g/s/inbound.db", "/g/s/inbox/m/a.txt", "/g/s/outbound.db")
    logs = ("", "/projects", "/projects/-app", "/projects/-app/s1.jsonl")
    made = [f"mailboxes{one}" for one in mailbox] + ["logs"] + [f"logs/agent-sessions{one}" for one in logs]
    assert calls(store.maintenance.backup.create, tmp_path / "backup") == [
        "sync .",
        "sync .backup*.tmp",
        *sorted(f"sync .backup*.tmp/{one}" for one in (*made, "lastlight.db", "manifest.json")),
        "name backup",
        "sync .",
    ]
    staged = [f".agent-sessions*.tmp{one}" for one in logs] + [f".v2-sessions*.tmp{one}" for one in mailbox]
    assert calls(store.maintenance.backup.restore, tmp_path / "backup", tmp_path / "there" / "a.db") == [
        "sync .",
        *sorted(f"sync there/{one}" for one in staged),
        *("name agent-sessions", "sync there"),
        *("name v2-sessions", "sync there", "sync there/.a.db*.tmp"),
        *("name a.db", "sync there"),
    ]
