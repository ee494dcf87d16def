"""Live runs where large values lie inside the rows: all that they are judged by stands in one index of SQLite."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.db.beside import Covering, Finding, Narrow, Other
from lastlight_state.db.indexes import Repeated, through
from lastlight_state.db.statements import constant
from lastlight_state.workflows.tables import RUNS
from lastlight_state.workflows.words import TERMINAL

#: The index, which is not there on Postgres.
LIVE = "ix_workflow_runs_live"

#: Repeats the predicate of the index.
NOT_ENDED: sa.ColumnElement[bool] = Repeated(RUNS.c.status.not_in([constant(word) for word in TERMINAL]))

#: The index by which they are found in a status, in the order of their start.
BY_LIVE_STATUS = Narrow("ix_workflow_runs_live_started", ("status",), only=NOT_ENDED)

#: The runs of a list of something else.
OF_OTHERS = Other(RUNS, LIVE)


def beside(statement: sa.Select[Any]) -> sa.Select[Any]:
    """The statement, reading live runs through the index on SQLite."""
    return through(statement, RUNS, LIVE).where(NOT_ENDED)


def covered(narrow: Narrow) -> Covering:
    """Return how live runs are read that are found by this index."""
    return Covering(LIVE, ("id",), {"": narrow}, only=NOT_ENDED)


def finding(narrow: Narrow) -> Finding:
    """The two sides of such a statement."""
    return Finding(covered(narrow), narrow, (RUNS.c.id,))
