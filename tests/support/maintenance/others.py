"""Rows of people in every column that maintenance could empty, and which of them a call has changed."""

from __future__ import annotations

from typing import Any

from lastlight_state.conversations import NewBranch, NewChunk, NewMessage, NewSession, Reason
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database
from lastlight_state.workflows import ExecutionOptions, Trigger
from lastlight_state.workflows.arguments import Failure

#: What tells of the work itself.
OWN = {"maintenance_receipts", "tombstones"}
#: What tells on SQLite that a namespace has changed.
TAG = "content_tag"


def fill_life(store: Any, name: str) -> None:
    """Make a person with something in every column that could be emptied."""
    c, more = store.conversations, {"k": name}
    c.sessions.create(
        NewSession(name, name, user=name, status="running", node_metadata=more, extra=more, agent_session_id=name)
    )
    c.branches.create(name, NewBranch(id=name, name=name, user=name, node_metadata=more, extra=more))
    message = NewMessage("user", "x", id=f"of {name}", sender=name, recipient=name, node_metadata=more, extra=more)
    c.branches.append(name, [message])
    c.lifecycle.transition(name, "failed", reason=Reason("run.failed.exit_code", "s", actor=name, evidence=more))
    c.exchange.send(NewMessage("user", "x", id=f"to {name}", sender=name), to=[name, "other"])
    c.exchange.take(name, reader=name)
    c.exchange.ack(name, 0, reader=name)
    c.exchange.join("news", name)
    c.vectors.put("texts", [NewChunk(f"of {name}", "x", [1.0])])
    run_execution(store, name)


def run_execution(store: Any, key: str) -> None:
    executions = store.workflows.executions
    executions.start("chat", session_id=key, trigger=Trigger("t"), options=ExecutionOptions(id=key, details={"k": key}))
    executions.save_output(key, "x")
    executions.finish(key, "failed", failure=Failure("x", {"k": key}))


def rows_by_key(database: Database) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Return all rows by their keys, of every table that others' rows could be lost or changed in."""
    raw = database.raw()
    found: dict[str, dict[str, tuple[Any, ...]]] = {}
    for name, table in METADATA.tables.items():
        if name not in OWN:
            keys = [list(table.columns).index(column) for column in table.primary_key]
            columns = ", ".join(f'"{column.name}"' for column in table.columns if column.name != TAG)
            rows = [tuple(row) for row in raw.execute(f"SELECT {columns} FROM {name}").fetchall()]
            found[name] = {" ".join(str(row[at]) for at in keys): row for row in rows}
    return found


def changed_keys(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> dict[str, set[str]]:
    """Return the keys of the rows that are gone, new or not as they were, by table."""
    told = {
        table: {key for key in rows.keys() | after[table].keys() if rows.get(key) != after[table].get(key)}
        for table, rows in before.items()
    }
    return {table: keys for table, keys in told.items() if keys}
