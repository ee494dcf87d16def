"""Columns that refer to rows: each has a foreign key, or a reason that a page gives why it stays open."""

from __future__ import annotations

import re
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.orm import configure_mappers
from support.each import with_each

from lastlight_state import models
from lastlight_state.migrations.metadata import METADATA

PAGE = Path(__file__).parents[2] / "docs" / "decisions" / "words-and-references.md"
#: How names of columns end that refer to something.
ENDS = ("_id", "_ids", "_ref", "_key", "_name")

#: Columns that name something which has no row here, in any table: of a workflow's author, or of another system.
OUTSIDE = frozenset(
    "agent_name agent_session_id call_id channel_id container_id correlation_id document_id event_id loop_id node_id "
    "output_ref platform_message_id playbook_name remote_run_id scorer_id scorer_name show_play_name signal_id "
    "signal_name span_id thread_id tool_name trace_id trigger_id user_id workflow_name workspace_id".split()
)
#: The same in one table, where another table has rows of that name; and keys of the row itself.
OF_ITS_OWN = frozenset(
    [
        "copy_progress.last_key",  # how far the copy is
        "executions.session_id",  # a line file
        "import_ledger.source_key",
        "message_types.type_id",
        "output_cache.cache_key",
        "output_tables.table_name",
        "run_frames.mounted_task_ids",  # nodes
        "sandboxes.sandbox_id",
        "workflow_approvals.request_key",
        "workflow_runs.run_key",
    ]
)


def opened() -> list[str]:
    """The columns that the page leaves open."""
    rows = PAGE.read_text("utf-8").partition("| reference |")[2].partition("\n\n")[0].splitlines()
    return [name for row in rows[2:] for name in re.findall(r"`([a-z_]+\.[a-z_]+)`", row.split("|")[1])]


def followed() -> set[str]:
    """The columns that relationships of the models follow."""
    configure_mappers()
    mappers = [getattr(models, name).__mapper__ for name in models.__all__ if name.endswith("Model")]
    pairs = [pair for mapper in mappers for relation in mapper.relationships for pair in relation.local_remote_pairs]
    return {str(column) for pair in pairs for column in pair if not column.primary_key or column.foreign_keys}


def refers(column: sa.Column[object]) -> bool:
    """True if the name of a column says that it refers to something outside its row."""
    return column.name.endswith(ENDS) and column.name not in OUTSIDE and str(column) not in OF_ITS_OWN


COLUMNS = {str(column): column for table in METADATA.sorted_tables for column in table.columns}


@with_each("name", sorted(followed() | {name for name, column in COLUMNS.items() if refers(column)}))
def test_a_column_that_refers_has_a_foreign_key_or_a_reason_to_stay_open(name: str) -> None:
    """house H-21: a new column of this kind comes with one of the two."""
    assert bool(COLUMNS[name].foreign_keys) is not (name in opened()), f"{name}: a foreign key, or a row in {PAGE.name}"


def test_what_the_page_leaves_open_is_there() -> None:
    """house H-21: each once."""
    assert sorted(opened()) == sorted(set(opened()) & COLUMNS.keys())


def test_names_of_things_outside_are_still_in_use() -> None:
    """An exception that nobody needs would hide the next column of that name."""
    assert {column.name for column in COLUMNS.values()} >= OUTSIDE
    assert COLUMNS.keys() >= OF_ITS_OWN
