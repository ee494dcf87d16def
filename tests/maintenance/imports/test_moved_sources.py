"""A source that stands at another place than before: rows that are units follow it where its contents say it is one."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from support.maintenance import node_databases, workflow_databases as theirs
from support.maintenance.sources import source_of

from lastlight_state import NotFound
from lastlight_state.conversations import NewChunk

_VECTOR = struct.pack("<2f", 1, 2)


def _cached(root: Path, *, with_run: bool) -> Path:
    root.mkdir(exist_ok=True)
    path = node_databases.made(root / "smithers.db")
    if with_run:
        node_databases.put(path, "runs", run_id="r", status="finished", finished_at_ms=node_databases.BEGIN + 9)
    node_databases.put(path, "cache", cache_key="k", payload_json={"of": 1})
    return path


def _chunk(path: Path, key: str, second: int) -> None:
    at = node_databases.BEGIN + second * 1_000
    node_databases.put(path, "vectors", id=key, content=f"text {key}", embedding=_VECTOR, created_at_ms=at)


def _cached_anew(path: Path) -> None:
    node_databases.put(
        path, "cache", cache_key="k", payload_json={"of": 2}, created_at_ms=node_databases.BEGIN + 60_000
    )


@pytest.mark.parametrize("is_copy", [True, False])
@pytest.mark.parametrize("with_run", [True, False])
def test_a_cached_result_follows_a_file_that_has_moved(
    every_backend: Any, tmp_path: Path, *, is_copy: bool, with_run: bool
) -> None:
    """maintenance M-120: known by a run that is as it was; else, and for a copy, the error says what to do."""
    imports, source = every_backend.maintenance.imports, _cached(tmp_path / "old", with_run=with_run)
    imports.run(source)
    moved = tmp_path / "new.db"
    (shutil.copy if is_copy else shutil.move)(str(source), str(moved))
    _cached_anew(moved)
    plan, done = imports.plan(moved), imports.run(moved)
    assert plan.units == done.units
    follows = with_run and not is_copy
    assert done.units.get("grown", 0) == follows
    if not follows:
        [failed] = done.failures
        assert ("remove it here and revive it" in failed.reason, str(source) in failed.reason) == (True, True)
        every_backend.outputs.cache.clear(workflow_name="w")
        assert imports.run(moved, revive=["cache/k"]).units["imported"] == 1
    assert imports.run(moved).units.keys() == {"unchanged"}
    [found] = every_backend.outputs.cache.list().items
    assert found.created_at == node_databases.at(60_000)


def test_an_override_follows_a_file_that_has_moved(every_backend: Any, tmp_path: Path) -> None:
    """maintenance M-120, OP-82."""
    imports, source = every_backend.maintenance.imports, source_of("lastlight-db", tmp_path / "old")
    theirs.change(source, "workflow_overrides", "release", enabled=0)
    imports.run(source)
    moved = Path(shutil.move(source, tmp_path / "new.db"))
    theirs.change(moved, "workflow_overrides", "release", enabled=1, updated_at="2027-01-01T00:00:00.000Z")
    assert imports.run(moved).failures == ()
    assert every_backend.workflows.overrides.is_enabled("release")


def test_a_namespace_of_chunks_belongs_to_its_source(every_backend: Any, tmp_path: Path) -> None:
    """maintenance M-120: another source is refused by name, and a scope keeps both; a moved file goes on."""
    imports, vectors = every_backend.maintenance.imports, every_backend.conversations.vectors
    first, second = (node_databases.made(tmp_path / f"{name}.db") for name in ("first", "second"))
    _chunk(first, "1", 1)
    _chunk(second, "2", 2)
    assert imports.run(first).units == {"imported": 1}
    plan, done = imports.plan(second), imports.run(second)
    assert [one.unit for one in plan.failures] == [one.unit for one in done.failures] == ["vectors/2"]
    assert "a scope keeps both" in done.failures[0].reason
    assert imports.run(second, scope="second").units == {"imported": 1}
    _chunk(first, "3", 3)
    assert imports.run(first).units == {"imported": 1, "unchanged": 1}
    moved = Path(shutil.move(first, tmp_path / "moved.db"))
    _chunk(moved, "4", 4)
    assert imports.run(moved).units == {"imported": 1, "unchanged": 2}
    vectors.clear("docs", scope="namespace")
    _chunk(moved, "5", 5)
    assert imports.run(moved).units == {"pruned": 4}
    with pytest.raises(NotFound):
        vectors.get("docs", "1")
    assert imports.run(moved, revive=True).units == {"imported": 4}


def test_a_namespace_that_began_here_takes_no_chunks(every_backend: Any, tmp_path: Path) -> None:
    """maintenance M-120."""
    source = node_databases.made(tmp_path / "smithers.db")
    _chunk(source, "1", 1)
    every_backend.conversations.vectors.put("docs", [NewChunk("own", "text", embedding=_VECTOR)])
    assert every_backend.maintenance.imports.run(source).units == {"failed": 1}
