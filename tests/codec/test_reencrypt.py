"""Keys that are replaced, and a codec that is switched on for a full database."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.preloaded import run_program
from support.sealing import SAID, SECRET, Xor, cells, filled, said

from lastlight_state import MisuseError
from lastlight_state.maintenance.upkeep import reencrypt
from lastlight_state.testing import Database

ALL = {"states": 2, "checkpoints": 2, "checkpoint_values": 3, "checkpoint_writes": 1, "messages": 4}


@pytest.mark.parametrize("batch_rows", [1, 200])
def test_a_full_database_is_sealed_and_its_key_replaced(database: Database, batch_rows: int) -> None:
    """codec CO-10: values stay, each row is counted once, and the old key is not needed then."""
    filled(database.open())
    for codec, after in ((Xor(7), Xor(7)), (Xor(9, 7), Xor(9))):
        store = database.open(codec=codec)
        assert store.maintenance.reencrypt.plan(batch_rows=batch_rows) == ALL
        done = store.maintenance.reencrypt.run(batch_rows=batch_rows)
        assert (done.counts, done.complete) == (ALL, True)
        assert store.maintenance.reencrypt.plan() == {}
        assert (store.maintenance.reencrypt.run().counts, said(database.open(codec=after))) == ({}, SAID)
        assert "nobody may find" not in cells(database)


def test_it_stops_after_a_time_and_the_same_call_does_the_rest(database: Database) -> None:
    """codec CO-11."""
    filled(database.open())
    store = database.open(codec=Xor(7))
    done = [store.maintenance.reencrypt.run(batch_rows=1, time_limit=0)]
    while not done[-1].complete:
        done.append(store.maintenance.reencrypt.run(batch_rows=1, time_limit=0))
    assert (len(done), sum((Counter(one.counts) for one in done), Counter())) == (13, Counter(ALL))


def test_a_value_of_an_unknown_key_holds_up_no_other(database: Database) -> None:
    """codec CO-12: of the neighbours everything is sealed."""
    filled(database.open(codec=Xor(7)))
    store = database.open(codec=Xor(9))
    store.states.put("json", 1)
    store.states.put("plain", 2)
    database.open().states.put("plain", 3)
    before = cells(database)
    done = store.maintenance.reencrypt.run(batch_rows=1)
    assert (done.counts, done.complete, done.unopened) == ({"states": 1}, False, {"key-7": sum(ALL.values()) - 1})
    assert {(one.table, one.column) for one in done.damaged} == {
        ("states", "body"),
        ("messages", "content"),
        *((name, "body") for name in ALL if name.startswith("checkpoint")),
    }
    assert len(done.damaged) == sum(ALL.values()) - 1
    assert store.maintenance.reencrypt.run(batch_rows=200).counts == {}
    assert (len(cells(database)) > len(before), store.states.get("plain").value) == (True, 3)
    assert database.open(codec=Xor(9, 7)).maintenance.reencrypt.run().complete
    with pytest.raises(MisuseError):
        database.open().maintenance.reencrypt.run()


def test_tables_with_sealed_columns_are_those_of_the_page() -> None:
    """codec CO-13."""
    assert {one.name for one in reencrypt.TABLES} == set(ALL)


def test_the_command_seals_and_replaces_keys(database: Database) -> None:
    """codec CO-14."""
    filled(database.open())
    on: Any = ("--url", database.url)
    assert lastlight_state("reencrypt", "--codec", "support.sealing:FIRST", "--dry-run", *on).out.splitlines() != []
    done = lastlight_state("reencrypt", "--codec", "support.sealing:FIRST", *on)
    assert (done.code, "messages 4" in done.out) == (0, True)
    assert lastlight_state("reencrypt", "--codec", "support.sealing:SECOND", *on).code == 0
    assert said(database.open(codec=Xor(9)))[1] == SECRET.encode()
    assert lastlight_state("reencrypt", "--codec", "support.sealing:NOBODY", *on).code == 2


def test_a_codec_that_finds_no_key_is_refused_without_its_words(sqlite_database: Database, tmp_path: Path) -> None:
    """codec CO-14: whatever the module raises when it is imported."""
    sqlite_database.open()
    (tmp_path / "broken_keys.py").write_text("raise RuntimeError('the key is hunter2')")
    command = [sys.executable, "-m", "lastlight_state", "reencrypt", "--url", sqlite_database.url, "--codec"]
    for path in ("broken_keys:codec", ":codec", "broken_keys"):
        done = run_program([*command, path], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, "--codec" in done.stderr, "hunter2" in done.stderr) == (2, True, False), done.stderr
