"""What nothing tells to be of the source of the last import follows it by its file, and copies bring nothing back."""

from __future__ import annotations

import json
import shutil
import sqlite3
import struct
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.maintenance import homes, node_databases, state_databases
from support.maintenance.named_sources import SOURCES
from support.maintenance.team_files import letter, write_team
from support.run_log.logs import RUN, SESSION

from lastlight_state.conversations import NewChunk
from lastlight_state.maintenance.imports import foreign
from lastlight_state.testing import Database


def _rows(path: Path, said: str, *, chunks: str = "1") -> None:
    """Store a cron, a cached result, and chunks of the namespace ``docs``."""
    later = node_databases.BEGIN + (1_000 if said == "clinic" else 0)
    node_databases.put(path, "cron", cron_id="c", workflow_path=said)
    node_databases.put(path, "cache", cache_key="k", payload_json={"of": said}, created_at_ms=later)
    for one in chunks:
        vector = struct.pack("<2f", 1, 2)
        node_databases.put(path, "vectors", id=one, embedding=vector, content=f"{said} {one}", created_at_ms=later)


def _told(store: Any) -> list[str]:
    found = store.schedules.crons.get("c").target, store.conversations.vectors.get("docs", "1").content
    return [*found, *(str(one.created_at) for one in store.outputs.cache.list().items)]


def test_rows_of_a_file_that_was_begun_anew_replace_nothing(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: nor do they join a namespace that the first file began."""
    path, imports = node_databases.made(tmp_path / "smithers.db"), store.maintenance.imports
    _rows(path, "shop")
    assert imports.run(path).units == {"imported": 3}
    before = _told(store)
    path.unlink()
    _rows(node_databases.made(path), "clinic", chunks="12")
    plan, done = imports.plan(path), imports.run(path)
    assert (plan.units, done.units, _told(store)) == ({"failed": 4}, {"failed": 4}, before)
    assert "another file at" in done.failures[0].reason


def test_rows_follow_a_file_that_a_tool_wrote_anew(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: where another unit in it is as it was."""
    path, imports = node_databases.made(tmp_path / "smithers.db"), store.maintenance.imports
    node_databases.put(path, "runs", run_id="r", status="finished", finished_at_ms=node_databases.BEGIN + 9_000)
    _rows(path, "shop")
    imports.run(path)
    copy = Path(shutil.copy(path, tmp_path / "copy.db"))
    _rows(copy, "shop", chunks="12")
    node_databases.change(copy, "cron", "c", pattern="0 7 * * *")
    copy.replace(path)
    assert imports.run(path).units == {"grown": 1, "imported": 1, "unchanged": 3}


def test_a_namespace_that_was_begun_anew_here_takes_nothing_of_its_first_source(store: Any, tmp_path: Path) -> None:
    """maintenance M-120."""
    path, imports = node_databases.made(tmp_path / "smithers.db"), store.maintenance.imports
    vectors = store.conversations.vectors
    _rows(path, "shop")
    imports.run(path)
    vectors.clear("docs", scope="namespace")
    vectors.put("docs", [NewChunk("own", "text", embedding=[1.0, 2.0])])
    _rows(path, "shop", chunks="12")
    assert [one.unit for one in imports.run(path).failures] == ["vectors/2"]


def test_a_plan_foresees_a_namespace_of_other_dimensions(store: Any, tmp_path: Path) -> None:
    """maintenance OP-86: and counts a namespace once."""
    path, imports = node_databases.made(tmp_path / "smithers.db"), store.maintenance.imports
    _rows(path, "shop", chunks="12")
    odd = struct.pack("<3f", 1, 2, 3)
    node_databases.put(path, "vectors", id="3", embedding=odd, dimensions=3, created_at_ms=node_databases.BEGIN + 9)
    plan, done = imports.plan(path), imports.run(path)
    assert (plan.units, plan.rows, plan.failures) == (done.units, done.rows, done.failures)
    assert [one.unit for one in done.failures] == ["vectors/3"]


def test_a_run_that_said_nothing_follows_its_own_file_alone(store: Any, tmp_path: Path) -> None:
    """maintenance M-120."""
    path, imports = node_databases.made(tmp_path / "smithers.db"), store.maintenance.imports
    node_databases.put(path, "runs", run_id="nightly", status="running")
    imports.run(path)
    copy = Path(shutil.copy(path, tmp_path / "copy.db"))
    ended = node_databases.BEGIN + 5_000
    node_databases.change(copy, "runs", "nightly", status="failed", finished_at_ms=ended)
    assert [one.unit for one in imports.run(copy).failures] == ["runs/nightly"]
    node_databases.change(path, "runs", "nightly", status="finished", finished_at_ms=ended)
    assert imports.run(path).units == {"grown": 1}
    assert store.workflows.runs.get("nightly").status == "succeeded"


def test_an_older_copy_of_a_chat_at_the_same_path_is_refused(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: it lacks messages of the last import, and went on otherwise."""
    named, imports = SOURCES["lastlight-db"], store.maintenance.imports
    for items, units in ((3, {"imported": 1}), (2, {"failed": 1})):
        assert imports.run(named.write(tmp_path, "said", items)).units == units
    assert named.read(store, None) == ["said 0", "said 1", "said 2"]


def test_an_empty_team_takes_no_messages_of_another_folder(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: those of its own folder come in."""
    imports = store.maintenance.imports
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    write_team(first, "dev")
    write_team(second, "dev", letter("m", 1, "bo"))
    imports.run(first)
    assert [one.unit for one in imports.run(second).failures] == ["dev.json"]
    write_team(first, "dev", letter("own", 1, "bo"))
    assert imports.run(first).units == {"grown": 1}
    assert [one.message_id for one in store.conversations.exchange.inbox("dev/bo").items] == ["own"]


def test_a_team_goes_on_where_it_moved_from_its_file_into_the_database(
    store: Any, database: Database, tmp_path: Path
) -> None:
    """maintenance M-120, M-125: it begins with the messages of the file, which is an earlier state from then on."""
    imports, letters = store.maintenance.imports, [letter(f"m{i}", i, "bo") for i in range(3)]
    write_team(tmp_path, "dev", *letters[:2])
    imports.run(tmp_path)
    database.clock.advance(timedelta(hours=1))
    path = state_databases.made(tmp_path / "state.db")
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("CREATE TABLE teams (id TEXT, created_at REAL, members JSON)")
        raw.execute(
            "CREATE TABLE team_messages (id TEXT, team_id TEXT, created_at REAL, sender TEXT, recipient TEXT,"
            " content TEXT, read_by JSON)"
        )
        raw.execute("INSERT INTO teams VALUES ('dev', ?, ?)", [_second(0), json.dumps(["ana", "bo", "cy"])])
        for i, one in enumerate(letters):
            row = [one["id"], _second(i), one["from"], one["to"], one["content"]]
            raw.execute("INSERT INTO team_messages VALUES (?, 'dev', ?, ?, ?, ?, '[]')", row)
    done = imports.run(path)
    assert (done.units, done.failures) == ({"grown": 1}, ())
    assert len(store.conversations.exchange.inbox("dev/bo").items) == 3
    assert imports.run(path).units == imports.run(tmp_path / "teams").units == {"unchanged": 1}
    write_team(tmp_path, "dev", *letters[:2], letter("other", 9, "bo"))
    assert [one.unit for one in imports.run(tmp_path / "teams").failures] == ["dev.json"]
    assert len(store.conversations.exchange.inbox("dev/bo").items) == 3


def test_an_older_state_of_a_team_does_not_show_whose_home_it_is(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: it brings nothing, and a team beside it that had said nothing takes no one's messages."""
    imports, first, second = store.maintenance.imports, tmp_path / "first", tmp_path / "second"
    for home in (first, second):
        home.mkdir()
    write_team(first, "dev", letter("m", 1, "bo"))
    write_team(first, "ops")
    imports.run(first)
    shutil.rmtree(first)
    write_team(second, "dev")
    write_team(second, "ops", letter("theirs", 2, "bo"))
    done = imports.run(second)
    assert (done.units, [one.unit for one in done.failures]) == ({"failed": 1, "unchanged": 1}, ["ops.json"])
    assert store.conversations.exchange.inbox("ops/bo").items == ()


def _second(second: float) -> float:
    """Return a time of team files as the database has it."""
    return 1_767_607_200.0 + second


def test_copies_under_other_names_bring_nothing_back(store: Any, tmp_path: Path) -> None:
    """maintenance M-121: a run folder, a log of another day, and a log of another project."""
    imports = store.maintenance.imports
    moves = {
        "lionagi-runs": ("runs/s", "runs/copy"),
        "codelia": (f"sessions/2026/02/03/{RUN}.jsonl", f"sessions/2026/02/04/{RUN}.jsonl"),
        "lastlight-logs": (f"projects/-app/{SESSION}.jsonl", f"projects/-other/{SESSION}.jsonl"),
    }
    for kind, (first, second) in moves.items():
        named, folder = SOURCES[kind], tmp_path / kind
        folder.mkdir()
        source = named.write(folder, "said", 2)
        imports.run(source)
        named.remove(store)
        (folder / second).parent.mkdir(exist_ok=True)
        (folder / first).rename(folder / second)
        assert imports.run(source).units == {"pruned": 1}
        assert named.read(store, None) == []


def test_a_log_that_moved_to_another_day_goes_on_where_it_is(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: it is not stored twice."""
    named, imports = SOURCES["codelia"], store.maintenance.imports
    imports.run(named.write(tmp_path, "said", 2))
    days = tmp_path / "sessions/2026/02"
    homes.write_log(tmp_path, homes.begin(), *(homes.said(f"said {i}") for i in range(3)))
    (days / "03").rename(days / "04")
    assert imports.run(tmp_path).units == {"grown": 1}
    assert named.read(store, None) == ["said 0", "said 1", "said 2"]


@pytest.mark.parametrize("kind", ["openai-agents-db", "lionagi-db"])
def test_a_unit_of_another_source_that_was_removed_here_is_named(store: Any, tmp_path: Path, kind: str) -> None:
    """maintenance M-121."""
    named, imports = SOURCES[kind], store.maintenance.imports
    folders = [tmp_path / name for name in ("shop", "clinic")]
    for folder in folders:
        folder.mkdir()
    imports.run(named.write(folders[0], "shop", 2))
    named.remove(store)
    done = imports.run(named.write(folders[1], "clinic", 1))
    assert (done.units, [one.unit for one in done.conflicts]) == ({"pruned": 1}, [named.unit])
    assert str(folders[0]) in done.conflicts[0].kept


def test_a_file_that_was_begun_anew_is_told_apart(tmp_path: Path) -> None:
    """maintenance M-120: by its number and generation; one that was written only counts up."""
    path = node_databases.made(tmp_path / "smithers.db")
    first = foreign.identity(path)
    node_databases.put(path, "runs", run_id="r", status="running")
    later = foreign.identity(path)
    path.unlink()
    anew = foreign.identity(node_databases.made(path))
    assert (later[:2], later[2] > first[2], anew[:2] != first[:2]) == (first[:2], True, True)
    assert foreign.identity(tmp_path) == []
