"""The state database of another program becomes conversation sessions, each whole or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.conversations.talk import history
from support.maintenance.rows import counts, difference
from support.maintenance.run_folders import bytes_of, write_run
from support.maintenance.state_databases import BEGIN, made, put, put_branch, put_message, put_session

from lastlight_state.conversations.runtime import SOURCE
from lastlight_state.errors import Conflict
from lastlight_state.maintenance.imports import session_databases
from lastlight_state.testing import Database


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An empty database in a folder of its own."""
    (tmp_path / "program").mkdir()
    return made(tmp_path / "program" / "state.db")


def _at(second: float) -> datetime:
    return datetime.fromtimestamp(BEGIN + second, UTC)


def _left(stored: Any) -> Any:
    """What a session has of columns without a field."""
    return stored.extra[SOURCE]


def _talk(path: Path) -> None:
    put_message(path, "m1", 1, role="system", node_metadata='{"a": 1}', sender="s", recipient="r", channel="c")
    put_message(path, "m2", 2, embedding=b"\0\0\x80?", lion_class=0)
    put_message(path, "m3", 3, content='"just a text"')
    told = {"invocation_kind": "flow", "source_kind": "live", "project": "p", "model": "large", "playbook_name": "book"}
    times = {"started_at": BEGIN + 1, "ended_at": BEGIN + 50, "last_message_at": BEGIN + 3}
    put_session(path, "s1", ["m1", "m2", "m3", "gone"], status="completed", name="one", **told, **times)
    put_branch(path, "s1", "b1", ["m1", "m2", "gone"], system_msg_id="m1", model="small", status="failed")
    for i, (before, status) in enumerate([(None, "running"), ("running", "completed")]):
        why = {"reason_code": f"run.{status}.ok" if i else "odd.code", "source": "executor", "actor": "ana"}
        row = {"entity_type": "session", "entity_id": "s1", "previous_status": before, "status": status}
        put(path, "status_transitions", id=f"t{i}", created_at=BEGIN + 1 + 49 * i, evidence_refs="[]", **row, **why)
    put_session(path, "s2", ["m1"], status="Odd", created_at=BEGIN + 5, invocation_kind="dance")


def test_a_state_database_becomes_sessions_with_their_own_ids_and_times(store: Any, source: Path) -> None:
    """maintenance OP-80, OP-37, case 33: the plan is the truth, the source is only read."""
    _talk(source)
    before, imports = bytes_of(source.parent), store.maintenance.imports
    assert imports.detect(source) == "lionagi-db"
    plan = imports.plan(source)
    assert plan.units == {"imported": 2}
    assert plan.rows == {"branches": 1, "messages": 3, "progression_links": 2, "sessions": 2}
    assert plan.noticed == {"kind_unknown": 1, "order_without_message": 2, "reason_unknown": 1, "status_unknown": 1}
    done = imports.run(source)
    assert (done.units, done.rows, done.noticed, done.failures) == (plan.units, plan.rows, plan.noticed, ())
    assert bytes_of(source.parent) == before
    one, two = (store.conversations.sessions.get(name) for name in ("s1", "s2"))
    assert (one.created_at, one.updated_at, one.started_at, one.ended_at) == (_at(0), _at(60), _at(1), _at(50))
    assert (one.created_at_unix, one.progression_id, one.message_count) == (BEGIN, "order-s1", 3)
    assert (one.status, one.status_reason, _left(one)) == ("completed", "run.completed.ok", {"model": "large"})
    assert (two.status, two.invocation_kind, _left(two)) == ("completed", None, {"invocation_kind": "dance"})
    told = store.conversations.lifecycle.history("s1").items
    assert [(one.branch_id, one.previous_status, one.status) for one in reversed(told)] == [
        (None, None, "running"),
        (None, "running", "completed"),
        ("b1", None, "failed"),
    ]
    assert (told[-1].reason_code, told[-1].reason_summary, told[-1].created_at) == (
        "legacy.imported",
        "odd.code",
        _at(1),
    )
    first = store.conversations.messages.get("m1")
    assert (first.created_at_unix, first.role, first.sender, first.node_metadata) == (
        BEGIN + 1,
        "system",
        "s",
        {"a": 1},
    )
    assert first.lion_class == "program.messages.Instruction"
    assert store.conversations.messages.get("m3").content == "just a text"
    branch = store.conversations.branches.get("b1")
    assert (branch.progression_id, branch.system_msg_id, branch.model) == ("order-b1", "m1", "small")
    assert history(store, "b1") == ["m1", "m2"]


def test_a_second_import_of_a_database_writes_nothing_and_a_grown_session_is_continued(
    database: Database, source: Path
) -> None:
    """maintenance OP-36, OP-80."""
    put_message(source, "m1", 1)
    put_session(source, "s1", ["m1"], status="running")
    put_branch(source, "s1", "b1", ["m1"])
    imports = database.open().maintenance.imports
    imports.run(source)
    before = counts(database)
    again = imports.run(source)
    assert (again.units, again.rows) == ({"unchanged": 1}, {})
    assert set(difference(before, counts(database))) <= {"maintenance_receipts"}
    put_message(source, "m2", 70)
    put_session(source, "s1", ["m1", "m2"], status="failed", ended_at=BEGIN + 80, updated_at=BEGIN + 80)
    put_branch(source, "s1", "b1", ["m1", "m2"])
    put_branch(source, "s1", "b2", ["m2"])
    plan = imports.plan(source)
    assert (plan.units, plan.rows) == ({"grown": 1}, {"branches": 1, "messages": 1, "progression_links": 2})
    assert imports.run(source).rows == plan.rows
    store = database.open()
    assert [one.status for one in store.conversations.lifecycle.history("s1")] == ["failed", "running"]
    assert (history(store, "b1"), history(store, "b2")) == (["m1", "m2"], ["m2"])
    assert store.conversations.sessions.get("s1").ended_at == _at(80)


@pytest.mark.parametrize(
    "spoil",
    [
        {"table": "progressions", "id": "order-b2", "created_at": BEGIN, "collection": "[torn"},
        {"table": "progressions", "id": "order-b2", "created_at": BEGIN, "collection": '{"a": 1}'},
        {"table": "messages", "id": "m2", "created_at": BEGIN, "content": "{torn", "role": "user"},
        {"table": "messages", "id": "m2", "created_at": BEGIN, "content": '{"a": NaN}', "role": "user"},
        {"table": "branches", "id": "b2", "created_at": BEGIN, "session_id": "s2", "node_metadata": "5"},
        {"table": "branches", "id": "b2", "created_at": BEGIN, "session_id": "s2", "user": b"\xff"},
        {"table": "messages", "id": "m2", "created_at": BEGIN, "content": 7, "role": "user"},
        {"table": "messages", "id": "m2", "created_at": 9e300, "content": "{}", "role": "user"},
    ],
)
def test_what_cannot_be_stored_fails_its_session_alone(store: Any, source: Path, spoil: dict[str, Any]) -> None:
    """maintenance OP-35, OP-80, case 29: mended, it is imported whole."""
    put_message(source, "m1", 1)
    put_message(source, "m2", 2)
    for i in "123":
        put_session(source, f"s{i}", ["m1"], status="completed")
        put_branch(source, f"s{i}", f"b{i}", ["m2"] if i == "2" else ["m1"])
    with closing(sqlite3.connect(source)) as raw:
        raw.row_factory = sqlite3.Row
        table = spoil["table"]
        [sound] = raw.execute(f"SELECT * FROM {table} WHERE id = ?", (spoil["id"],))
    put(source, **spoil)
    done = store.maintenance.imports.run(source)
    assert done.units == {"failed": 1, "imported": 2}
    [failed] = done.failures
    assert (failed.unit, failed.code) == ("s2", "invalid_value")
    assert store.conversations.sessions.find("s2") is None
    put(source, table, **dict(sound))
    assert store.maintenance.imports.run(source).units == {"imported": 1, "unchanged": 2}


def test_a_database_of_the_first_version_has_sessions_without_a_status(store: Any, tmp_path: Path) -> None:
    """maintenance OP-80: columns and tables that came later may be absent; orders of several owners are told apart."""
    path = made(tmp_path / "old.db", is_old=True)
    put_message(path, "m1", 1, content="null", lion_class=99)
    put_session(path, "s1", ["m1"])
    put_branch(path, "s1", "b1", ["m1"], progression_id="order-s1", system_msg_id="gone")
    put(path, "branches", id="b2", session_id="s1", created_at=BEGIN, progression_id="nowhere")
    done = store.maintenance.imports.run(path)
    assert done.noticed == {
        "class_unknown": 1,
        "content_missing": 1,
        "order_missing": 1,
        "order_shared": 2,
        "system_missing": 1,
    }
    session = store.conversations.sessions.get("s1")
    assert (session.status, session.message_count) == (None, 1)
    assert (history(store, "b1"), history(store, "b2")) == (["m1"], [])
    assert "order-s1" not in {session.progression_id, store.conversations.branches.get("b1").progression_id}


def test_an_order_whose_id_is_taken_gets_another(store: Any, source: Path) -> None:
    """maintenance OP-80: what is stored of others is not touched. A status that began before its history is kept."""
    pool = store.conversations.progressions.create(progression_id="order-s1")
    put_session(source, "s1", [], status="failed", started_at=BEGIN - 5)
    row = {"id": "t1", "entity_type": "session", "entity_id": "s1", "previous_status": "running", "status": "aborted"}
    put(source, "status_transitions", created_at=BEGIN, reason_code="run.aborted.user", source="me", **row)
    store.maintenance.imports.run(source)
    assert store.conversations.sessions.get("s1").progression_id != pool.id
    told = [(one.status, one.source, one.created_at) for one in store.conversations.lifecycle.history("s1")]
    assert [one[0] for one in told] == ["failed", "aborted", "running"]
    assert told[1:] == [("aborted", "system", _at(0)), ("running", "system", _at(-5))]


def test_a_status_before_the_history_that_is_not_known_is_noted(store: Any, source: Path) -> None:
    """maintenance OP-80: it has ended then, and its word stands in the summary."""
    put_session(source, "s1", [], status="failed")
    row = {"id": "t1", "entity_type": "session", "entity_id": "s1", "previous_status": "Odd", "status": "failed"}
    put(source, "status_transitions", created_at=BEGIN, reason_code="run.failed.exception", source="executor", **row)
    assert store.maintenance.imports.run(source).noticed["status_unknown"] == 1
    first = store.conversations.lifecycle.history("s1").items[-1]
    assert (first.status, first.reason_summary) == ("completed", "Odd")


@pytest.mark.parametrize("column", ["previous_status", "status"])
def test_a_history_without_a_column_fails_its_session_alone(store: Any, source: Path, column: str) -> None:
    """maintenance OP-80."""
    put_session(source, "s1", [])
    put_session(source, "s2", [])
    row = {"id": "t1", "entity_type": "session", "entity_id": "s1", "previous_status": "running", "status": "aborted"}
    put(source, "status_transitions", created_at=BEGIN, source="me", **row)
    with closing(sqlite3.connect(source)) as raw:
        raw.execute(f"ALTER TABLE status_transitions RENAME COLUMN {column} TO other")
        raw.commit()
    report = store.maintenance.imports.run(source)
    assert [(one.unit, column in one.reason) for one in report.failures] == [("s1", True)]
    assert store.conversations.sessions.get("s2").id == "s2"


@pytest.fixture
def writer(source: Path) -> Iterator[sqlite3.Connection]:
    """A program that has the database open, in WAL mode, with commits that only the log has."""
    with closing(sqlite3.connect(source)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("SELECT count(*) FROM sessions").fetchone()
        _talk(source)
        yield raw


@pytest.mark.usefixtures("writer")
def test_a_database_in_use_is_read_with_its_log(store: Any, source: Path) -> None:
    """maintenance OP-80: as it is at one moment, and neither file is written."""
    files = [source, source.with_name("state.db-wal")]
    before = [one.read_bytes() for one in files]
    assert len(before[1]) > 0
    assert store.maintenance.imports.run(source).units == {"imported": 2}
    assert [one.read_bytes() for one in files] == before


def test_damage_in_a_source_fails_what_it_meets(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-35, OP-80: the error says what SQLite says."""
    put_message(source, "m1", 1, content='"' + "x" * 100_000 + '"')
    put_session(source, "s1", ["m1"])
    put_session(source, "s2", [], created_at=BEGIN + 1)
    data = source.read_bytes()
    next_page = data.index(b"x" * 4_000) - 4  # the number that stands before what a page holds of a long value
    source.write_bytes(data[:next_page] + b"\xff" * 4 + data[next_page + 4 :])
    done = sqlite_database.open().maintenance.imports.run(source)
    assert done.units == {"failed": 1, "imported": 1}
    assert (done.failures[0].code, "SQLITE_CORRUPT" in done.failures[0].reason) == ("damaged_source", True)


def test_a_session_that_came_from_another_kind_of_source_is_not_continued(
    sqlite_database: Database, source: Path, tmp_path: Path
) -> None:
    """maintenance OP-36, OP-80: also where its unit has the same name there."""
    write_run(tmp_path / "runs", "s1")
    imports = sqlite_database.open().maintenance.imports
    assert imports.run(tmp_path / "runs").units == {"imported": 1}
    put_session(source, "s1", [])
    assert [(one.unit, one.code) for one in imports.run(source).failures] == [("s1", "already_exists")]


def test_a_branch_that_is_no_fork_keeps_the_id_of_its_order(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-80: a fork reads that of its parent first, and so gets another."""
    put_session(source, "s1", [])
    put_branch(source, "s1", "b1", [], node_metadata='{"a": 1}')
    store = sqlite_database.open()
    store.maintenance.imports.run(source)
    assert store.conversations.branches.get("b1").progression_id == "order-b1"


def test_a_session_that_tells_no_begin_is_imported_with_its_history(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-80: what was before the first change is not known then."""
    put_session(source, "s1", [], created_at=None, status="failed")
    row = {"id": "t1", "entity_type": "session", "entity_id": "s1", "previous_status": "running", "status": "failed"}
    put(source, "status_transitions", created_at=BEGIN, reason_code="run.failed.exception", source="executor", **row)
    store = sqlite_database.open()
    assert store.maintenance.imports.run(source).failures == ()
    assert [one.status for one in store.conversations.lifecycle.history("s1")] == ["failed"]


def test_a_session_that_tells_no_time_fails_alone(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-35, OP-80."""
    put_session(source, "s1", [])
    put_session(source, "s2", [], created_at=None, updated_at=None)
    done = sqlite_database.open().maintenance.imports.run(source)
    [failed] = done.failures
    assert (done.units["imported"], failed.unit, failed.code) == (1, "s2", "invalid_value")
    assert "session.updated_at" in failed.reason


def test_branches_of_a_session_that_is_not_there_are_named(store: Any, source: Path) -> None:
    """maintenance OP-35, OP-80."""
    put_session(source, "s1", [])
    put_branch(source, "s1", "b1", [])
    put_branch(source, "gone", "b2", [])
    done = store.maintenance.imports.run(source)
    assert (done.units, [one.unit for one in done.failures]) == (
        {"failed": 1, "imported": 1},
        ["missing_sessions/gone"],
    )
    assert store.conversations.branches.find("b2") is None


@pytest.mark.parametrize("odd", [1.5, 7, b"\xff", "nul\0"])
@pytest.mark.parametrize("column", ["id", "system_msg_id", "progression_id"])
def test_an_id_that_is_no_text_fails_its_session_alone(
    sqlite_database: Database, source: Path, column: str, odd: Any
) -> None:
    """maintenance OP-35, OP-80: a column of a damaged source may hold a number or bytes, whatever its type."""
    for i in "12":
        put_session(source, f"s{i}", [], created_at=BEGIN + int(i))
        put_branch(source, f"s{i}", f"b{i}", [])
    with closing(sqlite3.connect(source)) as raw, raw:
        raw.execute("CREATE TABLE loose AS SELECT * FROM branches")
        raw.execute("DROP TABLE branches")
        for name in ("id", "system_msg_id", "progression_id"):
            raw.execute(f"ALTER TABLE loose RENAME COLUMN {name} TO old_{name}")
            raw.execute(f"ALTER TABLE loose ADD COLUMN {name}")
            raw.execute(f"UPDATE loose SET {name} = old_{name}")
        raw.execute("ALTER TABLE loose RENAME TO branches")
        raw.execute(f"UPDATE branches SET {column} = ? WHERE session_id = 's1'", (odd,))
    done = sqlite_database.open().maintenance.imports.run(source)
    assert done.units == {"failed": 1, "imported": 1}
    assert [(one.unit, one.code) for one in done.failures] == [("s1", "invalid_value")]


def test_other_files_are_no_source(store: Any, tmp_path: Path, source: Path) -> None:
    """maintenance OP-35: a database of ours is none, and neither is one with other columns."""
    with closing(sqlite3.connect(source)) as raw:
        raw.execute("ALTER TABLE progressions RENAME COLUMN collection TO items")
    (tmp_path / "text").write_text("SQLite format")
    for path in (source, tmp_path / "text", tmp_path / "absent"):
        with pytest.raises(Conflict, match="a SQLite file with the tables messages") as refused:
            store.maintenance.imports.detect(path)
        assert refused.value.code == "unknown_source"
    with pytest.raises(Conflict, match="has not the tables"):
        store.maintenance.imports.plan(source, kind="lionagi-db")


def test_a_source_that_was_written_meanwhile_is_refused(
    sqlite_database: Database, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-80: a file that nobody used is read without a lock; what was read of it is not stored then."""
    put_session(source, "s1", [])
    read = session_databases._Session.draft

    def disturbed(self: Any) -> Any:
        put_session(source, "s2", [])
        return read(self)

    monkeypatch.setattr(session_databases._Session, "draft", disturbed)
    done = sqlite_database.open().maintenance.imports.run(source)
    assert [one.code for one in done.failures] == ["damaged_source"]


def test_the_command_imports_a_state_database(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-80, OP-73."""
    _talk(source)
    said = lastlight_state("import", source, "--dry-run", "--url", sqlite_database.url, "--json")
    assert (said.code, said.data["kind"], said.data["units"]) == (0, "lionagi-db", {"imported": 2})
    said = lastlight_state("import", source, "--kind", "lionagi-db", "--url", sqlite_database.url)
    assert (said.code, "imported" in said.out) == (0, True)


@pytest.mark.parametrize("content", [5, "[" * 20_000], ids=["a number", "deep"])
def test_a_lenient_import_keeps_what_is_no_json_text_as_text(store: Any, source: Path, content: Any) -> None:
    """maintenance OP-38: a number that SQLite made of a text, and what no reader of JSON follows to its end."""
    put_message(source, "m1", 1, content=content)
    put_session(source, "s1", ["m1"])
    done = store.maintenance.imports.run(source, lenient=True)
    assert (done.units, done.noticed["adapted"]) == ({"imported": 1}, 1)
    found = store.conversations.messages.get("m1")
    assert (found.content, found.extra["adapted"]["content"]) == ({}, str(content))


def test_a_value_that_is_nested_too_deeply_fails_its_session_alone_when_lenient(store: Any, source: Path) -> None:
    """maintenance OP-35, OP-38."""
    put_message(source, "m1", 1, content="[" * 1_000 + "]" * 1_000)
    put_session(source, "s1", ["m1"])
    put_session(source, "s2", [], created_at=BEGIN + 1)
    done = store.maintenance.imports.run(source, lenient=True)
    assert done.units == {"failed": 1, "imported": 1}
    assert [(one.unit, one.code) for one in done.failures] == [("s1", "invalid_value")]
