"""backends B-81: ``kill -9`` of a writer at random moments."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.faults import killed_crowd, killed_writers
from support.faults.killed_writers import SHARED
from support.preloaded import run_program

from lastlight_state.testing import Database

PROGRAM = Path(killed_writers.__file__)
ROUNDS = [pytest.param(8, id="8 rounds"), pytest.param(200, id="200 rounds", marks=pytest.mark.soak)]


@pytest.mark.slow
@pytest.mark.parametrize("rounds", ROUNDS)
def test_what_a_killed_writer_was_promised_is_there_and_nothing_is_half_written(
    fresh_database: Database, state_dir: Path, rounds: int
) -> None:
    """backends B-81: everything whose call returned is there, sequences gap-free, log files readable."""
    log = state_dir / "log.jsonl"
    command = [sys.executable, "-W", "error", str(PROGRAM), fresh_database.url, str(log), str(rounds), "seed"]
    finished = run_program(command, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    promised: dict[str, Any] = json.loads(finished.stdout)
    assert len(promised["pair"]) >= rounds
    raw = fresh_database.raw()

    pairs = {row[0] for row in raw.execute("SELECT id FROM workflow_runs WHERE workflow_name = 'pair'").fetchall()}
    assert set(promised["pair"]) <= pairs
    assert len(pairs) <= len(promised["pair"]) + rounds
    said = [row[0] for row in raw.execute("SELECT content FROM messaging_messages ORDER BY id").fetchall()]
    assert sorted(said) == sorted(pairs)
    assert raw.execute("SELECT message_count FROM messaging_sessions").fetchone()[0] == len(said)

    with fresh_database.open() as store:
        assert {len(store.workflows.runs.get(run).phase_history) for run in pairs} == {1}
        counter = store.workflows.runs.get(SHARED).scratch["counter"]
        assert counter - promised["counter"][-1] in (0, 1)
        store.workflows.runs.merge_scratch(SHARED, {"counter": 0})

    numbers = list(whole_lines(log))
    assert set(promised["line"]) <= set(numbers)
    assert numbers == sorted(numbers)

    if fresh_database.name == "sqlite":
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []


@pytest.mark.slow
@pytest.mark.parametrize("rounds", ROUNDS)
def test_of_writers_that_share_commits_each_has_what_it_was_promised(fresh_database: Database, rounds: int) -> None:
    """backends GC-4: of a group that was not committed nothing is there, and no unit is half there."""
    command = [sys.executable, "-W", "error", killed_crowd.__file__, fresh_database.url, str(rounds), "seed"]
    finished = run_program(command, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    promised: list[str] = json.loads(finished.stdout)
    assert len(promised) > rounds
    raw = fresh_database.raw()
    said = [row[0] for row in raw.execute("SELECT content FROM messaging_messages ORDER BY id").fetchall()]
    assert len(said) == len(set(said))
    assert set(promised) <= set(said)
    assert len(said) <= len(promised) + rounds * killed_crowd.WRITERS
    assert raw.execute("SELECT message_count FROM messaging_sessions").fetchone()[0] == len(said)


def whole_lines(log: Path) -> list[int]:
    """The numbers of the lines that can be read; a torn one is on a line of its own and harms no other."""
    numbers = []
    for line in log.read_bytes().split(b"\n"):
        try:
            numbers.append(json.loads(line)["number"])
        except ValueError:
            assert len(line) < 3100
    return numbers
