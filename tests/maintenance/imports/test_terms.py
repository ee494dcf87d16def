"""How a caller wants an import: lenient towards values that are refused, and not all at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.conversations.talk import history
from support.maintenance.run_folders import branch, message, write, write_run
from support.maintenance.state_databases import BEGIN, made, put, put_branch, put_message, put_session

from lastlight_state import InvalidValue
from lastlight_state.conversations.tables import MESSAGES
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.testing import Database

LONG = "x" * 300


def test_a_lenient_import_keeps_what_is_refused_as_text(store: Any, tmp_path: Path) -> None:
    """maintenance OP-38: the field is empty, the text stands in `extra`, and it is counted."""
    imports, runs = store.maintenance.imports, tmp_path / "runs"
    odd = message("m1", 1, sender=LONG, content={"text": "a\0b"}, embedding=[float("nan")])
    write_run(runs, "r1", branch("b1", [odd, message("m2", 2)], user=LONG), artifact_root="/a\0b")
    refused = imports.plan(runs)
    assert (refused.units, refused.failures[0].code) == ({"failed": 1}, "invalid_value")
    plan = imports.plan(runs, lenient=True)
    assert (plan.units, plan.noticed) == ({"imported": 1}, {"adapted": 7})
    assert imports.run(runs, lenient=True).noticed == plan.noticed
    stored = store.conversations.messages.get("m1")
    assert (stored.sender, stored.content, stored.embedding) == (None, {}, None)
    assert stored.extra["adapted"]["sender"] == LONG
    assert stored.extra["adapted"]["content"] == '{"text": "a\\u0000b"}'
    assert stored.extra["adapted"]["embedding"] == '["NaN"]'
    one = store.conversations.branches.get("b1")
    assert (one.user, one.extra["adapted"]["user"]) == (None, LONG)
    session = store.conversations.sessions.get("r1")
    assert (session.artifacts_path, session.extra["adapted"]["artifacts_path"]) == (None, "/a\\u0000b")
    assert json.loads(session.extra["adapted"]["extra"])["manifest"]["run_id"] == "r1"
    assert imports.run(runs, lenient=True).units == {"unchanged": 1}


@pytest.mark.parametrize("text", ["a\0" + "b" * 2_000, '"' * 2_000, "\u20ac" * 2_000], ids=["plain", "quotes", "wide"])
def test_a_lenient_import_keeps_the_beginning_of_a_text_for_which_there_is_no_room(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """maintenance OP-38: it says how long the text was, and is counted."""
    for column in ("extra", "content"):
        monkeypatch.setattr(limits_of(MESSAGES), column, 1_500)
    write_run(tmp_path / "runs", "r1", branch("b1", [message("m1", 1, content=text)]))
    assert store.maintenance.imports.plan(tmp_path / "runs").units == {"failed": 1}
    done = store.maintenance.imports.run(tmp_path / "runs", lenient=True)
    assert (done.units, done.noticed) == ({"imported": 1}, {"adapted": 1, "adapted_cut": 1})
    kept = store.conversations.messages.get("m1").extra["adapted"]["content"]
    beginning, _, note = kept.partition("\u2026")
    stored = text.replace("\0", "\\u0000")
    assert (stored.startswith(beginning), len(beginning) > 100) == (True, True)
    assert note == f" (cut: {len(stored.encode())} bytes)"


def test_a_message_over_8_mib_is_no_reason_to_fail_a_lenient_import(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-38."""
    path, store = made(tmp_path / "state.db"), sqlite_database.open()
    put_message(path, "m1", 1, content=json.dumps({"text": "x" * (9 * 1024 * 1024)}))
    put_session(path, "s1", ["m1"])
    assert [one.code for one in store.maintenance.imports.run(path).failures] == ["payload_too_large"]
    done = store.maintenance.imports.run(path, lenient=True)
    assert (done.units, done.noticed["adapted_cut"]) == ({"imported": 1}, 1)
    kept = store.conversations.messages.get("m1").extra
    assert kept is not None
    assert len(kept["adapted"]["content"]) > 8_000_000


def test_a_lenient_import_leaves_out_a_branch_that_cannot_be_read(store: Any, tmp_path: Path) -> None:
    """maintenance OP-39: it is counted; when it is mended it is brought in."""
    imports, runs = store.maintenance.imports, tmp_path / "runs"
    folder = write_run(runs, "r1", branch("b0", [message("m1", 1)]), branch("b1", [message("m2", 2)]))
    write(folder / "branches" / "b1.json", "{torn")
    done = imports.run(runs, lenient=True)
    assert (done.units, done.noticed) == ({"imported": 1}, {"branch_unreadable": 1})
    write(folder / "branches" / "b1.json", branch("b1", [message("m2", 2)]))
    assert imports.run(runs).units == {"grown": 1}
    assert history(store, "b1") == ["m2"]


def test_a_lenient_import_of_a_state_database_keeps_columns_that_are_no_json(store: Any, tmp_path: Path) -> None:
    """maintenance OP-38, OP-80: an id has no other place, and fails its session."""
    path = made(tmp_path / "state.db")
    put_message(path, "m1", 1, content="{torn", node_metadata="[]")
    put_message(path, "m2", 2, content='{"a": [NaN, -Infinity]}')
    put_session(path, "s1", ["m1"], node_metadata="{torn", artifact_contract_json=b"\xff", show_topic=LONG)
    put_branch(path, "s1", "b1", ["m1", "m2"], node_metadata="torn")
    put_session(path, LONG, [])
    imports = store.maintenance.imports
    assert imports.plan(path).units == {"failed": 2}
    done = imports.run(path, lenient=True)
    assert (done.units, done.noticed) == ({"failed": 1, "imported": 1}, {"adapted": 8})
    one, two = (store.conversations.messages.get(name) for name in ("m1", "m2"))
    assert (one.content, one.extra) == ({}, {"adapted": {"content": "{torn", "node_metadata": "[]"}})
    assert two.content == {"a": ["NaN", "-Infinity"]}
    texts = store.conversations.sessions.get("s1").extra["adapted"]
    assert texts == {"node_metadata": "{torn", "artifact_contract_json": json.dumps("b'\\xff'"), "show_topic": LONG}
    assert store.conversations.branches.get("b1").extra["adapted"] == {"node_metadata": "torn"}


def test_a_lenient_import_keeps_what_is_refused_of_a_history_of_statuses(store: Any, tmp_path: Path) -> None:
    """maintenance OP-38, OP-80: a history has no `extra`, so the texts stand in that of the session."""
    path, long = made(tmp_path / "state.db"), "x" * 1_025
    put_session(path, "s1", [], status="completed", ended_at=BEGIN + 50)
    put_branch(path, "s1", "b1", [])
    given: list[dict[str, Any]] = [
        {"status": "running", "evidence_refs": "[torn", "actor": LONG, "reason_code": "run.started"},
        {"status": "completed", "evidence_refs": "[1]", "reason_summary": long, "reason_code": "run.completed.ok"},
    ]
    for i, row in enumerate(given):
        row |= {"entity_type": "session", "entity_id": "s1", "source": "executor", "created_at": BEGIN + i}
        put(path, "status_transitions", id=f"t{i}", **row)
    imports = store.maintenance.imports
    assert imports.plan(path).units == {"failed": 1}
    done = imports.run(path, lenient=True)
    assert (done.units, done.noticed["adapted"]) == ({"imported": 1}, 3)
    ended, began = store.conversations.lifecycle.history("s1").items
    assert (began.evidence, began.actor, ended.evidence, ended.reason_summary) == (None, None, [1], None)
    assert store.conversations.sessions.get("s1").extra["adapted"] == {
        "history[0].evidence_refs": "[torn",
        "history[0].actor": LONG,
        "history[1].summary": long,
    }
    assert imports.run(path, lenient=True).units == {"unchanged": 1}


def test_an_import_ends_after_so_many_units_and_the_same_call_goes_on(database: Database, tmp_path: Path) -> None:
    """maintenance OP-35: what is unchanged does not count."""
    path = made(tmp_path / "state.db")
    for i in range(3):
        put_session(path, f"s{i}", [], created_at=BEGIN + i)
    imports = database.open().maintenance.imports
    assert imports.plan(path, limit=2).units == {"imported": 2}
    assert imports.run(path, limit=2).units == {"imported": 2}
    assert imports.run(path, limit=2).units == {"imported": 1, "unchanged": 2}
    with pytest.raises(InvalidValue, match="limit"):
        imports.plan(path, limit=0)


def test_the_command_takes_both(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-38, OP-73."""
    path = made(tmp_path / "state.db")
    for i in range(2):
        put_session(path, f"s{i}", [], show_topic=LONG)
    call = ("import", path, "--url", sqlite_database.url, "--json")
    assert (lastlight_state(*call).code, lastlight_state(*call).error) == (1, "units_failed")
    said = lastlight_state(*call, "--lenient", "--limit", "1")
    assert (said.code, said.data["units"], said.data["noticed"]) == (0, {"imported": 1}, {"adapted": 1})
