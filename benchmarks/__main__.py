"""``python -m benchmarks``: every path on both databases, as ratios to the bare driver, against the goals."""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks import (
    approvals,
    awaited,
    beside,
    claims,
    conversations,
    copying,
    exchange,
    executions,
    journal,
    lines,
    lists,
    mailboxes,
    memories,
    messages,
    opening,
    outputs,
    peers,
    run_logs,
    runs,
    seed,
    sharing,
    vectors,
)
from benchmarks.databases import Side, sides
from benchmarks.measure import CLOCKS, Result, hurry, tell_time_by

DATABASES = ("sqlite", "postgresql")
#: One copies a million rows three times, one fills some gigabytes, and one needs LangGraph and its stores.
_ASKED_FOR = frozenset({"copying", "beside", "memories"})
#: What ``--quick`` leaves out as well, and the most runs in its lists.
_SLOW = frozenset({"vectors", "seed", "sharing", "processes", "mailboxes"})
_QUICK_RUNS = 20_000
_HEAD = (
    "| path | database | µs | raw µs | ratio | best | goal | |",
    "|---|---|---|---|---|---|---|---|",
)


def main() -> int:
    """Run, print the table, and write the JSON that ``--json`` asks for. Missed goals are shown, not failed."""
    options = _options()
    tell_time_by(options.clock)
    if options.quick:
        hurry()
    found = []
    many = min(options.runs, _QUICK_RUNS) if options.quick else options.runs
    for result in _results(options.database or DATABASES, many, options.only, options.quick):
        found.append(result)
        _show(result)
    if options.json:
        report = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version, "runs": options.runs}
        report["results"] = [result.as_dict() for result in found]
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if options.markdown:
        rows = [*_HEAD, *(result.as_row() for result in found)]
        Path(options.markdown).write_text("\n".join(rows) + "\n", encoding="utf-8")
    return 0


def _results(databases: Sequence[str], many: int, only: str | None, quick: bool) -> Iterator[Result]:
    """Yield the results of the group that is asked for, or of all that need not be asked for."""
    on_each: dict[str, Callable[[Side], Iterator[Result]]] = {
        "runs": runs.results,
        "executions": executions.results,
        "claims": claims.results,
        "approvals": approvals.results,
        "messages": messages.results,
        "conversations": conversations.results,
        "exchange": exchange.results,
        "vectors": vectors.results,
        "memories": memories.results,
        "journal": journal.results,
        "outputs": outputs.results,
        "awaited": awaited.results,
        "opening": opening.results,
        "lists": lambda side: lists.results(side, many),
    }
    others: dict[str, Callable[[], Iterator[Result]]] = {
        "seed": lambda: seed.results(databases),
        "sharing": sharing.results,
        "lines": lines.results,
        "run_logs": run_logs.results,
        "mailboxes": mailboxes.results,
        "peers": peers.results,
        "processes": opening.process_results,
        "copying": copying.results,
        "beside": beside.results,
    }
    groups: dict[str, Callable[[], Iterator[Result]]] = {
        **{name: partial(_on_each, databases, group) for name, group in on_each.items()},
        **others,
    }
    left_out = _ASKED_FOR | _SLOW if quick else _ASKED_FOR
    for name in [only] if only else [name for name in groups if name not in left_out]:
        yield from groups[name]()


def _on_each(databases: Sequence[str], group: Callable[[Side], Iterator[Result]]) -> Iterator[Result]:
    """Yield the group's results on databases of its own, so that no group meets what another one left."""
    with tempfile.TemporaryDirectory() as folder, sides(databases, Path(folder)) as opened:
        for side in opened:
            yield from group(side)


def _show(result: Result) -> None:
    goal = "" if result.goal is None else f"  goal {result.goal:<4} {'met' if result.met else 'MISSED'}"
    times = f"{result.ours_us:10.1f} {result.unit:5}  {result.raw_us:10.1f} {result.unit:5} raw"
    print(f"{result.path:44} {result.database:12} {times}  x{result.ratio:<5}{goal}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--database", action="append", choices=DATABASES, help="only this one (may be repeated)")
    parser.add_argument("--only", help="only one group, such as runs, messages, lines or lists")
    parser.add_argument("--runs", type=int, default=100_000, help="runs in the lists (default 100,000; try 1,000,000)")
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall", help="processor: of this thread, for SQLite")
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds, no whole processes, seed, sharing, vectors, mailboxes"
    )
    parser.add_argument("--markdown", metavar="FILE", help="write the table of docs/performance.md")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
