"""Imports that Ctrl-C ends leave whole units and a receipt that says so, and the same command goes on."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from support.maintenance import interrupted_imports
from support.maintenance.sources import BUNDLE, source_of
from support.maintenance.whole_units import Stored, steps_of
from support.processes import started

from lastlight_state.testing import Database, SqliteTemplate

SEEDS = [pytest.param(0, id="some lines"), *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 40))]
#: How often an import is interrupted before it is let through, and how many lines it is then given.
INTERRUPTS, ENOUGH = 5, 10_000_000
#: Some of the lines that an import runs: of rows, of copies of files, and of a bundle with both.
LINES = {"lionagi-runs": 17_000, "lastlight-logs": 6_000, "codelia": 6_000, BUNDLE: 25_000}
NOTE = "interrupted; to go on: the same command"


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", LINES)
def test_an_interrupted_import_says_so_and_the_same_command_goes_on(
    fresh_database: Database, sqlite_template: SqliteTemplate, tmp_path: Path, kind: str, seed: int
) -> None:
    """maintenance OP-72, OP-35, OP-61, case 50: nothing that was being written is left, and no receipt as running."""
    chance, store, path = random.Random(f"{kind} {seed}"), fresh_database.open(), source_of(kind, tmp_path / "program")
    (tmp_path / "other").mkdir()
    with sqlite_template.fresh(tmp_path / "other", fresh_database.clock) as other:
        steps = steps_of(other, kind, path)
    words = ["import", str(path), "--url", fresh_database.url, "--state-dir", str(fresh_database.state_dir)]
    with started(
        [sys.executable, "-W", "error", interrupted_imports.__file__, *words], stdin=subprocess.PIPE, bufsize=1
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        codes: list[int] = []
        now = steps[0]
        for line in [*(chance.randint(1, LINES[kind]) for _ in range(INTERRUPTS)), ENOUGH]:
            program.stdin.write(f"{line}\n")
            code, said = json.loads(program.stdout.readline() or program.communicate()[1])
            codes.append(code)
            states = {one.state for one in store.receipts.list().items}
            now = Stored.of(fresh_database, store)
            assert any(now.is_between(*two) for two in pairwise(steps)), (line, now)
            assert (NOTE in said, "interrupted" in states) == (True, True) if code else said == "", (line, said)
            assert (states <= {"interrupted", "done"}, code in (0, 130)) == (True, True), (line, states, code)
            assert not list(fresh_database.state_dir.rglob("*.tmp")), line
    assert (codes[0], codes[-1], now) == (130, 0, steps[-1])
