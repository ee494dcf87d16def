"""What a source has lost stays here, and what was removed here stays away when the source has it again."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.maintenance import homes, state_databases
from support.maintenance.removals import REMOVALS
from support.maintenance.run_folders import branch, message, write_run
from support.maintenance.team_files import letter, write_team

from lastlight_state.errors import Conflict
from lastlight_state.testing import Database

BEGIN = state_databases.BEGIN


def _sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as raw, raw:
        for one in statements:
            raw.execute(one)


def _lose_branch(root: Path) -> None:
    _sql(root / "state.db", "DELETE FROM branches WHERE id = 'side'", "UPDATE sessions SET updated_at = updated_at + 1")


def _lose_user(root: Path) -> None:
    _sql(root / "state.db", "UPDATE branches SET user = NULL", "UPDATE sessions SET updated_at = updated_at + 1")


def _lose_messages(root: Path) -> None:
    _sql(root / "state.db", "UPDATE progressions SET collection = '[\"m0\"]'", "UPDATE sessions SET updated_at = 2e9")


def _lose_folder(root: Path) -> None:
    (root / "runs" / "r" / "branches" / "b1.json").unlink()


def _lose_rows(root: Path) -> None:
    tables = ("plan", "_smithers_signals", "_smithers_tool_calls", "_smithers_scorers")
    _sql(root / "smithers.db", *(f"DELETE FROM {table}" for table in tables))


LOSSES: dict[str, Callable[[Path], None]] = {
    "branch of lionagi-db": _lose_branch,
    "branch of lionagi-runs": _lose_folder,
    "messages of lionagi-db": _lose_messages,
    "user of a branch": _lose_user,
    **dict.fromkeys(("tool calls", "scores", "signals", "rows of an output table"), _lose_rows),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_part_that_was_removed_here_stays_away_after_its_source_lacked_it_once(
    database: Database, tmp_path: Path, name: str
) -> None:
    """maintenance M-121."""
    part, store = REMOVALS[name], database.open(migrate=True)
    imports = store.maintenance.imports
    if name == "rows of an output table":
        store.outputs.catalog.define("plan", dict)
    imports.run(part.write(tmp_path, 0))
    before = part.here(store)
    part.remove(store)
    gone = before - part.here(store)
    LOSSES[name](tmp_path)
    assert gone
    assert imports.run(_source(tmp_path)).failures == ()
    for step in (0, 1):
        assert imports.run(part.write(tmp_path, step)).failures == ()
        assert not gone & part.here(store)
    assert imports.run(part.write(tmp_path, 1), revive=[part.unit]).failures == ()
    assert part.here(store) >= gone or not part.returns


def _source(root: Path) -> Path:
    return next(path for name in ("runs", "state.db", "smithers.db") if (path := root / name).exists())


def test_a_member_that_was_erased_here_stays_away_after_the_team_lacked_it_once(store: Any, tmp_path: Path) -> None:
    """maintenance M-121."""
    imports, said = store.maintenance.imports, letter("m0", 1)
    write_team(tmp_path, "dev", said)
    imports.run(tmp_path)
    store.maintenance.erase.run("dev/bo")
    for members in (["ana", "cy"], ["ana", "bo", "cy"]):
        write_team(tmp_path, "dev", said, members=members)
        assert imports.run(tmp_path).failures == ()
    assert "dev/bo" not in store.conversations.exchange.members("dev")
    assert store.conversations.exchange.inbox("dev/bo", state="all").items == ()


def test_a_name_that_was_erased_here_stays_away_after_its_source_lacked_it_once(store: Any, tmp_path: Path) -> None:
    """maintenance M-121."""
    imports, side = store.maintenance.imports, tmp_path / "r" / "branches" / "b1.json"
    write_run(tmp_path, "r", branch("main", [message("m0", 0)]), branch("side", [message("m1", 1)], user="ana"))
    imports.run(tmp_path)
    store.maintenance.erase.run("ana")
    text = side.read_bytes()
    side.unlink()
    imports.run(tmp_path)
    side.write_bytes(text)
    assert [one.kept for one in imports.run(tmp_path).conflicts] == ["branch side: user"]
    assert store.conversations.branches.get("side").user is None


def _put(path: Path, ids: list[str], seconds: int, **given: Any) -> None:
    for number, one in enumerate(ids):
        state_databases.put_message(path, one, number)
    state_databases.put_session(path, "s", ids, updated_at=BEGIN + 60 + seconds, **given)
    state_databases.put_branch(path, "s", "b", ids)


def _order(store: Any) -> list[str]:
    return [one.message.id for one in store.conversations.branches.history("b", limit=50)]


@pytest.mark.parametrize("left", [["m0", "m1"], ["m0", "m1", "n2"], []])
def test_messages_that_a_source_has_lost_stay_here_and_are_named(store: Any, tmp_path: Path, left: list[str]) -> None:
    """maintenance M-120: at each import of it; a source that has them again goes on."""
    imports, source = store.maintenance.imports, state_databases.made(tmp_path / "state.db")
    whole = ["m0", "m1", "m2", "m3"]
    _put(source, whole, 0)
    imports.run(source)
    pool = store.conversations.sessions.get("s").progression_id
    for seconds in (1, 2):
        _put(source, left, seconds)
        assert "branch b: order of messages" in {one.kept for one in imports.run(source).conflicts}
        assert _order(store) == whole
        assert set(store.conversations.progressions.collection(pool)) >= set(whole)
    _put(source, [*whole, "m4"], 3)
    assert imports.run(source).failures == ()
    assert _order(store) == [*whole, "m4"]


def test_a_session_that_was_reopened_here_is_not_closed_by_its_source(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: the report names its status, at each import."""
    imports, source = store.maintenance.imports, state_databases.made(tmp_path / "state.db")
    _put(source, ["m0"], 0, status="completed", ended_at=BEGIN + 60)
    imports.run(source)
    store.conversations.lifecycle.reopen("s", actor="ana")
    for seconds, ids in ((1, ["m0", "m1"]), (2, ["m0", "m1", "m2"])):
        _put(source, ids, seconds, status="completed", ended_at=BEGIN + 60)
        assert "session: status" in {one.kept for one in imports.run(source).conflicts}
        assert store.conversations.sessions.get("s").status == "running"


def test_a_copy_of_an_erased_team_under_another_name_brings_nothing_back(store: Any, tmp_path: Path) -> None:
    """maintenance M-121: while the first file is there; it fails by name."""
    file = write_team(tmp_path, "dev", letter("m0", 1, "bo"), members=["bo"])
    imports = store.maintenance.imports
    imports.run(tmp_path)
    store.maintenance.erase.run("dev/bo")
    shutil.copy(file, file.with_name("dev-backup.json"))
    assert [one.unit for one in imports.run(tmp_path).failures] == ["dev-backup.json"]
    assert store.conversations.exchange.inbox("dev/bo", state="all").items == ()


def test_a_log_that_was_removed_here_stays_away_when_its_source_packs_it(every_backend: Any, tmp_path: Path) -> None:
    """maintenance M-121."""
    imports = every_backend.maintenance.imports
    log = homes.write_log(tmp_path / "home", homes.begin(), homes.said("one"))
    imports.run(tmp_path / "home")
    for path in every_backend.settings.run_logs.rglob("*.jsonl"):
        path.unlink()
    log.with_name(f"{log.name}.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    assert imports.run(tmp_path / "home").units == {"pruned": 1}
    assert list(every_backend.settings.run_logs.rglob("*.jsonl*")) == []


def test_run_folders_of_one_name_with_other_branches_are_other_runs(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: at another place, and begun anew at the same one."""
    imports, places = store.maintenance.imports, [tmp_path / name for name in ("ours", "theirs")]
    for number, home in enumerate(places):
        home.mkdir()
        write_run(home, "nightly", branch(f"b{number}", [message(f"n{number}", number)]), agent_name=home.name)
    imports.run(places[0])
    assert [one.unit for one in imports.run(places[1]).failures] == ["nightly"]
    shutil.rmtree(places[0])
    shutil.copytree(places[1], places[0])
    assert [one.unit for one in imports.run(places[0]).failures] == ["nightly"]
    assert store.conversations.sessions.get("nightly").agent_name == "ours"
    assert store.conversations.branches.find("b1") is None


def test_a_source_of_another_kind_than_the_one_given_is_refused_for_good(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: its receipt has failed, and nobody is told to go on."""
    with closing(sqlite3.connect(tmp_path / "other.db")) as raw, raw:
        raw.execute("CREATE TABLE unknown (x)")
    with pytest.raises(Conflict) as caught:
        store.maintenance.imports.run(tmp_path / "other.db", kind="lionagi-db")
    assert (caught.value.code, getattr(caught.value, "__notes__", [])) == ("unknown_source", [])
    [receipt] = store.receipts.list(kind="import").items
    assert receipt.state == "failed"


def test_the_error_about_a_team_names_a_scope_only_where_it_may_be_given(store: Any, tmp_path: Path) -> None:
    """maintenance M-120."""
    imports, part = store.maintenance.imports, REMOVALS["member of a team of lionagi-db"]
    source = part.write(tmp_path, 0)
    imports.run(source)
    _sql(source, "UPDATE team_messages SET content = 'another', id = 'x' || id")
    [failed] = imports.run(source).failures
    assert (failed.unit, "scope" in failed.reason) == ("teams/dev", False)
