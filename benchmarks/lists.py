"""Pages of 20 run summaries over many runs, of which the newest 1,000 have contexts of 256 KB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.databases import Side
from benchmarks.goals import goal
from benchmarks.measure import Result, compare
from lastlight_state.workflows.indexes import RUN_SUMMARY

LARGE = 1_000
_STATUSES = ("succeeded", "succeeded", "succeeded", "failed", "cancelled", "succeeded", "failed", "succeeded")
_COLUMNS = (
    "id workflow_name trigger_id repo current_phase status context started_at updated_at finished_at owner "
    "trigger_type triggered_by phase_count"
)
_SUMMARY = ", ".join(RUN_SUMMARY)
_TOTALS = (
    "SELECT workflow_run_id, count(*), sum(cost_micros), sum(input_tokens), sum(output_tokens), "
    "sum(cache_read_input_tokens), sum(cache_creation_input_tokens) FROM executions "
    "WHERE workflow_run_id IN ({places}) GROUP BY workflow_run_id"
)


def results(side: Side, runs: int) -> Iterator[Result]:
    """The lists that dashboards poll."""
    fill(side, runs)
    store = side.store.workflows.runs
    yield _page(side, "list 20 runs", lambda: store.list(limit=20), "", ())
    yield _page(
        side,
        "list 20 runs by status",
        lambda: store.list(limit=20, statuses=["failed"]),
        "WHERE status = ?",
        ("failed",),
    )
    yield _page(
        side,
        "list 20 runs, active first",
        lambda: store.list(limit=20, order="active_first"),
        "WHERE status = ?",
        ("running",),
    )


def fill(side: Side, runs: int) -> None:
    """Insert ``runs`` runs, oldest first, the newest ones large; 200 of them are running."""
    columns = _COLUMNS.split()
    text = side.sql(f"INSERT INTO workflow_runs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})")
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    large = '{"body":"' + "x" * (256 * 1024 - 20) + '"}'
    cursor = side.driver.cursor()
    for first in range(0, runs, 10_000):
        cursor.execute("BEGIN")
        cursor.executemany(text, [_row(side, begin, i, runs, large) for i in range(first, min(first + 10_000, runs))])
        cursor.execute("COMMIT")
    cursor.execute("ANALYZE")


def _row(side: Side, begin: datetime, i: int, runs: int, large: str) -> tuple[Any, ...]:
    moment = begin + timedelta(seconds=i)
    at: Any = moment.isoformat(timespec="milliseconds")[:23] + "Z" if side.name == "sqlite" else moment
    status = "running" if i % (runs // 200) == 0 else _STATUSES[i % len(_STATUSES)]
    context = large if i >= runs - LARGE else '{"a":1}'
    return (
        f"run-{i:08}",
        f"wf-{i % 7}",
        f"trigger-{i}",
        "widgets",
        "build",
        status,
        context,
        at,
        at,
        at,
        "acme",
        "api",
        "ana",
        1,
    )


def _page(side: Side, path: str, ours: Callable[[], object], where: str, values: tuple[Any, ...]) -> Result:
    select = side.sql(f"SELECT {_SUMMARY} FROM workflow_runs {where} ORDER BY started_at DESC, id DESC LIMIT 21")
    totals = side.sql(_TOTALS.format(places=", ".join("?" * 20)))
    execute = side.driver.execute

    times = [i for i, name in enumerate(RUN_SUMMARY) if name.endswith("_at")]

    def raw() -> list[list[Any]]:
        rows = [list(row) for row in execute(select, values).fetchall()]
        if side.name == "sqlite":  # psycopg gives times as values by itself
            for row in rows:
                for i in times:
                    row[i] = row[i] and datetime.fromisoformat(row[i])
        execute(totals, [row[0] for row in rows[:20]]).fetchall()
        return rows

    return compare(path, side.name, ours, raw, goal=goal(path, side.name), calls=100)
