"""Prunes that die in the middle."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from support.maintenance import killed_prunes
from support.maintenance.rows import counts, difference, insert, run_row

from lastlight_state.testing import Database

PROGRAM = Path(killed_prunes.__file__)
KILLS = [
    pytest.param("runs", 5, id="runs: 5 kills"),
    pytest.param("runs", 100, id="runs: 100 kills", marks=pytest.mark.soak),
    pytest.param("journal", 100, id="journals: 100 kills", marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("kind", "kills"), KILLS)
def test_a_prune_that_is_killed_again_and_again_removes_what_an_undisturbed_one_does(
    fresh_database: Database, kind: str, kills: int
) -> None:
    """maintenance OP-28, OP-31, OP-90, case 8: its receipt counts exactly what is gone, and no survivor is lost."""
    raw, now = fresh_database.raw(), fresh_database.clock.now()
    victims, survivors = [f"v{n:04}" for n in range(2 * kills)], ["s1", "s2"]
    for keys, days in ((victims, 40), (survivors, 1)):
        insert(raw, "workflow_runs", *(run_row(key, now - timedelta(days=days)) for key in keys))
        event = {"type": "e", "occurred_at": now, "payload": "{}"}
        insert(raw, "run_events", *({"run_id": key, "seq": n, **event} for key in keys for n in range(3)))
    before = counts(fresh_database)
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM), fresh_database.url, str(kills), "seed", kind],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    assert int(finished.stdout) >= min(5, kills)
    whole = {"run_events": 3 * len(victims), "workflow_runs": len(victims)}
    gone = whole if kind == "runs" else {"run_events": 2 * len(victims)}
    assert difference(before, counts(fresh_database)) == gone
    receipts = raw.execute("SELECT state FROM maintenance_receipts").fetchall()
    assert [state for (state,) in receipts] == ["done"]
    with fresh_database.open() as store:
        [receipt] = store.receipts.list()
        assert receipt.counts == gone
        left = {run.id for run in store.workflows.runs.list(limit=500)}
        assert left == {*survivors, *(victims if kind == "journal" else ())}
    assert raw.execute("SELECT count(*) FROM tombstones").fetchone()[0] == gone.get("workflow_runs", 0)
