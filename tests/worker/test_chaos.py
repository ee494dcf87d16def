"""Workers are killed and stopped again and again, and the database goes for longer than a lease: see `worker_chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.worker_chaos import Chaos, play

from lastlight_state import StateStore
from lastlight_state.testing import Database

#: Runs, kills, the lease, the seconds without a database, and the longest phase.
SMALL = (12, 4, 6.0, 8.0, 0.2)
LARGE = (200, 8, 10.0, 60.0, 0.8)


@pytest.mark.soak  # on a machine without a free processor a lease may end while its holder lives
@pytest.mark.parametrize("scale", [SMALL, LARGE], ids=["small", "large"])
def test_no_run_is_stuck_and_no_phase_is_done_twice_by_workers_that_lived(
    fresh_database: Database, tmp_path: Path, scale: tuple[int, int, float, float, float]
) -> None:
    """workflows W-220: threads and tasks; only a phase that died with its worker is done anew."""
    runs, kills, lease, seconds_away, longest = scale
    with StateStore.open(fresh_database.url) as store:
        chaos = Chaos(fresh_database.url, tmp_path, lease, longest)
        found = play(chaos, store, runs=runs, kills=kills, seconds_away=seconds_away)
    wrong = {name: found[name] for name in ("stuck", "failed", "twice", "odd", "logs")}
    assert not any(wrong.values()), wrong
    assert found["redone"] <= found["restarts"]
