"""The kinds of journal records. Most records belong to a run, and have a number within that run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lastlight_state import journal
from lastlight_state.cli.screen import Column
from lastlight_state.cli.views.kind import Filters, Kind, Store
from lastlight_state.db.rows.records import Page
from lastlight_state.errors import InvalidValue

EVENTS: tuple[Column[journal.Event], ...] = (
    Column("SEQ", lambda one: one.seq, keep=True, right=True),
    Column("TYPE", lambda one: one.type),
    Column("NODE", lambda one: one.node_id, rank=1),
    Column("AT", lambda one: one.occurred_at, keep=True),
    Column("PAYLOAD", lambda one: one.payload),
)
SIGNALS: tuple[Column[journal.Signal], ...] = (
    Column("SEQ", lambda one: one.seq, keep=True, right=True),
    Column("NAME", lambda one: one.signal_name),
    Column("CORRELATION", lambda one: one.correlation_id, rank=3),
    Column("RECEIVED", lambda one: one.received_at, keep=True),
    Column("BY", lambda one: one.received_by, rank=2),
    Column("TAKEN BY", lambda one: one.consumed_by, rank=1),
    Column("PAYLOAD", lambda one: one.payload),
)
FRAMES: tuple[Column[journal.FrameSummary], ...] = (
    Column("NUMBER", lambda one: one.frame_no, keep=True, right=True),
    Column("AT", lambda one: one.created_at, keep=True),
    Column("STORED", lambda one: one.encoding, rank=1),
    Column("BYTES", lambda one: one.full_bytes, right=True),
    Column("NOTE", lambda one: one.note),
)
TOOL_CALLS: tuple[Column[journal.ToolCallSummary], ...] = (
    Column("SEQ", lambda one: one.seq, keep=True, right=True),
    Column("TOOL", lambda one: one.tool_name),
    Column("STATUS", lambda one: one.status),
    Column("NODE", lambda one: one.node_id),
    Column("ITERATION", lambda one: one.iteration, right=True, rank=2),
    Column("ATTEMPT", lambda one: one.attempt, right=True, rank=3),
    Column("STARTED", lambda one: one.started_at, keep=True, rank=1),
    Column("MS", lambda one: one.duration_ms, right=True),
)
SANDBOXES: tuple[Column[journal.SandboxSummary], ...] = (
    Column("ID", lambda one: one.sandbox_id, is_id=True),
    Column("RUN", lambda one: one.run_id, is_id=True),
    Column("STATUS", lambda one: one.status),
    Column("RUNTIME", lambda one: one.runtime, rank=2),
    Column("WORKSPACE", lambda one: one.workspace_id, rank=1),
    Column("UPDATED", lambda one: one.updated_at, keep=True),
)
SCORES: tuple[Column[journal.ScoreSummary], ...] = (
    Column("ID", lambda one: one.id, is_id=True),
    Column("RUN", lambda one: one.run_id, is_id=True),
    Column("NODE", lambda one: one.node_id),
    Column("SCORER", lambda one: one.scorer_name),
    Column("SOURCE", lambda one: one.source, rank=1),
    Column("SCORED", lambda one: one.scored_at, keep=True),
    Column("SCORE", lambda one: one.score, right=True),
)


def _events(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("events", "status")
    where = journal.EventFilter(since=filters.since)
    return store.journal.events.list(filters.run("events"), where=where, order="newest_first", **filters.page_arguments)


def _signals(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("signals", "status")
    where = journal.SignalFilter(received_after=filters.since)
    return store.journal.signals.list(
        filters.run("signals"), where=where, order="newest_first", **filters.page_arguments
    )


def _frames(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("frames", "status", "since")
    return store.journal.frames.list(filters.run("frames"), **filters.page_arguments)


def _tool_calls(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("tool calls", "since")
    where = journal.ToolCallFilter(status=filters.status)
    return store.journal.tool_calls.list(filters.run("tool calls"), where=where, **filters.page_arguments)


def _sandboxes(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("sandboxes", "since")
    return store.journal.sandboxes.list(run_id=filters.run_id, status=filters.status, **filters.page_arguments)


def _scores(store: Store, filters: Filters) -> Page[Any]:
    run_ids = None if filters.run_id is None else [filters.run_id]
    where = journal.ScoreFilter(run_ids=run_ids, since=filters.since, history=_history(filters.status))
    return store.journal.scores.list(where=where, **filters.page_arguments)


def _history(status: Any) -> Any:
    if status not in (None, "current", "all"):
        raise InvalidValue("--status", f"{status!r} is not known", permitted=("current", "all"))
    return status or "current"


def _number_reader(get: Callable[[Store, str, int], Any]) -> Callable[[Store, str, str], Any]:
    """Return a function that reads a record of a run by its number, given as text."""

    def read_by_number(store: Store, run_id: str, key: str) -> Any:
        if not (key.isascii() and key.isdigit()):
            raise InvalidValue("ID", f"expected a number, got {key!r:.80}")
        return get(store, run_id, int(key))

    return read_by_number


#: Kinds of records, by the word that ``ls`` takes.
KINDS = {
    "events": Kind(
        "event",
        EVENTS,
        _events,
        "(no events)",
        part=_number_reader(lambda store, run_id, seq: store.journal.events.get(run_id, seq)),
    ),
    "signals": Kind(
        "signal",
        SIGNALS,
        _signals,
        "(no signals)",
        part=_number_reader(lambda store, run_id, seq: store.journal.signals.get(run_id, seq)),
    ),
    "frames": Kind(
        "frame",
        FRAMES,
        _frames,
        "(no frames)",
        part=_number_reader(lambda store, run_id, number: store.journal.frames.get(run_id, number)),
    ),
    "tool-calls": Kind(
        "tool-call",
        TOOL_CALLS,
        _tool_calls,
        "(no tool calls)",
        part=_number_reader(lambda store, run_id, seq: store.journal.tool_calls.get(run_id, seq)),
    ),
    "sandboxes": Kind(
        "sandbox",
        SANDBOXES,
        _sandboxes,
        "(no sandboxes)",
        part=lambda store, run_id, key: store.journal.sandboxes.get(run_id, key),
    ),
    "scores": Kind("score", SCORES, _scores, "(no scores)", lambda store, key: store.journal.scores.get(key)),
}
