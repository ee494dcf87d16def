"""Somebody comes in between the look of `Imports._import_part` and what it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.between import before
from support.maintenance.run_folders import branch, message, write_run

from lastlight_state.conversations import NewMessage, NewSession
from lastlight_state.conversations.trees.saving import TreeSave
from lastlight_state.testing import Database, racing


def test_a_session_that_somebody_else_creates_meanwhile_is_not_changed(database: Database, tmp_path: Path) -> None:
    """maintenance OP-36."""
    store, other = database.open(), database.open()
    write_run(tmp_path / "runs", "r1", branch("b1", [message("m1", 1)]))
    with racing(store) as race:
        race.before_unit(2, lambda: other.conversations.sessions.create(NewSession("r1")))
        done = store.maintenance.imports.run(tmp_path / "runs")
    assert (race.left, done.units, done.rows) == (0, {"failed": 1}, {})
    assert store.conversations.sessions.get("r1").branch_count == 0


@pytest.mark.parametrize("what", ["message", "session"])
def test_what_is_stored_after_the_look_of_a_unit_stays_as_it_is(
    postgres_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """maintenance OP-36: on SQLite nobody else writes between them."""
    store, other = postgres_database.open(), postgres_database.open()
    write_run(tmp_path / "runs", "r1", branch("b1", [message("m1", 1)]))
    talks = other.conversations
    come = {
        "message": lambda: talks.messages.put(NewMessage("user", "mine", id="m1")),
        "session": lambda: talks.sessions.create(NewSession("r1")),
    }
    happened = before(monkeypatch, TreeSave, "part", come[what])
    done = store.maintenance.imports.run(tmp_path / "runs")
    assert (happened, done.units, done.failures[0].code) == (["part"], {"failed": 1}, "already_exists")
    if what == "message":
        assert store.conversations.messages.get("m1").content == "mine"
