"""A unit belongs to the source that it came from: nothing of another one, or of this program, is written over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.each import with_each
from support.maintenance import node_databases, workflow_databases as theirs
from support.maintenance.named_sources import ENDED, SOURCES
from support.maintenance.sources import source_of

from lastlight_state import InvalidValue
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database


@pytest.fixture(params=SOURCES)
def kind(request: pytest.FixtureRequest) -> str:
    """Return a kind of source."""
    return str(request.param)


def _folder(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir(exist_ok=True)
    return tmp_path / name


@pytest.mark.parametrize("items", [1, 2, 3])
def test_a_source_with_the_names_of_another_one_is_refused_and_named(
    store: Any, tmp_path: Path, kind: str, items: int
) -> None:
    """maintenance M-120: with a scope both are here, and each goes on from its own source."""
    named, imports = SOURCES[kind], store.maintenance.imports
    shop = named.write(_folder(tmp_path, "shop"), "shop", 2)
    clinic = named.write(_folder(tmp_path, "clinic"), "clinic", items)
    assert imports.run(shop).units == {"imported": 1}
    plan, done = imports.plan(clinic), imports.run(clinic)
    assert plan.units == done.units == {"failed": 1}
    assert [(one.unit, one.code) for one in done.failures] == [(named.unit, "already_exists")]
    assert named.read(store, None) == ["shop 0", "shop 1"]
    if named.has_scope:
        assert imports.run(clinic, scope="clinic").units == {"imported": 1}
        assert imports.run(clinic, scope="clinic").units == {"unchanged": 1}
        assert named.read(store, "clinic") == [f"clinic {i}" for i in range(items)]
    assert imports.run(shop).units == {"unchanged": 1}
    if named.grows:
        named.write(_folder(tmp_path, "shop"), "shop", 3)
        assert imports.run(shop).units == {"grown": 1}
        assert named.read(store, None) == ["shop 0", "shop 1", "shop 2"]


def test_a_file_that_was_begun_anew_is_another_source(store: Any, tmp_path: Path, kind: str) -> None:
    """maintenance M-120: also where it stands at the same path, and has lost nothing but its beginning."""
    named, imports = SOURCES[kind], store.maintenance.imports
    folder = _folder(tmp_path, "program")
    source = named.write(folder, "first", 3)
    imports.run(source)
    for said, items in (("second", 1), ("second", 3), ("second", 4)):
        named.write(folder, said, items)
        assert imports.run(source).units == {"failed": 1}
        assert named.read(store, None) == ["first 0", "first 1", "first 2"]
    named.write(folder, "first", 3)
    assert set(imports.run(source).units) <= {"unchanged", "grown"}
    assert named.read(store, None) == ["first 0", "first 1", "first 2"]


def test_a_unit_that_went_on_here_and_in_its_source_stays_as_it_is_here(store: Any, tmp_path: Path, kind: str) -> None:
    """maintenance M-120: it is named, and nothing of it is written; an unchanged source is no conflict."""
    named, imports = SOURCES[kind], store.maintenance.imports
    folder = _folder(tmp_path, "program")
    source = named.write(folder, "said", 2)
    imports.run(source)
    named.go_on(store)
    here = named.read(store, None)
    assert imports.run(source).units == {"unchanged": 1}
    named.write(folder, "said", 3)
    done = imports.run(source)
    if named.is_shared:
        assert (done.units, named.read(store, None)) == ({"grown": 1}, [*here, "said 2"])
    elif done.conflicts:
        assert (done.conflicts[0].unit, named.read(store, None)) == (named.unit, here)
    else:
        assert (done.units, done.failures[0].unit) == ({"failed": 1}, named.unit)
        assert named.read(store, None) == here


def test_what_was_removed_here_stays_away_until_it_is_asked_for_by_name(
    every_backend: Any, tmp_path: Path, kind: str
) -> None:
    """maintenance M-121: whether its source has gone on, or another one has the name."""
    named, imports = SOURCES[kind], every_backend.maintenance.imports
    named = replace(named, write=ENDED.get(kind, named.write))
    folder = _folder(tmp_path, "program")
    source = named.write(folder, "said", 2)
    imports.run(source)
    named.remove(every_backend)

    def left() -> list[str]:
        return [one for one in named.read(every_backend, None) if one.startswith("said")]

    assert left() == []
    elsewhere = _folder(tmp_path, "copy")
    for items in (2, 2, 3):
        named.write(folder, "said", items)
        imports.run(source, revive=["another"])
        assert set(left()) <= {"said 2"}
        copy = imports.run(named.write(elsewhere, "said", items))
        assert set(left()) <= {"said 2"}
        is_named = [one.unit for one in (*copy.conflicts, *copy.failures)] == [named.unit]
        assert is_named or copy.noticed.get("removed_here") or copy.units == {"unchanged": 1}
    assert imports.run(source, revive=[named.unit]).units.get("failed") is None
    assert sorted(left()) == ["said 0", "said 1", "said 2"]


@pytest.mark.parametrize("kind", ["lastlight-logs", "codelia"])
def test_files_that_were_removed_here_stay_away_too(every_backend: Any, tmp_path: Path, kind: str) -> None:
    """maintenance M-121."""
    source, imports = source_of(kind, tmp_path / "program"), every_backend.maintenance.imports
    whole = imports.run(source).units["imported"]
    roots = [every_backend.settings.agent_sessions, every_backend.settings.run_logs]
    found = [one for root in roots if root.is_dir() for one in root.rglob("*")]
    files = {one for one in found if one.suffix in (".jsonl", ".json", ".txt")}
    for one in files:
        one.unlink()
    assert imports.run(source).units == {"pruned": whole}
    assert imports.run(source, revive=True).units == {"imported": whole}
    assert all(one.is_file() for one in files)


def test_an_override_follows_its_own_source_until_it_is_changed_here(store: Any, tmp_path: Path) -> None:
    """maintenance M-120, OP-82: whatever the clocks say."""
    imports, overrides, is_on = (
        store.maintenance.imports,
        store.workflows.overrides,
        store.workflows.overrides.is_enabled,
    )
    first, second = (_overridden(_folder(tmp_path, name)) for name in ("first", "second"))
    imports.run(first)
    theirs.change(second, "workflow_overrides", "release", enabled=1, updated_at="2027-01-01T00:00:00.000Z")
    done = imports.run(second)
    assert ("workflow_overrides/release" in {one.unit for one in done.failures}, is_on("release")) == (True, False)
    theirs.change(first, "workflow_overrides", "release", enabled=1, updated_at="2027-01-01T00:00:00.000Z")
    assert (imports.run(first).failures, is_on("release")) == ((), True)
    overrides.put("release", enabled=False, by="ana")
    theirs.change(first, "workflow_overrides", "release", enabled=1, updated_at="2028-01-01T00:00:00.000Z")
    done = imports.run(first)
    assert ([one.unit for one in done.conflicts], is_on("release")) == (["workflow_overrides/release"], False)


def _overridden(root: Path) -> Path:
    source = source_of("lastlight-db", root)
    theirs.change(source, "workflow_overrides", "release", enabled=0)
    return source


def test_a_cached_result_of_another_source_stays_as_it_was(store: Any, tmp_path: Path) -> None:
    """maintenance M-120, OP-86: with a scope both are here."""
    imports, cache = store.maintenance.imports, store.outputs.cache
    first, second = (node_databases.made(_folder(tmp_path, name) / "smithers.db") for name in ("first", "second"))
    node_databases.put(first, "cache", cache_key="k", payload_json={"of": 1})
    later = node_databases.BEGIN + 60_000
    node_databases.put(second, "cache", cache_key="k", payload_json={"of": 2}, created_at_ms=later)
    assert imports.run(first).units == {"imported": 1}
    assert [one.unit for one in imports.run(second).failures] == ["cache/k"]
    assert imports.run(second, scope="second").units == {"imported": 1}
    assert sorted(one.cache_key for one in cache.list().items) == ["k", "second/k"]
    node_databases.put(first, "cache", cache_key="k", payload_json={"of": 3}, created_at_ms=later)
    assert imports.run(first).units == {"grown": 1}


def test_events_that_a_prune_took_stay_away_when_their_run_goes_on(every_backend: Any, tmp_path: Path) -> None:
    """maintenance M-121: what is new comes behind what is here."""
    path, imports = node_databases.made(tmp_path / "smithers.db"), every_backend.maintenance.imports
    node_databases.put(path, "runs", run_id="r", status="finished", finished_at_ms=node_databases.BEGIN + 9_000)
    for seq in range(3):
        node_databases.put(path, "events", run_id="r", seq=seq)
    imports.run(path)
    every_backend.maintenance.prune.run(PrunePolicy("journal", keep_days=1, keep_n=0))
    assert [one.seq for one in every_backend.journal.events.list("r")] == [2]
    node_databases.put(path, "events", run_id="r", seq=3)
    done = imports.run(path)
    assert (done.units, done.noticed["removed_here"]) == ({"grown": 1}, 2)
    assert [one.seq for one in every_backend.journal.events.list("r")] == [2, 3]


def test_a_kind_with_ids_of_its_own_takes_no_scope(store: Any, tmp_path: Path) -> None:
    """maintenance M-120."""
    source = source_of("lionagi-db", tmp_path / "program")
    with pytest.raises(InvalidValue, match="scope"):
        store.maintenance.imports.plan(source, scope="clinic")


@with_each("bad", ["user_1", 5, None, [5], ["a\0"], {"a": 1}])
def test_what_is_to_be_revived_is_a_bool_or_names_of_units(store: Any, tmp_path: Path, bad: Any) -> None:
    """maintenance M-121."""
    source = source_of("openai-agents-db", tmp_path / "program")
    with pytest.raises(InvalidValue, match="revive"):
        store.maintenance.imports.plan(source, revive=bad)


def test_the_command_takes_a_scope_and_names_of_units(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance M-120, M-121."""
    named, store = SOURCES["openai-agents-db"], sqlite_database.open()
    shop, clinic = (named.write(_folder(tmp_path, name), name, 2) for name in ("shop", "clinic"))
    store.maintenance.imports.run(shop)
    call = ("--url", sqlite_database.url, "--json")
    assert lastlight_state("import", clinic, *call).code == 1
    said = lastlight_state("import", clinic, "--scope", "clinic", *call)
    assert (said.code, said.data["units"]) == (0, {"imported": 1})
    named.remove(store)
    assert lastlight_state("import", shop, *call).data["units"] == {"pruned": 1}
    said = lastlight_state("import", shop, "--revive-unit", "user_1", *call)
    assert (said.code, said.data["units"]) == (0, {"imported": 1})
