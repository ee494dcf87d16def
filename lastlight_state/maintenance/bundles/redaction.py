"""What a bundle leaves out on request: columns with a mark in place of their values, whole tables, and logs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations.tables import (
    BRANCHES,
    CHANGES,
    MESSAGES,
    NAMESPACES,
    PROGRESSIONS,
    SESSIONS,
    TRANSITIONS,
    VECTORS,
)
from lastlight_state.errors import Conflict
from lastlight_state.journal.tables import EVENTS, FRAMES, SANDBOXES, SCORES, SIGNALS, TOOL_CALLS
from lastlight_state.maintenance.bundles.lines import Row
from lastlight_state.maintenance.bundles.records import Bundle
from lastlight_state.maintenance.copy.subjects import Subject, is_json
from lastlight_state.outputs.tables import HISTORY, INPUTS
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, REQUESTS, RUNS, TRANSITIONS as MOVES

_TALKING = (MESSAGES, SESSIONS, BRANCHES, PROGRESSIONS)
_a, _e, _i, _q, _t = APPROVALS.c, EXECUTIONS.c, INPUTS.c, REQUESTS.c, TOOL_CALLS.c

#: The columns of each name. An embedding tells of the text that it was made from.
_COLUMNS: dict[str, tuple[sa.Column[Any], ...]] = {
    "context": (RUNS.c.context,),
    "scratch": (RUNS.c.scratch,),
    "content": (MESSAGES.c.content, MESSAGES.c.embedding),
    "output_text": (_e.output_text,),
    "inputs": (_i.payload, _i.given, _i.reason),
    "events": (EVENTS.c.payload, SIGNALS.c.payload, _t.input, _t.output),
    "errors": (RUNS.c.error, RUNS.c.error_detail, _e.error, _e.error_detail, _t.error, MOVES.c.detail),
    "questions": (_a.summary, _a.response, _a.action, _q.prompt, _q.options, _q.schema, _q.response),
    "scores": tuple(SCORES.c[name] for name in ("reason", "meta", "input", "output", "expected")),
    "metadata": (
        *(table.c[name] for table in _TALKING for name in ("node_metadata", "extra")),
        *(SESSIONS.c.artifact_contract, SESSIONS.c.artifact_verification),
        *(TRANSITIONS.c.reason_summary, TRANSITIONS.c.evidence, CHANGES.c.details),
        *(_e.details, _e.checkpoint, SANDBOXES.c.config),
    ),
}
#: The tables without which a bundle comes: a mark would be no value of an output's model, no chunk of a text, and no
#: frame from which the next one can be told.
_TABLES: dict[str, tuple[sa.Table, ...]] = {
    "content": (NAMESPACES, VECTORS),
    "outputs": (HISTORY,),
    "events": (FRAMES,),
}
_MARK, _MARK_JSON = "[redacted]", {"lastlight_redacted": True}


def is_left_out(subject: Subject, names: Collection[str]) -> bool:
    """Whether a table has no rows in a bundle without these."""
    if subject.is_output:
        return "outputs" in names
    return any(subject.table in _TABLES.get(name, ()) for name in names)


def marking(table: sa.Table, names: Collection[str]) -> Callable[[Row], Row] | None:
    """Puts the mark into the rows of a table, None if it has none of these columns."""
    columns = [column for name in sorted(names) for column in _COLUMNS.get(name, ()) if column.table is table]
    marks = {column.name: _mark(column) for column in columns}
    if not marks:
        return None
    return lambda row: {**row, **{name: mark for name, mark in marks.items() if row[name] is not None}}


def refuse(bundle: Bundle) -> None:
    """Raise `Conflict` for a bundle without something, since what is loaded of it is not what was exported."""
    if bundle.redacted:
        raise Conflict(
            f"the bundle is redacted: it comes without {', '.join(bundle.redacted)}",
            code="redacted_bundle",
            redacted=list(bundle.redacted),
        )


def _mark(column: sa.Column[Any]) -> Any:
    if is_json(column):
        return _MARK_JSON
    return _MARK if isinstance(column.type, sa.Text) else None
