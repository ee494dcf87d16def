"""What lists read of the rows themselves, where large values lie inside the rows (SQLite)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from support.filled_store import scene
from support.sent import recorded
from support.shown import bundles, lists
from support.workflows.steps import Raw

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

#: Lists that show what is large: the values are what they are asked for.
CONTENT = {"events", "signals", "outputs with content", "output history"}


@pytest.fixture
def filled(sqlite_database: Database) -> Database:
    scene(sqlite_database)
    return sqlite_database


def test_no_list_reads_behind_a_large_value(filled: Database) -> None:
    """workflows W-100: what stands behind one is read from indexes, in all statements of a list."""
    raw = Raw(filled)
    found = {}
    with recorded(filled) as (store, sent):
        for name, (listed, _) in {**lists(store), "taken": bundles(store)["taken"]}.items():
            listed()  # questions that are overdue are expired by it
            sent.clear()
            listed()
            found[name] = {one for text in sent for one in behind(raw, text)}
    assert {name: columns for name, columns in found.items() if columns and name not in CONTENT} == {}


def behind(raw: Raw, text: str) -> Iterator[str]:
    """The columns that a SELECT takes from rows, and not from an index, at or behind the first large one."""
    if not re.match(r"SELECT|WITH", text):
        return
    code = raw(f"EXPLAIN {text}", *[None] * text.count("?"))
    for table, large in LARGE.items():
        [(root,)] = raw("SELECT rootpage FROM sqlite_master WHERE name = ?", table)
        names = [row[1] for row in raw(f"PRAGMA table_info({table})")]
        cursors = {step[2] for step in code if step[1] == "OpenRead" and step[3] == root}
        read = {step[3] for step in code if step[1] == "Column" and step[2] in cursors}
        yield from (f"{table}.{names[at]}" for at in sorted(read) if at >= names.index(large))
