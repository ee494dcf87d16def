"""A process that is killed in a put."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.checkpoints import killed_puts
from support.checkpoints.steps import texts
from support.processes import started

from lastlight_state.testing import Database

PROGRAM = Path(killed_puts.__file__)


@pytest.mark.parametrize("rounds", [3, pytest.param(200, marks=pytest.mark.soak)])
def test_a_kill_leaves_each_checkpoint_whole_or_not_at_all(database: Database, rounds: int) -> None:
    """checkpoints CK-6: what was said to be stored is there, and nothing is there in part."""
    with database.open() as store:
        store.checkpoints.delete("t")
    for seen in range(1, rounds + 1):
        with started([sys.executable, "-W", "error", str(PROGRAM), database.url]) as process:
            assert process.stdout is not None
            said = [int(process.stdout.readline()) for _ in range(seen)]
            process.kill()
            process.wait()
            said += [int(line) for line in process.stdout if line.endswith("\n")]
        with database.open() as store:
            found = store.checkpoints.history("t", limit=500)
            assert said[-1] <= len(found) <= said[-1] + 1
            for one in found:
                number = one.id.removeprefix("step-")
                assert texts(one) == {name: f"{name}{'x' * 2_000}{number}" for name in killed_puts.CHANNELS}
            assert store.maintenance.doctor.examine(only=["DOC-12"]).findings == ()
            store.checkpoints.delete("t")
