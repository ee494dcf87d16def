"""A source that another of its units tells to be the one of the last import, whatever the order of its units."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.maintenance import node_databases
from support.maintenance.node_databases import change, made, put


def _crons(path: Path, *names: str, **given: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    made(path)
    for name in names:
        put(path, "cron", cron_id=name, workflow_path="x", **given)
    return path


def _rewritten(path: Path, cron: str, pattern: str) -> Path:
    """Change a cron in a copy of a file, and put the copy in its place."""
    copy = Path(shutil.copy(path, path.with_name("new.db")))
    change(copy, "cron", cron, pattern=pattern)
    return copy.replace(path)


def _with_log(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA journal_mode = wal").fetchall()
    return path


@pytest.mark.parametrize("changed", ["a", "b"])
@pytest.mark.parametrize("is_moved", [True, False])
def test_a_changed_row_follows_before_and_behind_the_one_that_is_as_it_was(
    every_backend: Any, tmp_path: Path, changed: str, *, is_moved: bool
) -> None:
    """maintenance M-120: in a folder that was moved, and in a file that a tool wrote anew in its place."""
    imports, source = every_backend.maintenance.imports, _crons(tmp_path / "old" / "smithers.db", "a", "b")
    imports.run(source)
    if is_moved:
        source = source.parent.rename(tmp_path / "new") / source.name
    source = _rewritten(source, changed, "0 7 * * *")
    plan, done = imports.plan(source), imports.run(source)
    assert (done.failures, done.units, plan.units) == ((), {"grown": 1, "unchanged": 1}, done.units)
    assert done.receipt.counts == {"units.grown": 1, "units.unchanged": 1}
    assert every_backend.schedules.crons.get(changed).pattern == "0 7 * * *"


def test_a_row_follows_the_file_in_which_it_was_seen_as_it_was(every_backend: Any, tmp_path: Path) -> None:
    """maintenance M-120: also if it alone was in the file, or something new stands at the old path since."""
    imports, old = every_backend.maintenance.imports, _crons(tmp_path / "old" / "smithers.db", "a")
    imports.run(old)
    source = Path(shutil.copy(old, tmp_path / "new.db"))
    old.unlink()
    assert imports.run(source).units == {"unchanged": 1}
    _crons(old, "other")
    change(source, "cron", "a", pattern="0 7 * * *")
    assert imports.run(source).units == {"grown": 1}


def test_a_run_that_has_its_events_shows_whose_file_it_is(every_backend: Any, tmp_path: Path) -> None:
    """maintenance M-120: a run that goes on as well as one that is as it was."""
    imports, source = every_backend.maintenance.imports, _crons(tmp_path / "smithers.db", "a")
    put(source, "runs", run_id="r", status="running")
    put(source, "events", run_id="r", seq=0)
    imports.run(source)
    put(source, "events", run_id="r", seq=1)
    assert imports.run(_rewritten(source, "a", "0 7 * * *")).units == {"grown": 2}


def test_a_file_with_a_log_beside_it_is_not_known_by_its_number(every_backend: Any, tmp_path: Path) -> None:
    """maintenance M-120: another one that was copied over it in place is refused, and nothing is changed."""
    imports, source = every_backend.maintenance.imports, _with_log(_crons(tmp_path / "smithers.db", "a", "b"))
    put(source, "runs", run_id="r", status="running")
    imports.run(source)
    other = _with_log(_crons(tmp_path / "other.db", "a", "b", pattern="0 9 * * *"))
    put(other, "runs", run_id="r", status="failed", finished_at_ms=node_databases.BEGIN + 9_000)
    with other.open("rb") as read, source.open("r+b") as written:
        written.truncate()
        shutil.copyfileobj(read, written)
    plan, done = imports.plan(source), imports.run(source)
    assert (done.units, plan.units) == ({"failed": 3}, {"failed": 3})
    assert every_backend.workflows.runs.get("r").status == "running"


def test_a_file_with_a_log_beside_it_goes_on(every_backend: Any, tmp_path: Path) -> None:
    """maintenance M-120: where one of its units is as it was."""
    imports, source = every_backend.maintenance.imports, _with_log(_crons(tmp_path / "smithers.db", "a", "b"))
    imports.run(source)
    change(source, "cron", "a", pattern="0 7 * * *")
    assert imports.run(source).units == {"grown": 1, "unchanged": 1}
