"""Every list and look-up of the journal uses its index."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from support.messaging.plans import Plans
from support.workflows.steps import Raw, started

from lastlight_state.db.rows.statements import Statement
from lastlight_state.db.rows.writes import as_list
from lastlight_state.journal import NewEvent, sandboxes, tool_calls as calls
from lastlight_state.journal.events import statements as events
from lastlight_state.journal.frames import statements as frames
from lastlight_state.journal.scores import statements as scores
from lastlight_state.journal.shared import COUNTERS
from lastlight_state.journal.signals import statements as signals
from lastlight_state.testing import Database

TABLES = ("run_events", "run_signals", "run_frames", "tool_calls", "sandboxes", "scores")
RUNS = 10

_SIGNAL = "seq, signal_name, received_at, correlation_id, signal_id, consumed_at, consumed_by, payload"
#: What each run gets, one row for each ``i``; ``{at}`` is a time that grows with it.
FILL = {
    "run_events (run_id, seq, type, occurred_at, node_id, event_id, payload)": "?, i - 1, 't' || (i % 20), {at}, "
    "CASE WHEN i % 2 = 0 THEN 'n' || (i % 50) END, CASE WHEN i % 3 = 0 THEN 'e' || i END, {empty}",
    f"run_signals (run_id, {_SIGNAL})": (
        "?, i - 1, 's' || (i % 20), {at}, 'c' || (i % 100), 'e' || i, "
        "CASE WHEN i % 10 > 0 THEN {at} END, CASE WHEN i % 10 > 0 THEN 'w' || i END, {empty}"
    ),
    "run_frames (run_id, frame_no, created_at, encoding, content_hash, full_bytes, body)": "?, i - 1, {at}, "
    "CASE WHEN i % 50 = 1 THEN 'keyframe' ELSE 'delta' END, 'x', 4, 'null'",
    "tool_calls (run_id, seq, node_id, execution_id, call_id, tool_name, started_at, status, finished_at)": "?, i - 1, "
    "'n' || (i % 50), 'x' || i, 'e' || i, 'grep', {at}, CASE WHEN i % 100 = 0 THEN 'running' ELSE 'failed' END, "
    "CASE WHEN i % 100 > 0 THEN {at} END",
    "sandboxes (run_id, sandbox_id, status, created_at, updated_at)": "?, 'b' || i, "
    "CASE WHEN i % 100 = 0 THEN 'running' ELSE 'completed' END, {at}, {at}",
    "scores (run_id, id, node_id, iteration, scorer_id, scorer_name, source, score, scored_at)": "?, ? || i, "
    "'n' || (i % 50), i, 'j' || (i % 20), 'judge', 'live', i, {at}",
}
ROWS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < CAST(? AS INTEGER))"


class Expected(NamedTuple):
    """A statement, the indexes that its plan names, and whether it may sort what it found."""

    what: str
    statement: Statement[Any]
    indexes: tuple[str, ...]
    values: Mapping[str, Any] = MappingProxyType({})
    sorts: bool = False


@pytest.fixture(params=[2_000, pytest.param(100_000, marks=pytest.mark.soak)])
def filled(request: pytest.FixtureRequest, fresh_database: Database) -> tuple[str, bool]:
    """Ten runs with a tenth of so many rows of each kind, one of them, and whether that is little for Postgres.

    Nothing but the test gathers statistics.
    """
    raw, store = Raw(fresh_database), fresh_database.open()
    run_ids = [started(store).id for _ in range(RUNS)]
    is_sqlite = fresh_database.name == "sqlite"
    since = fresh_database.clock.now()
    words = {
        "at": f"strftime('%Y-%m-%dT%H:%M:%fZ', '{since.isoformat()[:23]}', '+' || i || ' seconds')"
        if is_sqlite
        else f"CAST('{since.isoformat()}' AS timestamptz) + i * interval '1 second'",
        "empty": "'{}'" if is_sqlite else "CAST('{}' AS jsonb)",
    }
    if not is_sqlite:
        for table in TABLES:
            raw(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    for target, columns in FILL.items():
        for run_id in run_ids:
            ids = [run_id] * columns.count("?")
            raw(f"INSERT INTO {target} {ROWS} SELECT {columns.format(**words)} FROM n", request.param // RUNS, *ids)
    raw.analyze()
    return run_ids[5], not is_sqlite and request.param < 10_000


def test_every_list_and_look_up_uses_its_index(fresh_database: Database, filled: tuple[str, bool]) -> None:
    """journal P-2."""
    run_id, is_small = filled
    common = {"run_id": run_id, "after_0": 50, "after_1": "x", "after_2": "y", "seq": 5, "frame_no": 120}
    plans = Plans(fresh_database, common)
    wrong = []
    for one in expected(run_id, fresh_database.clock.now()):
        if is_small:  # for so few rows Postgres would rather sort than read in order
            for way in ("seqscan", "sort", "bitmapscan"):
                plans.set(f"enable_{way}", "on" if one.sorts and way != "seqscan" else "off")
        plan = plans.of(one.statement, one.values)
        if not _is_fit(plan, one, fresh_database.name):
            wrong.append(f"{one.what}: {plan}")
    assert not wrong, "\n\n".join(wrong)


def test_keys_are_looked_up_by_their_index_also_where_events_had_none(fresh_database: Database) -> None:
    """journal P-2: with statistics from before the first key, an array of keys would be compared event by event."""
    store, raw = fresh_database.open(), Raw(fresh_database)
    run_id = started(store).id
    if fresh_database.name != "sqlite":
        raw("ALTER TABLE run_events SET (autovacuum_enabled = off)")
    store.journal.events.append_many(run_id, [NewEvent("old", {})] * 1000)
    raw.analyze()
    store.journal.events.append_many(run_id, [NewEvent("new", {}, event_id=f"e{n}") for n in range(1000)])
    asked = as_list([{"run_id": run_id, "event_id": f"e{n}"} for n in range(1000)])
    values = {"runs": as_list([{"run_id": run_id}]), "keys": asked, "replays": as_list([])}
    plans = Plans(fresh_database, {"run_id": run_id})
    if fresh_database.name != "sqlite":
        plans.set("enable_seqscan", "off")  # two thousand short events are few
    plan = plans.of(events.STORED, values)
    assert re.search(r"run_id ?= ?.* AND \(?event_id ?=", plan), plan


def expected(run_id: str, now: Any) -> Iterator[Expected]:
    yield from of_events(run_id, now)
    yield from of_signals(run_id, now)
    yield from of_frames_and_calls(run_id)
    yield from of_sandboxes_and_scores(run_id, now)


def of_events(run_id: str, now: Any) -> Iterator[Expected]:
    of_run = {"run_id": run_id}
    yield Expected("event", events.GET, ("pk_run_events",))
    yield Expected("event by key", events.FIND, ("uq_run_events_event_id",), {"event_id": "e3"})
    yield Expected("last event", events.LATEST, ("pk_run_events",))
    yield Expected("counters", COUNTERS, ("pk_run_sequences",), {"runs": as_list([{"run_id": run_id}])})
    yield Expected("first event after", events.FIRST_AFTER, ("pk_run_events",), {"after_seq": 50})
    lists: dict[str, tuple[dict[str, Any], str]] = {
        "run": ({}, "pk_run_events"),
        "type": ({"types": ["t1"]}, "pk_run_events"),
        "types": ({"types": ["t1", "t2"]}, "pk_run_events"),
        "node": ({"node_id": "n2"}, "ix_run_events_node"),
        "after": ({"after_seq": 50}, "pk_run_events"),
    }
    values = {"types_0": "t1", "types_1": "t2", "node_id": "n2", "after_seq": 50}
    yield Expected("replayed event", events.OF_TIME, ("ix_run_events_occurred",), {"occurred_at": now}, sorts=True)
    for order, listing in events.LISTS.items():
        for name, (chosen, index) in lists.items():
            for paged in (False, True):
                statement = listing.statement({**of_run, **chosen}, paged=paged)
                yield Expected(f"events {order} by {name}, paged: {paged}", statement, (index,), values)
    early = {"since": now, "until": now + timedelta(seconds=3)}
    statement = events.LISTS["oldest_first"].statement({**of_run, **early}, paged=False)
    yield Expected("events of a time", statement, ("ix_run_events_occurred",), early, sorts=True)
    known = {
        "runs": as_list([of_run]),
        "keys": as_list([{"run_id": run_id, "event_id": "e3"}]),
        "replays": as_list([{"occurred_at": now.isoformat()}]),
    }
    yield Expected("known events", events.STORED, ("uq_run_events_event_id", "ix_run_events_occurred"), known, True)


def of_signals(run_id: str, now: Any) -> Iterator[Expected]:
    of_run = {"run_id": run_id}
    yield Expected("signal", signals.GET, ("pk_run_signals",))
    yield Expected("signal by key", signals.FIND, ("uq_run_signals_signal_id",), {"signal_id": "e3"})
    yield Expected("what a consumer took", signals.TAKEN, ("uq_run_signals_consumer",), {"consumer": "w5"})
    yield Expected("last signal", signals.LATEST, ("pk_run_signals",))
    replayed = {"signal_name": "s1", "correlation_id": "c1", "received_at": now}
    for has_correlation, statement in signals.REPLAYED.items():
        what = f"replayed signal, correlation: {has_correlation}"
        yield Expected(what, statement, ("ix_run_signals_name",), replayed, sorts=True)
    waiting = {"signal_name": "s1", "consumer": "w", "consumed_at": now}
    pending = frozenset({"run_id", "signal_name"})
    yield Expected("pending signal", signals.oldest(pending), ("ix_run_signals_pending",), waiting)
    yield Expected("take", signals.take(pending), ("ix_run_signals_pending", "pk_run_signals"), waiting)
    yield Expected("signals", signals.LISTS["oldest_first"].statement(of_run, paged=True), ("pk_run_signals",))


def of_frames_and_calls(run_id: str) -> Iterator[Expected]:
    of_run = {"run_id": run_id}
    yield Expected("frame", frames.GET, ("pk_run_frames",))
    yield Expected("last frame", frames.LATEST, ("pk_run_frames",))
    yield Expected("chain of a frame", frames.CHAIN, ("ix_run_frames_anchors", "pk_run_frames"))
    yield Expected("window of frames", frames.WINDOW, ("pk_run_frames",), {"after": 50, "upto": 100})
    yield Expected("frames", frames.LIST.statement(of_run, paged=True), ("pk_run_frames",))

    yield Expected("tool call", calls.GET, ("pk_tool_calls",))
    yield Expected("tool call by key", calls.FIND, ("uq_tool_calls_call_id",), {"call_id": "e5"})
    yield Expected("tool calls", calls.NEWEST.statement(of_run, paged=True), ("pk_tool_calls",))
    running = {"status": "running", "open": {}}
    statement = calls.NEWEST.statement({**of_run, **running}, paged=False)
    yield Expected("open tool calls", statement, ("ix_tool_calls_open",), {"status": "running"})
    of_node = {"node_id": "n2", "after_0": 0, "after_1": 1, "after_2": 50}
    statement = calls.BY_TASK.statement({**of_run, "node_id": "n2"}, paged=True)
    yield Expected("tool calls of a node", statement, ("ix_tool_calls_task",), of_node)


def of_sandboxes_and_scores(run_id: str, now: Any) -> Iterator[Expected]:
    of_run = {"run_id": run_id}
    latest = {"status": "completed", "after_0": now + timedelta(seconds=50), "after_1": run_id, "after_2": "b50"}
    yield Expected("sandbox", sandboxes.GET, ("pk_sandboxes",), {"sandbox_id": "b5"})
    yield Expected("sandboxes", sandboxes.LIST.statement({}, paged=True), ("ix_sandboxes_newest",), latest)
    statement = sandboxes.LIST.statement({"status": "x"}, paged=True)
    yield Expected("sandboxes of a status", statement, ("ix_sandboxes_status",), latest)
    statement = sandboxes.OF_RUN.statement({**of_run, "status": "x"}, paged=False)
    yield Expected("sandboxes of a run", statement, ("(run_id",), latest, sorts=True)  # by the run, in any order

    attempt = {"id": "i5", "node_id": "n5", "iteration": 5, "attempt": 1, "scorer_id": "j5", "source": "live"}
    yield Expected("score", scores.GET, ("pk_scores",), attempt)
    yield Expected("known scores", scores.KNOWN, ("pk_scores", "uq_scores_current"), attempt, sorts=True)
    after = {"after_0": now + timedelta(seconds=50), "scorer_id": "j1", "run_ids_0": run_id, "run_ids_1": "x"}
    for name, chosen, index in (
        ("", {}, "ix_scores_newest"),
        (" of runs", {"run_ids": [run_id, "x"]}, "ix_scores_run"),
        (" of a run", {"run_ids": [run_id]}, "ix_scores_run"),
        (" of a scorer", {"scorer_id": "j1"}, "ix_scores_scorer"),
    ):
        listed = scores.LIST.statement({**chosen, "current": {}}, paged=True)
        yield Expected(f"scores{name}", listed, (index,), after, sorts="scorer_id" in chosen)  # few are left


def _is_fit(plan: str, one: Expected, database: str) -> bool:
    names = [_on_sqlite(name) if database == "sqlite" else name for name in one.indexes]
    scans = ("Seq Scan", "SCAN run_", "SCAN tool_calls", "SCAN sandboxes", "SCAN scores")
    scanned = [
        line for line in plan.splitlines() if any(word in line for word in scans) and " USING INDEX " not in line
    ]
    sorted_ = [] if one.sorts else [line for line in plan.splitlines() if "  Sort" in line and "Key" not in line]
    if database == "sqlite" and not one.sorts and "MERGE" not in plan:
        sorted_ += [line for line in plan.splitlines() if "TEMP B-TREE" in line]
    return all(name in plan for name in names) and not scanned and not sorted_


def _on_sqlite(index: str) -> str:
    return f"sqlite_autoindex_{index.removeprefix('pk_')}_1" if index.startswith("pk_") else index
