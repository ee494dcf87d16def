"""What was erased, deleted or pruned here stays away, also as a part of a unit whose source goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.maintenance import node_databases
from support.maintenance.named_sources import SOURCES
from support.maintenance.removals import REMOVALS

from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database


@pytest.mark.parametrize("name", REMOVALS)
def test_a_part_that_was_removed_here_stays_away_until_its_unit_is_revived(
    database: Database, tmp_path: Path, name: str
) -> None:
    """maintenance M-121: whether its source is as it was, or has gone on; what is new of it comes in."""
    part, store = REMOVALS[name], database.open(migrate=True)
    imports = store.maintenance.imports
    if name == "rows of an output table":
        store.outputs.catalog.define("plan", dict)
    source = part.write(tmp_path, 0)
    assert imports.run(source).failures == ()
    before = part.here(store)
    part.remove(store)
    gone = before - part.here(store)
    assert gone
    for step in (0, 1, 1, 2):
        part.write(tmp_path, step)
        assert imports.run(source).failures == ()
        assert not gone & part.here(store)
    assert {one for one in part.new if one in part.here(store)} == set(sorted(part.new)[:2])
    planned, done = imports.plan(source, revive=[part.unit]), imports.run(source, revive=[part.unit])
    assert (done.failures, done.units, done.rows) == ((), planned.units, planned.rows)
    assert part.here(store) >= gone if part.returns else not gone & part.here(store)
    assert imports.run(source).failures == ()
    assert imports.run(source, revive=True).units == {"unchanged": 1}


def test_a_name_of_no_unit_is_named_among_the_failures(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance M-121: by the report, and by the exit code of the command; not where a limit ended the import."""
    source = REMOVALS["tool calls"].write(tmp_path, 0)
    imports = sqlite_database.open().maintenance.imports
    assert imports.run(source, revive=["runs/zzz"], limit=1).failures == ()
    for report in (imports.plan(source, revive=["runs/r", "runs/zzz"]), imports.run(source, revive=["runs/zzz"])):
        assert [(one.unit, one.code) for one in report.failures] == [("runs/zzz", "invalid_value")]
    said = lastlight_state("import", source, "--revive-unit", "runs/zzz", "--url", sqlite_database.url)
    assert (said.code, "runs/zzz" in said.out) == (1, True)


def test_events_that_were_appended_here_hide_no_new_ones(every_backend: Any, tmp_path: Path) -> None:
    """maintenance M-120: a new event whose number was given here is named, also when the event here is gone."""
    path, imports = node_databases.made(tmp_path / "smithers.db"), every_backend.maintenance.imports
    node_databases.put(path, "runs", run_id="r", status="finished", finished_at_ms=node_databases.BEGIN + 9_000)
    for seq in range(3):
        node_databases.put(path, "events", run_id="r", seq=seq)
    imports.run(path)
    for _ in range(2):
        every_backend.journal.events.append("r", "note", {})
    node_databases.put(path, "nodes", run_id="r", node_id="n")
    assert (imports.run(path).units, imports.run(path).conflicts) == ({"grown": 1}, ())
    every_backend.maintenance.prune.run(PrunePolicy("journal", keep_days=1, keep_n=0))
    assert imports.run(path).units == {"unchanged": 1}
    node_databases.put(path, "events", run_id="r", seq=3)
    [failed] = imports.run(path).failures
    assert (failed.unit, "number 3" in failed.reason) == ("runs/r", True)
    assert [one.seq for one in every_backend.journal.events.list("r")] == [4]


def test_the_ledger_does_not_name_who_was_erased(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance M-121."""
    named, store = SOURCES["lionagi-teams"], sqlite_database.open()
    store.maintenance.imports.run(named.write(tmp_path, "said", 2))
    [(noted,)] = sqlite_database.raw().execute("SELECT digest FROM import_ledger WHERE target_kind = 'team'").fetchall()
    assert "dev/" not in noted
