"""Databases like those of the second original system, with facts of its schema: times in milliseconds, states in words.

The tables of the first version lack columns and tables that came later.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

#: Milliseconds at which everything begins.
BEGIN = 1_767_225_600_123

_NODE = "run_id TEXT NOT NULL, node_id TEXT NOT NULL, iteration INTEGER NOT NULL DEFAULT 0"
_FIRST = f"""
CREATE TABLE _smithers_runs (
  run_id TEXT PRIMARY KEY, workflow_name TEXT NOT NULL, workflow_path TEXT, status TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL, started_at_ms INTEGER, finished_at_ms INTEGER, error_json TEXT, config_json TEXT);
CREATE TABLE _smithers_nodes (
  {_NODE}, state TEXT NOT NULL, last_attempt INTEGER, updated_at_ms INTEGER NOT NULL, output_table TEXT NOT NULL,
  label TEXT, PRIMARY KEY (run_id, node_id, iteration));
CREATE TABLE _smithers_attempts (
  {_NODE}, attempt INTEGER NOT NULL, state TEXT NOT NULL, started_at_ms INTEGER NOT NULL, finished_at_ms INTEGER,
  error_json TEXT, jj_pointer TEXT, cached INTEGER DEFAULT 0, meta_json TEXT,
  PRIMARY KEY (run_id, node_id, iteration, attempt));
CREATE TABLE _smithers_approvals (
  {_NODE}, status TEXT NOT NULL, requested_at_ms INTEGER, decided_at_ms INTEGER, note TEXT, decided_by TEXT,
  PRIMARY KEY (run_id, node_id, iteration));
CREATE TABLE _smithers_events (
  run_id TEXT NOT NULL, seq INTEGER NOT NULL, timestamp_ms INTEGER NOT NULL, type TEXT NOT NULL,
  payload_json TEXT NOT NULL, PRIMARY KEY (run_id, seq));
CREATE TABLE _smithers_ralph (
  run_id TEXT NOT NULL, ralph_id TEXT NOT NULL, iteration INTEGER NOT NULL DEFAULT 0, done INTEGER NOT NULL DEFAULT 0,
  updated_at_ms INTEGER NOT NULL, PRIMARY KEY (run_id, ralph_id));
"""
_LATER = f"""
ALTER TABLE _smithers_runs ADD COLUMN parent_run_id TEXT;
ALTER TABLE _smithers_runs ADD COLUMN workflow_hash TEXT;
ALTER TABLE _smithers_runs ADD COLUMN heartbeat_at_ms INTEGER;
ALTER TABLE _smithers_runs ADD COLUMN runtime_owner_id TEXT;
ALTER TABLE _smithers_runs ADD COLUMN cancel_requested_at_ms INTEGER;
ALTER TABLE _smithers_runs ADD COLUMN hijack_target TEXT;
ALTER TABLE _smithers_runs ADD COLUMN vcs_type TEXT;
ALTER TABLE _smithers_runs ADD COLUMN vcs_root TEXT;
ALTER TABLE _smithers_runs ADD COLUMN vcs_revision TEXT;
ALTER TABLE _smithers_attempts ADD COLUMN response_text TEXT;
ALTER TABLE _smithers_attempts ADD COLUMN jj_cwd TEXT;
ALTER TABLE _smithers_attempts ADD COLUMN heartbeat_at_ms INTEGER;
ALTER TABLE _smithers_attempts ADD COLUMN heartbeat_data_json TEXT;
ALTER TABLE _smithers_approvals ADD COLUMN request_json TEXT;
ALTER TABLE _smithers_approvals ADD COLUMN decision_json TEXT;
ALTER TABLE _smithers_approvals ADD COLUMN auto_approved INTEGER NOT NULL DEFAULT 0;
CREATE TABLE _smithers_human_requests (
  request_id TEXT PRIMARY KEY, {_NODE}, kind TEXT NOT NULL, status TEXT NOT NULL, prompt TEXT NOT NULL,
  schema_json TEXT, options_json TEXT, response_json TEXT, requested_at_ms INTEGER NOT NULL, answered_at_ms INTEGER,
  answered_by TEXT, timeout_at_ms INTEGER);
CREATE TABLE _smithers_signals (
  run_id TEXT NOT NULL, seq INTEGER NOT NULL, signal_name TEXT NOT NULL, correlation_id TEXT,
  payload_json TEXT NOT NULL, received_at_ms INTEGER NOT NULL, received_by TEXT, PRIMARY KEY (run_id, seq));
CREATE TABLE _smithers_frames (
  run_id TEXT NOT NULL, frame_no INTEGER NOT NULL, created_at_ms INTEGER NOT NULL, xml_json TEXT NOT NULL,
  xml_hash TEXT NOT NULL, encoding TEXT NOT NULL DEFAULT 'full', mounted_task_ids_json TEXT, task_index_json TEXT,
  note TEXT, PRIMARY KEY (run_id, frame_no));
CREATE TABLE _smithers_tool_calls (
  {_NODE}, attempt INTEGER NOT NULL, seq INTEGER NOT NULL, tool_name TEXT NOT NULL, input_json TEXT, output_json TEXT,
  started_at_ms INTEGER NOT NULL, finished_at_ms INTEGER, status TEXT NOT NULL, error_json TEXT,
  PRIMARY KEY (run_id, node_id, iteration, attempt, seq));
CREATE TABLE _smithers_sandboxes (
  run_id TEXT NOT NULL, sandbox_id TEXT NOT NULL, runtime TEXT NOT NULL DEFAULT 'bubblewrap', remote_run_id TEXT,
  workspace_id TEXT, container_id TEXT, config_json TEXT NOT NULL, status TEXT NOT NULL DEFAULT 'pending',
  shipped_at_ms INTEGER, completed_at_ms INTEGER, bundle_path TEXT, PRIMARY KEY (run_id, sandbox_id));
CREATE TABLE _smithers_scorers (
  id TEXT PRIMARY KEY, {_NODE}, attempt INTEGER NOT NULL DEFAULT 0, scorer_id TEXT NOT NULL, scorer_name TEXT NOT NULL,
  source TEXT NOT NULL, score REAL NOT NULL, reason TEXT, meta_json TEXT, input_json TEXT, output_json TEXT,
  latency_ms REAL, scored_at_ms INTEGER NOT NULL, duration_ms REAL);
CREATE TABLE _smithers_alerts (
  alert_id TEXT PRIMARY KEY, run_id TEXT, policy_name TEXT NOT NULL, message TEXT NOT NULL);
CREATE TABLE _smithers_snapshots (
  run_id TEXT NOT NULL, frame_no INTEGER NOT NULL, input_json TEXT NOT NULL, PRIMARY KEY (run_id, frame_no));
CREATE TABLE _smithers_cron (
  cron_id TEXT PRIMARY KEY, pattern TEXT NOT NULL, workflow_path TEXT NOT NULL, enabled INTEGER DEFAULT 1,
  created_at_ms INTEGER NOT NULL, last_run_at_ms INTEGER, next_run_at_ms INTEGER, error_json TEXT);
CREATE TABLE _smithers_cache (
  cache_key TEXT PRIMARY KEY, created_at_ms INTEGER NOT NULL, workflow_name TEXT NOT NULL, node_id TEXT NOT NULL,
  output_table TEXT NOT NULL, schema_sig TEXT NOT NULL, agent_sig TEXT, tools_sig TEXT, jj_pointer TEXT,
  payload_json TEXT NOT NULL);
CREATE TABLE _smithers_vectors (
  id TEXT PRIMARY KEY, namespace TEXT NOT NULL, content TEXT NOT NULL, embedding BLOB NOT NULL,
  dimensions INTEGER NOT NULL, metadata_json TEXT, document_id TEXT, chunk_index INTEGER,
  created_at_ms INTEGER NOT NULL);
CREATE TABLE _smithers_memory_facts (namespace TEXT, key TEXT, value_json TEXT, PRIMARY KEY (namespace, key));
CREATE TABLE _smithers_schema_migrations (id TEXT PRIMARY KEY, name TEXT NOT NULL, applied_at_ms INTEGER NOT NULL);
"""
#: The input as one value, as it is without a schema of its own.
_INPUT = "CREATE TABLE input (run_id TEXT PRIMARY KEY, payload TEXT);"

#: The input in columns of its own, as it is where a schema says so.
TYPED = (
    "CREATE TABLE input (run_id TEXT NOT NULL PRIMARY KEY, title TEXT, is_urgent INTEGER, tags TEXT, depth INTEGER);"
)
#: What typed columns become after a version without a schema.
MIXED = "CREATE TABLE input (run_id TEXT PRIMARY KEY, title TEXT, payload TEXT);"

#: What rows have where a test does not say.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "runs": {"workflow_name": "review", "status": "running", "created_at_ms": BEGIN},
    "nodes": {"state": "finished", "last_attempt": 1, "updated_at_ms": BEGIN + 2_000, "output_table": ""},
    "attempts": {"iteration": 0, "attempt": 1, "state": "finished", "started_at_ms": BEGIN + 1_000},
    "approvals": {"status": "requested", "requested_at_ms": BEGIN + 3_000},
    "human_requests": {"kind": "ask", "status": "pending", "prompt": "Which?", "requested_at_ms": BEGIN + 3_000},
    "events": {"timestamp_ms": BEGIN + 1_000, "type": "NodeStarted", "payload_json": {}},
    "signals": {"signal_name": "go", "payload_json": {}, "received_at_ms": BEGIN + 4_000},
    "frames": {"created_at_ms": BEGIN + 5_000, "xml_hash": "0"},
    "tool_calls": {"attempt": 1, "tool_name": "bash", "started_at_ms": BEGIN + 1_000, "status": "success"},
    "sandboxes": {"config_json": {}},
    "scorers": {"attempt": 1, "scorer_id": "s", "scorer_name": "S", "source": "live", "scored_at_ms": BEGIN + 6_000},
    "cron": {"pattern": "0 5 * * *", "workflow_path": "w.tsx", "created_at_ms": BEGIN},
    "cache": {"created_at_ms": BEGIN, "workflow_name": "w", "node_id": "n", "output_table": "plans", "schema_sig": "s"},
    "vectors": {"namespace": "docs", "content": "text", "dimensions": 2, "created_at_ms": BEGIN},
    "ralph": {"updated_at_ms": BEGIN + 2_000},
}


def made(path: Path, *, is_first: bool = False, inputs: str = _INPUT) -> Path:
    """An empty database, of the first version or of a later one, with this table of inputs."""
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript(_FIRST if is_first else _FIRST + _LATER)
        raw.executescript(inputs)
    return path


def put(path: Path, table: str, **row: Any) -> None:
    """Store a row, in the place of the one of its key. Tables of the system are named without their prefix."""
    given = {**_DEFAULTS.get(table, {}), **row}
    name = table if table == "input" else f"_smithers_{table}"
    with closing(sqlite3.connect(path)) as raw, raw:
        names, marks = ", ".join(f'"{one}"' for one in given), ", ".join("?" * len(given))
        values = [json.dumps(one) if isinstance(one, dict | list) else one for one in given.values()]
        raw.execute(f'INSERT OR REPLACE INTO "{name}" ({names}) VALUES ({marks})', values)


def change(path: Path, table: str, key: str, **columns: Any) -> None:
    """Change columns of the rows of a run, or of a cron."""
    with closing(sqlite3.connect(path)) as raw, raw:
        sets = ", ".join(f"{name} = ?" for name in columns)
        values = [json.dumps(one) if isinstance(one, dict | list) else one for one in columns.values()]
        raw.execute(
            f"UPDATE _smithers_{table} SET {sets} WHERE {'cron_id' if table == 'cron' else 'run_id'} = ?",
            [*values, key],
        )


def remove(path: Path, table: str, where: str) -> None:
    """Delete rows."""
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(f"DELETE FROM _smithers_{table} WHERE {where}")


def at(millis: int) -> datetime:
    """The time so many milliseconds after the begin."""
    return datetime.fromtimestamp((BEGIN + millis) // 1000, UTC).replace(microsecond=(BEGIN + millis) % 1000 * 1000)
