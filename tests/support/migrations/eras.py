"""Databases as each version of the original program makes them, with rows, on either product."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import insert
from sqlalchemy.engine import Connection
from sqlalchemy.types import Boolean, DateTime
from support.migrations.populate import reflected
from support.migrations.support import Place, with_connection

from lastlight_state import StateStore
from lastlight_state.backends.base import Backend
from lastlight_state.backends.facts import Catalogue
from lastlight_state.db.repository import Repository
from lastlight_state.db.schema.columns import parse_time
from lastlight_state.errors import NotFound
from lastlight_state.messaging import ThreadPlace
from lastlight_state.migrations import scripts
from lastlight_state.migrations.adoption.fit import blueprints
from lastlight_state.workflows import NodeRef

ERAS = sorted((Path(__file__).parents[2] / "fixtures" / "legacy" / "eras").glob("*.sql"))

FAILED, OPEN, CHAT = "run-failed", "run-open", "chat-1"
AT, LATER = "2026-06-30T09:00:00.000Z", "2026-06-30T09:12:41.007Z"
HISTORY = [{"phase": name, "timestamp": AT, "success": True} for name in ("guardrails", "architect")]
ERROR = "the reviewer gave up: thrice the same finding"

#: Rows by table; each era takes the columns that it has.
ROWS: dict[str, list[dict[str, Any]]] = {
    "executions": [
        {"id": "x-1", "trigger_type": "webhook", "trigger_id": "acme/weather#42", "skill": "build:architect",
         "repo": "weather", "issue_number": 42, "started_at": AT, "finished_at": LATER, "success": 1, "turns": 7,
         "duration_ms": 4120, "session_id": "ses-1", "cost_usd": 0.25, "workflow_run_id": FAILED,
         "output_text": "Both workers send it.", "extension_status": '{"github":{"status":"on"}}'},
        {"id": "x-2", "trigger_type": "webhook", "trigger_id": "acme/weather#42", "skill": "build:reviewer",
         "started_at": LATER, "workflow_run_id": OPEN},
    ],
    "workflow_runs": [
        {"id": FAILED, "workflow_name": "build", "trigger_id": "acme/weather#42", "repo": "weather", "owner": "acme",
         "issue_number": 42, "current_phase": "reviewer", "phase_history": HISTORY, "status": "failed",
         "context": {"title": "Twice", "error": ERROR}, "started_at": AT, "updated_at": LATER, "finished_at": LATER},
        {"id": OPEN, "workflow_name": "build", "trigger_id": "acme/weather#43", "repo": "weather", "owner": "acme",
         "current_phase": "architect", "phase_history": HISTORY[:1], "status": "running", "scratch": {"n": 1},
         "context": {"error": "left behind by a retry"}, "started_at": LATER, "updated_at": LATER},
    ],
    "workflow_approvals": [
        {"id": "gate-1", "workflow_run_id": OPEN, "gate": "post_architect", "summary": "Lock it?", "created_at": LATER,
         "artifact": "plan.md"},
    ],
    "cron_overrides": [{"name": "nightly", "enabled": 0, "schedule": "0 4 * * *", "updated_at": AT}],
    "workflow_overrides": [{"name": "release", "enabled": 0, "updated_at": AT, "updated_by": "bo"}],
    "messaging_sessions": [
        {"id": CHAT, "platform": "slack", "channel_id": "C07", "thread_id": "T1", "user_id": "U1", "created_at": AT,
         "last_activity_at": LATER, "message_count": 1, "active": 1, "agent_session_id": "ses-2"},
    ],
    "messaging_messages": [{"session_id": CHAT, "role": "user", "content": "Why twice? ✓", "timestamp": AT}],
    "users": [{"id": "u-1", "login": "ana", "created_at": AT, "updated_at": AT}],
    "rate_limits": [{"resource": "core", "remaining": 3}],
}  # fmt: skip

_COLUMN = re.compile(r"(?P<name>\w+) (?P<type>TEXT|INTEGER|REAL)(?P<rest>.*)")
_TYPES = {"TEXT": 'TEXT COLLATE "C"', "INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION"}
_FLAGS = {"success", "enabled", "active"}
_JSON = {"phase_history", "context", "scratch", "node_statuses"}

_SINCE = parse_time("2026-01-01T00:00:00.000Z")
#: What the reads are asked for, by the names of their parameters.
_ASKED: dict[str, Any] = {
    "run_id": OPEN, "execution_id": "x-1", "approval_id": "gate-1", "trigger_id": "acme/weather#42",
    "session_id": CHAT, "agent_session_id": "ses-2", "message_id": 1, "name": "nightly", "names": ["build", "nightly"],
    "workflow_name": "build", "owner": "acme", "repo": "weather", "since": _SINCE, "text": "twice", "signal": "go",
    "dimension": "skill", "node": NodeRef("n"), "gate": "post_architect",
    "node_id": "n", "place": ThreadPlace("slack", "C07", "T1"), "after": 0,
    "platform": "slack", "channel_id": "C07", "platform_message_id": "p", "run_ids": [OPEN, FAILED], "seq": 0,
    "request_id": "q", "loop_id": "l", "fire_id": "f", "event_id": "e", "frame_no": 0, "sandbox_id": "s",
    "score_id": "s", "signal_id": "s", "consumer": "c", "call_id": "c", "key": "k",
    "within": timedelta(days=1),
}  # fmt: skip
_READS = ("get", "list", "find", "count", "counts", "is", "history", "since", "latest", "daily", "hourly", "by", "for",
          "health", "search", "activity")  # fmt: skip
_NEWEST: dict[str, Catalogue] = {}
#: Reads that look for an output table, of which these databases have none.
_OF_OUTPUTS = ("results", "cache", "catalog")


def of_era(place: Place, era: Path) -> None:
    """Make the database of this era in the place, with its rows."""
    sql = era.read_text("utf-8")
    if place.name == "sqlite":
        place.raw().executescript(sql)
    else:
        place.raw().execute("\n".join(map(_on_postgres, sql.splitlines())))
    with_connection(place.backend(), _fill)


def newest_shape(backend: Backend) -> Catalogue:
    """What the tables of the newest revision are like, found once for each product."""
    if backend.name not in _NEWEST:
        _NEWEST[backend.name], *_ = blueprints(backend, scripts.head())
    return _NEWEST[backend.name]


def read_everything(store: StateStore) -> int:
    """Call every reading method of every repository, and return their number. A row may not be there."""
    called = 0
    for domain in ("workflows", "schedules", "messaging", "journal", "outputs"):
        for repository in _repositories(getattr(store, domain)):
            for name, method in inspect.getmembers(repository, inspect.ismethod):
                if name.split("_")[0] in _READS and repository.__class__.__module__.split(".")[2] not in _OF_OUTPUTS:
                    _call(method)
                    called += 1
    return called


def _repositories(domain: Any) -> Iterator[Repository]:
    for name in dir(domain):
        part = None if name.startswith("_") else getattr(domain, name)
        if isinstance(part, Repository):
            yield part


def _call(method: Any) -> None:
    needed = [
        parameter
        for parameter in inspect.signature(method).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    given = {parameter.name: _ASKED[parameter.name] for parameter in needed}
    try:
        method(**given)
    except NotFound:
        return


def _on_postgres(line: str) -> str:
    """The line with the types that revision 0001 has on Postgres."""
    line = line.replace(
        "id INTEGER PRIMARY KEY AUTOINCREMENT", "id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"
    )
    return _COLUMN.sub(_column, line).replace("WHERE active = 1", "WHERE active")


def _column(found: re.Match[str]) -> str:
    name, kind, rest = found["name"], _TYPES[found["type"]], found["rest"]
    if name in _FLAGS:
        kind, rest = "BOOLEAN", rest.replace("DEFAULT 1", "DEFAULT true")
    elif name in _JSON:
        kind = "JSONB"
    elif name.endswith("_at") or name == "timestamp":
        kind = "TIMESTAMPTZ"
    return f"{name} {kind}{rest}"


def _fill(connection: Connection) -> None:
    for table in reflected(connection):
        for row in ROWS.get(table.name, ()):
            values = {name: _value(value, table.c[name].type) for name, value in row.items() if name in table.c}
            connection.execute(insert(table), values)


def _value(value: Any, kind: Any) -> Any:
    if isinstance(value, list | dict):
        return value if kind.__class__.__name__ == "JSONB" else json.dumps(value, ensure_ascii=False)
    if isinstance(kind, Boolean):
        return bool(value)
    return parse_time(value) if isinstance(kind, DateTime) else value
