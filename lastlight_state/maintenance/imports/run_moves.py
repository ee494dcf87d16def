"""How a run that was imported follows its source: its status changes as it does for every other run."""

from __future__ import annotations

from typing import Any

from lastlight_state.db.runs import TERMINAL_TOPIC
from lastlight_state.db.unit import Unit
from lastlight_state.maintenance.imports.pieces import Into
from lastlight_state.maintenance.imports.row_pieces import Growth, Row, change
from lastlight_state.workflows import words
from lastlight_state.workflows.kernel import transitions
from lastlight_state.workflows.kernel.rows import StatusRow
from lastlight_state.workflows.tables import RUNS

_MOVES = {"running": transitions.RESUME, "paused": transitions.PAUSE, "queued": transitions.REQUEUE}
#: The columns that a change to this status sets.
_SETS: dict[str, tuple[str, ...]] = {
    "running": (),
    "paused": ("pause_reason", "wake_at", "waiting_for", "correlation_id"),
    "queued": ("wake_at",),
    **dict.fromkeys(words.TERMINAL, ("error", "error_detail")),
}


def is_open(stored: Row, row: Row) -> bool:
    """Whether a run is as it was imported: live, and neither claimed nor gone on with here."""
    begun = stored["phase_history"]
    untouched = stored["claim_epoch"] == 0 and stored["updated_at"] <= row["updated_at"]
    return stored["status"] not in words.TERMINAL and untouched and row["phase_history"][: len(begun)] == begun


def move(view: Unit, into: Into, growth: Growth, stored: Row, row: Row, names: list[str]) -> None:
    """Change these columns of a run; a change of its status is a transition."""
    change(view, growth, RUNS, stored, row, [name for name in names if name != "status"])
    if "status" not in names:
        return
    to = row["status"]
    ended = to in words.TERMINAL
    sets: dict[str, Any] = {name: row.get(name) for name in _SETS[to]}
    at = (row["finished_at"] if ended else None) or row["updated_at"]
    how = transitions.END if ended else _MOVES[to]
    reason = row.get("status_reason") or "run.imported"
    here: StatusRow = {"id": stored["id"], "status": stored["status"]}
    moved = transitions.move(view, how, here, to, reason=reason, at=at, source="system", **sets)
    if ended:
        view.after_commit(lambda: into.listeners.notify(TERMINAL_TOPIC, moved))
