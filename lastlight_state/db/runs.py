"""The row of a run, as domains meet it that hang rows on runs and know nothing of the domain of runs.

Whether the run *exists* is the database's to say: each of their tables has the foreign key of `run_id_column`, which
refuses a row of an unknown run in the statement that writes it, and `of_known_run` raises that as `NotFound`. So there
is no look beforehand, and nothing that could change between a look and the write.

Who *holds* the run, and its status, they do not look at. A write that only the holder may make is made in
``store.transaction(claim=...)`` or ``store.run(..., claim=...)``: both confirm the claim first, with a lock that keeps
it from changing hands until the commit, so that all writes of the block are the holder's, or none is made.
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

#: The topic of `lastlight_state.db.news.listeners` for runs that have ended. Callbacks get their record.
TERMINAL_TOPIC = "run.terminal"

#: Locks a run before a signal for it is stored, and returns what wakes the run if it waits for this signal.
#: Called with the unit, the run's id, the signal's name and correlation id, and the time.
Waking = Callable[[Unit, str, str, str | None, datetime], Callable[[], object] | None]

#: What `NotFound` calls a run.
RUN = "workflow_run"


def run_id_column(**options: Any) -> MappedColumn[str]:
    """Return the column of a model that says which run a row belongs to: a foreign key, without a cascade."""
    return text_column(256, ForeignKey("workflow_runs.id"), personal=False, **options)


def of_known_run(run_id: str, write: Callable[[], T]) -> T:
    """Return what ``write`` returns, whose only foreign keys are of this run. Raises `NotFound` for an unknown run."""
    try:
        return write()
    except Conflict as error:
        refuse_unknown_run(run_id, error)
        raise


def refuse_unknown_run(run_id: str, error: Conflict) -> None:
    """Raise `NotFound` where the error says that a row of this run was refused because there is no such run."""
    if error.code == "foreign_key":
        raise valid.not_found(RUN, run_id) from error
