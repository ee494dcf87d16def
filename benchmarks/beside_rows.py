"""The rows of the lists beside large values: one of each table, by its number and a large text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
RUN, ASKED = "run-000", "run-001"


def at(second: int) -> str:
    """A time, by seconds after the first."""
    return (BEGIN + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def json(large: str) -> str:
    """JSON with this text."""
    return f'{{"a":"{large}"}}'


def run(i: int, large: str) -> dict[str, Any]:
    status = ("running", "paused", "queued", "succeeded")[i % 4]
    return {
        "id": f"run-{i:03}",
        "workflow_name": f"wf-{i % 5}",
        "trigger_id": f"t-{i % 5}",
        "trigger_type": "cli",
        "owner": "acme",
        "repo": "widgets",
        "current_phase": "build",
        "status": status,
        "context": json(large),
        "started_at": at(i),
        "updated_at": at(i),
        "transition_seq": 1 if i % 8 else 0,
        "parent_run_id": None if i % 2 else RUN,
        "queued_at": at(i) if status == "queued" else None,
        "claim_owner": "w" if status == "running" and i % 8 else None,
        "claim_epoch": 1,
        "heartbeat_at": at(i),
        "lease_expires_at": at(i) if status == "running" and i % 8 else None,
        "wake_at": at(i) if status == "paused" and i % 8 == 1 else None,
        "pause_reason": None if status != "paused" else "timer" if i % 8 == 1 else "signal",
        "waiting_for": "go" if status == "paused" and i % 8 == 5 else None,
        "error": large,
    }


def slim_run(i: int, _large: str) -> dict[str, Any]:
    return run(i, "x")


def live_run(i: int, _large: str) -> dict[str, Any]:
    return {**run(i, "x"), "status": ("running", "paused")[i % 2]}


def execution(i: int, large: str) -> dict[str, Any]:
    return {
        "id": f"e-{i:03}",
        "trigger_type": "cli",
        "trigger_id": f"t-{i % 5}",
        "skill": "chat" if i % 5 == 0 else "build",
        "started_at": at(i),
        "finished_at": None if i % 3 == 0 else at(i),
        "success": None if i % 3 == 0 else 1,
        "workflow_run_id": ASKED if i % 2 else None,
        "output_text": large,
        "node_id": "n" if i % 2 else None,
        "attempt": i if i % 2 else None,
        "details": json(large),
    }


def approval(i: int, large: str) -> dict[str, Any]:
    answered = i % 4 == 0
    return {
        "id": f"a-{i:03}",
        "workflow_run_id": ASKED if i % 3 == 0 else f"run-{i - i % 4 + 1:03}",
        "gate": "merge",
        "summary": large,
        "status": "approved" if answered else "pending",
        "response": large if answered else None,
        "responded_at": at(i) if answered else None,
        "created_at": at(i),
        "node_id": "n",
        "artifact": "plan",
        "action": json(large),
        "action_digest": "d",
    }


def request(i: int, large: str) -> dict[str, Any]:
    answered = i % 4 == 0
    return {
        "id": f"q-{i:03}",
        "run_id": ASKED if i % 3 == 0 else f"run-{i - i % 4 + 1:03}",
        "node_id": "n",
        "kind": "text",
        "status": "answered" if answered else "pending",
        "requested_at": at(i),
        "prompt": large,
        "options": f'["{large}"]',
        "schema": json(large),
    }


def session(i: int, large: str) -> dict[str, Any]:
    return {
        "id": f"s-{i:03}",
        "platform": "slack",
        "channel_id": "c",
        "user_id": f"u-{i}",
        "created_at": at(i),
        "last_activity_at": at(i),
        "metadata": json(large),
    }


def message(i: int, large: str) -> dict[str, Any]:
    return {"session_id": "s-000", "role": "user", "content": large, "timestamp": at(i)}


def cron(i: int, large: str) -> dict[str, Any]:
    return {
        "name": f"cron-{i:03}",
        "pattern": "* * * * *",
        "target": "wf",
        "created_at": at(i),
        "updated_at": at(i),
        "error_json": json(large),
        "payload": json(large),
    }


def fire(i: int, large: str) -> dict[str, Any]:
    return {
        "id": f"f-{i:03}",
        "cron_name": f"cron-{i % 5:03}",
        "source": "tick",
        "target": "wf",
        "status": "running" if i % 4 == 0 else "ok",
        "started_at": at(i),
        "finished_at": None if i % 4 == 0 else at(i),
        "error_json": json(large),
        "payload": json(large),
    }


def frame(i: int, large: str) -> dict[str, Any]:
    return {
        "run_id": RUN,
        "frame_no": i,
        "created_at": at(i),
        "content_hash": "h",
        "full_bytes": 1,
        "task_index": json(large),
        "body": large,
    }


def call(i: int, large: str) -> dict[str, Any]:
    return {
        "run_id": RUN,
        "seq": i,
        "node_id": "n",
        "attempt": i + 1,
        "tool_name": "grep",
        "status": "running" if i % 4 == 0 else "succeeded",
        "started_at": at(i),
        "finished_at": None if i % 4 == 0 else at(i),
        "input": json(large),
        "output": json(large),
    }


def sandbox(i: int, large: str) -> dict[str, Any]:
    return {
        "run_id": RUN,
        "sandbox_id": f"x-{i:03}",
        "created_at": at(i),
        "updated_at": at(i),
        "config": json(large),
    }


def score(i: int, large: str) -> dict[str, Any]:
    return {
        "id": f"score-{i:03}",
        "run_id": RUN,
        "node_id": "n",
        "attempt": i + 1,
        "scorer_id": "s",
        "scorer_name": "s",
        "source": "live",
        "score": 1.0,
        "scored_at": at(i),
        "meta": json(large),
        "input": json(large),
    }


def run_input(i: int, large: str) -> dict[str, Any]:
    return {"run_id": RUN, "revision": i, "created_at": at(i), "payload": json(large), "given": json(large)}


def registered(i: int, large: str) -> dict[str, Any]:
    return {
        "key": f"k-{i:03}",
        "table_name": f"t_{i:03}",
        "kind": "model",
        "signature": "s",
        "created_at": at(i),
        "updated_at": at(i),
        "columns": "[]",
        "json_schema": json(large),
    }


def cached(i: int, large: str) -> dict[str, Any]:
    return {
        "cache_key": f"c-{i:03}",
        "workflow_name": "wf",
        "node_id": "n",
        "output_key": "k",
        "table_name": "t",
        "schema_signature": "s",
        "created_at": at(i),
        "payload": json(large),
    }


def output(i: int, large: str) -> dict[str, Any]:
    return {
        "run_id": RUN,
        "node_id": "n",
        "iteration": i,
        "row_created_at": at(i),
        "row_updated_at": at(i),
        "text": large,
    }
