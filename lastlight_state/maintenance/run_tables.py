"""What belongs to a run: the column of each table by which its rows are found. Output tables have ``run_id``, too."""

from __future__ import annotations

from lastlight_state.journal.tables import EVENTS, FRAMES, SANDBOXES, SCORES, SEQUENCES, SIGNALS, TOOL_CALLS
from lastlight_state.outputs.tables import HISTORY, INPUTS
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, LOOPS, NODES, REQUESTS, TRANSITIONS

RUN_TABLES = (
    EXECUTIONS.c.workflow_run_id,
    NODES.c.run_id,
    LOOPS.c.run_id,
    TRANSITIONS.c.run_id,
    APPROVALS.c.workflow_run_id,
    REQUESTS.c.run_id,
    EVENTS.c.run_id,
    SIGNALS.c.run_id,
    FRAMES.c.run_id,
    SEQUENCES.c.run_id,
    TOOL_CALLS.c.run_id,
    SANDBOXES.c.run_id,
    SCORES.c.run_id,
    INPUTS.c.run_id,
    HISTORY.c.run_id,
)
