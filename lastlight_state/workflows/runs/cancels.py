"""How runs are cancelled: on request or at once, one run or its whole tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from lastlight_state.db import valid
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.unit import Unit
from lastlight_state.workflows import words
from lastlight_state.workflows.checks import Operator
from lastlight_state.workflows.kernel import rows, transitions
from lastlight_state.workflows.kernel.rows import LockedRun
from lastlight_state.workflows.kernel.transitions import Said
from lastlight_state.workflows.records import WorkflowRun
from lastlight_state.workflows.runs import statements as sql


@dataclass(frozen=True)
class Cancel:
    """The arguments of a cancel. With ``ask`` a running run is left to its holder, who sees the request."""

    run_id: str
    said: Operator
    at: datetime
    tree: bool
    ask: bool


def carry_out(unit: Unit, listeners: Listeners, cancel: Cancel) -> WorkflowRun:
    """Cancel the run, and with ``tree`` its live descendants."""
    cancelled: dict[str, WorkflowRun] = {}
    for run_id in _tree(unit, cancel.run_id) if cancel.tree else (cancel.run_id,):
        row = rows.lock(unit, run_id)
        if run_id == cancel.run_id or row["status"] in words.LIVE:
            cancelled[run_id] = _one(unit, listeners, row, cancel)
    if cancel.run_id not in cancelled:
        raise valid.not_found("workflow_run", cancel.run_id)
    return cancelled[cancel.run_id]


def _tree(unit: Unit, root: str) -> Iterator[str]:
    """Yield a run and its descendants by ascending id. The caller locks each before it asks for the next.

    Repeated until nothing new is found: a child may have been created while its parent's lock was awaited. The named
    lock lets one walk run at a time, because runs found late are locked out of order and could deadlock.
    """
    unit.named_lock("run_tree")
    seen: set[str] = set()
    while found := [row["id"] for row in unit.rows(sql.TREE, {"run_id": root}) if row["id"] not in seen]:
        yield from found
        seen.update(found)


def _one(unit: Unit, listeners: Listeners, row: LockedRun, cancel: Cancel) -> WorkflowRun:
    if row["status"] == "cancelled" and not cancel.ask:
        return rows.get(unit, row["id"])
    rows.expect(row, words.LIVE)
    said: Said = {**cancel.said, "at": cancel.at, "source": "operator"}
    if cancel.ask and row["status"] == "running":
        if row["cancel_requested_at"] is not None:
            return rows.get(unit, row["id"])
        return transitions.move(unit, transitions.ASK_CANCEL, row, "running", reason="cancel.requested", **said)
    return transitions.end(unit, listeners, row, "cancelled", reason="run.cancelled", **said)
