"""Writes a bundle of selected rows, with its logs and its manifest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, BinaryIO

import sqlalchemy as sa

from lastlight_state import progress
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
from lastlight_state.db.schema.declarations import is_personal
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict
from lastlight_state.journal.models import EVENTS, FRAMES, SANDBOXES, SCORES, SIGNALS, TOOL_CALLS
from lastlight_state.maintenance.bundles import row_lines, selection
from lastlight_state.maintenance.bundles.archive import FORMAT, Archive
from lastlight_state.maintenance.bundles.records import REDACTIONS, Bundle, tables_of
from lastlight_state.maintenance.bundles.row_lines import Row
from lastlight_state.maintenance.copy.tables import Subject, is_json
from lastlight_state.outputs.models import HISTORY, INPUTS, REGISTRY
from lastlight_state.settings import Settings
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, NODES, REQUESTS, RUNS, TRANSITIONS as MOVES

# The parts that a bundle leaves out on request: columns with a mark in place of their values, whole tables, and logs.

_a, _e, _q, _r, _s = APPROVALS.c, EXECUTIONS.c, REQUESTS.c, RUNS.c, SESSIONS.c

#: For each table, the redaction that leaves out its personal columns, including columns added later.
_OF_TABLE: dict[sa.Table, str] = {
    RUNS: "context",
    INPUTS: "inputs",
    **dict.fromkeys((EVENTS, SIGNALS, TOOL_CALLS), "events"),
    **dict.fromkeys((APPROVALS, REQUESTS), "questions"),
    SCORES: "scores",
    **dict.fromkeys((EXECUTIONS, NODES, SANDBOXES, MOVES), "metadata"),
    **dict.fromkeys((SESSIONS, BRANCHES, PROGRESSIONS, MESSAGES, TRANSITIONS), "metadata"),
}
#: Columns with their own redaction. An embedding is left out with its text, because it reveals the text.
_OWN: dict[str, tuple[sa.Column[Any], ...]] = {
    "scratch": (_r.scratch,),
    "content": (MESSAGES.c.content, MESSAGES.c.embedding),
    "output_text": (_e.output_text,),
    "errors": (_r.error, _r.error_detail, _e.error, _e.error_detail, TOOL_CALLS.c.error, MOVES.c.detail),
    "metadata": (BRANCHES.c.node_metadata, CHANGES.c.details),
}
#: The personal columns that every bundle has: people's names, names, reasons and labels by operators, and phases with
#: their summaries.
_STAYS: frozenset[sa.Column[Any]] = frozenset({
    *(_r.triggered_by, _e.triggered_by, _r.cancel_requested_by, INPUTS.c.created_by, SIGNALS.c.received_by),
    *(_a.requested_by, _a.responded_by, _a.consumed_by, _q.answered_by, MOVES.c.actor, TRANSITIONS.c.actor),
    *(_s.name, BRANCHES.c.name, PROGRESSIONS.c.name),
    *(_r.cancel_reason, _s.hold_reason, NODES.c.label, _r.phase_history),
})  # fmt: skip


def _columns_of(name: str) -> tuple[sa.Column[Any], ...]:
    own = {column for columns in _OWN.values() for column in columns}
    tables = [table for table, whose in _OF_TABLE.items() if whose == name]
    found = [column for table in tables for column in table.columns if _is_content(column) and column not in own]
    return *found, *_OWN.get(name, ())


def _is_content(column: sa.Column[Any]) -> bool:
    """True for a column with personal content.

    Columns with names of people do not count, so that rows stay distinguishable.
    """
    return is_personal(column) and not column.info.get("person") and column not in _STAYS


#: The columns that each redaction leaves out.
_COLUMNS = {name: columns for name in sorted(REDACTIONS) if (columns := _columns_of(name))}
#: The whole tables that a redaction leaves out. A mark instead of a value would make an invalid output or chunk, or a
#: frame that the next frame cannot change.
_TABLES: dict[str, tuple[sa.Table, ...]] = {
    "content": (NAMESPACES, VECTORS),
    "outputs": (HISTORY,),
    "events": (FRAMES,),
}
_MARK, _MARK_JSON = "[redacted]", {"lastlight_redacted": True}


def is_left_out(subject: Subject, names: Collection[str]) -> bool:
    """True if a bundle with these redactions has no rows of a table."""
    if subject.is_output:
        return "outputs" in names
    return any(subject.table in _TABLES.get(name, ()) for name in names)


def row_marker(table: sa.Table, names: Collection[str]) -> Callable[[Row], Row] | None:
    """Return a function that replaces redacted values in a table's row by marks.

    None if the table has no such columns.
    """
    columns = [column for name in sorted(names) for column in _COLUMNS.get(name, ()) if column.table is table]
    marks = {column.name: _mark(column) for column in columns}
    if not marks:
        return None
    return lambda row: {**row, **{name: mark for name, mark in marks.items() if row[name] is not None}}


def refuse(bundle: Bundle) -> None:
    """Raise `Conflict` for a redacted bundle, because loading it would not restore what was exported."""
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


def write_bundle(
    file: BinaryIO,
    unit: Unit,
    named: tuple[str, str, str],
    chosen: selection.Selection,
    settings: Settings | None,
    redact: tuple[str, ...] = (),
    left_columns: Sequence[str] = (),
) -> Bundle:
    """Write a bundle and return its description. ``named`` is its kind, its id and the revision of the schema.

    Without ``settings`` the bundle has no logs. ``redact`` names the parts to leave out, in order. ``left_columns`` are
    the columns that a bundle cannot include.
    """
    kind, key, revision = named
    with Archive(file) as archive:
        _add_rows(archive, unit, chosen, redact)
        for name, path in (
            row_lines.log_files(settings, chosen.logs) if settings is not None and "logs" not in redact else ()
        ):
            archive.add_bytes(name, row_lines.content(path))
        bundle = Bundle(
            format=FORMAT,
            kind=kind,
            id=key,
            revision=revision,
            context=chosen.context,
            redacted=redact,
            left_columns=tuple(left_columns),
            parts=tuple(archive.parts),
        )
        archive.finish(bundle)
    return bundle


def _add_rows(archive: Archive, unit: Unit, chosen: selection.Selection, redact: tuple[str, ...]) -> None:
    """Add the rows of every table to the bundle, and the registry rows of the output tables that it includes."""
    outputs = {subject.name for subject, _, _ in chosen.rows if subject.is_output}
    for at, (subject, reading, keys) in enumerate(chosen.rows):
        progress.tell("exporting", at, len(chosen.rows), unit="tables")
        if not is_left_out(subject, redact):
            marked = row_marker(subject.table, redact)
            archive.add_lines(f"rows/{subject.name}.jsonl", selection.rows_of(unit, subject, reading, keys, marked))
    used = sorted(outputs & tables_of(archive.parts).keys())
    if used:
        archive.add_lines(f"rows/{REGISTRY.name}.jsonl", selection.registry_lines(unit, used))
