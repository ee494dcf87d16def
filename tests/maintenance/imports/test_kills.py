"""Imports that are killed anywhere leave whole units, and the next one completes them."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from support.maintenance import dying_imports
from support.maintenance.sources import BUNDLE, KINDS, NAMES, source_of
from support.maintenance.whole_units import Stored, steps_of
from support.processes import started

from lastlight_state import StateStore
from lastlight_state.testing import Database, SqliteTemplate

SEEDS = [pytest.param(0, id="some kills"), *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 40))]
#: How often an import is killed before it is let through, and how many lines it is then given.
KILLS, ENOUGH = 3, 10_000_000
#: About half of the lines that an import runs, by kind; of the others a sixth.
LINES = {
    BUNDLE: 70_000,
    "lastlight-db": 38_000,
    "smithers-db": 36_000,
    "lionagi-runs": 17_000,
    "lionagi-db": 18_000,
    "lionagi-teams": 9_000,
}
FEW = 6_000
#: What a killed import may leave, which `doctor` tells.
LEFT = ("DOC-11", "temporary files were left behind")


def _complaints(store: StateStore) -> set[tuple[str, str]]:
    return {(one.check, one.message) for one in store.maintenance.doctor.examine(deep=True).findings}


@contextmanager
def _program(database: Database, kind: str, path: Path) -> Iterator[Callable[[int], str]]:
    """Runs an import that is killed at a line of the library, and tells how it ended."""
    words = [database.url, str(database.state_dir), kind, str(path)]
    command = [sys.executable, "-W", "error", dying_imports.__file__, *words]
    # Without coverage, which takes the place of the trace function that counts the lines.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    with started(command, stdin=subprocess.PIPE, bufsize=1, env=env) as program:

        def killed_at(line: int) -> str:
            assert program.stdin is not None
            assert program.stdout is not None
            program.stdin.write(f"{line}\n")
            return program.stdout.readline().strip() or program.communicate()[1]

        yield killed_at


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != BUNDLE])
def test_an_import_that_is_killed_before_its_last_step_has_stored_nothing_of_the_unit(
    fresh_database: Database, sqlite_template: SqliteTemplate, tmp_path: Path, kind: str
) -> None:
    """maintenance OP-35, case 34: each import gets one unit further, and dies in the next."""
    store, path = fresh_database.open(), source_of(kind, tmp_path / "program")
    (tmp_path / "other").mkdir()
    with sqlite_template.fresh(tmp_path / "other", fresh_database.clock) as other:
        first, *steps, last, _ = steps_of(other, kind, path)
    with _program(fresh_database, kind, path) as killed_at:
        assert (killed_at(-1), Stored.of(fresh_database, store).rows) == ("killed", first.rows)
        for step in steps:
            assert (killed_at(-2), Stored.of(fresh_database, store).rows) == ("killed", step.rows)
        assert (killed_at(-2).isdecimal(), Stored.of(fresh_database, store)) == (True, last)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_import_that_is_killed_anywhere_leaves_whole_units_and_goes_on(
    fresh_database: Database, sqlite_template: SqliteTemplate, tmp_path: Path, kind: str, seed: int
) -> None:
    """maintenance OP-35, OP-61, case 34: what is new, and then what has grown. A bundle is one unit."""
    chance, store, program = random.Random(f"{kind} {seed}"), fresh_database.open(), tmp_path / "program"
    (tmp_path / "other").mkdir()
    known = _complaints(store)
    with (
        sqlite_template.fresh(tmp_path / "other", fresh_database.clock) as other,
        _program(fresh_database, kind, program / NAMES[kind]) as killed_at,
    ):
        for grown in (False, True) if kind != BUNDLE else (False,):
            steps = steps_of(other, kind, source_of(kind, program, grown=grown))
            last = [chance.randint(1, LINES.get(kind, FEW)) for _ in range(KILLS)]
            ended = []
            now = steps[0]
            for line in [*last, ENOUGH]:
                ended.append(killed_at(line))
                now = Stored.of(fresh_database, store)
                assert any(now.is_between(*two) for two in pairwise(steps)), (line, now)
                if ended[-1] != "killed":
                    break
            assert (ended[0], ended[-1].isdecimal(), now) == ("killed", True, steps[-1]), (last, ended)
            assert _complaints(store) - _complaints(other.open()) <= {LEFT, *known}
