"""What lists read of the rows themselves, where large values lie inside the rows (SQLite)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from support.bytes_read import bytes_read
from support.filled_store import scene
from support.sent import recorded
from support.shown import bundles, lists
from support.workflows.steps import Raw

from lastlight_state.messaging import ConversationKey
from lastlight_state.messaging.message_statements import SUMMARIES_BEFORE
from lastlight_state.testing import Database

#: The first column of each table that may be large. SQLite reads those before it without walking the value.
LARGE = {
    "workflow_runs": "phase_history",
    "executions": "output_text",
    "workflow_approvals": "summary",
    "human_requests": "prompt",
    "messaging_sessions": "metadata",
    "messaging_messages": "content",
    "cron_schedules": "error_json",
    "cron_fires": "error_json",
    "run_frames": "mounted_task_ids",
    "tool_calls": "input",
    "sandboxes": "config",
    "scores": "meta",
    "run_inputs": "payload",
    "output_tables": "json_schema",
    "output_cache": "payload",
}

#: Tables whose rows are read only where this index does not hold them: it holds those with large values.
SMALL_ALONE = {"messaging_messages": "ix_messaging_messages_large"}

#: Lists that show what is large: the values are what they are asked for.
CONTENT = {"events", "signals", "outputs with content", "output history"}

#: What these read in the rows of running runs without a lease, and of no others: an index with that column would be
#: written by each phase (docs/decisions/covering-indexes.md).
WITHOUT_LEASE = {name: {"workflow_runs.updated_at"} for name in ("claimable", "taken", "unhealthy")}


@pytest.fixture
def filled(sqlite_database: Database) -> Database:
    scene(sqlite_database)
    return sqlite_database


def test_no_list_reads_behind_a_large_value(filled: Database) -> None:
    """workflows W-100: what stands behind one is read from indexes, in all statements of a list.

    A column that a later revision adds is shown from a companion (docs/contributing.md, "A new column").
    """
    raw = Raw(filled)
    found = {}
    with recorded(filled) as (store, sent):
        for name, (listed, _) in {**lists(store), "taken": bundles(store)["taken"]}.items():
            listed()  # questions that are overdue are expired by it
            sent.clear()
            listed()
            found[name] = {one for text in sent for one in behind(raw, text)}
    assert {name: columns for name, columns in found.items() if columns and name not in CONTENT} == WITHOUT_LEASE


def test_messages_of_a_megabyte_are_listed_without_being_read(sqlite_database: Database) -> None:
    """messaging M-79: what SQLite reads for a page of ten, with no cache to speak of."""
    store = sqlite_database.open()
    session = store.messaging.sessions.resume(ConversationKey("slack", "C1", "U1")).session.id
    for at in range(30):
        store.messaging.messages.append(session, role="user", content="x" * (2**20 if at % 3 else 20))
    listed = store.messaging.messages.list(session, limit=10)
    assert [found.content_chars for found in listed] == [2**20 if at % 3 else 20 for at in reversed(range(20, 30))]
    values = {"session_id": session, "before": 2**63 - 1, "limit": 11}
    compiled = SUMMARIES_BEFORE.on(store.backend)
    assert bytes_read(sqlite_database, compiled.sql, compiled.parameters(values)) < 2**18


def behind(raw: Raw, text: str) -> Iterator[str]:
    """The columns that a SELECT takes from rows, and not from an index, at or behind the first large one."""
    if not re.match(r"SELECT|WITH", text):
        return
    code = raw(f"EXPLAIN {text}", *[None] * text.count("?"))
    for table, large in LARGE.items():
        if f"AS same INDEXED BY {SMALL_ALONE.get(table)}" in text:
            continue
        [(root,)] = raw("SELECT rootpage FROM sqlite_master WHERE name = ?", table)
        names = [row[1] for row in raw(f"PRAGMA table_info({table})")]
        cursors = {step[2] for step in code if step[1] == "OpenRead" and step[3] == root}
        read = {step[3] for step in code if step[1] == "Column" and step[2] in cursors}
        yield from (f"{table}.{names[at]}" for at in sorted(read) if at >= names.index(large))
