"""What belongs to others stays to the byte where messages are emptied, people are erased and records are pruned."""

from __future__ import annotations

from typing import Any

from support.conversations.talk import said
from support.maintenance.people import shared_place

from lastlight_state.conversations import NewBranch, NewChunk, NewMessage, NewSession, Reason
from lastlight_state.maintenance import PrunePolicy, RedactPolicy
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database
from lastlight_state.workflows import ExecutionOptions, RunOptions, Trigger
from lastlight_state.workflows.arguments import Failure

#: What tells of the work itself.
OWN = {"maintenance_receipts", "tombstones"}
#: What tells on SQLite that a namespace has changed.
TAG = "content_tag"


def test_an_erasure_changes_no_row_that_is_not_the_persons(store: Any, database: Database) -> None:
    """maintenance OP-77: names, metadata, texts and times of others among them."""
    talks = database.open()
    own, chat = shared_place(talks)
    for name in ("bob", "cy"):
        _lives(talks, name)
    _execution(talks, "agent-1")
    before = _rows(database)
    store.maintenance.erase.run("ana")
    assert _changed(before, _rows(database)) == {
        "branches": {"own"},
        "executions": {"agent-1"},
        "messages": {"a", "sender", "recipient"},
        "messaging_messages": {key for key, row in before["messaging_messages"].items() if chat in row},
        "messaging_sessions": {chat},
        "sessions": {own},
    }


def test_a_redaction_changes_no_message_but_those_that_it_names(store: Any, database: Database) -> None:
    """maintenance OP-32."""
    talks = database.open()
    for name in ("bob", "cy"):
        _lives(talks, name)
    before = _rows(database)
    store.maintenance.redact.run(RedactPolicy(message_ids=["of bob"]))
    assert _changed(before, _rows(database)) == {"messages": {"of bob"}, "vectors": {"texts of bob"}}


def test_a_prune_changes_no_row_that_it_leaves(store: Any, database: Database) -> None:
    """maintenance OP-26, OP-29: of what was shared with a record that goes."""
    talks = database.open()
    for name in ("bob", "cy"):
        _lives(talks, name)
    database.clock.advance(seconds=31 * 86_400)
    talks.conversations.branches.append("cy", ["of bob", *said("new")])
    for key in ("old", "young"):
        talks.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id=key))
    before = _rows(database)
    for kind in ("sessions", "executions", "messaging"):
        store.maintenance.prune.run(PrunePolicy(kind, keep_n=0, ids=["bob"] if kind == "sessions" else None))
    after = _rows(database)
    left = {table: rows.keys() & after[table].keys() for table, rows in before.items()}
    assert {
        table for table, keys in left.items() if any(before[table][key] != after[table][key] for key in keys)
    } == set()
    assert {"cy", "of bob", "new"} <= {key for table in ("sessions", "messages") for key in after[table]}


def _lives(store: Any, name: str) -> None:
    """A person with something in every column that could be emptied."""
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
    _execution(store, name)


def _execution(store: Any, key: str) -> None:
    executions = store.workflows.executions
    executions.start("chat", session_id=key, trigger=Trigger("t"), options=ExecutionOptions(id=key, details={"k": key}))
    executions.save_output(key, "x")
    executions.finish(key, "failed", failure=Failure("x", {"k": key}))


def _rows(database: Database) -> dict[str, dict[str, tuple[Any, ...]]]:
    """All rows by their keys, of every table that others' rows could be lost or changed in."""
    raw = database.raw()
    found: dict[str, dict[str, tuple[Any, ...]]] = {}
    for name, table in METADATA.tables.items():
        if name not in OWN:
            keys = [list(table.columns).index(column) for column in table.primary_key]
            columns = ", ".join(f'"{column.name}"' for column in table.columns if column.name != TAG)
            rows = [tuple(row) for row in raw.execute(f"SELECT {columns} FROM {name}").fetchall()]
            found[name] = {" ".join(str(row[at]) for at in keys): row for row in rows}
    return found


def _changed(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> dict[str, set[str]]:
    """The keys of the rows that are gone, new or not as they were, by table."""
    told = {
        table: {key for key in rows.keys() | after[table].keys() if rows.get(key) != after[table].get(key)}
        for table, rows in before.items()
    }
    return {table: keys for table, keys in told.items() if keys}
