"""The foreign key to runs, for domains whose rows belong to a run but which do not import the domain of runs.

The database checks that the run *exists*: each of these tables has the foreign key of `run_id_column`. It refuses a row
of an unknown run in the statement that writes the row, and `of_known_run` raises that as `NotFound`. So no query is
needed before the write, and nothing can change in between.

These domains check neither who *holds* the run nor its status. A write that only the holder may make belongs in
``store.transaction(claim=...)`` or ``store.run(..., claim=...)``. Both confirm the claim first, with a lock that keeps
other processes from taking the run until the commit. So either all writes of the block are made by the holder, or none
is made.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import ForeignKey
from sqlalchemy.orm import MappedColumn

from lastlight_state.db import valid
from lastlight_state.db.schema.declarations import text_column
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict

T = TypeVar("T")

#: The topic of `lastlight_state.db.news.listeners` for runs that have ended. Callbacks get the run's record.
TERMINAL_TOPIC = "run.terminal"

#: A function that locks a run before a signal for the run is stored. It returns a function that wakes the run, or None
#: if the run does not wait for this signal. Its arguments are the unit, the run's id, the signal's name and correlation
#: id, and the time.
Waking = Callable[[Unit, str, str, str | None, datetime], Callable[[], object] | None]

#: The name of a run in `NotFound` errors.
RUN = "workflow_run"


def run_id_column(**options: Any) -> MappedColumn[str]:
    """Return a column for the id of the run that a row belongs to: a foreign key, without a cascade."""
    return text_column(256, ForeignKey("workflow_runs.id"), personal=False, **options)


def of_known_run(run_id: str, write: Callable[[], T]) -> T:
    """Return the result of ``write``, whose foreign keys all refer to this run. Raises `NotFound` if it is unknown."""
    try:
        return write()
    except Conflict as error:
        refuse_unknown_run(run_id, error)
        raise


def refuse_unknown_run(run_id: str, error: Conflict) -> None:
    """Raise `NotFound` if the error means that the database refused a row because its run does not exist."""
    if error.code == "foreign_key":
        raise valid.not_found(RUN, run_id) from error
