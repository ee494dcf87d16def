"""Guards of the journal's tables: the database refuses to delete journal rows and to change recorded facts."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Table

from lastlight_state.db.schema.guards import (
    Guard,
    Key,
    append_only,
    declare,
    no_replacement,
    no_replacing_insert,
    no_update,
)
from lastlight_state.journal.models import SCORES, SIGNALS


def _differ(names: Iterable[str]) -> str:
    return " OR ".join(f"NEW.{name} IS DISTINCT FROM OLD.{name}" for name in names)


def _but(table: Table, *changing: str) -> str:
    """Return the SQL condition that a column changes and is not among those named in ``changing``."""
    return _differ(column.name for column in table.columns if column.name not in changing)


APPEND_ONLY = declare(
    [
        *append_only("run_sequences"),
        *no_replacement("run_sequences", Key(("run_id", "stream"))),
        *append_only("run_events"),
        *no_update("run_events"),
        *no_replacing_insert("run_events"),
        *append_only("run_signals"),
        *no_replacement("run_signals"),
        *append_only("run_frames"),
        *no_update("run_frames"),
        *no_replacing_insert("run_frames"),
        *append_only("tool_calls"),
        *no_replacement("tool_calls", Key(("run_id", "seq")), Key(("run_id", "call_id"))),
        *append_only("sandboxes"),
        *no_replacement("sandboxes", Key(("run_id", "sandbox_id"))),
        *append_only("scores"),
        *no_replacement("scores"),
    ]
)

ONCE = declare(
    [
        Guard(
            "run_sequences_never_fall",
            "run_sequences",
            "update",
            "the next number of a stream never falls",
            when="NEW.next_seq < OLD.next_seq OR NEW.run_id <> OLD.run_id OR NEW.stream <> OLD.stream",
            permit="any",
        ),
        Guard(
            "run_signals_taken_once",
            "run_signals",
            "update",
            "a signal only ever changes by being taken once",
            when="OLD.consumed_at IS NOT NULL OR NEW.consumed_at IS NULL OR NEW.consumed_by IS NULL OR "
            + _but(SIGNALS, "consumed_at", "consumed_by"),
        ),
        Guard(
            "run_signals_one_each",
            "run_signals",
            "update",
            "a consumer takes one signal of a run",
            when="EXISTS (SELECT 1 FROM run_signals WHERE run_id = NEW.run_id AND consumed_by = NEW.consumed_by)",
            only="sqlite",
        ),
        Guard(
            "tool_calls_finished_stays",
            "tool_calls",
            "update",
            "a finished tool call never changes",
            when="OLD.finished_at IS NOT NULL",
        ),
        Guard(
            "scores_superseded_once",
            "scores",
            "update",
            "a score only ever changes by being superseded once",
            when="OLD.superseded_at IS NOT NULL OR NEW.superseded_at IS NULL OR " + _but(SCORES, "superseded_at"),
        ),
    ]
)
