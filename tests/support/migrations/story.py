"""A small service's day, as rows: what the golden databases hold, each as far as its revision has columns for it.

A row may say ``UNTIL``: it is of a kind that this revision and later ones do not admit. A revision that brings a table
or a column brings its rows here.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any

UNTIL = "(until)"

Row = dict[str, Any]

BUILD, TRIAGE, RELEASE, NIGHTLY = "run-build", "run-triage", "run-release", "run-nightly"
DAY = "2026-06-30T"


def at(clock: str) -> str:
    """Return a moment of the day."""
    return f"{DAY}{clock}Z"


def phase(name: str, clock: str) -> Row:
    return {"phase": name, "timestamp": at(clock), "success": True, "summary": f"{name} ✓"}


#: How many rows a table has from its own revision, and from its triggers.
BROUGHT = {"message_types": 6, "invocation_kinds": 6, "source_kinds": 3, "run_leases": 1}

RUNS: list[Row] = [
    {
        "id": BUILD,
        "workflow_name": "build",
        "trigger_id": "acme/weather#42",
        "repo": "weather",
        "issue_number": 42,
        "current_phase": "reviewer",
        "phase_history": [phase("architect", "09:00:05.120"), phase("executor", "09:10:00.000")],
        "status": "paused",
        "context": {"title": "Alerts arrive twice", "labels": ["bug", "naïve ✓"], "weight": 0.5, "body": None},
        "scratch": {"plan": {"lastOutputExecutionId": "exec-architect", "iteration": 2}},
        "restart_count": 1,
        "started_at": at("09:00:00.000"),
        "updated_at": at("09:12:41.007"),
        "owner": "acme",
        "trigger_type": "webhook",
        "triggered_by": "ana",
        "trigger_actor_type": "github",
        "run_key": "issue-42",
        "transition_seq": 3,
        "status_reason": "run.paused.gate",
        "phase_count": 2,
        "pause_reason": "gate",
        "claim_epoch": 2,
        "previous_owner": "worker-1",
        "workflow_path": "workflows/build.yaml",
        "vcs_revision": "4f6c9a1",
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    },
    {
        "id": TRIAGE,
        "workflow_name": "triage",
        "trigger_id": "slack:C07:1719738000.000100",
        "current_phase": "done",
        "status": "succeeded",
        "started_at": at("08:15:00.500"),
        "updated_at": at("08:15:09.250"),
        "finished_at": at("08:15:09.250"),
        "transition_seq": 2,
        "status_reason": "run.succeeded",
    },
    {
        "id": RELEASE,
        "workflow_name": "release",
        "trigger_id": "acme/weather@v1.2",
        "repo": "weather",
        "current_phase": "publish",
        "status": "failed",
        "context": {},
        "restart_count": 3,
        "started_at": at("07:00:00.000"),
        "updated_at": at("07:30:00.000"),
        "finished_at": at("07:30:00.000"),
        "owner": "acme",
        "parent_run_id": TRIAGE,
        "transition_seq": 2,
        "status_reason": "run.failed",
        "error": "the registry was closed",
        "error_detail": {"code": 503, "retry": [1, 2, 3]},
    },
    {
        "id": NIGHTLY,
        "workflow_name": "nightly",
        "trigger_id": "cron:nightly",
        "current_phase": "scan",
        "status": "running",
        "started_at": at("09:20:00.000"),
        "updated_at": at("09:20:00.000"),
        "transition_seq": 1,
        "status_reason": "run.created",
        "claim_owner": "worker-2",
        "claim_epoch": 1,
        "claimed_at": at("09:20:00.020"),
        "heartbeat_at": at("09:20:00.020"),
        "lease_expires_at": at("09:20:30.020"),
    },
]

TRANSITIONS: list[Row] = [
    {
        "run_id": run_id,
        "seq": seq,
        "from_status": before,
        "to_status": after,
        "reason": reason,
        "source": "engine",
        "at": at(clock),
    }
    for run_id, seq, before, after, reason, clock in (
        (BUILD, 1, None, "running", "run.created", "09:00:00.000"),
        (BUILD, 2, "running", "running", "run.restarted", "09:09:00.000"),
        (BUILD, 3, "running", "paused", "run.paused.gate", "09:12:41.007"),
        (TRIAGE, 1, None, "running", "run.created", "08:15:00.500"),
        (TRIAGE, 2, "running", "succeeded", "run.succeeded", "08:15:09.250"),
        (RELEASE, 1, None, "running", "run.created", "07:00:00.000"),
        (RELEASE, 2, "running", "failed", "run.failed", "07:30:00.000"),
        (NIGHTLY, 1, None, "running", "run.created", "09:20:00.000"),
    )
]

EXECUTIONS: list[Row] = [
    {
        "id": "exec-architect",
        "trigger_type": "webhook",
        "trigger_id": "acme/weather#42",
        "skill": "build:architect",
        "repo": "weather",
        "issue_number": 42,
        "started_at": at("09:00:01.000"),
        "finished_at": at("09:00:05.120"),
        "success": True,
        "turns": 7,
        "duration_ms": 4120,
        "session_id": "ses_architect_42",
        "cost_usd": 0.1325,
        "input_tokens": 18211,
        "cache_creation_input_tokens": 5120,
        "cache_read_input_tokens": 96000,
        "output_tokens": 2210,
        "api_duration_ms": 3900,
        "stop_reason": "end_turn",
        "workflow_run_id": BUILD,
        "output_text": "The alert is sent by both workers.\n'Lock' the sender; 100% sure: \\o/ ✓",
        "owner": "acme",
        "node_id": "architect",
        "attempt": 1,
        "outcome": "succeeded",
        "model": "large-1",
        "cost_micros": 132500,
        "cost_picos": 250000,
        "input_includes_cache_reads": True,
        "checkpoint": {"step": 3},
        "details": {"workspace": "/home/agent/workspace"},
    },
    {
        "id": "exec-reviewer",
        "trigger_type": "webhook",
        "trigger_id": "acme/weather#42",
        "skill": "build:reviewer",
        "started_at": at("09:12:00.000"),
        "session_id": "ses_reviewer_42",
        "workflow_run_id": BUILD,
        "heartbeat_at": at("09:12:30.000"),
    },
    {
        "id": "exec-publish",
        "trigger_type": "api",
        "trigger_id": "acme/weather@v1.2",
        "skill": "release:publish",
        "started_at": at("07:29:00.000"),
        "finished_at": at("07:30:00.000"),
        "success": False,
        "error": "the registry was closed",
        "workflow_run_id": RELEASE,
        "outcome": "failed",
        "error_detail": {"code": 503},
    },
]

APPROVALS: list[Row] = [
    {
        "id": "gate-plan",
        "workflow_run_id": BUILD,
        "gate": "post_architect",
        "summary": "Lock the sender?",
        "status": "approved",
        "requested_by": "architect",
        "responded_by": "bo",
        "response": "yes",
        "responded_at": at("09:05:00.000"),
        "created_at": at("09:00:06.000"),
        "answered_via": "person",
        "artifact": "architect-plan.md",
    },
    {
        "id": "gate-merge",
        "workflow_run_id": BUILD,
        "gate": "post_reviewer",
        "summary": "Merge?",
        "created_at": at("09:12:41.007"),
        "request_key": "post_reviewer",
        "on_reject": "continue",
    },
]

SESSIONS: list[Row] = [
    {
        "id": "chat-now",
        "platform": "slack",
        "channel_id": "C07",
        "thread_id": "1719738000.000100",
        "user_id": "U1",
        "agent_session_id": "ses_chat_1",
        "created_at": at("08:15:00.000"),
        "last_activity_at": at("08:16:30.000"),
        "message_count": 2,
        "active": True,
        "title": "Alerts",
        "version": 1,
        "metadata": {"locale": "de"},
    },
    {
        "id": "chat-ended",
        "platform": "slack",
        "channel_id": "C07",
        "thread_id": "1719738000.000100",
        "user_id": "U1",
        "created_at": at("06:00:00.000"),
        "last_activity_at": at("06:01:00.000"),
        "message_count": 1,
        "active": False,
        "deactivated_at": at("08:15:00.000"),
        "deactivated_reason": "timeout",
    },
    {
        "id": "chat-channel",
        "platform": "slack",
        "channel_id": "C08",
        "user_id": "U2",
        "created_at": at("06:00:00.000"),
        "last_activity_at": at("06:00:00.000"),
        "active": True,
    },
    {
        "id": "chat-channel-older",
        "platform": "slack",
        "channel_id": "C08",
        "user_id": "U2",
        "created_at": at("05:00:00.000"),
        "last_activity_at": at("05:00:00.000"),
        "active": True,
        UNTIL: "0002",
    },
]

MESSAGES: list[Row] = [
    {"session_id": "chat-ended", "role": "user", "content": "anybody here?", "timestamp": at("06:01:00.000")},
    {
        "session_id": "chat-now",
        "role": "user",
        "content": "Why do alerts arrive twice?",
        "timestamp": at("08:15:00.100"),
        "platform_message_id": "1719738000.000100",
    },
    {
        "session_id": "chat-now",
        "role": "assistant",
        "content": "Both workers send.\n✓",
        "timestamp": at("08:16:30.000"),
    },
]

RECEIPT: Row = {
    "id": "receipt-1",
    "kind": "prune",
    "state": "done",
    "owner": "ops-1",
    "actor": "ana",
    "library_version": "0.1.0",
    "started_at": at("03:00:00.000"),
    "updated_at": at("03:00:01.000"),
    "finished_at": at("03:00:01.000"),
    "counts": {"messaging_sessions": 2},
    "policy": {"older_than_days": 30},
}

NODES: list[Row] = [
    {"node_id": "architect", "state": "finished", "last_attempt": 1, "label": "Plan", "updated_at": at("09:00:05.120")},
    {"node_id": "reviewer", "iteration": 1, "state": "waiting_approval", "updated_at": at("09:12:41.007")},
    {
        "node_id": "deploy-window",
        "state": "waiting_timer",
        "wake_at": at("22:00:00.000"),
        "updated_at": at("09:12:41.007"),
    },
]

REQUESTS: list[Row] = [
    {
        "id": f"human:{BUILD}:rollout:0",
        "run_id": BUILD,
        "node_id": "rollout",
        "kind": "select",
        "requested_at": at("09:12:00.000"),
        "prompt": "Where to first?",
        "options": ["north", "süd ✓"],
    },
    {
        "id": "ask-window",
        "run_id": TRIAGE,
        "node_id": "window",
        "kind": "form",
        "status": "answered",
        "requested_at": at("08:15:01.000"),
        "answered_at": at("08:15:05.000"),
        "answered_by": "bo",
        "prompt": "When?",
        "schema": {"type": "object", "required": ["hour"]},
        "response": {"hour": 22},
    },
]

SCHEDULES: list[Row] = [
    {
        "name": "nightly",
        "pattern": "0 3 * * *",
        "timezone": "Europe/Berlin",
        "target": "workflows/build.yaml",
        "origin": "config",
        "created_at": at("00:30:00.000"),
        "updated_at": at("00:30:00.000"),
        "last_run_at": at("02:00:00.004"),
        "last_fire_id": "fire-nightly",
        "planned_with": "Europe/Berlin 0 4 * * *",
        "payload": {"depth": "full ✓"},
    },
]

FIRES: list[Row] = [
    {
        "id": "fire-nightly",
        "cron_name": "nightly",
        "scheduled_for": at("02:00:00.000"),
        "source": "schedule",
        "status": "ok",
        "owner": "scheduler-1",
        "started_at": at("02:00:00.004"),
        "finished_at": at("02:00:01.000"),
        "scanned": 12,
        "discovered": 0,
        "dispatched": 0,
        "note": "nothing new",
        "payload": {"depth": "full ✓"},
    },
    {
        "id": "fire-hourly",
        "cron_name": "hourly",
        "source": "manual",
        "actor": "ana",
        "owner": "scheduler-1",
        "lease_until": at("09:05:00.000"),
        "started_at": at("09:00:00.000"),
    },
]

STORY: dict[str, list[Row]] = {
    "workflow_runs": RUNS,
    "run_transitions": TRANSITIONS,
    "executions": EXECUTIONS,
    "workflow_approvals": APPROVALS,
    "run_nodes": [{"run_id": BUILD, **node} for node in NODES],
    "run_loops": [{"run_id": BUILD, "loop_id": "review", "iteration": 1, "updated_at": at("09:12:41.007")}],
    "workflow_workers": [
        {
            "name": "worker-1",
            "host": "build-7",
            "pid": 4211,
            "slots": 4,
            "started_at": at("09:00:00.000"),
            "seen_at": at("09:12:30.000"),
            "expires_at": at("09:14:00.000"),
            "workflow_names": ["build", "review"],
            "app_versions": ["2026.1"],
        }
    ],
    "human_requests": REQUESTS,
    "run_sequences": [
        {"run_id": BUILD, "stream": "events", "next_seq": 2},
        {"run_id": BUILD, "stream": "signals", "next_seq": 1},
        {"run_id": BUILD, "stream": "tool_calls", "next_seq": 1},
    ],
    "run_events": [
        {"run_id": BUILD, "seq": 0, "type": "run.started", "occurred_at": at("09:00:00.004"), "payload": {}},
        {
            "run_id": BUILD,
            "seq": 1,
            "type": "node.finished",
            "occurred_at": at("09:12:41.007"),
            "node_id": "review",
            "event_id": "review-0",
            "payload": {"nodeId": "review", "ok": True, "note": "✓"},
        },
    ],
    "run_signals": [
        {
            "run_id": BUILD,
            "seq": 0,
            "signal_name": "merged",
            "correlation_id": "pr-7",
            "received_at": at("09:10:00.000"),
            "received_by": "webhook",
            "payload": {"by": "ana"},
        },
    ],
    "run_frames": [
        {
            "run_id": BUILD,
            "frame_no": 0,
            "created_at": at("09:00:00.005"),
            "encoding": "full",
            "content_hash": "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b",
            "full_bytes": 4,
            "body": "null",
        },
    ],
    "tool_calls": [
        {
            "run_id": BUILD,
            "seq": 0,
            "node_id": "review",
            "call_id": "call-1",
            "tool_name": "grep",
            "status": "succeeded",
            "started_at": at("09:01:00.000"),
            "finished_at": at("09:01:00.250"),
            "duration_ms": 250,
            "input": {"pattern": "TODO"},
            "output": ["a.py"],
        },
    ],
    "sandboxes": [
        {
            "run_id": BUILD,
            "sandbox_id": "box-1",
            "status": "running",
            "created_at": at("09:00:01.000"),
            "updated_at": at("09:00:02.000"),
            "config": {"network": False},
        },
    ],
    "scores": [
        {
            "id": "score-1",
            "run_id": BUILD,
            "node_id": "review",
            "scorer_id": "style",
            "scorer_name": "Style",
            "source": "live",
            "score": 0.75,
            "scored_at": at("09:13:00.000"),
            "meta": {"rubric": 2},
        },
    ],
    "run_inputs": [
        {
            "run_id": BUILD,
            "revision": 0,
            "created_at": at("09:00:00.000"),
            "payload": {"description": "Auth tokens expire silently", "depth": 3},
            "given": {"description": "Auth tokens expire silently"},
        },
        {
            "run_id": BUILD,
            "revision": 1,
            "created_at": at("09:30:00.000"),
            "created_by": "ana",
            "reason": "one more level",
            "payload": {"description": "Auth tokens expire silently", "depth": 4},
        },
    ],
    "output_tables": [
        {
            "key": "oldNotes",
            "table_name": "old_notes",
            "kind": "payload",
            "signature": "5f2c",
            "created_at": at("09:00:00.000"),
            "updated_at": at("09:00:00.000"),
            "columns": [],
        },
    ],
    "output_history": [
        {
            "run_id": BUILD,
            "table_name": "old_notes",
            "node_id": "review",
            "iteration": 0,
            "revision": 0,
            "signature": "5f2c",
            "cause": "replaced",
            "written_at": at("09:10:00.000"),
            "removed_at": at("09:20:00.000"),
            "value": ["first draft"],
        },
    ],
    "output_cache": [
        {
            "cache_key": "ab12",
            "workflow_name": "build",
            "node_id": "review",
            "output_key": "oldNotes",
            "table_name": "old_notes",
            "schema_signature": "5f2c",
            "created_at": at("09:10:00.000"),
            "payload": ["first draft"],
        },
    ],
    "cron_schedules": SCHEDULES,
    "cron_fires": FIRES,
    "cron_overrides": [
        {"name": "nightly", "enabled": False, "schedule": "0 4 * * *", "updated_at": at("01:00:00.000")},
        {"name": "hourly", "enabled": True, "updated_at": at("01:00:00.000"), "updated_by": "ana"},
        {
            "name": "weekly",
            "enabled": True,
            "inherits_enabled": True,
            "timezone": "UTC",
            "updated_at": at("01:00:00.000"),
        },
    ],
    "workflow_overrides": [
        {"name": "release", "enabled": False, "updated_at": at("07:31:00.000"), "updated_by": "bo", "reason": "closed"},
    ],
    "messaging_sessions": SESSIONS,
    "messaging_messages": MESSAGES,
    "message_types": [],
    "invocation_kinds": [],
    "source_kinds": [],
    "messages": [
        {"id": "msg-1", "created_at": at("10:00:00.000"), "role": "user", "lion_class": 2, "content": {"text": "✓"}},
        {"id": "msg-2", "created_at": at("10:00:01.000"), "role": "assistant", "content": [{"type": "reasoning"}]},
    ],
    "progressions": [
        {"id": "pool-1", "created_at": at("10:00:00.000"), "next_ord": 2, "version": 1},
        {"id": "order-1", "created_at": at("10:00:00.000"), "next_ord": 1, "version": 1},
        {"id": "order-2", "created_at": at("10:00:00.500"), "start_ord": 1, "next_ord": 2, "version": 1},
    ],
    "progression_links": [
        {"progression_id": "pool-1", "ord": 0, "message_id": "msg-1"},
        {"progression_id": "pool-1", "ord": 1, "message_id": "msg-2"},
        {"progression_id": "order-1", "ord": 0, "message_id": "msg-1"},
        {"progression_id": "order-2", "ord": 1, "message_id": "msg-2"},
    ],
    "sessions": [
        {
            "id": "talk-1",
            "created_at": at("10:00:00.000"),
            "progression_id": "pool-1",
            "first_msg_id": "msg-1",
            "last_msg_id": "msg-2",
            "updated_at": at("10:00:01.000"),
            "invocation_kind": "agent",
            "status": "running",
            "status_reason": "run.started.ok",
            "transition_seq": 1,
            "change_seq": 4,
            "started_at": at("10:00:00.000"),
            "owner": "worker-1",
            "heartbeat_at": at("10:00:01.000"),
            "project": "weather",
            "workflow_run_id": BUILD,
            "artifact_contract": {"files": ["notes.md"]},
        },
    ],
    "branches": [
        {"id": "branch-1", "created_at": at("10:00:00.000"), "session_id": "talk-1", "progression_id": "order-1"},
        {
            "id": "branch-2",
            "created_at": at("10:00:00.500"),
            "session_id": "talk-1",
            "progression_id": "order-2",
            "parent_branch_id": "branch-1",
            "forked_at_ord": 1,
            "fork_depth": 1,
            "model": "large",
        },
    ],
    "vector_namespaces": [
        {"namespace": "handbook", "dimensions": 2, "model": "small", "created_at": at("11:00:00.000")},
    ],
    "vectors": [
        {
            "namespace": "handbook",
            "id": "chunk-1",
            "document_id": "releases.md",
            "chunk_index": 1,
            "dimensions": 2,
            "norm": 5.0,
            "created_at": at("11:00:00.000"),
            "embedding": struct.pack("<2f", 3.0, -4.0),
            "chunk_metadata": {"lang": "en"},
            "content": "Releases are cut on Tuesdays ✓",
        },
    ],
    "checkpoint_threads": [
        {
            "id": "thread-1",
            "scope": "support",
            "key": "ana's question",
            "created_at": at("11:10:00.000"),
            "updated_at": at("11:11:00.000"),
            "expires_at": at("23:00:00.000"),
            "user": "ana",
        },
    ],
    "checkpoints": [
        {
            "thread_id": "thread-1",
            "namespace": "",
            "id": "step-1",
            "seq": 1,
            "created_at": at("11:10:00.000"),
            "format": "json",
            "metadata": {"step": 1},
            "versions": {"messages": "1"},
            "body": b"{}",
        },
        {
            "thread_id": "thread-1",
            "namespace": "",
            "id": "step-2",
            "seq": 2,
            "parent_id": "step-1",
            "run_ref": "run-1",
            "created_at": at("11:11:00.000"),
            "format": "json",
            "versions": {"messages": "2"},
            "body": b"{}",
        },
    ],
    "checkpoint_values": [
        {
            "thread_id": "thread-1",
            "namespace": "",
            "channel": "messages",
            "version": "1",
            "number": 0,
            "anchor": 0,
            "encoding": "whole",
            "format": "json",
            "size": 10,
            "digest": hashlib.sha256(b'["hello"] ').hexdigest(),
            "body": b'["hello"] ',
        },
        {
            "thread_id": "thread-1",
            "namespace": "",
            "channel": "messages",
            "version": "2",
            "number": 0,
            "anchor": 0,
            "encoding": "same",
            "format": "json",
            "size": 10,
            "digest": hashlib.sha256(b'["hello"] ').hexdigest(),
            "body": b"",
        },
    ],
    "checkpoint_writes": [
        {
            "thread_id": "thread-1",
            "namespace": "",
            "checkpoint_id": "step-2",
            "task": "task-1",
            "idx": 0,
            "path": "",
            "channel": "messages",
            "format": "json",
            "body": b'"and then?"',
        },
    ],
    "states": [
        {
            "id": "state-1",
            "scope": "app/support",
            "key": "greeting",
            "version": "version-1",
            "created_at": at("11:10:00.000"),
            "updated_at": at("11:11:00.000"),
            "value": {"text": "hello ✓"},
        },
        {
            "id": "state-2",
            "scope": "user/ana",
            "key": "picture",
            "version": "version-2",
            "created_at": at("11:10:00.000"),
            "updated_at": at("11:10:00.000"),
            "expires_at": at("23:00:00.000"),
            "user": "ana",
            "body": b"\x00\xff",
        },
    ],
    "session_transitions": [
        {
            "id": "transition-1",
            "session_id": "talk-1",
            "seq": 1,
            "status": "running",
            "reason_code": "run.started.ok",
            "source": "executor",
            "created_at": at("10:00:00.000"),
            "evidence": {"pid": 7},
        },
    ],
    "session_changes": [
        {
            "session_id": "talk-1",
            "seq": 3,
            "kind": "branch.forked",
            "branch_id": "branch-2",
            "ord": 1,
            "at": at("10:00:00.500"),
        },
        {"session_id": "talk-1", "seq": 4, "kind": "messages.appended", "count": 1, "at": at("10:00:01.000")},
    ],
    "exchange_inboxes": [{"owner": "ana", "next_ord": 1, "created_at": at("10:00:02.000")}],
    "exchange_deliveries": [
        {
            "owner": "ana",
            "ord": 0,
            "message_id": "msg-1",
            "sender": "agent-1",
            "delivered_at": at("10:00:02.000"),
            "taken_by": "reader-1",
            "taken_until": at("10:01:02.000"),
            "takes": 1,
        },
    ],
    "exchange_members": [{"channel": "weather", "member": "ana", "joined_at": at("10:00:00.000")}],
    "maintenance_receipts": [RECEIPT],
    "tombstones": [
        {"kind": "messaging_session", "id": "chat-old", "receipt_id": "receipt-1", "deleted_at": at("03:00:00.500")},
    ],
    "import_ledger": [
        {
            "source_kind": "jsonl",
            "source_key": "sessions/a.jsonl",
            "digest": "9f86d081",
            "outcome": "imported",
            "receipt_id": "receipt-1",
            "imported_at": at("02:00:00.000"),
        }
    ],
    "copy_progress": [
        {"receipt_id": "receipt-1", "table_name": "executions", "rows": 3, "done": True, "last_key": ["exec-reviewer"]},
    ],
    "lastlight_meta": [{"key": "note", "value": "made for tests"}],
}
"""Rows by table, owners before what refers to them."""
