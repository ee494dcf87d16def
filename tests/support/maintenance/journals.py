"""Runs with journals of some length, and what is left of them."""

from __future__ import annotations

from typing import Any

from support.journal.trees import element, text

from lastlight_state import StateStore
from lastlight_state.journal import NewEvent, NewScore, ToolOutcome
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import RunOptions

#: The column that tells the rows of a run apart, by table.
NUMBERS = {
    "run_events": "seq",
    "run_signals": "seq",
    "run_frames": "frame_no",
    "tool_calls": "seq",
    "scores": "scorer_id",
}


def tree(n: int) -> Any:
    """A tree of which little changes from one number to the next."""
    return element("plan", text(f"step {n}"), element("rest", text("it stays " * 20), id="rest"))


def journalled(store: StateStore, key: str, *, frames: int = 3, end: bool = True) -> None:
    """A run with four events, two signals, frames, two tool calls and two scores, which ended just now."""
    store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id=key))
    journal = store.journal
    journal.events.append_many(key, [NewEvent(f"e{n}", {"n": n}) for n in range(4)])
    for n in range(2):
        journal.signals.send(key, "go", {"n": n})
        call = journal.tool_calls.create(key, "grep", call_id=f"call-{n}")
        journal.tool_calls.finish(key, call.seq, ToolOutcome("succeeded"))
        journal.scores.record(NewScore(key, "n", f"s{n}", "Scorer", "live", 1.0))
    for n in range(frames):
        journal.frames.append(key, tree(n))
    if end:
        store.workflows.runs.finish(key, "succeeded")


def left(database: Database, key: str) -> dict[str, list[Any]]:
    """What is left of a run's journal, by table; tables of which nothing is left are missing."""
    found: dict[str, list[Any]] = {}
    for table, column in NUMBERS.items():
        rows = database.raw().execute(f"SELECT {column} FROM {table} WHERE run_id = '{key}' ORDER BY {column}")
        numbers = [row[0] for row in rows.fetchall()]
        if numbers:
            found[table] = numbers
    return found
