"""backends B-205: nothing grows in a process that works for long."""

import json
import os
import sys
from statistics import median

import pytest
from support.faults import mixed_load
from support.preloaded import run_program

from lastlight_state.testing import Database

MINUTES = float(os.environ.get("LASTLIGHT_TEST_MINUTES", "30"))
SCALE = [
    pytest.param(6, 6, id="6s"),
    pytest.param(60 * MINUTES, max(6, int(MINUTES)), id="soak", marks=pytest.mark.soak),
]
#: By how much each may be more at the end than in the first minutes: a share of it, and a number. Files and threads
#: come and go; of memory and statements a short run says nothing.
SLACK = {"descriptors": 4, "threads": 4, "connections": 1}
OF_LONG_RUNS = {"prepared": 4, "memory": 4, "blocks": 5_000}


@pytest.mark.slow
@pytest.mark.timeout(120 + 60 * MINUTES)
@pytest.mark.parametrize(("seconds", "samples"), SCALE)
def test_a_process_with_a_mixed_load_holds_no_more_at_the_end(
    sqlite_database: Database, postgres_database: Database, seconds: float, samples: int
) -> None:
    """backends B-205: threads and tasks on both databases, sampled each minute."""
    urls = (sqlite_database.url, postgres_database.url)
    command = [sys.executable, "-W", "error", mixed_load.__file__, *urls, str(seconds), str(samples)]
    finished = run_program(command, capture_output=True, text=True, check=False)
    assert finished.stderr == ""
    assert finished.returncode == 0
    taken = [json.loads(line) for line in finished.stdout.splitlines()]
    assert len(taken) == samples
    slack = SLACK if seconds < 60 else SLACK | OF_LONG_RUNS
    first, last = taken[: max(2, samples // 5)], taken[-(samples // 3) :]
    for name, more in slack.items():
        most = max(sample[name] for sample in first)
        assert median(sample[name] for sample in last) <= 1.05 * most + more, (name, finished.stdout)
