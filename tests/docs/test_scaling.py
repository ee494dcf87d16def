"""The page on scaling and the schema."""

from __future__ import annotations

import ast
from pathlib import Path

import sqlalchemy as sa
from support.each import with_each

from lastlight_state.migrations.metadata import METADATA

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/scaling.md").read_text("utf-8")
#: The columns that name what a row is a part of.
PARENTS = ("run_id", "workflow_run_id", "session_id", "progression_id", "owner", "namespace", "cron_name")
#: Tables whose rows are parts of nothing: a column of these names says something else there.
ALONE = ("workflow_runs", "sessions", "maintenance_receipts")


def _unique_keys(table: sa.Table) -> list[set[str]]:
    uniques = [part for part in table.constraints if isinstance(part, (sa.UniqueConstraint, sa.PrimaryKeyConstraint))]
    keys = [{column.name for column in part.columns} for part in uniques]
    return keys + [{column.name for column in index.columns} for index in table.indexes if index.unique]


@with_each("table", METADATA.sorted_tables, ids=lambda table: table.name)
def test_a_table_whose_unique_keys_lack_its_parent_is_named(table: sa.Table) -> None:
    parents = [name for name in PARENTS if name in table.columns and table.name not in ALONE]
    lacks = any(not key.intersection(parents) for key in _unique_keys(table)) if parents else False
    assert not lacks or f"`{table.name}`" in PAGE


def test_every_lock_that_is_taken_by_name_is_named() -> None:
    for file in (ROOT / "lastlight_state").rglob("*.py"):
        text = file.read_text("utf-8")
        if "named_lock(" not in text or file.name == "unit.py":
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "named_lock":
                assert _begin(node.args[-1], text) in PAGE, file


def _begin(argument: ast.expr, text: str) -> str:
    """Return the first words of a lock's name: a text, the beginning of a formatted text, or a constant's value."""
    if isinstance(argument, ast.JoinedStr):
        argument = argument.values[0]
    if isinstance(argument, ast.Constant):
        return f"`{argument.value!s}"
    name = ast.unparse(argument).rpartition(".")[2]
    return next((f"`{line.split(chr(34))[1]}" for line in text.splitlines() if line.startswith(f"{name} = ")), "")
