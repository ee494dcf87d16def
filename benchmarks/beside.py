"""Every list on SQLite, over 300 rows whose large columns hold 10 bytes, and 1 MB each.

Another connection commits before each page, so that the page cache is empty.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from benchmarks import beside_rows as rows
from benchmarks.measure import Result
from lastlight_state import StateStore
from lastlight_state.journal.arguments import ScoreFilter, ToolCallFilter
from lastlight_state.workflows.arguments import NodeRef

#: The most that a page beside large values may cost, as a multiple of a page of small rows.
GOAL = 2.0

ROWS, SMALL, LARGE = 300, 10, 1_000_000
_ROUNDS = 25

Lists = dict[str, Callable[[StateStore], object]]
Rows = Callable[[int, str], dict[str, Any]]


class Large(BaseModel):
    """A row of an output table."""

    text: str


@dataclass(frozen=True)
class Group:
    """Tables to fill, each with the row of a number and a large text, and the lists over them."""

    tables: dict[str, Rows]
    lists: Lists


GROUPS = (
    Group(
        {"workflow_runs": rows.run},
        {
            "runs": lambda s: s.workflows.runs.list(limit=20),
            "runs, active first": lambda s: s.workflows.runs.list(limit=20, order="active_first"),
            "runs by status": lambda s: s.workflows.runs.list(limit=20, statuses=["paused"]),
            "runs by workflow": lambda s: s.workflows.runs.list(limit=20, workflow_names=["wf-1"]),
            "runs by repository": lambda s: s.workflows.runs.list(limit=20, repo="acme/widgets"),
            "runs by two repositories": lambda s: s.workflows.runs.list(
                limit=20, repo=["acme/widgets", "acme/gadgets"]
            ),
            "queue": lambda s: s.workflows.queue.list(limit=20),
            "waiting for a signal": lambda s: s.workflows.waits.list_waiting("go", limit=20),
            "children": lambda s: s.workflows.lookups.list_children(rows.RUN, limit=20),
            "newest run of a trigger": lambda s: s.workflows.lookups.find_for_trigger("t-1"),
            "newest run of a trigger in each workflow": lambda s: s.workflows.lookups.latest_by_workflow(
                "t-1", [f"wf-{i}" for i in range(5)]
            ),
            "claimable runs": lambda s: s.workflows.claims.list_claimable(limit=20),
            "claimable runs by workflow": lambda s: s.workflows.claims.list_claimable(
                limit=20, workflow_names=["wf-1"]
            ),
            "unhealthy runs": lambda s: s.workflows.health.list_unhealthy(limit=20),
        },
    ),
    Group(
        {"workflow_runs": rows.slim_run, "executions": rows.execution},
        {
            "executions": lambda s: s.workflows.executions.list(limit=20),
            "executions of a run": lambda s: s.workflows.executions.list(limit=20, run_id=rows.ASKED),
            "executions by outcome": lambda s: s.workflows.executions.list(limit=20, outcomes=["succeeded"]),
            "executions by skill": lambda s: s.workflows.executions.list(limit=20, skill="build"),
            "executions by trigger": lambda s: s.workflows.executions.list(limit=20, trigger_id="t-1"),
            "executions in flight": lambda s: s.workflows.executions.list(limit=20, outcomes=["running"]),
            "executions of a node": lambda s: s.workflows.executions.list(
                limit=20, run_id=rows.ASKED, node=NodeRef("n")
            ),
            "chat threads": lambda s: s.workflows.usage.list_threads(limit=20),
            "search for an error": lambda s: s.workflows.lookups.search_errors("uil", since=rows.BEGIN, limit=20),
        },
    ),
    Group(
        {
            "workflow_runs": rows.live_run,
            "executions": rows.execution,
            "workflow_approvals": rows.approval,
            "human_requests": rows.request,
        },
        {
            "claimable runs beside their questions": lambda s: s.workflows.claims.list_claimable(limit=20),
            "unhealthy runs beside executions and questions": lambda s: s.workflows.health.list_unhealthy(limit=20),
            "number of pending approvals": lambda s: s.workflows.approvals.count_pending(),
            "number of pending requests": lambda s: s.workflows.human_requests.count_pending(),
            "timeline": lambda s: s.maintenance.timeline.list(rows.ASKED, limit=20),
        },
    ),
    Group(
        {"workflow_runs": rows.run, "workflow_approvals": rows.approval},
        {
            "approvals": lambda s: s.workflows.approvals.list(limit=20),
            "approvals by status": lambda s: s.workflows.approvals.list(limit=20, statuses=["pending"]),
            "approvals by artifact": lambda s: s.workflows.approvals.list(limit=20, artifact="plan"),
            "approvals by trigger": lambda s: s.workflows.approvals.list(limit=20, trigger_id="t-1"),
            "approvals of a run": lambda s: s.workflows.approvals.list_for_run(rows.ASKED, limit=20),
            "history of approvals": lambda s: s.workflows.approvals.list_history("wf-1", limit=20),
            "inbox of approvals": lambda s: s.workflows.approvals.list_pending(limit=20),
            "inbox of approvals, oldest": lambda s: s.workflows.approvals.list_pending(limit=20, order="oldest"),
            "inbox of approvals of a run": lambda s: s.workflows.approvals.list_pending(limit=20, run_id=rows.ASKED),
        },
    ),
    Group(
        {"workflow_runs": rows.run, "human_requests": rows.request},
        {
            "requests of a run": lambda s: s.workflows.human_requests.list_for_run(rows.ASKED, limit=20),
            "inbox of requests": lambda s: s.workflows.human_requests.list_pending(limit=20),
            "inbox of requests, oldest": lambda s: s.workflows.human_requests.list_pending(limit=20, order="oldest"),
            "inbox of requests of a run": lambda s: s.workflows.human_requests.list_pending(
                limit=20, run_id=rows.ASKED
            ),
        },
    ),
    Group(
        {"messaging_sessions": rows.session, "messaging_messages": rows.message},
        {
            "chat sessions": lambda s: s.messaging.sessions.list(limit=20),
            "chat sessions of a channel": lambda s: s.messaging.sessions.list(
                limit=20, platform="slack", channel_id="c"
            ),
            "messages of a session": lambda s: s.messaging.messages.list("s-000", limit=20),
        },
    ),
    Group(
        {"cron_schedules": rows.cron, "cron_fires": rows.fire},
        {
            "crons": lambda s: s.schedules.crons.list(limit=20),
            "fires": lambda s: s.schedules.fires.list(limit=20),
            "fires of a cron": lambda s: s.schedules.fires.list(limit=20, cron_name="cron-001"),
            "health of crons": lambda s: s.schedules.fires.health([f"cron-{i:03}" for i in range(5)]),
            "fires that run": lambda s: s.schedules.fires.list(limit=20, status="running"),
        },
    ),
    Group(
        {"workflow_runs": rows.slim_run, "run_frames": rows.frame, "tool_calls": rows.call},
        {
            "frames": lambda s: s.journal.frames.list(rows.RUN, limit=20),
            "tool calls": lambda s: s.journal.tool_calls.list(rows.RUN, limit=20),
            "tool calls of a node": lambda s: s.journal.tool_calls.list(
                rows.RUN, where=ToolCallFilter(node_id="n"), limit=20
            ),
            "open tool calls": lambda s: s.journal.tool_calls.list(
                rows.RUN, where=ToolCallFilter(status="running"), limit=20
            ),
        },
    ),
    Group(
        {"workflow_runs": rows.slim_run, "sandboxes": rows.sandbox, "scores": rows.score},
        {
            "sandboxes": lambda s: s.journal.sandboxes.list(limit=20),
            "sandboxes of a run": lambda s: s.journal.sandboxes.list(run_id=rows.RUN, limit=20),
            "scores": lambda s: s.journal.scores.list(limit=20),
            "scores of a run": lambda s: s.journal.scores.list(where=ScoreFilter(run_ids=[rows.RUN]), limit=20),
        },
    ),
    Group(
        {
            "workflow_runs": rows.slim_run,
            "run_inputs": rows.run_input,
            "output_tables": rows.registered,
            "output_cache": rows.cached,
            "large": rows.output,
        },
        {
            "revisions of an input": lambda s: s.outputs.inputs.list(rows.RUN, limit=20),
            "output tables": lambda s: s.outputs.catalog.list(limit=20),
            "cached outputs": lambda s: s.outputs.cache.list(limit=20),
            "rows of an output table": lambda s: s.outputs.results.list("large", limit=20),
            "rows of an output table of a run": lambda s: s.outputs.results.list("large", run_id=rows.RUN, limit=20),
        },
    ),
)


def results(only: str = "") -> Iterator[Result]:
    """Each list, small rows as the bare driver's column: ``ours`` is the page beside large values."""
    for group in GROUPS:
        lists = {name: call for name, call in group.lists.items() if only in name}
        if lists:
            yield from _group(group, lists)


def _group(group: Group, lists: Lists) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        small, large = (
            _Filled(Path(folder) / name, group, size, stack) for name, size in (("small", SMALL), ("large", LARGE))
        )
        for name, call in lists.items():
            yield _compare(name, call, small, large)


class _Filled:
    """A store over rows of one size, and the other connection."""

    def __init__(self, folder: Path, group: Group, size: int, stack: ExitStack) -> None:
        folder.mkdir()
        url = str(folder / "bench.db")
        self.store = stack.enter_context(StateStore.open(url, state_dir=folder))
        if "large" in group.tables:
            self.store.outputs.define("large", Large)
        self.other = sqlite3.connect(url, isolation_level=None)
        stack.callback(self.other.close)
        self._fill(group, "x" * size)
        self._commits = 0

    def _fill(self, group: Group, large: str) -> None:
        self.other.execute("PRAGMA synchronous = OFF")
        for table, row_of in group.tables.items():
            self.other.execute("BEGIN")
            for i in range(ROWS):
                row = row_of(i, large)
                marks = ", ".join("?" * len(row))
                self.other.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
            self.other.execute("COMMIT")
        self.other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def time(self, call: Callable[[StateStore], object]) -> float:
        """Microseconds of one page after a commit of the other connection."""
        self._commits += 1
        self.other.execute(
            "INSERT OR REPLACE INTO workflow_overrides (name, updated_at) VALUES ('other', ?)", [rows.at(self._commits)]
        )
        begin = time.perf_counter()
        call(self.store)
        return (time.perf_counter() - begin) * 1e6


def _compare(name: str, call: Callable[[StateStore], object], small: _Filled, large: _Filled) -> Result:
    for side in (small, large):
        side.time(call)
    times = [(large.time(call), small.time(call)) for _ in range(_ROUNDS)]
    beside, alone = (min(column) for column in zip(*times, strict=True))
    ratio = round(beside / alone, 2)
    return Result(name, "sqlite", round(beside, 1), round(alone, 1), ratio, ratio, GOAL)
