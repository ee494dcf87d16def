"""Models that tests of outputs define, and a run to write for."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger


class Analysis(BaseModel):
    """What a task found."""

    summary: str
    severity: Literal["low", "medium", "high"] = "low"


class Grown(BaseModel):
    """What a task found, with one more field."""

    summary: str
    severity: Literal["low", "medium", "high"] = "low"
    score: int | None = None


class Flags(BaseModel):
    """Truth values and a number that could be taken for one."""

    yes: bool | None = None
    no: bool | None = None
    unknown: bool | None = None
    count: int = 1


def a_run(store: Any) -> str:
    """The id of a new run."""
    run_id: str = store.workflows.runs.create("audit", trigger=Trigger(type="cli", id="t"), phase="start").id
    return run_id


def no_time(database: Database) -> str:
    """What a column of times may hold and nobody can read, as SQL."""
    return "'soon'" if database.name == "sqlite" else "'infinity'"
