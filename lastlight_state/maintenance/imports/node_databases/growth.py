"""How rows of a run may follow their source, by table."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.journal.tables import EVENTS, FRAMES, SANDBOXES, SCORES, SEQUENCES, SIGNALS, TOOL_CALLS
from lastlight_state.journal.words import SANDBOX_ENDS
from lastlight_state.maintenance.imports import run_moves
from lastlight_state.maintenance.imports.row_pieces import Growth, Row
from lastlight_state.outputs.tables import INPUTS
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, LOOPS, NODES, REQUESTS, RUNS


def _never(_stored: Row, _row: Row) -> bool:
    return False


def _is_newer(stored: Row, row: Row) -> bool:
    return bool(stored["updated_at"] <= row["updated_at"])


def _is_pending(stored: Row, _row: Row) -> bool:
    return bool(stored["status"] == "pending")


def _happened(table: sa.Table, *left: str) -> Growth:
    """What happened stays as it is. ``left`` are columns that only this library writes."""
    return Growth(_never, frozenset(table.c.keys()) - set(left), (), frozenset(left))


#: What was imported and is closed, ended or answered here stays so, and is counted.
GROWTHS: dict[str, Growth] = {
    str(table.name): growth
    for table, growth in (
        (
            RUNS,
            Growth(
                run_moves.is_open,
                frozenset({"workflow_name", "trigger_id", "started_at"}),
                ("status", "updated_at", "claim_epoch"),
                frozenset({"context", "parent_run_id", "queued_at", "status_reason"}),
                run_moves.move,
            ),
        ),
        (
            EXECUTIONS,
            Growth(
                lambda stored, _: stored["finished_at"] is None and stored["success"] is None,
                frozenset({"trigger_id", "skill", "workflow_run_id", "node_id", "iteration", "attempt"}),
                ("finished_at", "success"),
            ),
        ),
        (NODES, Growth(_is_newer, frozenset(), ("state", "updated_at"))),
        (LOOPS, Growth(_is_newer, frozenset(), ("iteration", "updated_at"))),
        (
            APPROVALS,
            Growth(
                _is_pending,
                frozenset({"workflow_run_id", "gate", "node_id", "iteration"}),
                ("status",),
                frozenset({"created_at", "blocks_run"}),
            ),
        ),
        (
            REQUESTS,
            Growth(
                _is_pending,
                frozenset({"run_id", "node_id", "iteration", "requested_at"}),
                ("status",),
                frozenset({"blocks_run"}),
            ),
        ),
        (EVENTS, _happened(EVENTS)),
        (SIGNALS, _happened(SIGNALS, "consumed_at", "consumed_by")),
        (FRAMES, _happened(FRAMES)),
        (
            TOOL_CALLS,
            Growth(
                lambda stored, _: stored["finished_at"] is None,
                frozenset({"run_id", "call_id", "tool_name", "started_at"}),
                ("finished_at",),
                frozenset({"execution_id"}),
            ),
        ),
        (
            SANDBOXES,
            Growth(
                lambda stored, row: stored["status"] not in SANDBOX_ENDS and _is_newer(stored, row),
                frozenset(),
                ("status", "updated_at"),
            ),
        ),
        (
            SCORES,
            Growth(
                lambda stored, _: stored["superseded_at"] is None,
                frozenset(SCORES.c.keys()) - {"superseded_at"},
                ("superseded_at",),
            ),
        ),
        (INPUTS, Growth(_never, frozenset(), (), frozenset({"created_at"}))),
        (SEQUENCES, Growth(lambda stored, row: stored["next_seq"] < row["next_seq"], frozenset(), ("next_seq",))),
    )
}
