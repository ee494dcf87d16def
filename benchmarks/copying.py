"""A copy from SQLite to Postgres: its transfer beside a SELECT and a COPY by hand, and what proving it costs."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from benchmarks.databases import Side, sides
from benchmarks.measure import Result
from lastlight_state import StateStore
from lastlight_state.maintenance import CopyProgress
from lastlight_state.testing import ThrowawayPostgres
from lastlight_state.testing.postgres import connect
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import RunOptions

ROWS, ROUNDS, GOAL = 1_000_000, 3, 1.5
COLUMNS = "run_id, seq, type, occurred_at, node_id, event_id, payload"
RUN = "run-1"
PAYLOAD = '{"text": "' + "The build is green again. " * 8 + '"}'


def results() -> Iterator[Result]:
    """The phases of copies of a million events, each beside the same transfer by hand."""
    with tempfile.TemporaryDirectory() as folder, sides(["sqlite"], Path(folder)) as [source]:
        _fill(source)
        with ThrowawayPostgres.start() as server:
            times = [_round(source, server) for _ in range(ROUNDS)]
    for phase, goal in (("planned", None), ("copied", GOAL), ("verified", None)):
        pairs = [(ours[phase], raw) for ours, raw in times]
        ratios = [mine / theirs for mine, theirs in pairs]
        yield Result(
            f"copy {ROWS:,} events: {phase}",
            "postgresql",
            round(1e6 * statistics.median(mine for mine, _ in pairs), 1),
            round(1e6 * statistics.median(theirs for _, theirs in pairs), 1),
            round(statistics.median(ratios), 2),
            round(min(ratios), 2),
            goal,
        ).divided(ROWS)


def _fill(source: Side) -> None:
    _create_run(source.store)
    at = source.now()
    rows = ((RUN, seq, "token", at, "node", None, PAYLOAD) for seq in range(ROWS))
    source.driver.execute("BEGIN")
    source.driver.executemany(f"INSERT INTO run_events ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    source.driver.execute("COMMIT")


def _create_run(store: StateStore) -> None:
    store.workflows.runs.create("w", trigger=Trigger("t"), phase="p", options=RunOptions(id=RUN))


def _round(source: Side, server: ThrowawayPostgres) -> tuple[dict[str, float], float]:
    with server.database() as ours, server.database() as theirs:
        with StateStore.open(theirs, migrate=True) as store:
            _create_run(store)
            raw = _by_hand(source, theirs)
        ends: dict[str, float] = {}

        def tell(progress: CopyProgress) -> None:
            ends[progress.phase] = time.perf_counter()

        with StateStore.open(ours, migrate=True):
            began = time.perf_counter()
        source.store.maintenance.copy.run(ours, on_progress=tell)
    marks = [began, ends["planned"], ends["copied"], ends["verified"]]
    spans = [after - before for before, after in pairwise(marks)]
    return dict(zip(("planned", "copied", "verified"), spans, strict=True)), raw


def _by_hand(source: Side, url: str) -> float:
    """Seconds to read the rows in the order of their key and to COPY them, in one transaction."""
    driver = connect(url)
    began = time.perf_counter()
    rows = source.driver.execute(f"SELECT {COLUMNS} FROM run_events ORDER BY run_id, seq")
    with driver.cursor() as cursor, cursor.copy(f"COPY run_events ({COLUMNS}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
    found = time.perf_counter() - began
    driver.close()
    return found
