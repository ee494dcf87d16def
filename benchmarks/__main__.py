"""``python -m benchmarks``: every path on both databases, as ratios to the bare driver, against the goals."""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
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
    messages,
    opening,
    outputs,
    run_logs,
    runs,
    seed,
    sharing,
    vectors,
)
from benchmarks.databases import Side, sides
from benchmarks.measure import CLOCKS, Result, tell_time_by

DATABASES = ("sqlite", "postgresql")


def main() -> int:
    """Run, print the table, and write the JSON that ``--json`` asks for. Missed goals are shown, not failed."""
    options = _options()
    tell_time_by(options.clock)
    found = []
    for result in _results(options.database or DATABASES, options.runs, options.only):
        found.append(result)
        _show(result)
    if options.json:
        report = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version, "runs": options.runs}
        report["results"] = [result.as_dict() for result in found]
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


def _results(databases: Sequence[str], many: int, only: str | None) -> Iterator[Result]:
    groups: dict[str, Callable[[Side], Iterator[Result]]] = {
        "runs": runs.results,
        "executions": executions.results,
        "claims": claims.results,
        "approvals": approvals.results,
        "messages": messages.results,
        "conversations": conversations.results,
        "exchange": exchange.results,
        "vectors": vectors.results,
        "journal": journal.results,
        "outputs": outputs.results,
        "awaited": awaited.results,
        "opening": opening.results,
        "lists": lambda side: lists.results(side, many),
    }
    for name, group in groups.items():
        if only in (None, name):
            yield from _on_each(databases, group)
    if only in (None, "seed"):
        yield from seed.results(databases)
    if only in (None, "sharing"):
        yield from sharing.results()
    if only in (None, "lines"):
        yield from lines.results()
    if only in (None, "run_logs"):
        yield from run_logs.results()
    if only in (None, "opening"):
        yield from opening.import_results()
        yield from opening.command_results()
    if only == "copying":  # copies a million rows three times, so it is asked for
        yield from copying.results()
    if only == "beside":  # fills some gigabytes, so it is asked for
        yield from beside.results()


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
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
