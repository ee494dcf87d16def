"""A run of the source with all that belongs to it, as one unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lastlight_state.maintenance.imports.cells import Row
from lastlight_state.maintenance.imports.foreign import Foreign, digest
from lastlight_state.maintenance.imports.node_databases import frames, inputs, journal, questions, runs, work
from lastlight_state.maintenance.imports.node_databases.found import Terms
from lastlight_state.maintenance.imports.node_databases.piece import RunPiece
from lastlight_state.maintenance.imports.pieces import Into, Piece
from lastlight_state.maintenance.imports.row_pieces import RowDraft

_PRODUCED = "WHERE run_id = ? ORDER BY node_id"
#: The tables whose rows belong to a run, each with the order of its rows.
OF_RUNS = {
    "_smithers_attempts": "node_id, iteration, attempt",
    "_smithers_nodes": "node_id, iteration",
    "_smithers_ralph": "ralph_id",
    "_smithers_approvals": "node_id, iteration",
    "_smithers_human_requests": "requested_at_ms, request_id",
    "_smithers_events": "seq",
    "_smithers_signals": "seq",
    "_smithers_frames": "frame_no",
    "_smithers_tool_calls": "node_id, iteration, attempt, seq",
    "_smithers_sandboxes": "sandbox_id",
    "_smithers_scorers": "id",
    inputs.TABLE: "run_id",
}
#: The rows of a unit as they stand in the source, by table.
Rows = Mapping[str, Sequence[Row]]


def piece(source: Foreign, row: Row, left: Sequence[str], outputs: Sequence[str], into: Into) -> Piece:
    """The run of a row of ``_smithers_runs``. ``left`` are tables that have no place here: their rows are counted.

    ``outputs`` are the tables of what tasks produced.
    """
    found = {
        table: list(source.rows(table, f"WHERE run_id = ? ORDER BY {order}", [row["run_id"]]))
        for table, order in OF_RUNS.items()
        if "run_id" in source.columns(table)
    }
    snapshots = inputs.SNAPSHOTS if "input_json" in source.columns(inputs.SNAPSHOTS) else ""
    found[inputs.SNAPSHOTS] = list(source.rows(snapshots, inputs.FIRST_SNAPSHOT, [row["run_id"]]))
    counts = {table: source.count(table, "run_id", row["run_id"]) for table in left}
    produced = {table: list(source.rows(table, _PRODUCED, [row["run_id"]])) for table in outputs}
    source.confirm()
    terms = Terms(into.settings.limits, lenient=into.lenient)
    given = {table: rows for table, rows in _given(terms, row, found).items() if rows}
    for table, count in counts.items():
        terms.noticed[f"{table.removeprefix('_smithers_')}_left"] += count
    target = ("workflow_run", given["workflow_runs"][0]["id"])
    draft = RowDraft(target, "workflow_runs", digest([row, found, produced]), given, terms.noticed)
    executions = {one["id"] for one in given.get("executions", ())}
    calls = [work.tool_call(terms, one, executions) for one in found.get("_smithers_tool_calls", ())]
    return RunPiece(draft, calls, produced, into)


def _given(terms: Terms, row: Row, found: Rows) -> dict[str, list[Row]]:
    run = runs.run(terms, row)
    attempts = [runs.attempt(terms, one) for one in found.get("_smithers_attempts", ())]
    last = runs.last_attempts(attempts)
    nodes = [runs.node(terms, one, last) for one in found.get("_smithers_nodes", ())]
    loops = [runs.loop(terms, one) for one in found.get("_smithers_ralph", ())]
    approvals = [questions.approval(terms, one, run) for one in found.get("_smithers_approvals", ())]
    requests = [questions.request(terms, one, run) for one in found.get("_smithers_human_requests", ())]
    events = [journal.event(terms, one) for one in found.get("_smithers_events", ())]
    signals = [journal.signal(terms, one) for one in found.get("_smithers_signals", ())]
    shown = list(frames.frames(terms, found.get("_smithers_frames", ())))
    sandboxes = [work.sandbox(terms, one, run) for one in found.get("_smithers_sandboxes", ())]
    scores = list(work.scores(terms, found.get("_smithers_scorers", ())))
    is_asked = any(one["status"] == "pending" for one in (*approvals, *requests))
    others = (*attempts, *loops, *approvals, *requests, *events, *signals, *shown, *sandboxes, *scores)
    numbers = {
        "events": journal.numbers(events),
        "signals": journal.numbers(signals),
        "frames": journal.numbers(shown, "frame_no"),
    }
    return {
        "workflow_runs": [runs.placed(run, row["status"], nodes, is_asked=is_asked, others=others)],
        "executions": attempts,
        "run_nodes": nodes,
        "run_loops": loops,
        "workflow_approvals": approvals,
        "human_requests": requests,
        "run_events": events,
        "run_signals": signals,
        "run_frames": shown,
        "sandboxes": sandboxes,
        "scores": scores,
        "run_sequences": list(journal.counters(run["id"], numbers)),
        "run_inputs": [
            inputs.revision(terms, run, one, found[inputs.SNAPSHOTS]) for one in found.get(inputs.TABLE, ())
        ],
    }
