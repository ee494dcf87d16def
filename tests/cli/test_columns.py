"""Columns of tables: words stand at the left, and numbers at the right."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages

from lastlight_state import cli
from lastlight_state.cli.screen import Column

#: The titles under which numbers stand; and those tables where others do, which name something else elsewhere.
NUMBERS = """
    ATTEMPT BEHIND BRANCHES BYTES COST COUNT DISPATCHED INBOUND IS ITERATION LINE MESSAGES MS NUMBER OFFSET OUTBOUND
    MUST_BE RECORDS ROWS SCORE SECONDS SECTIONS SEQ TURNS
""".split()
ALSO = {"MESSAGES ID", "INPUTS REVISION", "BRANCHES AT"}


def _columns() -> Iterator[tuple[str, Column]]:
    for module in walk_packages(cli.__path__, f"{cli.__name__}."):
        if not module.name.endswith("__main__"):
            for name, value in vars(import_module(module.name)).items():
                for column in value if isinstance(value, tuple) else ():
                    if isinstance(column, Column):
                        yield f"{module.name}.{name} {column.title}", column


def _holds_numbers(name: str, column: Column) -> bool:
    return column.title.replace(" ", "_") in NUMBERS or name.rpartition(".")[2] in ALSO


def test_numbers_stand_at_the_right_of_their_column_and_all_else_at_the_left() -> None:
    """maintenance OP-71."""
    found = dict(_columns())
    assert len(found) > 200
    assert [name for name, column in found.items() if column.right != _holds_numbers(name, column)] == []
