"""Prunes that die in the middle."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pytest
from support.maintenance import killed_prunes
from support.maintenance.rows import counts, difference, insert, run_row
from support.preloaded import run_program

from lastlight_state.testing import Database

PROGRAM = Path(killed_prunes.__file__)
KILLS = [
    pytest.param("runs", 5, id="runs: 5 kills"),
    pytest.param("runs", 100, id="runs: 100 kills", marks=pytest.mark.soak),
    pytest.param("journal", 100, id="journals: 100 kills", marks=pytest.mark.soak),
]


def killed(database: Database, kills: int, kind: str) -> int:
    """How many processes were killed that pruned records of a kind; the last one came to the end."""
    finished = run_program(
        [sys.executable, "-W", "error", str(PROGRAM), database.url, str(kills), "seed", kind],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    return int(finished.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kills"), KILLS)
def test_a_prune_that_is_killed_again_and_again_removes_what_an_undisturbed_one_does(
    fresh_database: Database, kind: str, kills: int
) -> None:
    """maintenance OP-28, OP-31, OP-90: its receipt counts exactly what is gone, and no survivor is lost."""
    raw, now = fresh_database.raw(), fresh_database.clock.now()
    victims, survivors = [f"v{n:04}" for n in range(2 * kills)], ["s1", "s2"]
    for keys, days in ((victims, 40), (survivors, 1)):
        insert(raw, "workflow_runs", *(run_row(key, now - timedelta(days=days)) for key in keys))
        event = {"type": "e", "occurred_at": now, "payload": "{}"}
        insert(raw, "run_events", *({"run_id": key, "seq": n, **event} for key in keys for n in range(3)))
    before = counts(fresh_database)
    assert killed(fresh_database, kills, kind) >= min(5, kills)
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


@pytest.mark.soak
def test_a_prune_of_orphans_that_is_killed_again_and_again_goes_through_both_stages(fresh_database: Database) -> None:
    """maintenance OP-31, OP-91: an order is whole or gone, and its messages go in the end."""
    raw, old, young = fresh_database.raw(), *(fresh_database.clock.now() - timedelta(days=n) for n in (40, 1))
    for name, made in (("v", old), ("s", young)):
        messages = [f"{name}{n}" for n in range(40)]
        insert(raw, "messages", *({"id": one, "role": "u", "content": "1", "created_at": made} for one in messages))
        for n in range(20):
            insert(raw, "progressions", {"id": f"{name}{n}", "next_ord": 2, "created_at": made})
            links = ({"progression_id": f"{name}{n}", "ord": m, "message_id": messages[2 * n + m]} for m in range(2))
            insert(raw, "progression_links", *links)
    before = counts(fresh_database)
    assert killed(fresh_database, 20, "orphans") == 20
    gone = {"messages": 40, "progression_links": 40, "progressions": 20}
    assert difference(before, counts(fresh_database)) == gone
    with fresh_database.open() as store:
        [receipt] = store.receipts.list()
        assert (receipt.state, receipt.counts) == ("done", gone)
