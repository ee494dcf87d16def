"""Imports of sources that do not change come to rest: a second one brings nothing, and a third writes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.maintenance.everything import everything
from support.maintenance.homes import begin, said, state, write_indexed, write_log, write_state
from support.maintenance.mailbox_trees import write_session
from support.maintenance.named_sources import SOURCES
from support.maintenance.run_folders import BEGIN, branch, message, write, write_run
from support.maintenance.sources import BUNDLE, KINDS, source_of
from support.maintenance.team_files import letter, write_team
from support.run_log.logs import SESSION

from lastlight_state.testing import Database

#: The units of an import that brings nothing.
_AT_REST = {"unchanged", "pruned", "ignored", "failed"}


def comes_to_rest(database: Database, *sources: Path) -> None:
    """Import these sources three times, one after the other: only the first brings, and the third writes nothing."""
    store = database.open()
    for source in sources:
        store.maintenance.imports.run(source)
    for source in sources:
        again = store.maintenance.imports.run(source)
        assert set(again.units) <= _AT_REST, source
        assert again.rows == {}
    before = everything(database, store)
    for source in sources:
        assert store.maintenance.imports.plan(source).units == store.maintenance.imports.run(source).units
    assert everything(database, store) == before


@pytest.mark.parametrize("kind", [*(one for one in KINDS if one != BUNDLE), "nanoclaw"])
def test_a_source_that_does_not_change_comes_to_rest(database: Database, tmp_path: Path, kind: str) -> None:
    """maintenance OP-36: also once it has grown."""
    if kind == "nanoclaw":
        source = write_session(tmp_path / "program").parent.parent
    else:
        source = source_of(kind, tmp_path / "program")
    comes_to_rest(database, source)
    if kind != "nanoclaw":  # a mailbox is copied once
        comes_to_rest(database, source_of(kind, tmp_path / "program", grown=True))


@pytest.mark.parametrize("kind", SOURCES)
def test_a_source_and_its_older_copy_come_to_rest(database: Database, tmp_path: Path, kind: str) -> None:
    """maintenance OP-36, M-120: whichever is imported first."""
    named = SOURCES[kind]
    for name in ("program", "copy"):
        (tmp_path / name).mkdir()
    source, copy = (named.write(tmp_path / name, "said", 2) for name in ("program", "copy"))
    comes_to_rest(database, source, copy)
    if named.grows:
        named.write(tmp_path / "program", "said", 4)
        comes_to_rest(database, copy, source)
        comes_to_rest(database, source, copy)
        assert named.read(database.open(), None) == [f"said {i}" for i in range(4)]


@pytest.mark.parametrize("kind", [one for one in KINDS if one != BUNDLE])
def test_a_source_of_many_units_and_its_older_copy_come_to_rest(database: Database, tmp_path: Path, kind: str) -> None:
    """maintenance OP-36, M-120."""
    source = source_of(kind, tmp_path / "program")
    copy = shutil.copytree(tmp_path / "program", tmp_path / "copy") / source.relative_to(tmp_path / "program")
    comes_to_rest(database, source, copy)
    source_of(kind, tmp_path / "program", grown=True)
    comes_to_rest(database, copy, source)
    comes_to_rest(database, source, copy)


def _run(root: Path, name: str, *ids: str, seconds: int = 0, **manifest: Any) -> Path:
    folder = write_run(root, name, branch("b", [message(one, i) for i, one in enumerate(ids)]), run_id="r", **manifest)
    for path in (folder / "run.json", folder):
        os.utime(path, (BEGIN + seconds, BEGIN + seconds))
    return folder


def _copied_run(root: Path) -> Path:
    _run(root, "r", "m0", "m1", seconds=70)
    _run(root, "r.bak", "m0", seconds=61, status="running", ended_at=None)
    return root


def _copied_run_of_the_same_time(root: Path) -> Path:
    for name, ids in (("r", ["m0", "m1"]), ("r.bak", ["m0"])):
        _run(root, name, *ids)
    return root


def _runs_that_went_on_apart(root: Path) -> Path:
    _run(root, "r", "m0", "m1", seconds=70)
    _run(root, "r.bak", "m0", "other", seconds=71)
    return root


def _copied_team(root: Path) -> Path:
    write_team(root, "dev", letter("m0", 0), letter("m1", 1))
    write(root / "teams" / "copy.json", (root / "teams" / "dev.json").read_text())
    write_team(root, "dev", letter("m0", 0), letter("m1", 1), letter("m2", 2))
    return root


def _run_log_of_two_days(root: Path) -> Path:
    path = write_log(root, begin(), said("one"))
    other = root / "sessions" / "2026" / "02" / "04" / path.name
    other.parent.mkdir()
    shutil.copy(path, other)
    write_log(root, begin(), said("one"), said("two"))
    return root


def _state_in_both_layouts(root: Path) -> Path:
    write_log(root, begin())
    write_state(root, state("one"), SESSION)
    write_indexed(root, SESSION, '{"role":"user","content":"one"}\n', updated_at="2026-02-03T13:00:00.000Z")
    return root


def _log_in_two_projects(root: Path) -> Path:
    source = source_of("lastlight-logs", root)
    shutil.copytree(root / "projects" / "-app", root / "projects" / "-other")
    return source


def _copied_mailbox(root: Path) -> Path:
    folder = write_session(root)
    shutil.copytree(folder, folder.with_name("sess-2"))
    return root


@pytest.mark.parametrize(
    "write_source",
    [
        _copied_run,
        _copied_run_of_the_same_time,
        _runs_that_went_on_apart,
        _copied_team,
        _run_log_of_two_days,
        _state_in_both_layouts,
        _log_in_two_projects,
        _copied_mailbox,
    ],
    ids=lambda one: one.__name__.strip("_"),
)
def test_a_unit_and_its_copy_beside_come_to_rest(
    database: Database, tmp_path: Path, write_source: Callable[[Path], Path]
) -> None:
    """maintenance OP-36, M-120."""
    (tmp_path / "program").mkdir()
    comes_to_rest(database, write_source(tmp_path / "program"))


def test_a_plan_takes_an_equal_copy_beside_for_no_second_session(store: Any, tmp_path: Path) -> None:
    """maintenance OP-36, M-120."""
    root, imports = tmp_path / "program", store.maintenance.imports
    for name in ("r", "r.bak"):
        _run(root, name, "m0")
    plan, done = imports.plan(root), imports.run(root)
    assert plan.units == done.units == {"imported": 1, "unchanged": 1}


def test_an_older_copy_beside_a_run_brings_nothing_and_is_named(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: neither what was removed here, nor an earlier status; the run goes on."""
    imports, branches = store.maintenance.imports, store.conversations.branches
    root = _copied_run(tmp_path / "program")
    imports.run(root)
    branches.pop("b")
    for _ in range(2):
        assert imports.run(root).units == {"unchanged": 2}
    assert store.conversations.sessions.get("r").status == "completed"
    assert [one.message.id for one in branches.history("b")] == ["m0"]
    other = branch("c", [message("alone", 2)])
    write(root / "r.bak" / "branches" / "b1.json", other)
    done = imports.run(root)
    assert (done.units, done.rows) == ({"unchanged": 2}, {})
    assert [one.unit for one in done.conflicts] == ["r.bak"]
    assert "1 messages" in done.conflicts[0].kept
    _run(root, "r", "m0", "m1", "m2", seconds=80)
    assert imports.run(root).units == {"grown": 1, "unchanged": 1}
    assert [one.message.id for one in branches.history("b")] == ["m0", "m2"]
