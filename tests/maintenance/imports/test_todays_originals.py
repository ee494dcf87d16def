"""What the newest versions of other programs write is read, or named."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.maintenance import node_databases
from support.maintenance.homes import write_indexed
from support.maintenance.node_databases import BEGIN, put
from support.maintenance.originals import database
from support.maintenance.sources import NAMES, source_of
from support.run_log.logs import SESSION

from lastlight_state.errors import Conflict
from lastlight_state.files.run_log import SessionState
from lastlight_state.maintenance.imports import foreign

_LATER = "of_tomorrow"
_USAGE = """
CREATE TABLE _smithers_run_usage (
  run_id TEXT NOT NULL, node_id TEXT NOT NULL, iteration INTEGER NOT NULL DEFAULT 0, attempt INTEGER NOT NULL DEFAULT 0,
  model TEXT, agent TEXT, input_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0,
  cache_read_tokens INTEGER NOT NULL DEFAULT 0, cache_write_tokens INTEGER NOT NULL DEFAULT 0,
  reasoning_tokens INTEGER NOT NULL DEFAULT 0, updated_at_ms INTEGER NOT NULL, fresh_input_tokens INTEGER,
  cost_usd REAL, PRIMARY KEY (run_id, node_id, iteration, attempt));
"""
#: The tables whose rows are there in a source of each kind, as `_full` makes it.
DATABASES = [kind for kind, name in NAMES.items() if name.endswith(".db")]


def _full(kind: str, root: Path) -> Path:
    """A source of a kind with a row in each table that is read."""
    path = source_of(kind, root)
    if kind == "smithers-db":
        node = {"run_id": "r0", "node_id": "plan"}
        put(path, "approvals", **node, status="approved")
        put(path, "human_requests", **node, request_id="h", status="answered", response_json='"a"')
        put(path, "ralph", run_id="r0", ralph_id="l")
        put(path, "signals", run_id="r0", seq=0)
        put(path, "frames", run_id="r0", frame_no=0, xml_json={"kind": "text", "text": "t"})
        put(path, "tool_calls", **node, attempt=1, seq=0)
        put(path, "scorers", **node, id="s", score=0.5)
        put(path, "sandboxes", run_id="r0", sandbox_id="b")
        put(path, "cron", cron_id="c")
        put(path, "cache", cache_key="k", payload_json={})
    if kind == "lastlight-db":
        columns = "id TEXT PRIMARY KEY, cron_name TEXT, source TEXT, started_at TEXT, status TEXT"
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.execute(f"CREATE TABLE cron_runs ({columns})")
            raw.execute("INSERT INTO cron_runs VALUES ('f', 'c', 'schedule', '2026-02-03T12:00:00.000Z', 'ok')")
    return path


def _tables(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as raw:
        names = raw.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        return [name for (name,) in names if raw.execute(f'SELECT count(*) FROM "{name}"').fetchone() != (0,)]


def _kept(database: Any) -> str:
    """All texts that the store has."""
    raw, found = database.raw(), []
    names = raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (name,) in names:
        if name not in ("import_ledger", "maintenance_receipts"):
            found += [repr(tuple(row)) for row in raw.execute(f'SELECT * FROM "{name}"').fetchall()]
    return "\n".join(found)


@pytest.mark.parametrize("kind", DATABASES)
def test_a_column_and_a_table_of_tomorrow_arrive_or_are_counted(
    sqlite_database: Any, tmp_path: Path, kind: str
) -> None:
    """maintenance M-122: of every table that is read, each in turn."""
    path = _full(kind, tmp_path / "program")
    tables = _tables(path)
    with closing(sqlite3.connect(path)) as raw, raw:
        for table in tables:
            raw.execute(f'ALTER TABLE "{table}" ADD COLUMN "{_LATER}_{table}" TEXT')
            raw.execute(f'UPDATE "{table}" SET "{_LATER}_{table}" = ?', [f"kept {table}"])
        raw.execute(f"CREATE TABLE {_LATER} (a)")
        raw.execute(f"INSERT INTO {_LATER} VALUES (1), (2)")
    done = sqlite_database.open().maintenance.imports.run(path, kind=kind)
    assert [one.reason for one in done.failures] == []
    kept = _kept(sqlite_database)
    lost = [
        table
        for table in tables
        if f"kept {table}" not in kept and not any(f"{_LATER}_{table}_left" in name for name in done.noticed)
    ]
    about_the_schema = {"schema_meta", "__drizzle_migrations", "_smithers_schema_migrations"}
    counted = {name.removesuffix("_left").removeprefix("_smithers_") for name in done.noticed}
    assert [one for one in lost if one.removeprefix("_smithers_") not in counted and one not in about_the_schema] == []
    if kind != "smithers-db":  # beside its own tables a program may have others there
        assert done.noticed[f"{_LATER}_left"] == 2


def test_runs_that_wait_in_newer_words_are_paused_and_keep_their_word(store: Any, tmp_path: Path) -> None:
    """maintenance M-124, OP-86."""
    path = node_databases.made(tmp_path / "smithers.db")
    words = ("waiting-quota", "waiting-bound", "bound-stale", "paused", "stalled")
    for word in words:
        put(path, "runs", run_id=word, status=word)
        put(path, "nodes", run_id=word, node_id="n", state=word)
        put(path, "attempts", run_id=word, node_id="n", state=word)
    put(path, "runs", run_id="ended", status="canceled", finished_at_ms=BEGIN + 1)
    done = store.maintenance.imports.run(path)
    assert (done.units, done.noticed["node_waits"]) == ({"imported": 6}, 5)
    for word in words:
        run = store.workflows.runs.get(word)
        assert (run.status, run.pause_reason, run.context["status"]) == ("paused", None, word)
        [execution] = store.workflows.executions.list(run_id=word).items
        assert store.workflows.executions.get(execution.id).details["state"] == word
    assert store.workflows.runs.get("ended").status == "cancelled"
    put(path, "runs", run_id="waiting-quota", status="finished", finished_at_ms=BEGIN + 60_000)
    assert store.maintenance.imports.run(path).units["grown"] == 1
    assert store.workflows.runs.get("waiting-quota").status == "succeeded"


def test_what_an_attempt_used_stands_in_its_execution(store: Any, tmp_path: Path) -> None:
    """maintenance M-124, OP-86: what has no column in its details, and usage without an attempt is counted."""
    path = node_databases.made(tmp_path / "smithers.db")
    put(path, "runs", run_id="r", status="finished", finished_at_ms=BEGIN + 1)
    put(path, "attempts", run_id="r", node_id="n", attempt=1)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.executescript(_USAGE)
        row = "INSERT INTO _smithers_run_usage VALUES ('r', ?, 0, 1, 'opus', 'a', 12, 5, 7, 2, 3, 9, 4, 0.5)"
        raw.execute(row, ["n"])
        raw.execute(row, ["gone"])
        raw.execute("ALTER TABLE _smithers_tool_calls ADD COLUMN side_effect INTEGER")
    put(path, "tool_calls", run_id="r", node_id="n", attempt=1, seq=0, side_effect=1)
    done = store.maintenance.imports.run(path)
    assert (done.noticed["run_usage_left"], done.noticed["tool_calls.side_effect_left"]) == (1, 1)
    [summary] = store.workflows.executions.list(run_id="r").items
    one = store.workflows.executions.get(summary.id)
    assert (one.input_tokens, one.output_tokens, one.cache_read_input_tokens, one.cache_creation_input_tokens) == (
        *(12, 5, 7, 2),
    )
    assert (float(one.cost_usd), one.details["usage"]["model"], one.details["usage"]["reasoning_tokens"]) == (
        *(0.5, "opus", 3),
    )


def test_teams_of_a_state_database_become_inboxes_and_go_on(store: Any, tmp_path: Path) -> None:
    """maintenance M-125, OP-84: of the database that the newest version makes."""
    path = database(tmp_path / "state.db")
    message = "INSERT INTO team_messages VALUES (?, 't1', ?, 'ana', ?, ?, NULL, ?, NULL)"
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(
            "INSERT INTO teams (id, name, created_at, updated_at, members) VALUES ('t1', 'T', 1.5, 2, ?)",
            [json.dumps(["ana", "bo"])],
        )
        raw.execute(message, ["m1", 2.5, "all", "to all", '["bo"]'])
        raw.execute(message, ["m2", 3.5, "bo", "to bo", "[]"])
    imports, exchange = store.maintenance.imports, store.conversations.exchange
    done = imports.run(path)
    assert (done.failures, done.rows["exchange_deliveries"], done.rows["exchange_members"]) == ((), 3, 2)
    inbox = exchange.inbox("t1/bo", state="all").items
    assert [(one.message_id, one.acked_at is not None) for one in inbox] == [("m1", True), ("m2", False)]
    assert [one.message_id for one in exchange.inbox("t1/ana", state="all").items] == ["m1"]
    assert imports.run(path).units.keys() == {"unchanged"}
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(message, ["m3", 4.5, "bo", "later", "[]"])
    assert imports.run(path).units["grown"] == 1
    assert len(exchange.inbox("t1/bo", state="all").items) == 3


def test_a_number_and_its_text_are_two_keys() -> None:
    """maintenance OP-35."""
    assert foreign.key_text(5) != foreign.key_text("5")


def test_states_beside_the_database_of_their_program_are_refused_and_imported_elsewhere(every_backend: Any) -> None:
    """run-log RL-01: neither program would see what the other one saves; its logs are read."""
    write_indexed(every_backend.settings.run_logs, SESSION, None)
    states = every_backend.run_log.states
    for call in (
        lambda: states.get(SESSION),
        lambda: states.find(SESSION),
        states.list,
        lambda: states.clear(SESSION),
        lambda: states.put(SessionState(session_id=SESSION, messages=(), invoke_seq=1)),
    ):
        with pytest.raises(Conflict) as refused:
            call()
        assert refused.value.code == "foreign_states"
    assert every_backend.run_log.runs.list().items == ()


def test_a_column_and_a_table_of_tomorrow_in_the_database_of_a_home_are_counted(store: Any, tmp_path: Path) -> None:
    """maintenance M-122, OP-83."""
    path = write_indexed(tmp_path / "home", SESSION, None)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(f"ALTER TABLE session_state ADD COLUMN {_LATER} TEXT DEFAULT 'x'")
        raw.execute(f"CREATE TABLE {_LATER}s (a)")
        raw.execute(f"INSERT INTO {_LATER}s VALUES (1), (2)")
    done = store.maintenance.imports.run(tmp_path / "home")
    assert (done.noticed[f"{_LATER}_left"], done.noticed[f"{_LATER}s_left"]) == (1, 2)


@pytest.mark.parametrize(
    ("file", "program"),
    [
        ("sessions/2026/02/03/rollout-2026-02-03T12-00-00-abc.jsonl", "Codex"),
        ("tmp/0a1b/chats/session-2026-02-03T12-00-abc.json", "Gemini CLI"),
        ("storage/session/p1/ses_1.json", "opencode"),
    ],
)
def test_session_files_of_other_agents_are_named_as_not_known(
    store: Any, tmp_path: Path, file: str, program: str
) -> None:
    """maintenance M-126: and taken for no other program's."""
    path = tmp_path / "home" / file
    path.parent.mkdir(parents=True)
    path.write_text("{}\n")
    with pytest.raises(Conflict, match=program) as refused:
        store.maintenance.imports.run(tmp_path / "home")
    assert refused.value.code == "unknown_source"
