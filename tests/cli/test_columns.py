"""Columns of tables: words stand at the left, and numbers at the right."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

from lastlight_state import cli
from lastlight_state.cli.screen import Column

#: The titles under which numbers stand; and the columns where some do, of a title that names something else elsewhere.
NUMBERS = """
    ATTEMPT BEHIND BRANCHES BYTES COST COUNT DISPATCHED INBOUND IS ITERATION LINE MESSAGES MS NUMBER OFFSET OUTBOUND
    MUST_BE RESTARTS_LEFT RECORDS ROWS SCORE SECONDS SECTIONS SEQ TURNS
""".split()
NUMBERS_HERE = {
    "demo.command.MESSAGES ID",
    "views.kinds.MESSAGES ID",
    "views.kinds.INPUTS REVISION",
    "views.kinds.BRANCHES AT",
    "commands.usage.SUMS EXECUTIONS",
    "commands.usage.SUMS TOKENS",
    "commands.usage.SUMS IN",
    "commands.usage.SUMS OUT",
    "views.attention.WAITING_WORKFLOWS RUNS",
    "views.run_kinds.WAITING_WORKFLOWS RUNS",
    "views.run_kinds.WORKERS PID",
    "views.run_kinds.WORKERS SLOTS",
}
#: The same for ids, names that are ids, and times, of which a part is of no use.
WHOLE = """
    AFTER ASKED AT CREATED DUE EXPIRES FAILED FOR GIVEN GROUP HEARTBEAT ID KEY LAST_SIGN MESSAGE NEXT NUMBER OF PARENT
    RECEIVED REVISION RUN SCORED SEEN SEQ SESSION SINCE STARTED UPDATED WRITTEN
""".split()
WHOLE_HERE = {
    "commands.backup.FILES FILE",
    "commands.import.KEPT UNIT",
    "commands.repair.FILES FILE",
    "commands.run_log.FINDINGS CODE",
    "commands.tenants.LISTED NAME",
    "commands.tenants.FAILED NAME",
    "views.kinds.CRONS LAST",
    "views.kinds.CRONS NAME",
    "views.kinds.CACHE STORED",
    "views.kinds.OUTPUTS TABLE",
    "views.kinds.ROWS NODE",
    "views.run_kinds.APPROVALS ANSWERED",
    "views.run_kinds.ASKED ANSWERED",
    "views.run_kinds.NODES NODE",
    "views.kinds.TRANSITIONS BRANCH",
    "commands.usage.SUMS COST",
    "views.run_kinds.WORKERS NAME",
}
CUT_HERE = {"views.kinds.BRANCHES AT"}


def _columns() -> Iterator[tuple[str, Column[Any]]]:
    for module in walk_packages(cli.__path__, f"{cli.__name__}."):
        if not module.name.endswith("__main__"):
            for name, value in vars(import_module(module.name)).items():
                for column in value if isinstance(value, tuple) else ():
                    if isinstance(column, Column):
                        place = ".".join(module.name.split(".")[-2:])
                        yield f"{place}.{name} {column.title}", column


def _among(titles: list[str], here: set[str]) -> set[str]:
    return {name for name, column in _columns() if column.title.replace(" ", "_") in titles or name in here}


def test_numbers_stand_at_the_right_of_their_column_and_all_else_at_the_left() -> None:
    """maintenance OP-71."""
    found = dict(_columns())
    assert len(found) > 200
    assert {name for name, column in found.items() if column.right} == _among(NUMBERS, NUMBERS_HERE)


def test_ids_and_times_are_never_cut() -> None:
    """maintenance OP-71: an id may be shortened, as far as it stays one."""
    assert {name for name, column in _columns() if column.keep or column.is_id} == _among(WHOLE, WHOLE_HERE) - CUT_HERE
