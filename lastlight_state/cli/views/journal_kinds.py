"""The kinds of journal records. Most records belong to a run, and have a number within that run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lastlight_state import journal
from lastlight_state.cli.views.kind import Filters, Kind, Store, column
from lastlight_state.db.rows.records import Page
from lastlight_state.errors import InvalidValue

EVENTS = (
    column("SEQ", keep=True, right=True),
    column("TYPE"),
    column("NODE", "node_id", rank=1),
    column("AT", "occurred_at", keep=True),
    column("PAYLOAD"),
)
SIGNALS = (
    column("SEQ", keep=True, right=True),
    column("NAME", "signal_name"),
    column("CORRELATION", "correlation_id", rank=3),
    column("RECEIVED", "received_at", keep=True),
    column("BY", "received_by", rank=2),
    column("TAKEN BY", "consumed_by", rank=1),
    column("PAYLOAD"),
)
FRAMES = (
    column("NUMBER", "frame_no", keep=True, right=True),
    column("AT", "created_at", keep=True),
    column("STORED", "encoding", rank=1),
    column("BYTES", "full_bytes", right=True),
    column("NOTE"),
)
TOOL_CALLS = (
    column("SEQ", keep=True, right=True),
    column("TOOL", "tool_name"),
    column("STATUS"),
    column("NODE", "node_id"),
    column("ITERATION", right=True, rank=2),
    column("ATTEMPT", right=True, rank=3),
    column("STARTED", "started_at", keep=True, rank=1),
    column("MS", "duration_ms", right=True),
)
SANDBOXES = (
    column("ID", "sandbox_id", is_id=True),
    column("RUN", "run_id", is_id=True),
    column("STATUS"),
    column("RUNTIME", rank=2),
    column("WORKSPACE", "workspace_id", rank=1),
    column("UPDATED", "updated_at", keep=True),
)
SCORES = (
    column("ID", is_id=True),
    column("RUN", "run_id", is_id=True),
    column("NODE", "node_id"),
    column("SCORER", "scorer_name"),
    column("SOURCE", rank=1),
    column("SCORED", "scored_at", keep=True),
    column("SCORE", right=True),
)


def _events(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("events", "status")
    where = journal.EventFilter(since=filters.since)
    return store.journal.events.list(filters.run("events"), where=where, order="newest_first", **filters.paging)


def _signals(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("signals", "status")
    where = journal.SignalFilter(received_after=filters.since)
    return store.journal.signals.list(filters.run("signals"), where=where, order="newest_first", **filters.paging)


def _frames(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("frames", "status", "since")
    return store.journal.frames.list(filters.run("frames"), **filters.paging)


def _tool_calls(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("tool calls", "since")
    where = journal.ToolCallFilter(status=filters.status)
    return store.journal.tool_calls.list(filters.run("tool calls"), where=where, **filters.paging)


def _sandboxes(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("sandboxes", "since")
    return store.journal.sandboxes.list(run_id=filters.run_id, status=filters.status, **filters.paging)


def _scores(store: Store, filters: Filters) -> Page[Any]:
    run_ids = None if filters.run_id is None else [filters.run_id]
    where = journal.ScoreFilter(run_ids=run_ids, since=filters.since, history=_history(filters.status))
    return store.journal.scores.list(where=where, **filters.paging)


def _history(status: Any) -> Any:
    if status not in (None, "current", "all"):
        raise InvalidValue("--status", f"{status!r} is not known", permitted=("current", "all"))
    return status or "current"


def _numbered(get: Callable[[Store, str, int], Any]) -> Callable[[Store, str, str], Any]:
    """Return a function that reads a record of a run by its number, given as text."""

    def numbered(store: Store, run_id: str, key: str) -> Any:
        if not (key.isascii() and key.isdigit()):
            raise InvalidValue("ID", f"expected a number, got {key!r:.80}")
        return get(store, run_id, int(key))

    return numbered


#: Kinds of records, by the word that ``ls`` takes.
KINDS = {
    "events": Kind(
        "event",
        EVENTS,
        _events,
        "(no events)",
        part=_numbered(lambda store, run_id, seq: store.journal.events.get(run_id, seq)),
    ),
    "signals": Kind(
        "signal",
        SIGNALS,
        _signals,
        "(no signals)",
        part=_numbered(lambda store, run_id, seq: store.journal.signals.get(run_id, seq)),
    ),
    "frames": Kind(
        "frame",
        FRAMES,
        _frames,
        "(no frames)",
        part=_numbered(lambda store, run_id, number: store.journal.frames.get(run_id, number)),
    ),
    "tool-calls": Kind(
        "tool-call",
        TOOL_CALLS,
        _tool_calls,
        "(no tool calls)",
        part=_numbered(lambda store, run_id, seq: store.journal.tool_calls.get(run_id, seq)),
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
