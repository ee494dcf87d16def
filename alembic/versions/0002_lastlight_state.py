"""Everything of this library beside the original program's tables.

Adds columns, indexes and guards to the seven tables of 0001, and brings all other tables with theirs. Chat sessions
that share their key with a newer active one are retired, because the new unique index admits one of each key.

Until 0.1.0 is released this file is rewritten in place; docs/contributing.md says how.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002_lastlight_state"
down_revision = "0001"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
REAL: sa.types.TypeEngine[float] = sa.REAL().with_variant(sa.Double(), "postgresql")
FLAG = sa.Integer().with_variant(sa.Boolean(), "postgresql")
TIME = sa.Text().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(postgresql.JSONB(), "postgresql")
BYTES = sa.LargeBinary()


# Guards: triggers that refuse a statement.


class Guard(NamedTuple):
    """Refuses ``event`` with ``message`` where ``when`` holds and no permit of the kind ``permit`` is there."""

    name: str
    table: str
    event: str
    message: str
    when: str = ""
    permit: str | None = None


def _stays(table: str, permit: str = "any", when: str = "") -> Guard:
    return Guard(f"{table}_no_delete", table, "DELETE", f"{table} is append-only", when, permit)


def _never_changes(table: str) -> Guard:
    return Guard(f"{table}_no_update", table, "UPDATE", f"rows of {table} never change")


def _differ(columns: str) -> str:
    return " OR ".join(f"NEW.{name} IS DISTINCT FROM OLD.{name}" for name in columns.split())


_RECEIPTS = (
    _stays("maintenance_receipts", "reset"),
    _stays("tombstones", "reset"),
    Guard(
        "maintenance_receipts_finished_stays",
        "maintenance_receipts",
        "UPDATE",
        "a finished receipt never changes",
        "OLD.state IN ('done', 'failed')",
        "reset",
    ),
)
_WORKFLOWS = (
    Guard(
        "workflow_runs_restart_rises_by_one",
        "workflow_runs",
        "UPDATE OF restart_count",
        "restart_count may rise by 1, never above max_restarts, and not together with a new max_restarts",
        (
            "NEW.restart_count > OLD.restart_count AND (NEW.restart_count > OLD.restart_count + 1"
            " OR NEW.restart_count > NEW.max_restarts OR NEW.max_restarts <> OLD.max_restarts)"
        ),
    ),
    Guard(
        "workflow_runs_restart_falls_by_release",
        "workflow_runs",
        "UPDATE OF restart_count",
        "restart_count may fall by 1 only, while the run is running and stays so",
        (
            "NEW.restart_count < OLD.restart_count AND (NEW.restart_count < OLD.restart_count - 1"
            " OR OLD.status <> 'running' OR NEW.status <> 'running')"
        ),
    ),
    Guard(
        "workflow_runs_succeeded_stays",
        "workflow_runs",
        "UPDATE OF status",
        "a succeeded run never changes its status",
        "OLD.status = 'succeeded' AND NEW.status <> 'succeeded'",
    ),
    Guard(
        "workflow_runs_ended_restarts_only",
        "workflow_runs",
        "UPDATE OF status",
        "a failed or cancelled run leaves that status only for running or queued, with restart_count + 1",
        (
            "OLD.status IN ('failed', 'cancelled') AND NEW.status <> OLD.status"
            " AND (NEW.status NOT IN ('running', 'queued') OR NEW.restart_count <> OLD.restart_count + 1)"
        ),
    ),
    Guard(
        "workflow_runs_context_is_immutable",
        "workflow_runs",
        "UPDATE OF context",
        "the context of a run never changes",
        "NEW.context IS DISTINCT FROM OLD.context",
    ),
    Guard(
        "workflow_runs_identity_is_immutable",
        "workflow_runs",
        "UPDATE OF id, workflow_name, trigger_id, run_key, parent_run_id",
        "the id, workflow, trigger, key and parent of a run never change",
        (
            "NEW.id IS DISTINCT FROM OLD.id OR NEW.workflow_name IS DISTINCT FROM OLD.workflow_name"
            " OR NEW.trigger_id IS DISTINCT FROM OLD.trigger_id OR NEW.run_key IS DISTINCT FROM OLD.run_key"
            " OR NEW.parent_run_id IS DISTINCT FROM OLD.parent_run_id"
        ),
    ),
    Guard(
        "workflow_runs_counters_never_fall",
        "workflow_runs",
        "UPDATE OF claim_epoch, transition_seq",
        "claim_epoch and transition_seq never fall",
        "NEW.claim_epoch < OLD.claim_epoch OR NEW.transition_seq < OLD.transition_seq",
    ),
    Guard(
        "workflow_approvals_one_answer",
        "workflow_approvals",
        "UPDATE OF status",
        "the status of an approval that is not pending never changes",
        "OLD.status <> 'pending' AND NEW.status <> OLD.status",
    ),
    *map(_stays, ("workflow_runs", "executions", "workflow_approvals", "run_transitions")),
    _never_changes("run_transitions"),
    *(
        Guard(
            f"workflow_runs_restart_limit_{name}",
            "workflow_runs",
            event,
            "max_restarts must be 0 to 100",
            "NEW.max_restarts < 0 OR NEW.max_restarts > 100",
        )
        for name, event in (("insert", "INSERT"), ("update", "UPDATE OF max_restarts"))
    ),
    _stays("human_requests"),
    Guard(
        "human_requests_closed_stays",
        "human_requests",
        "UPDATE OF status",
        "the status of a cancelled or expired request never changes",
        "OLD.status IN ('cancelled', 'expired') AND NEW.status <> OLD.status",
    ),
    _stays("run_nodes"),
    _stays("run_loops"),
)
_SCHEDULES = (
    _stays("cron_fires"),
    Guard(
        "cron_fires_finished_stays",
        "cron_fires",
        "UPDATE",
        "a finished fire never changes",
        "OLD.status <> 'running'",
        "any",
    ),
    _stays("cron_schedules"),
)
_MESSAGING = (
    _stays("messaging_sessions"),
    _stays("messaging_messages"),
    _never_changes("messaging_messages"),
)

_SIGNAL = "run_id seq signal_name correlation_id received_at received_by signal_id payload"
_SCORE = (
    "id run_id node_id iteration attempt scorer_id scorer_name source score latency_ms duration_ms scored_at reason "
    "meta input output expected"
)
_JOURNAL = (
    *map(_stays, ("run_sequences", "run_events", "run_signals", "run_frames", "tool_calls", "sandboxes", "scores")),
    _never_changes("run_events"),
    _never_changes("run_frames"),
    Guard(
        "run_signals_taken_once",
        "run_signals",
        "UPDATE",
        "a signal only ever changes by being taken once",
        "OLD.consumed_at IS NOT NULL OR NEW.consumed_at IS NULL OR NEW.consumed_by IS NULL OR " + _differ(_SIGNAL),
    ),
    Guard(
        "tool_calls_finished_stays",
        "tool_calls",
        "UPDATE",
        "a finished tool call never changes",
        "OLD.finished_at IS NOT NULL",
    ),
    Guard(
        "scores_superseded_once",
        "scores",
        "UPDATE",
        "a score only ever changes by being superseded once",
        "OLD.superseded_at IS NOT NULL OR NEW.superseded_at IS NULL OR " + _differ(_SCORE),
    ),
    Guard(
        "run_sequences_never_fall",
        "run_sequences",
        "UPDATE",
        "the next number of a stream never falls",
        "NEW.next_seq < OLD.next_seq OR NEW.run_id <> OLD.run_id OR NEW.stream <> OLD.stream",
        "any",
    ),
)
_OUTPUTS = (
    *map(_stays, ("run_inputs", "output_history", "output_tables")),
    _never_changes("run_inputs"),
    _never_changes("output_history"),
)

_WORDS = ("message_types", "invocation_kinds", "source_kinds")
_TRANSITION = "id session_id branch_id seq previous_status status reason_code source created_at"
_TOLD = "actor reason_summary evidence".split()
_CONVERSATIONS = (
    *map(_stays, (*_WORDS, "messages", "progressions", "sessions", "branches")),
    _stays("progression_links", when="OLD.ord >= 0"),
    *map(_never_changes, _WORDS),
    Guard(
        "branches_origin_stays",
        "branches",
        "UPDATE",
        "where a branch comes from never changes",
        _differ("session_id progression_id parent_branch_id forked_at_ord fork_depth"),
    ),
    _stays("session_transitions", "reset"),
    _never_changes("session_transitions")._replace(permit="any"),
    Guard(
        "session_transitions_only_emptied",
        "session_transitions",
        "UPDATE",
        "rows of session_transitions never change: only actor, reason_summary and evidence can become NULL",
        " OR ".join(
            [_differ(_TRANSITION), *(f"(NEW.{name} IS NOT NULL AND {_differ(name)})" for name in _TOLD)],
        ),
    ),
    *map(_stays, ("exchange_inboxes", "exchange_deliveries", "exchange_members")),
)

# Columns that hold words of a vocabulary. A later revision that knows more drops these guards and makes wider ones.

_SESSION_STATUSES = "aborted cancelled completed completed_empty failed pending running timed_out"
_VOCABULARIES = (
    ("cron_fires", "status", "abandoned failed missed ok partial running skipped"),
    ("session_transitions", "source", "admin agent executor system"),
    ("workflow_approvals", "status", "approved cancelled expired pending rejected"),
    ("workflow_runs", "status", "cancelled failed paused queued running succeeded"),
    ("checkpoint_values", "encoding", "change same whole"),
    ("human_requests", "status", "answered cancelled expired pending"),
    ("messaging_messages", "role", "assistant user"),
    (
        "run_nodes",
        "state",
        (
            "cancelled failed finished pending running skipped waiting_approval waiting_person waiting_signal "
            "waiting_timer"
        ),
    ),
    ("sandboxes", "status", "cancelled completed failed pending running shipped"),
    ("tool_calls", "status", "cancelled failed running succeeded timed_out"),
    ("sessions", "status", _SESSION_STATUSES),
    ("branches", "status", _SESSION_STATUSES),
)


def _known(table: str, column: str, words: str) -> Iterator[Guard]:
    known = words.split()
    message = f"{column} of {table} is one of: {', '.join(known)}"
    odd = f"NEW.{column} NOT IN ({', '.join(map(repr, known))})"
    yield Guard(f"{table}_{column}_word_new", table, "INSERT", message, odd, "any")
    if table not in ("messaging_messages", "session_transitions"):  # whose rows never change
        changed = f"NEW.{column} IS DISTINCT FROM OLD.{column} AND {odd}"
        yield Guard(f"{table}_{column}_word_set", table, f"UPDATE OF {column}", message, changed, "any")


_KNOWN = (guard for vocabulary in _VOCABULARIES for guard in _known(*vocabulary))
_GUARDS = (*_RECEIPTS, *_WORKFLOWS, *_SCHEDULES, *_MESSAGING, *_JOURNAL, *_OUTPUTS, *_CONVERSATIONS, *_KNOWN)

_PERMITTED = {
    "any": "EXISTS (SELECT 1 FROM maintenance_permits)",
    "reset": "EXISTS (SELECT 1 FROM maintenance_permits WHERE receipt_id = 'reset')",
}


def _on_sqlite(guard: Guard) -> str:
    when = guard.when.replace("IS DISTINCT FROM", "IS NOT")
    if guard.permit:
        when = " AND ".join([*([f"({when})"] if when else []), f"NOT {_PERMITTED[guard.permit]}"])
    condition = f"WHEN {when} " if when else ""
    return (
        f"CREATE TRIGGER {guard.name} BEFORE {guard.event} ON {guard.table} FOR EACH ROW {condition}"
        f"BEGIN SELECT RAISE(ABORT, '{guard.message}'); END"
    )


def _on_postgres(guard: Guard) -> Iterator[str]:
    # One constant instead of many: the server reads a condition anew for each statement that fires its trigger.
    before, few, rest = guard.when.partition("NOT IN ('")
    words, _, after = rest.partition("')")
    listed = words.replace("', '", ",")
    condition = f"{before}<> ALL ('{{{listed}}}'::text[]){after}" if few else guard.when
    when = f" WHEN ({condition})" if condition else ""
    refuses = (
        f"lastlight_refuse_unless_permitted('{guard.message}', '{guard.permit}')"
        if guard.permit
        else f"lastlight_refuse('{guard.message}')"
    )
    yield (
        f"CREATE TRIGGER {guard.name} BEFORE {guard.event} ON {guard.table} FOR EACH ROW{when} "
        f"EXECUTE FUNCTION {refuses}"
    )
    if guard.event == "DELETE":
        yield (
            f"CREATE TRIGGER {guard.table}_no_truncate BEFORE TRUNCATE ON {guard.table} FOR EACH STATEMENT "
            f"EXECUTE FUNCTION {refuses}"
        )


# On SQLite times are texts and are compared as such, so all are spelled alike.

_TIMES = {
    "cron_fires": "scheduled_for lease_until started_at finished_at",
    "cron_overrides": "updated_at",
    "cron_schedules": "created_at updated_at last_run_at next_run_at retired_at",
    "exchange_inboxes": "created_at",
    "exchange_members": "joined_at left_at",
    "executions": "started_at finished_at heartbeat_at",
    "import_ledger": "imported_at",
    "maintenance_receipts": "started_at updated_at finished_at",
    "messaging_sessions": "created_at last_activity_at deactivated_at",
    "output_cache": "created_at expires_at",
    "output_tables": "created_at updated_at",
    "progressions": "created_at",
    "session_transitions": "created_at",
    "tombstones": "deleted_at",
    "vector_namespaces": "created_at",
    "workflow_approvals": "responded_at created_at expires_at consumed_at",
    "workflow_overrides": "updated_at",
    "workflow_workers": "started_at seen_at expires_at",
    "workflow_runs": (
        "started_at updated_at finished_at queued_at admitted_at wake_at cancel_requested_at "
        "deadline_at claimed_at heartbeat_at lease_expires_at previous_heartbeat_at previous_lease_expires_at"
    ),
    "human_requests": "requested_at expires_at answered_at",
    "messages": "created_at revised_at",
    "messaging_messages": "timestamp",
    "output_history": "written_at removed_at",
    "run_events": "occurred_at",
    "run_frames": "created_at",
    "run_inputs": "created_at",
    "run_leases": "heartbeat_at lease_expires_at due_at",
    "run_loops": "updated_at",
    "run_nodes": "wake_at updated_at",
    "run_signals": "received_at consumed_at",
    "run_transitions": "at",
    "sandboxes": "shipped_at completed_at created_at updated_at",
    "scores": "scored_at superseded_at",
    "tool_calls": "started_at finished_at",
    "vectors": "created_at updated_at",
    "exchange_deliveries": "delivered_at taken_until acked_at",
    "sessions": "created_at updated_at started_at ended_at last_message_at heartbeat_at",
    "branches": "created_at started_at ended_at",
    "session_changes": "at",
    "checkpoint_threads": "created_at updated_at expires_at",
    "checkpoints": "created_at",
    "states": "created_at updated_at expires_at",
}


def _spelled_alike(table: str) -> Iterator[str]:
    odd = {
        name: f"strftime('%Y-%m-%dT%H:%M:%fZ', NEW.{name}, '+0 days') IS NOT NEW.{name}"
        for name in _TIMES[table].split()
    }
    refuse = f"SELECT RAISE(ABORT, 'times of {table} are spelled like 2026-02-03T12:34:56.789Z')"
    yield (
        f"CREATE TRIGGER {table}_times_new BEFORE INSERT ON {table} FOR EACH ROW WHEN {' OR '.join(odd.values())} "
        f"BEGIN {refuse}; END"
    )
    if f"{table}_no_update" not in {guard.name for guard in _GUARDS}:
        when = " OR ".join(f"(NEW.{name} IS NOT OLD.{name} AND {one})" for name, one in odd.items())
        yield (
            f"CREATE TRIGGER {table}_times_set BEFORE UPDATE OF {', '.join(odd)} ON {table} FOR EACH ROW WHEN {when} "
            f"BEGIN {refuse}; END"
        )


# On SQLite a statement with OR REPLACE deletes the row that has the new key, and fires no delete trigger for it.

# The keys of each table that an update may change: columns, and the rows among which they are unique. None for tables
# whose rows never change.
_KEYS: dict[str, tuple[tuple[str, tuple[str, str] | None], ...] | None] = {
    "run_transitions": None,
    "messaging_messages": None,
    "run_events": None,
    "run_frames": None,
    "run_inputs": None,
    "output_history": None,
    "message_types": None,
    "invocation_kinds": None,
    "source_kinds": None,
    "workflow_runs": (),
    "executions": (("id", None), ("workflow_run_id node_id iteration attempt", None)),
    "workflow_approvals": (("id", None), ("workflow_run_id request_key", ("status", "'pending'"))),
    "run_nodes": (("run_id node_id iteration", None),),
    "run_loops": (("run_id loop_id", None),),
    "human_requests": (("id", None),),
    "messaging_sessions": (("id", None), ("platform channel_id thread_id user_id", ("active", "1"))),
    "cron_schedules": (("name", None),),
    "cron_fires": (("id", None), ("cron_name scheduled_for", None)),
    "run_sequences": (("run_id stream", None),),
    "run_signals": (),
    "tool_calls": (("run_id seq", None), ("run_id call_id", None)),
    "sandboxes": (("run_id sandbox_id", None),),
    "scores": (),
    "output_tables": (("key", None), ("table_name", None)),
    "maintenance_receipts": (("id", None), ("kind scope", ("state", "'running'"))),
    "tombstones": (("kind id", None),),
    "messages": (("id", None),),
    "progressions": (("id", None),),
    "sessions": (("id", None),),
    "branches": (("id", None),),
    "progression_links": (("progression_id ord", None),),
    "session_transitions": (("id", None), ("session_id seq", None)),
    "exchange_inboxes": (("owner", None),),
    "exchange_deliveries": (("owner ord", None), ("owner message_id", None)),
    "exchange_members": (("channel member", None),),
}

# The policy of the statement that fires a trigger replaces that of the trigger's own statements. So this inserts
# nothing, unless the firing statement replaces rows: then the default is stored instead of NULL.
_PROBE = "INSERT OR IGNORE INTO maintenance_permits (receipt_id, probe) VALUES ('replace', NULL)"
_PROBED = "EXISTS (SELECT 1 FROM maintenance_permits WHERE receipt_id = 'replace')"


def _same(column: str) -> str:
    if column == "thread_id":
        return "coalesce(thread_id, '') = coalesce(NEW.thread_id, '')"
    return f"{column} = NEW.{column}"


def _taken(table: str, columns: str, among: tuple[str, str] | None) -> str:
    same = [_same(column) for column in columns.split()]
    some = [f"{among[0]} = {among[1]}"] if among else []
    there = " AND ".join([*same, *some, "rowid <> OLD.rowid"])
    taken = f"EXISTS (SELECT 1 FROM {table} WHERE {there})"
    return " AND ".join([*(f"NEW.{one}" for one in some), taken])


def _never_replaced(table: str) -> Iterator[str]:
    refuse = f"{_PROBE}; SELECT RAISE(ABORT, 'rows of {table} are never replaced') WHERE {_PROBED}"
    yield f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} FOR EACH ROW BEGIN {refuse}; END"
    keys = _KEYS[table]
    if keys is None:
        return
    named = dict.fromkeys(name for columns, among in keys for name in [*columns.split(), *(among or ())[:1]])
    when = " OR ".join(["NEW.rowid <> OLD.rowid", *(f"({_taken(table, *key)})" for key in keys)])
    yield (
        f"CREATE TRIGGER {table}_keys_stay BEFORE UPDATE OF {', '.join(['rowid', '_rowid_', 'oid', *named])} "
        f"ON {table} FOR EACH ROW WHEN {when} BEGIN {refuse}; END"
    )


# Triggers that change something: a cron is planned again after its override changed, whoever changed it.

_OVERRIDE = "FROM cron_overrides AS o WHERE o.name = cron_schedules.name"
_ON = f"(SELECT CASE WHEN o.enabled AND o.inherits_enabled THEN NULL ELSE o.enabled END {_OVERRIDE})"

_MARKS = (
    "UPDATE cron_schedules SET next_run_at = created_at, planned_with = 'unplanned' "
    "WHERE name IN ({names}) AND retired_at IS NULL "
    f"AND coalesce({_ON}, enabled) "
    "AND coalesce(planned_with, CASE WHEN next_run_at IS NULL THEN 'unplanned' END) "
    f"<> coalesce((SELECT o.timezone {_OVERRIDE}), timezone) || ' ' "
    f"|| coalesce((SELECT o.schedule {_OVERRIDE}), pattern)"
)
_MARKED = {"insert": "NEW.name", "update": "OLD.name, NEW.name", "delete": "OLD.name"}

# Triggers that keep a row: the lease of each running run, whoever changes the run. On Postgres they run with the rights
# of the owner of the tables, because the original program need not know this one.

_LEASE = {
    "run_id": "NEW.id",
    "workflow_name": "NEW.workflow_name",
    "epoch": "CASE WHEN NEW.claim_owner IS NOT NULL THEN NEW.claim_epoch END",
    "heartbeat_at": "NEW.heartbeat_at",
    "lease_expires_at": "NEW.lease_expires_at",
    "due_at": "coalesce(NEW.lease_expires_at, '1970-01-01T00:00:00.000Z')",
}
_SAME_PLACE = (
    "CASE WHEN run_leases.due_at > NEW.claimed_at AND run_leases.due_at <= excluded.due_at "
    "THEN run_leases.due_at ELSE excluded.due_at END"
)
_SET_LEASE = {name: f"excluded.{name}" for name in _LEASE} | {"due_at": _SAME_PLACE}
_PUT_LEASE = (
    f"INSERT INTO run_leases ({', '.join(_LEASE)}) VALUES ({', '.join(_LEASE.values())}) "
    f"ON CONFLICT (run_id) DO UPDATE SET {', '.join(f'{n} = {to}' for n, to in _SET_LEASE.items() if n != 'run_id')}"
)
_DROP_LEASE = "DELETE FROM run_leases WHERE run_id = OLD.id"
_RUNS, _RAN = (f"{row}.status = 'running' AND {row}.id IS NOT NULL" for row in ("NEW", "OLD"))
_RETAKEN = _differ("status claim_owner claim_epoch lease_expires_at")
_LEASES = (
    ("insert", "INSERT", _RUNS, "put"),
    ("update", "UPDATE OF status, claim_owner, claim_epoch, lease_expires_at", f"{_RUNS} AND ({_RETAKEN})", "put"),
    ("end", "UPDATE OF status", f"{_RAN} AND NOT ({_RUNS})", "drop"),
    ("delete", "DELETE", _RAN, "drop"),
)
_KEEPING = {"put": _PUT_LEASE, "drop": _DROP_LEASE}
_KEEPS = (
    "CREATE FUNCTION lastlight_{name}_lease() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
    "SET search_path FROM CURRENT AS $derived$ BEGIN {body}; RETURN NULL; END $derived$"
)
_RUNNING_ALREADY = (
    "INSERT INTO run_leases (run_id, workflow_name, due_at) SELECT id, workflow_name, '1970-01-01T00:00:00.000Z' "
    "FROM workflow_runs WHERE status = 'running' AND id IS NOT NULL"
)

# What tells a process of SQLite that the chunks of a namespace, which it holds in memory, have changed.
_TAGGED = {"insert": "NEW.namespace", "update": "OLD.namespace, NEW.namespace", "delete": "OLD.namespace"}

# The functions of Postgres. Of the last, the rows are locked first: only a statement after that sees what somebody else
# has just done to them. A role that may not write the schedules marks nothing, and its change of the override goes
# through.
_FUNCTION = (
    "CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS "
    "$guard$ BEGIN {body}RAISE EXCEPTION USING ERRCODE = 'LL001', MESSAGE = TG_ARGV[0]; END $guard$"
)
_IF_PERMITTED = (
    "IF EXISTS (SELECT 1 FROM maintenance_permits WHERE TG_ARGV[1] = 'any' OR receipt_id = TG_ARGV[1]) THEN "
    "IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END IF; "
)
_UNPLAN = (
    "CREATE FUNCTION lastlight_unplan() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $reaction$ "
    "BEGIN IF has_table_privilege('cron_schedules', 'SELECT') AND has_table_privilege('cron_schedules', 'UPDATE') "
    "AND has_table_privilege('cron_overrides', 'SELECT') THEN "
    "PERFORM name FROM cron_schedules WHERE name IN (OLD.name, NEW.name) FOR NO KEY UPDATE; "
    f"{_MARKS.format(names='OLD.name, NEW.name')}; END IF; RETURN NULL; END $reaction$"
)


def _sqlite() -> Iterator[str]:
    yield from map(_on_sqlite, _GUARDS)
    yield (
        "CREATE TRIGGER run_signals_one_each BEFORE UPDATE ON run_signals FOR EACH ROW WHEN EXISTS "
        "(SELECT 1 FROM run_signals WHERE run_id = NEW.run_id AND consumed_by = NEW.consumed_by) "
        "BEGIN SELECT RAISE(ABORT, 'a consumer takes one signal of a run'); END"
    )
    for table in _KEYS:
        yield from _never_replaced(table)
    for table in _TIMES:
        yield from _spelled_alike(table)
    for column, words in (("invocation_kind", "invocation_kinds"), ("source_kind", "source_kinds")):
        for name, event in (("insert", "INSERT"), ("update", f"UPDATE OF {column}")):
            yield (
                f"CREATE TRIGGER sessions_{column}_known_{name} BEFORE {event} ON sessions FOR EACH ROW "
                f"WHEN NEW.{column} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {words} WHERE word = NEW.{column}) "
                f"BEGIN SELECT RAISE(ABORT, 'unknown {column}'); END"
            )
    for event, names in _MARKED.items():
        yield (
            f"CREATE TRIGGER cron_overrides_unplan_{event} AFTER {event.upper()} ON cron_overrides FOR EACH ROW "
            f"BEGIN {_MARKS.format(names=names)}; END"
        )
    for event, names in _TAGGED.items():
        yield (
            f"CREATE TRIGGER vectors_tag_{event} AFTER {event.upper()} ON vectors FOR EACH ROW "
            f"BEGIN UPDATE vector_namespaces SET content_tag = random() WHERE namespace IN ({names}); END"
        )
    for name, event, when, does in _LEASES:
        yield (
            f"CREATE TRIGGER workflow_runs_lease_{name} AFTER {event} ON workflow_runs FOR EACH ROW "
            f"WHEN {when.replace('IS DISTINCT FROM', 'IS NOT')} BEGIN {_KEEPING[does]}; END"
        )
    yield (
        "CREATE VIEW progression_collections AS SELECT id, created_at, (SELECT json_group_array(message_id) FROM "
        "(SELECT message_id FROM progression_links WHERE progression_id = progressions.id ORDER BY ord)) "
        "AS collection FROM progressions"
    )


def _postgres() -> Iterator[str]:
    # Room in each page for the next version of its rows, so that phases and renewals stay heap-only updates: a few runs
    # of a page change at a time, leases all at once. Dead leases are swept after a number of them: a fleet's heartbeats
    # make as many in a minute as there are rows.
    yield "ALTER TABLE workflow_runs SET (fillfactor = 80)"
    yield (
        "ALTER TABLE run_leases SET "
        "(fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)"
    )
    yield _FUNCTION.format(name="lastlight_refuse", body="")
    yield _FUNCTION.format(name="lastlight_refuse_unless_permitted", body=_IF_PERMITTED)
    yield _UNPLAN
    for name, body in _KEEPING.items():
        yield _KEEPS.format(name=name, body=body)
    for guard in _GUARDS:
        yield from _on_postgres(guard)
    for event in _MARKED:
        yield (
            f"CREATE TRIGGER cron_overrides_unplan_{event} AFTER {event.upper()} ON cron_overrides FOR EACH ROW "
            "EXECUTE FUNCTION lastlight_unplan()"
        )
    for name, event, when, does in _LEASES:
        yield (
            f"CREATE TRIGGER workflow_runs_lease_{name} AFTER {event} ON workflow_runs FOR EACH ROW WHEN ({when}) "
            f"EXECUTE FUNCTION lastlight_{does}_lease()"
        )
    yield (
        "CREATE VIEW progression_collections AS SELECT id, created_at, coalesce((SELECT jsonb_agg(message_id "
        "ORDER BY ord) FROM progression_links WHERE progression_id = progressions.id), '[]'::jsonb) "
        "AS collection FROM progressions"
    )


SQLITE = tuple(_sqlite())
POSTGRES = tuple(_postgres())

# One active chat session per key. The reduction and the unique index stand in one transaction with other writers kept
# out: between them a duplicate would slip in. The winner of a key has the greatest (last_activity_at, created_at, id),
# so the database decides by the rows alone, whatever their order. Nothing is deleted, and what was retired stays
# findable by its reason.

# Exclusive from the start: to lock against writes first and raise the lock for ALTER TABLE could deadlock.
_KEEP_OUT = "LOCK TABLE messaging_sessions IN ACCESS EXCLUSIVE MODE"
_RETIRE = (
    "UPDATE messaging_sessions SET active = {no}, deactivated_at = {now}, deactivated_reason = 'duplicate', "
    "version = version + 1 WHERE active = {yes} AND EXISTS (SELECT 1 FROM messaging_sessions AS newer "
    "WHERE newer.active = {yes} AND newer.platform = messaging_sessions.platform "
    "AND newer.channel_id = messaging_sessions.channel_id "
    "AND coalesce(newer.thread_id, '') = coalesce(messaging_sessions.thread_id, '') "
    "AND newer.user_id = messaging_sessions.user_id "
    "AND (newer.last_activity_at, newer.created_at, coalesce(newer.id, '')) > "
    "(messaging_sessions.last_activity_at, messaging_sessions.created_at, coalesce(messaging_sessions.id, '')))"
)
_SQLITE_RETIRE = _RETIRE.format(yes="1", no="0", now="strftime('%Y-%m-%dT%H:%M:%fZ', 'now')")
_POSTGRES_RETIRE = _RETIRE.format(yes="true", no="false", now="date_trunc('milliseconds', now())")
_SHARED = (
    "FROM {table} WHERE CAST(active AS INTEGER) = 1 "
    "GROUP BY platform, channel_id, coalesce(thread_id, ''), user_id HAVING count(*) > 1"
)
_STILL_SHARED = f"SELECT platform, channel_id, coalesce(thread_id, ''), user_id {_SHARED}".format(
    table="messaging_sessions"
)

additive_sql = (_KEEP_OUT, _SQLITE_RETIRE, _POSTGRES_RETIRE, _RUNNING_ALREADY, *SQLITE, *POSTGRES)

# What the runner may ask, and say, about the rows that this revision changes; {table} stands for the table's full name.
data_steps = (
    {
        "table": "messaging_sessions",
        "columns": ("active", "deactivated_at", "deactivated_reason", "version"),
        "what": "retires chat sessions that share their key with a newer active one",
        "plan": f"SELECT coalesce(sum(n - 1), 0), count(*) FROM (SELECT count(*) AS n {_SHARED}) AS shared",
        "report": "SELECT id FROM {table} WHERE deactivated_reason = 'duplicate' ORDER BY id",
    },
)
# What the triggers change when they fire, and the table of this revision whose rows they make and remove.
trigger_steps = (
    {"table": "cron_schedules", "columns": ("next_run_at", "planned_with")},
    {"table": "vector_namespaces", "columns": ("content_tag",)},
)
trigger_rows = ("run_leases",)


def upgrade() -> None:
    on_postgres = op.get_context().dialect.name == "postgresql"
    _receipts()
    _facts_and_permits()
    _ledgers()
    _columns_of_runs()
    _columns_of_executions()
    _columns_of_approvals()
    _one_session_per_key(on_postgres)
    _columns_of_overrides()
    _run_transitions()
    _run_leases()
    _nodes_and_loops()
    _human_requests()
    _schedules()
    _fires()
    _numbered()
    _frames()
    _tool_calls()
    _sandboxes()
    _scores()
    _inputs_and_registry()
    _history()
    _cache()
    _words()
    _messages()
    _progressions()
    _sessions()
    _branches()
    _session_transitions()
    _session_changes()
    _vectors()
    _exchange()
    _checkpoints_and_states()
    _indexes(on_postgres)
    for statement in POSTGRES if on_postgres else SQLITE:
        op.execute(statement)


# Receipts and what belongs to maintenance.


def _receipts() -> None:
    op.create_table(
        "maintenance_receipts",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("scope", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("epoch", INTEGER, server_default=sa.text("1"), nullable=False),
        sa.Column("actor", TEXT),
        sa.Column("library_version", TEXT, nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("finished_at", TIME),
        sa.Column("counts", JSON, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("cursor", JSON),
        sa.Column("error", TEXT),
        sa.Column("policy", JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_maintenance_receipts"),
        comment="lastlight_state: what maintenance did, one row per piece of work",
    )
    _index("ix_maintenance_receipts_kind", "maintenance_receipts", "kind, started_at, id")
    running = "state = 'running'"
    _index("uq_maintenance_receipts_running", "maintenance_receipts", "kind, scope", running, unique=True)


def _facts_and_permits() -> None:
    op.create_table(
        "lastlight_meta",
        sa.Column("key", TEXT, nullable=False),
        sa.Column("value", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_lastlight_meta"),
        comment="lastlight_state: facts about this schema",
    )
    op.create_table(
        "maintenance_permits",
        sa.Column("receipt_id", TEXT, nullable=False),
        _count("probe", 0),
        sa.PrimaryKeyConstraint("receipt_id", name="pk_maintenance_permits"),
        comment="lastlight_state: leave to delete within one transaction; always empty at rest",
    )


def _ledgers() -> None:
    op.create_table(
        "tombstones",
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("receipt_id", TEXT, nullable=False),
        sa.Column("digest", TEXT),
        sa.Column("deleted_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("kind", "id", name="pk_tombstones"),
        comment="lastlight_state: what was pruned, by kind and id",
    )
    op.create_table(
        "import_ledger",
        sa.Column("source_kind", TEXT, nullable=False),
        sa.Column("source_key", TEXT, nullable=False),
        sa.Column("digest", TEXT, nullable=False),
        sa.Column("outcome", TEXT, nullable=False),
        sa.Column("target_kind", TEXT),
        sa.Column("target_id", TEXT),
        sa.Column("receipt_id", TEXT, nullable=False),
        sa.Column("imported_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("source_kind", "source_key", name="pk_import_ledger"),
        comment="lastlight_state: what was imported, by source, with its digest",
    )
    _index("ix_import_ledger_target", "import_ledger", "target_kind, target_id")
    op.create_table(
        "copy_progress",
        sa.Column("receipt_id", TEXT, nullable=False),
        sa.Column("table_name", TEXT, nullable=False),
        sa.Column("rows", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("done", FLAG, server_default=sa.false(), nullable=False),
        sa.Column("last_key", JSON),
        sa.PrimaryKeyConstraint("receipt_id", "table_name", name="pk_copy_progress"),
        comment="lastlight_state: how far a copy into this database came, by table",
    )


# Columns beside those of the original program.


def _columns_of_runs() -> None:
    for name in ("owner", "trigger_type", "triggered_by", "trigger_actor_type", "run_key", "create_digest"):
        _add("workflow_runs", (name, TEXT))
    _add("workflow_runs", ("parent_run_id", TEXT))
    op.add_column("workflow_runs", _count("max_restarts", 3))
    op.add_column("workflow_runs", _count("transition_seq", 0))
    _add("workflow_runs", ("status_reason", TEXT))
    op.add_column("workflow_runs", _count("phase_count", 0))
    _add("workflow_runs", ("queued_at", TIME), ("admitted_at", TIME), ("wake_at", TIME))
    _add("workflow_runs", ("pause_reason", TEXT), ("waiting_for", TEXT), ("correlation_id", TEXT))
    _add("workflow_runs", ("cancel_requested_at", TIME), ("cancel_requested_by", TEXT), ("cancel_reason", TEXT))
    _add("workflow_runs", ("deadline_at", TIME), ("claim_owner", TEXT))
    op.add_column("workflow_runs", _count("claim_epoch", 0))
    _add("workflow_runs", ("claimed_at", TIME), ("heartbeat_at", TIME), ("lease_expires_at", TIME))
    _add("workflow_runs", ("previous_owner", TEXT), ("previous_heartbeat_at", TIME))
    _add("workflow_runs", ("previous_lease_expires_at", TIME), ("previous_status", TEXT))
    _add("workflow_runs", ("previous_restart_count", INTEGER))
    for name in ("workflow_path", "workflow_hash", "vcs_type", "vcs_root", "vcs_revision", "app_version"):
        _add("workflow_runs", (name, TEXT))
    _add("workflow_runs", ("trace_id", TEXT), ("span_id", TEXT), ("error", TEXT), ("error_detail", JSON))


def _columns_of_executions() -> None:
    _add("executions", ("owner", TEXT), ("triggered_by", TEXT), ("trigger_actor_type", TEXT), ("node_id", TEXT))
    op.add_column("executions", _count("iteration", 0))
    _add("executions", ("attempt", INTEGER), ("outcome", TEXT), ("heartbeat_at", TIME), ("claim_epoch", INTEGER))
    op.add_column("executions", sa.Column("cached", FLAG, server_default=sa.false(), nullable=False))
    _add("executions", ("model", TEXT), ("price_table", TEXT), ("cost_micros", INTEGER), ("cost_picos", INTEGER))
    op.add_column(
        "executions", sa.Column("input_includes_cache_reads", FLAG, server_default=sa.false(), nullable=False)
    )
    _add("executions", ("vcs_pointer", TEXT), ("work_dir", TEXT))
    _add("executions", ("checkpoint", JSON), ("error_detail", JSON), ("details", JSON))


def _columns_of_approvals() -> None:
    _add("workflow_approvals", ("artifact", TEXT), ("node_id", TEXT))
    op.add_column("workflow_approvals", _count("iteration", 0))
    _add("workflow_approvals", ("request_key", TEXT))
    op.add_column("workflow_approvals", sa.Column("on_reject", TEXT, server_default=sa.text("'fail'"), nullable=False))
    op.add_column("workflow_approvals", sa.Column("blocks_run", FLAG, server_default=sa.true(), nullable=False))
    _add("workflow_approvals", ("expires_at", TIME), ("action_digest", TEXT), ("answered_via", TEXT))
    _add("workflow_approvals", ("consumed_at", TIME), ("consumed_by", TEXT), ("closed_reason", TEXT))
    _add("workflow_approvals", ("action", JSON))


def _one_session_per_key(on_postgres: bool) -> None:
    if on_postgres:
        op.execute(_KEEP_OUT)
    table = "messaging_sessions"
    _add(table, ("title", TEXT))
    op.add_column(table, _count("version", 0))
    _add(table, ("deactivated_at", TIME), ("deactivated_reason", TEXT), ("metadata", JSON))
    op.execute(_POSTGRES_RETIRE if on_postgres else _SQLITE_RETIRE)
    op.refuse_rows(_STILL_SHARED, "chat sessions that share a key are active")  # type: ignore[attr-defined]


def _columns_of_overrides() -> None:
    _add("workflow_overrides", ("reason", TEXT))
    _add("cron_overrides", ("timezone", TEXT))
    op.add_column("cron_overrides", sa.Column("inherits_enabled", FLAG, server_default=sa.false(), nullable=False))


# Runs.


def _run_transitions() -> None:
    op.create_table(
        "run_transitions",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("seq", INTEGER, nullable=False),
        sa.Column("from_status", TEXT),
        sa.Column("to_status", TEXT, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("actor", TEXT),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("claim_epoch", INTEGER),
        sa.Column("at", TIME, nullable=False),
        sa.Column("detail", TEXT),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_run_transitions_run_id"),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_run_transitions"),
        comment="lastlight_state: every change of a run's status, numbered without gaps",
    )


def _run_leases() -> None:
    op.create_table(
        "run_leases",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("workflow_name", TEXT, nullable=False),
        sa.Column("epoch", INTEGER),
        sa.Column("heartbeat_at", TIME),
        sa.Column("lease_expires_at", TIME),
        sa.Column("due_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_run_leases"),
        comment="lastlight_state: running runs: who holds them until when, kept by triggers",
    )
    op.execute(_RUNNING_ALREADY)
    _workers()


def _workers() -> None:
    op.create_table(
        "workflow_workers",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("host", TEXT, nullable=False),
        sa.Column("pid", INTEGER, nullable=False),
        sa.Column("slots", INTEGER, nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("seen_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("workflow_names", JSON, nullable=False),
        sa.Column("app_versions", JSON),
        sa.PrimaryKeyConstraint("name", name="pk_workflow_workers"),
        comment="lastlight_state: workers that were seen, with the workflows that each serves",
    )


def _nodes_and_loops() -> None:
    op.create_table(
        "run_nodes",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("node_id", TEXT, nullable=False),
        sa.Column("iteration", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("last_attempt", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("output_table", TEXT),
        sa.Column("label", TEXT),
        sa.Column("wake_at", TIME),
        sa.Column("waiting_for", TEXT),
        sa.Column("correlation_id", TEXT),
        sa.Column("updated_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_run_nodes_run_id"),
        sa.PrimaryKeyConstraint("run_id", "node_id", "iteration", name="pk_run_nodes"),
        comment="lastlight_state: state of each node of a run, by iteration",
    )
    op.create_table(
        "run_loops",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("loop_id", TEXT, nullable=False),
        sa.Column("iteration", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("done", FLAG, server_default=sa.false(), nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_run_loops_run_id"),
        sa.PrimaryKeyConstraint("run_id", "loop_id", name="pk_run_loops"),
        comment="lastlight_state: where each loop of a run stands",
    )


def _human_requests() -> None:
    op.create_table(
        "human_requests",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("node_id", TEXT, nullable=False),
        sa.Column("iteration", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("status", TEXT, server_default=sa.text("'pending'"), nullable=False),
        sa.Column("blocks_run", FLAG, server_default=sa.false(), nullable=False),
        sa.Column("on_expiry", TEXT, server_default=sa.text("'resume'"), nullable=False),
        sa.Column("requested_at", TIME, nullable=False),
        sa.Column("expires_at", TIME),
        sa.Column("answered_at", TIME),
        sa.Column("answered_by", TEXT),
        sa.Column("closed_reason", TEXT),
        sa.Column("reopened", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("prompt", TEXT, nullable=False),
        sa.Column("options", JSON),
        sa.Column("schema", JSON),
        sa.Column("response", JSON),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_human_requests_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_human_requests"),
        comment="lastlight_state: questions of runs to people, with their answers",
    )


# Schedules.


def _schedules() -> None:
    op.create_table(
        "cron_schedules",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("pattern", TEXT, nullable=False),
        sa.Column("timezone", TEXT, server_default=sa.text("'UTC'"), nullable=False),
        sa.Column("target_kind", TEXT, server_default=sa.text("'workflow'"), nullable=False),
        sa.Column("target", TEXT, nullable=False),
        sa.Column("catch_up", TEXT, server_default=sa.text("'one'"), nullable=False),
        sa.Column("grace_seconds", INTEGER, server_default=sa.text("60"), nullable=False),
        sa.Column("overlap", TEXT, server_default=sa.text("'allow'"), nullable=False),
        sa.Column("origin", TEXT, server_default=sa.text("'database'"), nullable=False),
        sa.Column("enabled", FLAG, server_default=sa.true(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("last_run_at", TIME),
        sa.Column("next_run_at", TIME),
        sa.Column("planned_with", TEXT),
        sa.Column("last_fire_id", TEXT),
        sa.Column("retired_at", TIME),
        sa.Column("error_json", JSON),
        sa.Column("payload", JSON),
        sa.PrimaryKeyConstraint("name", name="pk_cron_schedules"),
        comment="lastlight_state: schedules, with when each is due next",
    )


def _fires() -> None:
    op.create_table(
        "cron_fires",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("cron_name", TEXT, nullable=False),
        sa.Column("scheduled_for", TIME),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("actor", TEXT),
        sa.Column("target_kind", TEXT),
        sa.Column("target", TEXT),
        sa.Column("status", TEXT, server_default=sa.text("'running'"), nullable=False),
        sa.Column("owner", TEXT),
        sa.Column("lease_until", TIME),
        sa.Column("epoch", INTEGER, server_default=sa.text("1"), nullable=False),
        sa.Column("attempts", INTEGER, server_default=sa.text("1"), nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("finished_at", TIME),
        sa.Column("eligible", INTEGER),
        sa.Column("scanned", INTEGER),
        sa.Column("discovered", INTEGER),
        sa.Column("dispatched", INTEGER),
        sa.Column("failures", INTEGER),
        sa.Column("note", TEXT),
        sa.Column("error_json", JSON),
        sa.Column("payload", JSON),
        sa.PrimaryKeyConstraint("id", name="pk_cron_fires"),
        comment="lastlight_state: fires of crons, one row each, also when nothing was dispatched",
    )


# The journal.


def _numbered() -> None:
    op.create_table(
        "run_sequences",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("stream", TEXT, nullable=False),
        sa.Column("next_seq", INTEGER, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_run_sequences_run_id"),
        sa.PrimaryKeyConstraint("run_id", "stream", name="pk_run_sequences"),
        comment="lastlight_state: the next number of each stream of a run's journal",
    )
    op.create_table(
        "run_events",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("seq", INTEGER, nullable=False),
        sa.Column("type", TEXT, nullable=False),
        sa.Column("occurred_at", TIME, nullable=False),
        sa.Column("node_id", TEXT),
        sa.Column("event_id", TEXT),
        sa.Column("payload", JSON, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_run_events_run_id"),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_run_events"),
        comment="lastlight_state: what happened in runs, numbered without gaps in the order of the commits",
    )
    op.create_table(
        "run_signals",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("seq", INTEGER, nullable=False),
        sa.Column("signal_name", TEXT, nullable=False),
        sa.Column("correlation_id", TEXT),
        sa.Column("received_at", TIME, nullable=False),
        sa.Column("received_by", TEXT),
        sa.Column("signal_id", TEXT),
        sa.Column("consumed_at", TIME),
        sa.Column("consumed_by", TEXT),
        sa.Column("payload", JSON, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_run_signals_run_id"),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_run_signals"),
        comment="lastlight_state: messages sent into runs from outside, each taken once",
    )


def _frames() -> None:
    op.create_table(
        "run_frames",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("frame_no", INTEGER, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("encoding", TEXT, server_default=sa.text("'full'"), nullable=False),
        sa.Column("content_hash", TEXT, nullable=False),
        sa.Column("full_bytes", INTEGER, nullable=False),
        sa.Column("note", TEXT),
        sa.Column("mounted_task_ids", JSON),
        sa.Column("task_index", JSON),
        sa.Column("body", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_run_frames_run_id"),
        sa.PrimaryKeyConstraint("run_id", "frame_no", name="pk_run_frames"),
        comment="lastlight_state: rendered frames of runs, whole or as the change since the frame before",
    )


def _tool_calls() -> None:
    op.create_table(
        "tool_calls",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("seq", INTEGER, nullable=False),
        sa.Column("node_id", TEXT),
        sa.Column("iteration", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("attempt", INTEGER, server_default=sa.text("1"), nullable=False),
        sa.Column("execution_id", TEXT),
        sa.Column("call_id", TEXT),
        sa.Column("tool_name", TEXT, nullable=False),
        sa.Column("status", TEXT, server_default=sa.text("'running'"), nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("finished_at", TIME),
        sa.Column("duration_ms", INTEGER),
        sa.Column("output_ref", TEXT),
        sa.Column("input", JSON),
        sa.Column("output", JSON),
        sa.Column("error", JSON),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_tool_calls_run_id"),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_tool_calls"),
        comment="lastlight_state: invocations of tools, with status and latency",
    )


def _sandboxes() -> None:
    op.create_table(
        "sandboxes",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("sandbox_id", TEXT, nullable=False),
        sa.Column("runtime", TEXT, server_default=sa.text("'bubblewrap'"), nullable=False),
        sa.Column("status", TEXT, server_default=sa.text("'pending'"), nullable=False),
        sa.Column("remote_run_id", TEXT),
        sa.Column("workspace_id", TEXT),
        sa.Column("container_id", TEXT),
        sa.Column("bundle_path", TEXT),
        sa.Column("shipped_at", TIME),
        sa.Column("completed_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("config", JSON, server_default=sa.text("'{}'"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_sandboxes_run_id"),
        sa.PrimaryKeyConstraint("run_id", "sandbox_id", name="pk_sandboxes"),
        comment="lastlight_state: sandboxes of runs, with where each of them stands",
    )


def _scores() -> None:
    op.create_table(
        "scores",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("node_id", TEXT, nullable=False),
        sa.Column("iteration", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("attempt", INTEGER, server_default=sa.text("1"), nullable=False),
        sa.Column("scorer_id", TEXT, nullable=False),
        sa.Column("scorer_name", TEXT, nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("score", REAL, nullable=False),
        sa.Column("latency_ms", REAL),
        sa.Column("duration_ms", REAL),
        sa.Column("scored_at", TIME, nullable=False),
        sa.Column("superseded_at", TIME),
        sa.Column("reason", TEXT),
        sa.Column("meta", JSON),
        sa.Column("input", JSON),
        sa.Column("output", JSON),
        sa.Column("expected", JSON),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_scores_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_scores"),
        comment="lastlight_state: scores of task attempts; a rerun supersedes the score before",
    )


# Outputs.


def _inputs_and_registry() -> None:
    op.create_table(
        "run_inputs",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("revision", INTEGER, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_by", TEXT),
        sa.Column("reason", TEXT),
        sa.Column("payload", JSON, nullable=False),
        sa.Column("given", JSON),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_run_inputs_run_id"),
        sa.PrimaryKeyConstraint("run_id", "revision", name="pk_run_inputs"),
        comment="lastlight_state: what each run was started with; the highest revision is in force",
    )
    op.create_table(
        "output_tables",
        sa.Column("key", TEXT, nullable=False),
        sa.Column("table_name", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("signature", TEXT, nullable=False),
        sa.Column("model_digest", TEXT),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("columns", JSON, nullable=False),
        sa.Column("json_schema", JSON),
        sa.PrimaryKeyConstraint("key", name="pk_output_tables"),
        sa.UniqueConstraint("table_name", name="uq_output_tables_table_name"),
        comment="lastlight_state: the registry of output tables, with their columns and signatures",
    )


def _history() -> None:
    op.create_table(
        "output_history",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("table_name", TEXT, nullable=False),
        sa.Column("node_id", TEXT, nullable=False),
        sa.Column("iteration", INTEGER, nullable=False),
        sa.Column("revision", INTEGER, nullable=False),
        sa.Column("signature", TEXT, nullable=False),
        sa.Column("cause", TEXT, nullable=False),
        sa.Column("written_at", TIME, nullable=False),
        sa.Column("removed_at", TIME, nullable=False),
        sa.Column("reason", TEXT),
        sa.Column("value", JSON, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_output_history_run_id"),
        sa.PrimaryKeyConstraint("run_id", "table_name", "node_id", "iteration", "revision", name="pk_output_history"),
        comment="lastlight_state: rows that left output tables, replaced or withdrawn, numbered from 0 for each key",
    )


def _cache() -> None:
    op.create_table(
        "output_cache",
        sa.Column("cache_key", TEXT, nullable=False),
        sa.Column("workflow_name", TEXT, nullable=False),
        sa.Column("node_id", TEXT, nullable=False),
        sa.Column("output_key", TEXT, nullable=False),
        sa.Column("table_name", TEXT, nullable=False),
        sa.Column("schema_signature", TEXT, nullable=False),
        sa.Column("model_digest", TEXT),
        sa.Column("agent_signature", TEXT),
        sa.Column("source_run_id", TEXT),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME),
        sa.Column("payload", JSON, nullable=False),
        sa.PrimaryKeyConstraint("cache_key", name="pk_output_cache"),
        comment="lastlight_state: results that may be used again while their schema is the same",
    )


# Conversations.

_CLASSES = (
    "__unknown__",
    *(
        f"lionagi.protocols.messages.{name}"
        for name in (
            "system.System",
            "instruction.Instruction",
            "assistant_response.AssistantResponse",
            "action_request.ActionRequest",
            "action_response.ActionResponse",
        )
    ),
)
_INVOCATION_KINDS = ("agent", "play", "flow", "fanout", "show-play", "engine")
_SOURCE_KINDS = ("live", "imported_fs", "imported_codex")


def _words() -> None:
    op.create_table(
        "message_types",
        sa.Column("type_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("lion_class", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("type_id", name="pk_message_types"),
        sa.UniqueConstraint("lion_class", name="uq_message_types_lion_class"),
        comment="lastlight_state: classes of messages, by number; 0 is unknown",
    )
    types = sa.table("message_types", sa.column("type_id", INTEGER), sa.column("lion_class", TEXT))
    op.bulk_insert(types, [{"type_id": i, "lion_class": name} for i, name in enumerate(_CLASSES)])
    for table, words, holds in (
        ("invocation_kinds", _INVOCATION_KINDS, "words for what a conversation session runs"),
        ("source_kinds", _SOURCE_KINDS, "words for where a conversation session comes from"),
    ):
        op.create_table(
            table,
            sa.Column("word", TEXT, nullable=False),
            sa.PrimaryKeyConstraint("word", name=f"pk_{table}"),
            comment=f"lastlight_state: {holds}",
        )
        op.bulk_insert(sa.table(table, sa.column("word", TEXT)), [{"word": word} for word in words])


def _messages() -> None:
    op.create_table(
        "messages",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_at_unix", REAL),
        sa.Column("sender", TEXT),
        sa.Column("recipient", TEXT),
        sa.Column("channel", TEXT),
        sa.Column("role", TEXT, nullable=False),
        sa.Column("lion_class", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("revision", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("revised_at", TIME),
        sa.Column("embedding_model", TEXT),
        sa.Column("node_metadata", JSON),
        sa.Column("extra", JSON),
        sa.Column("content", JSON, nullable=False),
        sa.Column("embedding", BYTES),
        _refers("messages", "lion_class", "message_types.type_id"),
        sa.PrimaryKeyConstraint("id", name="pk_messages"),
        comment="lastlight_state: messages of conversations, each stored once",
    )


def _progressions() -> None:
    op.create_table(
        "progressions",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_at_unix", REAL),
        sa.Column("name", TEXT),
        sa.Column("start_ord", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("next_ord", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("version", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("node_metadata", JSON),
        sa.Column("extra", JSON),
        sa.PrimaryKeyConstraint("id", name="pk_progressions"),
        comment="lastlight_state: orders of messages, of sessions and branches",
    )
    op.create_table(
        "progression_links",
        sa.Column("progression_id", TEXT, nullable=False),
        sa.Column("ord", INTEGER, nullable=False),
        sa.Column("message_id", TEXT, nullable=False),
        _refers("progression_links", "progression_id", "progressions.id", ondelete="CASCADE"),
        _refers("progression_links", "message_id", "messages.id"),
        sa.PrimaryKeyConstraint("progression_id", "ord", name="pk_progression_links"),
        comment="lastlight_state: which message stands at which position of an order",
    )


def _sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_at_unix", REAL),
        sa.Column("name", TEXT),
        sa.Column("user", TEXT),
        sa.Column("progression_id", TEXT, nullable=False),
        sa.Column("first_msg_id", TEXT),
        sa.Column("last_msg_id", TEXT),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("playbook_name", TEXT),
        sa.Column("agent_name", TEXT),
        sa.Column("invocation_kind", TEXT),
        sa.Column("show_topic", TEXT),
        sa.Column("show_play_name", TEXT),
        sa.Column("artifacts_path", TEXT),
        sa.Column("source_kind", TEXT, server_default=sa.text("'live'")),
        sa.Column("started_at", TIME),
        sa.Column("ended_at", TIME),
        sa.Column("last_message_at", TIME),
        sa.Column("version", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("status", TEXT),
        sa.Column("status_reason", TEXT),
        sa.Column("transition_seq", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("change_seq", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("owner", TEXT),
        sa.Column("heartbeat_at", TIME),
        sa.Column("ended_at_is_approximate", FLAG, server_default=sa.false(), nullable=False),
        sa.Column("project", TEXT),
        sa.Column("agent_session_id", TEXT),
        sa.Column("workflow_run_id", TEXT),
        sa.Column("hold_reason", TEXT),
        sa.Column("node_metadata", JSON),
        sa.Column("extra", JSON),
        sa.Column("artifact_contract", JSON),
        sa.Column("artifact_verification", JSON),
        _refers("sessions", "progression_id", "progressions.id"),
        _refers("sessions", "first_msg_id", "messages.id"),
        _refers("sessions", "last_msg_id", "messages.id"),
        _refers("sessions", "invocation_kind", "invocation_kinds.word"),
        _refers("sessions", "source_kind", "source_kinds.word"),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        comment="lastlight_state: conversation sessions, each with the pool of its messages",
    )


def _branches() -> None:
    op.create_table(
        "branches",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_at_unix", REAL),
        sa.Column("user", TEXT),
        sa.Column("name", TEXT),
        sa.Column("session_id", TEXT, nullable=False),
        sa.Column("progression_id", TEXT, nullable=False),
        sa.Column("system_msg_id", TEXT),
        sa.Column("parent_branch_id", TEXT),
        sa.Column("forked_at_ord", INTEGER),
        sa.Column("fork_depth", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("status", TEXT),
        sa.Column("started_at", TIME),
        sa.Column("ended_at", TIME),
        sa.Column("provider", TEXT),
        sa.Column("model", TEXT),
        sa.Column("agent_name", TEXT),
        sa.Column("node_metadata", JSON),
        sa.Column("extra", JSON),
        _refers("branches", "session_id", "sessions.id", ondelete="CASCADE"),
        _refers("branches", "progression_id", "progressions.id"),
        _refers("branches", "system_msg_id", "messages.id"),
        _refers("branches", "parent_branch_id", "branches.id"),
        sa.PrimaryKeyConstraint("id", name="pk_branches"),
        comment="lastlight_state: branches of conversation sessions, forks among them",
    )


def _session_transitions() -> None:
    op.create_table(
        "session_transitions",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("session_id", TEXT, nullable=False),
        sa.Column("branch_id", TEXT),
        sa.Column("seq", INTEGER, nullable=False),
        sa.Column("previous_status", TEXT),
        sa.Column("status", TEXT, nullable=False),
        sa.Column("reason_code", TEXT, nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("actor", TEXT),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("reason_summary", TEXT),
        sa.Column("evidence", JSON),
        sa.PrimaryKeyConstraint("id", name="pk_session_transitions"),
        sa.UniqueConstraint("session_id", "seq", name="uq_session_transitions_session_id_seq"),
        comment="lastlight_state: changes of status of conversation sessions",
    )


def _session_changes() -> None:
    op.create_table(
        "session_changes",
        sa.Column("session_id", TEXT, nullable=False),
        sa.Column("seq", INTEGER, autoincrement=False, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("branch_id", TEXT),
        sa.Column("progression_id", TEXT),
        sa.Column("message_id", TEXT),
        sa.Column("ord", INTEGER),
        sa.Column("count", INTEGER),
        sa.Column("at", TIME, nullable=False),
        sa.Column("details", JSON),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name="fk_session_changes_session_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_id", "seq", name="pk_session_changes"),
        comment="lastlight_state: feeds of conversation sessions: what changed, by number",
    )


def _vectors() -> None:
    op.create_table(
        "vector_namespaces",
        sa.Column("namespace", TEXT, nullable=False),
        sa.Column("dimensions", INTEGER, nullable=False),
        sa.Column("model", TEXT),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("content_tag", INTEGER),
        sa.PrimaryKeyConstraint("namespace", name="pk_vector_namespaces"),
        comment="lastlight_state: sets of chunks whose embeddings have one length",
    )
    op.create_table(
        "vectors",
        sa.Column("namespace", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("document_id", TEXT),
        sa.Column("chunk_index", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("dimensions", INTEGER, nullable=False),
        sa.Column("norm", REAL, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("embedding", BYTES, nullable=False),
        sa.Column("chunk_metadata", JSON),
        sa.Column("content", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["namespace"], ["vector_namespaces.namespace"], name="fk_vectors_namespace"),
        sa.PrimaryKeyConstraint("namespace", "id", name="pk_vectors"),
        comment="lastlight_state: chunks of text with their embeddings",
    )


def _exchange() -> None:
    _inboxes_and_members()
    _deliveries()


def _inboxes_and_members() -> None:
    op.create_table(
        "exchange_inboxes",
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("next_ord", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("owner", name="pk_exchange_inboxes"),
        comment="lastlight_state: inboxes of the exchange, and how many deliveries each has had",
    )
    op.create_table(
        "exchange_members",
        sa.Column("channel", TEXT, nullable=False),
        sa.Column("member", TEXT, nullable=False),
        sa.Column("joined_at", TIME, nullable=False),
        sa.Column("left_at", TIME),
        sa.PrimaryKeyConstraint("channel", "member", name="pk_exchange_members"),
        comment="lastlight_state: members of channels of the exchange",
    )


def _deliveries() -> None:
    op.create_table(
        "exchange_deliveries",
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("ord", INTEGER, autoincrement=False, nullable=False),
        sa.Column("message_id", TEXT, nullable=False),
        sa.Column("sender", TEXT),
        sa.Column("channel", TEXT),
        sa.Column("delivered_at", TIME, nullable=False),
        sa.Column("taken_by", TEXT),
        sa.Column("taken_until", TIME),
        sa.Column("takes", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("acked_at", TIME),
        sa.Column("acked_by", TEXT),
        sa.ForeignKeyConstraint(["owner"], ["exchange_inboxes.owner"], name="fk_exchange_deliveries_owner"),
        sa.ForeignKeyConstraint(["message_id"], ["messages.id"], name="fk_exchange_deliveries_message_id"),
        sa.PrimaryKeyConstraint("owner", "ord", name="pk_exchange_deliveries"),
        sa.UniqueConstraint("owner", "message_id", name="uq_exchange_deliveries_owner_message_id"),
        comment="lastlight_state: messages in inboxes of the exchange",
    )


def _checkpoints_and_states() -> None:
    _threads_and_checkpoints()
    _values_and_writes()
    _states()


def _threads_and_checkpoints() -> None:
    op.create_table(
        "checkpoint_threads",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("scope", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("expires_at", TIME),
        sa.Column("user", TEXT),
        sa.PrimaryKeyConstraint("id", name="pk_checkpoint_threads"),
        sa.UniqueConstraint("scope", "key", name="uq_checkpoint_threads_scope_key"),
        comment="lastlight_state: threads of checkpoints, by scope and key",
    )
    op.create_table(
        "checkpoints",
        sa.Column("thread_id", TEXT, nullable=False),
        sa.Column("namespace", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("seq", INTEGER, nullable=False),
        sa.Column("parent_id", TEXT),
        sa.Column("run_ref", TEXT),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("format", TEXT, nullable=False),
        sa.Column("metadata", JSON),
        sa.Column("versions", JSON, nullable=False),
        sa.Column("body", BYTES, nullable=False),
        _refers("checkpoints", "thread_id", "checkpoint_threads.id"),
        sa.PrimaryKeyConstraint("thread_id", "namespace", "id", name="pk_checkpoints"),
        comment="lastlight_state: checkpoints of threads, with the version of each channel",
    )


def _values_and_writes() -> None:
    op.create_table(
        "checkpoint_values",
        sa.Column("thread_id", TEXT, nullable=False),
        sa.Column("namespace", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("channel", TEXT, nullable=False),
        sa.Column("version", TEXT, nullable=False),
        sa.Column("number", INTEGER, nullable=False),
        sa.Column("anchor", INTEGER, nullable=False),
        sa.Column("encoding", TEXT, nullable=False),
        sa.Column("format", TEXT, nullable=False),
        sa.Column("size", INTEGER, nullable=False),
        sa.Column("digest", TEXT, nullable=False),
        sa.Column("body", BYTES, nullable=False),
        _refers("checkpoint_values", "thread_id", "checkpoint_threads.id"),
        sa.PrimaryKeyConstraint("thread_id", "namespace", "channel", "version", name="pk_checkpoint_values"),
        comment="lastlight_state: values of channels by version, whole or as changes",
    )
    op.create_table(
        "checkpoint_writes",
        sa.Column("thread_id", TEXT, nullable=False),
        sa.Column("namespace", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("checkpoint_id", TEXT, nullable=False),
        sa.Column("task", TEXT, nullable=False),
        sa.Column("idx", INTEGER, autoincrement=False, nullable=False),
        sa.Column("path", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("channel", TEXT, nullable=False),
        sa.Column("format", TEXT, nullable=False),
        sa.Column("body", BYTES, nullable=False),
        _refers("checkpoint_writes", "thread_id", "checkpoint_threads.id"),
        sa.PrimaryKeyConstraint("thread_id", "namespace", "checkpoint_id", "task", "idx", name="pk_checkpoint_writes"),
        comment="lastlight_state: what tasks wrote after a checkpoint, before the next one",
    )


# Indexes. Both databases have the same, but for lists: on SQLite an index holds everything that a list shows, because a
# column behind a large one is slow to read from the row. On Postgres large values lie beside the row, and wide indexes
# end updates in place: there an index holds the order alone.


def _states() -> None:
    op.create_table(
        "states",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("scope", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("version", TEXT, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("expires_at", TIME),
        sa.Column("user", TEXT),
        sa.Column("value", JSON),
        sa.Column("body", BYTES),
        sa.PrimaryKeyConstraint("id", name="pk_states"),
        sa.UniqueConstraint("scope", "key", name="uq_states_scope_key"),
        comment="lastlight_state: values by scope and key, JSON or bytes",
    )


def _indexes(on_postgres: bool) -> None:
    _of_runs()
    _of_executions()
    _of_approvals()
    _of_nodes_and_questions()
    if on_postgres:
        _narrow_lists()
    else:
        _covering_lists()
    _of_what_has_ended()
    _of_chats()
    _of_schedules()
    _of_the_journal()
    _of_the_cache()
    _of_conversations()
    _of_checkpoints()
    _index("ix_states_expiry", "states", "expires_at", "expires_at IS NOT NULL")
    if not on_postgres:
        _covering_lists_of_live_runs()
        _covering_lists_of_questions()


def _of_runs() -> None:
    table = "workflow_runs"
    _index("uq_workflow_runs_run_key", table, "workflow_name, run_key", "run_key IS NOT NULL", unique=True)
    _index("ix_workflow_runs_parent", table, "parent_run_id, started_at", "parent_run_id IS NOT NULL")
    line = "queued_at, id, workflow_name, started_at, app_version"
    _index("ix_workflow_runs_queue", table, line, "status = 'queued'")
    _index("ix_workflow_runs_running", table, "workflow_name", "status = 'running'")
    _index("ix_workflow_runs_wake", table, "wake_at, id, workflow_name", "status = 'paused' AND wake_at IS NOT NULL")
    waiting = "status = 'paused' AND waiting_for IS NOT NULL"
    _index("ix_workflow_runs_waiting", table, "waiting_for, correlation_id, id, started_at", waiting)
    _index("ix_workflow_runs_repo", table, "owner, repo, started_at")
    live = "status NOT IN ('succeeded', 'failed', 'cancelled')"
    _index("ix_workflow_runs_live_started", table, "status, started_at", live)
    _index("ix_run_leases_due", "run_leases", "due_at, workflow_name")
    _index("ix_workflow_workers_expiry", "workflow_workers", "expires_at")


def _of_executions() -> None:
    table = "executions"
    attempt = "workflow_run_id, node_id, iteration, attempt"
    _index("uq_executions_attempt", table, attempt, "node_id IS NOT NULL", unique=True)
    _index("ix_executions_session", table, "session_id, started_at", "session_id IS NOT NULL")
    _index("ix_executions_chat", table, "trigger_id, started_at", "skill = 'chat'")
    counts = "turns input_tokens output_tokens cache_creation_input_tokens cache_read_input_tokens".split()
    spent = " OR ".join(f"{name} > 0" for name in counts)
    ended = "finished_at IS NOT NULL OR success IS NOT NULL"
    _index("ix_executions_lost_log", table, "started_at, id", f"session_id IS NULL AND ({spent}) AND ({ended})")


def _of_approvals() -> None:
    table = "workflow_approvals"
    _index("ix_approvals_due", table, "expires_at", "status = 'pending' AND expires_at IS NOT NULL")
    keyed = "status = 'pending' AND request_key IS NOT NULL"
    _index("uq_approvals_request_key", table, "workflow_run_id, request_key", keyed, unique=True)
    _index("ix_approvals_artifact", table, "artifact, created_at", "artifact IS NOT NULL")


def _of_nodes_and_questions() -> None:
    _index("ix_run_nodes_wake", "run_nodes", "state, wake_at", "wake_at IS NOT NULL")
    _index("ix_run_nodes_waiting", "run_nodes", "waiting_for, correlation_id", "state = 'waiting_signal'")
    due = "status = 'pending' AND expires_at IS NOT NULL"
    _index("ix_human_requests_due", "human_requests", "expires_at", due)


_SUMMARY = (
    "workflow_name, status_reason, trigger_id, trigger_type, owner, repo, issue_number, current_phase, "
    "phase_count, updated_at, finished_at, restart_count, parent_run_id, triggered_by, cancel_requested_at"
)
_USAGE = (
    "skill, owner, repo, model, trigger_type, success, outcome, stop_reason, finished_at, input_tokens, "
    "output_tokens, cache_read_input_tokens, cache_creation_input_tokens, cost_usd, cost_micros, cost_picos, "
    "input_includes_cache_reads, node_id, iteration, attempt, cached, triggered_by"
)
_APPROVAL = (
    "created_at, id, workflow_run_id, gate, status, kind, requested_by, responded_by, responded_at, "
    "artifact, node_id, iteration, request_key, on_reject, blocks_run, expires_at, action_digest, answered_via, "
    "consumed_at, consumed_by, closed_reason"
)


def _covering_lists() -> None:
    _index("ix_workflow_runs_summary", "workflow_runs", f"started_at, id, status, {_SUMMARY}")
    _index("ix_workflow_runs_trigger_started", "workflow_runs", "trigger_id, started_at")
    _index("ix_executions_usage", "executions", f"started_at, id, {_USAGE}")
    in_flight = "finished_at IS NULL AND success IS NULL"
    _index("ix_executions_signs", "executions", "workflow_run_id, heartbeat_at, started_at", in_flight)
    previews = [_preview("summary"), _preview("response")]
    _index("ix_approvals_summary", "workflow_approvals", [*_columns(_APPROVAL), *previews])
    of_run = "workflow_run_id, created_at, id, status, blocks_run, expires_at, node_id, iteration"
    _index("ix_approvals_run", "workflow_approvals", of_run)


def _narrow_lists() -> None:
    _index("ix_executions_started", "executions", "started_at, id")
    _index("idx_approvals_workflow", "workflow_approvals", "workflow_run_id")
    _index("idx_approvals_status", "workflow_approvals", "status")
    _index("ix_approvals_newest", "workflow_approvals", "created_at, id")
    _index("ix_approvals_inbox", "workflow_approvals", "created_at, id", "status = 'pending'")
    _index("ix_human_requests_inbox", "human_requests", "requested_at, id", "status = 'pending'")
    _index("ix_human_requests_run", "human_requests", "run_id, requested_at")
    _index("ix_executions_in_flight", "executions", "workflow_run_id", "finished_at IS NULL AND success IS NULL")


def _of_what_has_ended() -> None:
    """By which prune finds it, in the order of its end."""
    ended_at = ["coalesce(finished_at, started_at)", "id"]
    _index("ix_workflow_runs_ended", "workflow_runs", ended_at, "status IN ('succeeded', 'failed', 'cancelled')")
    alone = "workflow_run_id IS NULL AND (finished_at IS NOT NULL OR success IS NOT NULL)"
    _index("ix_executions_alone", "executions", ended_at, alone)


def _of_chats() -> None:
    table = "messaging_sessions"
    place = ["platform", "channel_id", "coalesce(thread_id, '')"]
    newest = ["last_activity_at", "id"]
    _index("uq_messaging_sessions_active_key", table, [*place, "user_id"], "active = 1", "active", unique=True)
    _index("ix_messaging_sessions_active_place", table, [*place, *newest], "active = 1", "active")
    _index("ix_messaging_sessions_activity", table, newest)
    has_agent = "agent_session_id IS NOT NULL"
    _index("ix_messaging_sessions_agent", table, "agent_session_id, created_at", has_agent)
    table, has_id = "messaging_messages", "platform_message_id IS NOT NULL"
    _index("ix_messaging_messages_order", table, "session_id, id")
    _index("ix_messaging_messages_platform_id", table, "platform_message_id, session_id", has_id)


def _of_schedules() -> None:
    _index("ix_cron_schedules_due", "cron_schedules", "next_run_at, name, target", "next_run_at IS NOT NULL")
    _index("ix_cron_schedules_newest", "cron_schedules", "created_at, name")
    once = "scheduled_for IS NOT NULL"
    _index("uq_cron_fires_instant", "cron_fires", "cron_name, scheduled_for", once, unique=True)
    _index("ix_cron_fires_cron", "cron_fires", "cron_name, started_at, id")
    _index("ix_cron_fires_newest", "cron_fires", "started_at, id")
    _index("ix_cron_fires_running", "cron_fires", "cron_name, target, id", "status = 'running'")


def _of_the_journal() -> None:
    _index("ix_run_events_node", "run_events", "run_id, node_id, seq", "node_id IS NOT NULL")
    _index("ix_run_events_occurred", "run_events", "run_id, occurred_at")
    _index("uq_run_events_event_id", "run_events", "run_id, event_id", "event_id IS NOT NULL", unique=True)
    _index("ix_run_signals_name", "run_signals", "run_id, signal_name, correlation_id, received_at")
    _index("ix_run_signals_pending", "run_signals", "run_id, signal_name, seq", "consumed_at IS NULL")
    _index("uq_run_signals_consumer", "run_signals", "run_id, consumed_by", "consumed_by IS NOT NULL", unique=True)
    _index("uq_run_signals_signal_id", "run_signals", "run_id, signal_id", "signal_id IS NOT NULL", unique=True)
    _index("ix_run_frames_anchors", "run_frames", "run_id, frame_no", "encoding <> 'delta'")
    _index("ix_tool_calls_execution", "tool_calls", "execution_id", "execution_id IS NOT NULL")
    _index("ix_tool_calls_open", "tool_calls", "run_id, seq", "finished_at IS NULL")
    _index("ix_tool_calls_task", "tool_calls", "run_id, node_id, iteration, attempt, seq")
    _index("uq_tool_calls_call_id", "tool_calls", "run_id, call_id", "call_id IS NOT NULL", unique=True)
    _index("ix_sandboxes_newest", "sandboxes", "updated_at, run_id, sandbox_id")
    _index("ix_sandboxes_status", "sandboxes", "status, updated_at, run_id, sandbox_id")
    _index("ix_sandboxes_run", "sandboxes", "run_id, updated_at, sandbox_id")
    _index("ix_scores_newest", "scores", "scored_at, id")
    _index("ix_scores_run", "scores", "run_id, scored_at, id")
    _index("ix_scores_scorer", "scores", "scorer_id, scored_at, id")
    _index(
        "uq_scores_current",
        "scores",
        "run_id, node_id, iteration, attempt, scorer_id, source",
        "superseded_at IS NULL",
        unique=True,
    )


def _of_the_cache() -> None:
    _index("ix_output_cache_node", "output_cache", "workflow_name, node_id, created_at, cache_key")
    _index("ix_output_cache_newest", "output_cache", "created_at, cache_key")
    _index("ix_output_cache_expiry", "output_cache", "expires_at", "expires_at IS NOT NULL")


def _of_conversations() -> None:
    _index("ix_messages_newest", "messages", "created_at, id")
    for name in ("sender", "recipient", "channel"):
        _index(f"ix_messages_{name}", "messages", f"{name}, created_at, id", f"{name} IS NOT NULL")
    _index("ix_progression_links_message", "progression_links", "message_id, progression_id")
    _index("ix_sessions_agent_session", "sessions", "agent_session_id", "agent_session_id IS NOT NULL")
    _index("ix_sessions_first_msg", "sessions", "first_msg_id", "first_msg_id IS NOT NULL")
    _index("ix_sessions_last_msg", "sessions", "last_msg_id", "last_msg_id IS NOT NULL")
    _index("ix_sessions_newest", "sessions", "updated_at, id")
    _index("ix_sessions_playbook", "sessions", "playbook_name, updated_at", "playbook_name IS NOT NULL")
    _index("ix_sessions_progression", "sessions", "progression_id")
    _index("ix_sessions_project", "sessions", "project, updated_at", "project IS NOT NULL")
    _index("ix_sessions_running", "sessions", "last_message_at", "status = 'running'")
    _index("ix_sessions_show", "sessions", "show_topic, show_play_name", "show_topic IS NOT NULL")
    _index("ix_sessions_user", "sessions", "user, updated_at", '"user" IS NOT NULL')
    _index("ix_sessions_status", "sessions", "status, updated_at, id")
    _index("ix_sessions_workflow_run", "sessions", "workflow_run_id", "workflow_run_id IS NOT NULL")
    _index("ix_branches_parent", "branches", "parent_branch_id", "parent_branch_id IS NOT NULL")
    _index("ix_branches_progression", "branches", "progression_id")
    _index("ix_branches_session", "branches", "session_id, created_at, id")
    _index("ix_branches_system_msg", "branches", "system_msg_id", "system_msg_id IS NOT NULL")
    _index("ix_session_transitions_newest", "session_transitions", "created_at, id")
    _index("ix_messages_embedded", "messages", "id", "embedding IS NOT NULL")
    _index("ix_vectors_document", "vectors", "namespace, document_id, chunk_index, id", "document_id IS NOT NULL")
    _index("ix_exchange_deliveries_open", "exchange_deliveries", "owner, ord", "acked_at IS NULL")
    _index("ix_exchange_deliveries_message", "exchange_deliveries", "message_id, owner")


def _of_checkpoints() -> None:
    _index("ix_checkpoint_threads_newest", "checkpoint_threads", "updated_at, id")
    _index("ix_checkpoint_threads_expiry", "checkpoint_threads", "expires_at", "expires_at IS NOT NULL")
    _index("ix_checkpoints_namespace", "checkpoints", "thread_id, namespace, seq")
    _index("uq_checkpoints_seq", "checkpoints", "thread_id, seq", unique=True)
    _index("ix_checkpoints_run", "checkpoints", "run_ref, thread_id", "run_ref IS NOT NULL")
    by_number = "thread_id, namespace, channel, number"
    _index("uq_checkpoint_values_number", "checkpoint_values", by_number, "encoding <> 'same'", unique=True)


def _covering_lists_of_live_runs() -> None:
    _index(
        "ix_workflow_runs_live",
        "workflow_runs",
        "id, status, workflow_name, trigger_id, started_at, transition_seq, restart_count, max_restarts, "
        "claim_owner, claim_epoch, previous_owner, heartbeat_at, lease_expires_at, wake_at, pause_reason, waiting_for, "
        "correlation_id, cancel_requested_at, deadline_at, queued_at, workflow_path, workflow_hash, vcs_type, "
        "vcs_root, vcs_revision, app_version, trace_id, span_id",
        "status NOT IN ('succeeded', 'failed', 'cancelled')",
    )


def _covering_lists_of_questions() -> None:
    asked = (
        "created_at, id, workflow_run_id, gate, kind, requested_by, artifact, node_id, iteration, on_reject, "
        "blocks_run, expires_at, action_digest"
    )
    shown = [*_columns(asked), _preview("summary"), _short("action")]
    _index("ix_approvals_asked", "workflow_approvals", shown, "status = 'pending'")
    of_run = (
        "run_id, requested_at, id, status, node_id, iteration, kind, blocks_run, on_expiry, expires_at, "
        "closed_reason, reopened, answered_at, answered_by"
    )
    _index("ix_human_requests_summary", "human_requests", [*_columns(of_run), _preview("prompt")])
    asked = (
        "requested_at, id, run_id, node_id, iteration, kind, blocks_run, on_expiry, expires_at, closed_reason, reopened"
    )
    shown = [*_columns(asked), _preview("prompt"), _short("options")]
    _index("ix_human_requests_asked", "human_requests", shown, "status = 'pending'")
    said = _columns("session_id, id, role, timestamp, platform_message_id")
    content = ["substr(content, 1, 280)", "length(content)"]
    _index("ix_messaging_messages_large", "messaging_messages", [*said, *content], "length(content) > 2000")


def _preview(column: str) -> str:
    return f"substr({column}, 1, 500)"


def _short(column: str) -> str:
    return f"CASE WHEN (length(CAST({column} AS TEXT)) <= 2000) THEN {column} END"


# Helpers.


def _add(table: str, *columns: tuple[str, Any]) -> None:
    for name, kind in columns:
        op.add_column(table, sa.Column(name, kind))


def _count(name: str, start: int) -> sa.Column[Any]:
    return sa.Column(name, INTEGER, server_default=sa.text(str(start)), nullable=False)


def _refers(table: str, column: str, to: str, **options: Any) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [to], name=f"fk_{table}_{column}", **options)


def _columns(given: str) -> list[str]:
    return given.split(", ")


def _index(
    name: str,
    table: str,
    columns: str | list[str],
    where: str | None = None,
    on_postgres: str | None = None,
    *,
    unique: bool = False,
) -> None:
    """Columns without a comma of their own may be given as one text; the predicate may differ on Postgres."""
    given = _columns(columns) if isinstance(columns, str) else columns
    keys = [sa.text(column) if " " in column or "(" in column else column for column in given]
    predicates = {"sqlite_where": where, "postgresql_where": on_postgres or where}
    partial: dict[str, Any] = {option: sa.text(text) for option, text in predicates.items() if text}
    op.create_index(name, table, keys, unique=unique, **partial)
