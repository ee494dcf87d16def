"""What plain SQL could still do to rows that nobody may delete or replace.

On SQLite a statement with OR REPLACE deletes the row that has the new key, and fires no delete trigger for it. Adds the
guards against that to every append-only table, guards against deletion to run_nodes, run_loops and cron_schedules, and
a guard of the limit of restarts.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

INTEGER = sa.Integer().with_variant(sa.BigInteger(), "postgresql")

_APPEND_ONLY = ("run_nodes", "run_loops", "cron_schedules")

# Tables whose rows never change: an update of one is refused by an earlier guard.
_ROWS_STAY = ("run_transitions", "messaging_messages", "run_events", "run_frames", "run_inputs", "output_history")

# Of the others the keys that an update may change: columns, and the rows among which they are unique.
_KEYS: dict[str, tuple[tuple[str, tuple[str, str] | None], ...]] = {
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
}

# The policy of the statement that fires a trigger replaces that of the trigger's own statements. So this inserts
# nothing, unless the firing statement replaces rows: then the default is stored instead of NULL.
_PROBE = "INSERT OR IGNORE INTO maintenance_permits (receipt_id, probe) VALUES ('replace', NULL)"
_PROBED = "EXISTS (SELECT 1 FROM maintenance_permits WHERE receipt_id = 'replace')"

_LIMIT = "NEW.max_restarts < 0 OR NEW.max_restarts > 100"
_LIMITED = "max_restarts must be 0 to 100"
_EVENTS = (("insert", "INSERT"), ("update", "UPDATE OF max_restarts"))


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


def _keys_stay(table: str) -> str:
    keys = _KEYS[table]
    named = dict.fromkeys(name for columns, among in keys for name in [*columns.split(), *(among or ())[:1]])
    of = ", ".join(["rowid", "_rowid_", "oid", *named])
    when = " OR ".join(["NEW.rowid <> OLD.rowid", *(f"({_taken(table, *key)})" for key in keys)])
    return (
        f"CREATE TRIGGER {table}_keys_stay BEFORE UPDATE OF {of} ON {table} FOR EACH ROW "
        f"WHEN {when} BEGIN {_refuse_replacing(table)}; END"
    )


def _refuse_replacing(table: str) -> str:
    return f"{_PROBE}; SELECT RAISE(ABORT, 'rows of {table} are never replaced') WHERE {_PROBED}"


def _sqlite() -> Iterator[str]:
    for table in _APPEND_ONLY:
        yield (
            f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} FOR EACH ROW "
            "WHEN NOT EXISTS (SELECT 1 FROM maintenance_permits) "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )
    for name, event in _EVENTS:
        yield (
            f"CREATE TRIGGER workflow_runs_restart_limit_{name} BEFORE {event} ON workflow_runs FOR EACH ROW "
            f"WHEN {_LIMIT} BEGIN SELECT RAISE(ABORT, '{_LIMITED}'); END"
        )
    for table in (*_ROWS_STAY, *_KEYS):
        yield (
            f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} FOR EACH ROW "
            f"BEGIN {_refuse_replacing(table)}; END"
        )
    for table in _KEYS:
        yield _keys_stay(table)


def _postgres() -> Iterator[str]:
    for table in _APPEND_ONLY:
        for event, each in (("delete", "ROW"), ("truncate", "STATEMENT")):
            yield (
                f"CREATE TRIGGER {table}_no_{event} BEFORE {event.upper()} ON {table} FOR EACH {each} "
                f"EXECUTE FUNCTION lastlight_refuse_unless_permitted('{table} is append-only', 'any')"
            )
    for name, event in _EVENTS:
        yield (
            f"CREATE TRIGGER workflow_runs_restart_limit_{name} BEFORE {event} ON workflow_runs FOR EACH ROW "
            f"WHEN ({_LIMIT}) EXECUTE FUNCTION lastlight_refuse('{_LIMITED}')"
        )


SQLITE = tuple(_sqlite())
POSTGRES = tuple(_postgres())
additive_sql = SQLITE + POSTGRES


def upgrade() -> None:
    probe = sa.Column("probe", INTEGER, server_default=sa.text("0"), nullable=False)
    op.add_column("maintenance_permits", probe)
    for statement in POSTGRES if op.get_context().dialect.name == "postgresql" else SQLITE:
        op.execute(statement)
