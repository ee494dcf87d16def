"""Units of runs: a run of the source with all rows that belong to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from lastlight_state.db.rows.statements import bind, statement_of
from lastlight_state.journal.models import (
    EVENTS,
    FRAMES,
    SANDBOX_ENDS,
    SANDBOXES,
    SCORES,
    SEQUENCES,
    SIGNALS,
    TOOL_CALLS,
)
from lastlight_state.maintenance.imports import brought, pieces, workflow_rows
from lastlight_state.maintenance.imports.cells import Row as CellRow
from lastlight_state.maintenance.imports.foreign import Foreign, digest
from lastlight_state.maintenance.imports.node_databases import runs, streams, values
from lastlight_state.maintenance.imports.node_databases.absent import AbsentRows
from lastlight_state.maintenance.imports.node_databases.source_rows import Terms
from lastlight_state.maintenance.imports.node_databases.values import Outputs
from lastlight_state.maintenance.imports.pieces import STORED, ImportTarget, ImportUnit, UnitLookup
from lastlight_state.maintenance.imports.row_pieces import Growth, Row, RowDraft, RowPiece
from lastlight_state.outputs.models import INPUTS
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, LOOPS, NODES, REQUESTS, RUNS

# How a run's rows may follow their source, by table.


def _never(_stored: Row, _row: Row) -> bool:
    return False


def _is_newer(stored: Row, row: Row) -> bool:
    return bool(stored["updated_at"] <= row["updated_at"])


def _is_pending(stored: Row, _row: Row) -> bool:
    return bool(stored["status"] == "pending")


def _unchanging_growth(table: sa.Table, *left: str) -> Growth:
    """Return the rule for rows that never change once stored. ``left`` are columns that only this library writes."""
    return Growth(_never, frozenset(table.c.keys()) - set(left), (), frozenset(left))


#: A row that was imported, and closed, ended or answered here, stays so and is counted.
GROWTHS: dict[str, Growth] = {
    str(table.name): growth
    for table, growth in (
        (
            RUNS,
            Growth(
                workflow_rows.is_open,
                frozenset({"workflow_name", "trigger_id", "started_at"}),
                ("status", "updated_at", "claim_epoch"),
                frozenset({"context", "parent_run_id", "queued_at", "status_reason"}),
                workflow_rows.move,
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
        (EVENTS, _unchanging_growth(EVENTS)),
        (SIGNALS, _unchanging_growth(SIGNALS, "consumed_at", "consumed_by")),
        (FRAMES, _unchanging_growth(FRAMES)),
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


# A run that was read: how it is compared with the stored run, and stored. Its tool calls get their numbers here.

_c = TOOL_CALLS.c
_STREAM = "tool_calls"
_CALLS = statement_of(sa.select(_c.seq, _c.call_id).where(_c.run_id == bind("run_id", _c.run_id)))


class RunPiece(RowPiece):
    """A run to import. A stored tool call keeps its number.

    New calls get the next numbers, in the order of their starts.
    """

    def __init__(self, draft: RowDraft, calls: Sequence[Row], produced: Outputs, into: ImportTarget) -> None:
        super().__init__(draft, GROWTHS | dict.fromkeys(produced, values.STAYS), into)
        self._produced = produced
        self._calls = sorted(calls, key=lambda row: (row["started_at"], row["call_id"]))

    def compare(self, look: UnitLookup) -> tuple[str, Counter[str], Counter[str]]:
        """Return the outcome of the unit, the number of rows to add by table, and counts for ``noticed``."""
        held = values.fitting_tables(look.view, self._produced)
        run = self.draft.given["workflow_runs"][0]
        rows = {name: values.convert_rows(table, self._produced[name], run) for name, table in held.items()}
        # once a table is defined, the next import brings in its rows
        self.digest = digest([self.draft.digest, sorted(held)]) if held else self.draft.digest
        is_same = pieces.is_same(look, self)
        before = brought.told_by(pieces.known_digest(look))
        absent = AbsentRows(look, self, before, keeps_all=is_same or look.revives)
        self._given = absent.left_out({**self.draft.given, **rows, "tool_calls": self._calls}, held)
        self._number(look, absent.ends)
        found, added, noticed = super().compare(look)
        if found in STORED:
            noticed["removed_here"] += absent.removed
            left = self._produced.keys() - held.keys()
            noticed.update({f"{name}_left": len(self._produced[name]) for name in left})
            self.digest = brought.line(self.digest, absent.told | self.told)
        return found, added, noticed

    def _number(self, look: UnitLookup, ends: Mapping[str, int]) -> None:
        """Set the number of each tool call, and raise the counters above all numbers that the store has given."""
        this = {"run_id": self.target[1]}
        counters = {row["stream"]: row for row in self._given.get("run_sequences", ())}
        stored = {row["call_id"]: row["seq"] for row in look.view.rows(_CALLS, this)} if self._calls else {}
        following = max((ends.get(_STREAM, 0), *(seq + 1 for seq in stored.values())))
        calls = []
        for call in self._given.get("tool_calls", ()):
            if call["call_id"] not in stored:
                stored[call["call_id"]] = following
                following += 1
            calls.append({**call, "seq": stored[call["call_id"]]})
        if self._calls:
            counters[_STREAM] = {**this, "stream": _STREAM, "next_seq": following}
        further = [{**row, "next_seq": max(row["next_seq"], ends.get(name, 0))} for name, row in counters.items()]
        numbered = {"tool_calls": calls, "run_sequences": further}
        self._given = {name: rows for name, rows in {**self._given, **numbered}.items() if rows}


USAGE = "_smithers_run_usage"
_PLACE = ("node_id", "iteration", "attempt")
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
    USAGE: "node_id, iteration, attempt",
    values.TABLE: "run_id",
}
#: The rows of a unit as the source has them, by table.
Rows = Mapping[str, Sequence[CellRow]]


def piece(source: Foreign, row: CellRow, left: Sequence[str], outputs: Sequence[str], into: ImportTarget) -> ImportUnit:
    """Return the run in a row of ``_smithers_runs`` as a unit.

    ``left`` are tables that cannot be stored: their rows are counted. ``outputs`` are tables of tasks' outputs.
    """
    found = {
        table: list(source.rows(table, f"WHERE run_id = ? ORDER BY {order}", [row["run_id"]]))
        for table, order in OF_RUNS.items()
        if "run_id" in source.columns(table)
    }
    snapshots = values.SNAPSHOTS if "input_json" in source.columns(values.SNAPSHOTS) else ""
    found[values.SNAPSHOTS] = list(source.rows(snapshots, values.FIRST_SNAPSHOT, [row["run_id"]]))
    counts = {table: source.count(table, "run_id", row["run_id"]) for table in left}
    produced = {table: list(source.rows(table, _PRODUCED, [row["run_id"]])) for table in outputs}
    source.confirm()
    terms = Terms(into.settings.limits, lenient=into.lenient)
    before = digest([row, found, produced])
    row, told, made = _scoped_rows(into, row, found, produced)
    given = {table: rows for table, rows in _run_rows(terms, row, told).items() if rows}
    for table, count in counts.items():
        terms.noticed[f"{table.removeprefix('_smithers_')}_left"] += count
    target = ("workflow_run", given["workflow_runs"][0]["id"])
    draft = RowDraft(target, "workflow_runs", before, given, terms.noticed)
    executions = {one["id"] for one in given.get("executions", ())}
    calls = [streams.tool_call(terms, one, executions) for one in told.get("_smithers_tool_calls", ())]
    return RunPiece(draft, calls, made, into)


#: Columns that hold names of the source: by the kind of record, and in every table of a run. A scope prefixes them.
_NAMES = {"cron": ("cron_id",), "output_cache": ("cache_key",), "vector": ("namespace",)}
_RUN_NAMES = ("run_id", "parent_run_id", "request_id")
_SCORES = "_smithers_scorers"


def scope_row(into: ImportTarget, kind: str, row: CellRow) -> CellRow:
    """Return the row of a unit, with the scope as a prefix of its names."""
    return _prefix_names(into, _NAMES[kind], row)


def _prefix_names(into: ImportTarget, names: Sequence[str], row: CellRow) -> CellRow:
    if into.scope is None:
        return row
    return row | {name: into.scoped_id(row[name]) for name in names if isinstance(row.get(name), str)}


def _scoped_rows(into: ImportTarget, row: CellRow, found: Rows, produced: Outputs) -> tuple[CellRow, Rows, Outputs]:
    """Return the rows of a run, with the scope as a prefix of their names."""

    def renamed_tables(tables: Mapping[str, Sequence[Row]]) -> dict[str, list[CellRow]]:
        return {
            table: [
                _prefix_names(into, (*_RUN_NAMES, "id") if table == _SCORES else _RUN_NAMES, dict(one)) for one in rows
            ]
            for table, rows in tables.items()
        }

    return _prefix_names(into, _RUN_NAMES, row), renamed_tables(found), renamed_tables(produced)


def _run_rows(terms: Terms, row: CellRow, found: Rows) -> dict[str, list[CellRow]]:
    run = runs.run(terms, row)
    used = {tuple(one[name] for name in _PLACE): one for one in found.get(USAGE, ())}
    tries = found.get("_smithers_attempts", ())
    attempts = [runs.attempt(terms, one, used.pop(tuple(one[name] for name in _PLACE), None)) for one in tries]
    terms.noticed["run_usage_left"] += len(used)  # the usage of missing attempts
    last = runs.last_attempts(attempts)
    nodes = [runs.node(terms, one, last) for one in found.get("_smithers_nodes", ())]
    loops = [runs.loop(terms, one) for one in found.get("_smithers_ralph", ())]
    approvals = [runs.approval(terms, one, run) for one in found.get("_smithers_approvals", ())]
    requests = [runs.request(terms, one, run) for one in found.get("_smithers_human_requests", ())]
    events = [streams.event(terms, one) for one in found.get("_smithers_events", ())]
    signals = [streams.signal(terms, one) for one in found.get("_smithers_signals", ())]
    shown = list(streams.frames(terms, found.get("_smithers_frames", ())))
    sandboxes = [streams.sandbox(terms, one, run) for one in found.get("_smithers_sandboxes", ())]
    scores = list(streams.scores(terms, found.get("_smithers_scorers", ())))
    is_asked = any(one["status"] == "pending" for one in (*approvals, *requests))
    others = (*attempts, *loops, *approvals, *requests, *events, *signals, *shown, *sandboxes, *scores)
    numbers = {
        "events": streams.numbers(events),
        "signals": streams.numbers(signals),
        "frames": streams.numbers(shown, "frame_no"),
    }
    return {
        "workflow_runs": [runs.complete_run(run, row["status"], nodes, is_asked=is_asked, others=others)],
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
        "run_sequences": list(streams.counters(run["id"], numbers)),
        "run_inputs": [
            values.revision(terms, run, one, found[values.SNAPSHOTS]) for one in found.get(values.TABLE, ())
        ],
    }
