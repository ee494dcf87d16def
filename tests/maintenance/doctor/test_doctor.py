"""Each check finds the fault that was planted for it, and a sound database has none."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.cli.calls import files_of
from support.conversations.talk import begun
from support.maintenance.rows import counts, insert, run_row
from support.maintenance.whole_runs import Report, whole_run
from support.stored_words import unguarded_words
from support.workflows.steps import Raw

from lastlight_state import InvalidValue, StateStore
from lastlight_state.backends import connect
from lastlight_state.backends.sqlite.files import make_private_directory
from lastlight_state.conversations import NewChunk, NewMessage, NewSession, Provenance, SessionTimes
from lastlight_state.files.agent_log import Cwd
from lastlight_state.maintenance import Finding
from lastlight_state.messaging import ConversationKey
from lastlight_state.migrations import migrate
from lastlight_state.settings import Settings
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, Trigger


def findings(store: StateStore, **more: Any) -> list[Finding]:
    return list(store.maintenance.doctor.examine(**more).findings)


class Scene(NamedTuple):
    """A database without faults, in which one is planted."""

    database: Database
    store: StateStore
    raw: Any

    def run(self, key: str, status: str = "succeeded", **more: Any) -> None:
        """A run that agrees with its transitions."""
        now = self.database.clock.now()
        insert(self.raw, "workflow_runs", {**run_row(key, now, status), "transition_seq": 0, **more})

    def log(self, name: str) -> Path:
        """The line file of a session that an execution knows."""
        store, executions = self.store, self.store.workflows.executions
        with store.agent_log.writer.open(place=Cwd("/work"), session_id=name, prompt="x") as log:
            log.feed({"type": "session", "id": name})
        run = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
        executions.finish(executions.start("wf:p", run_id=run, session_id=name).id, "succeeded")
        found = store.agent_log.sessions.get(name)
        return Path(found.path)


@pytest.fixture
def scene(fresh_database: Database) -> Scene:
    if fresh_database.name == "postgresql":  # throw-away servers run without it
        _set_synchronous_commit(fresh_database.raw(), "on")
    return Scene(fresh_database, fresh_database.open(), fresh_database.raw())


def _schema(scene: Scene) -> None:
    scene.raw.execute("DROP INDEX ix_workflow_runs_ended")


def _settings(scene: Scene) -> None:
    if scene.database.name == "postgresql":
        _set_synchronous_commit(scene.raw, "off")


def _set_synchronous_commit(raw: Any, to: str) -> None:
    """For connections that are made from now on."""
    name = raw.execute("SELECT current_database()").fetchone()[0]
    raw.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = {to}')


def _permissions(scene: Scene) -> None:
    scene.log("known").chmod(0o644)


def _integrity(scene: Scene) -> None:
    if scene.database.name == "sqlite":
        scene.raw.execute("PRAGMA foreign_keys = OFF")
        insert(scene.raw, "run_loops", {"run_id": "gone", "loop_id": "l", "updated_at": scene.database.clock.now()})
    else:
        scene.raw.execute("ALTER TABLE executions ADD CONSTRAINT odd CHECK (turns >= 0) NOT VALID")


def _orphans(scene: Scene) -> None:
    row = {"id": "x", "trigger_type": "t", "trigger_id": "t", "skill": "s", "workflow_run_id": "gone"}
    now = scene.database.clock.now()
    insert(scene.raw, "executions", {**row, "started_at": now})
    old, talks = now - timedelta(days=1, seconds=1), scene.store.conversations
    talks.messages.create(NewMessage("user", 1, id="stray", created_at=old))
    talks.progressions.create("nobody's", created_at=old)


def _pointers(scene: Scene) -> None:
    now = scene.database.clock.now()
    row = {"trigger_type": "t", "trigger_id": "t", "skill": "s", "started_at": now, "finished_at": now}
    insert(scene.raw, "executions", {"id": "other", "workflow_run_id": None, **row})
    insert(scene.raw, "executions", {"id": "empty", "workflow_run_id": "live", **row})
    insert(scene.raw, "executions", {"id": "good", "workflow_run_id": "live", "output_text": "x", **row})
    named = ", ".join(f'"{n}": {{"lastOutputExecutionId": "{n}"}}' for n in ("gone", "other", "empty", "good"))
    scene.run("live", "running", scratch="{" + named + "}", lease_expires_at=now)
    root = begun(scene.store, "a")
    scene.store.conversations.sessions.create(NewSession("of-a-run", workflow_run_id="gone"))
    scene.log("known")
    scene.store.conversations.sessions.create(NewSession("logged", agent_session_id="known"))
    scene.store.conversations.sessions.create(NewSession("lost", agent_session_id="lost"))
    scene.store.conversations.messages.create(NewMessage("user", 1, id="stray"))
    scene.raw.execute(
        f"UPDATE sessions SET first_msg_id = 'stray', last_msg_id = 'stray' WHERE id = '{root.session_id}'"
    )
    scene.raw.execute("UPDATE branches SET system_msg_id = 'stray'")


def _logs(scene: Scene) -> None:
    scene.log("known")
    now = scene.database.clock.now()
    row = {"trigger_type": "t", "trigger_id": "t", "skill": "s", "started_at": now, "finished_at": now}
    insert(scene.raw, "executions", {"id": "lost", "session_id": "lost", "turns": 0, **row})
    insert(scene.raw, "executions", {"id": "nameless", "session_id": None, "turns": 3, **row})
    with scene.store.agent_log.writer.open(place=Cwd("/work"), session_id="unknown", prompt="x") as log:
        log.feed({"type": "session", "id": "unknown"})
    twice = scene.log("twice")
    scene.store.conversations.sessions.create(NewSession("knows", agent_session_id="twice"))
    other = twice.parent.with_name("elsewhere")
    other.mkdir(mode=0o700)
    shutil.copy(twice, other)


def _lines(scene: Scene) -> None:
    with scene.log("known").open("ab") as file:
        file.write(b'{"type": "torn"')


def _sequences(scene: Scene) -> None:
    scene.run("r")
    event = {"type": "e", "occurred_at": scene.database.clock.now(), "payload": "{}"}
    insert(scene.raw, "run_events", *({"run_id": "r", "seq": seq, **event} for seq in (0, 2)))
    insert(scene.raw, "run_sequences", {"run_id": "r", "stream": "events", "next_seq": 2})
    talk = begun(scene.store, "a", "b").session_id
    scene.raw.execute("DELETE FROM session_changes WHERE seq = 2")
    scene.raw.execute("UPDATE sessions SET change_seq = 9, transition_seq = 9")
    moved = {"session_id": talk, "status": "failed", "reason_code": "legacy.imported", "source": "agent"}
    made = {**moved, "created_at": scene.database.clock.now()}
    insert(scene.raw, "session_transitions", *({"id": str(seq), "seq": seq, **made} for seq in (1, 3)))
    now = scene.database.clock.now()
    insert(scene.raw, "progressions", *({"id": key, "created_at": now, "next_ord": 1} for key in ("short", "beside")))
    insert(scene.raw, "progression_links", {"progression_id": "beside", "ord": 7, "message_id": "a"})


def _words(scene: Scene) -> None:
    with unguarded_words(scene.database.name, scene.raw.execute):
        _odd_words(scene)


def _odd_words(scene: Scene) -> None:
    scene.run("r", "vanished")
    later = scene.database.clock.now() + timedelta(days=3)
    scene.run("later", updated_at=later)
    root = begun(scene.store)
    scene.store.conversations.messages.create(NewMessage("user", 1, created_at=later))
    scene.store.conversations.sessions.touch(root.session_id, at=later)
    for table in ("sessions", "branches"):
        scene.raw.execute(f"UPDATE {table} SET status = 'vanished'")
    moved = {"session_id": "gone", "status": "failed", "reason_code": "legacy.imported", "source": "robot"}
    insert(scene.raw, "session_transitions", {"id": "t", "seq": 1, "created_at": later, **moved})


def _contents(scene: Scene) -> None:
    if scene.database.name == "sqlite":
        scene.run("r", context="{")
    talks, raw = scene.store.conversations, Raw(scene.database)
    talks.messages.create(NewMessage("user", 1, id="a", embedding=[1]))
    talks.messages.create(NewMessage("user", 1, id="b", embedding=[1]))
    talks.branches.append(talks.branches.create(talks.sessions.create().id).id, ["a", "b"])
    raw("UPDATE messages SET embedding = ? WHERE id = 'a'", bytes(6))
    raw("UPDATE messages SET embedding = ? WHERE id = 'b'", b"")
    talks.vectors.put("ns", [NewChunk("a", "x", [1, 2]), NewChunk("b", "x", [1, 2])])
    raw("UPDATE vectors SET embedding = ? WHERE id = 'a'", bytes(12))
    raw("UPDATE vectors SET embedding = ?, dimensions = 3 WHERE id = 'b'", bytes(12))


def _stuck(scene: Scene) -> None:
    now = scene.database.clock.now()
    before = now - timedelta(hours=1)
    scene.run("dead", "running", lease_expires_at=before)
    scene.run("waits", "paused", pause_reason="gate")
    scene.run("over")
    gate = {"workflow_run_id": "over", "gate": "g", "summary": "s", "created_at": now, "expires_at": before}
    insert(scene.raw, "workflow_approvals", {"id": "g", **gate})
    question = {"run_id": "over", "node_id": "n", "kind": "text", "requested_at": now, "prompt": "?"}
    insert(scene.raw, "human_requests", {"id": "q", "expires_at": before, **question})
    fire = {"id": "f", "cron_name": "c", "source": "manual", "status": "running", "started_at": now}
    insert(scene.raw, "cron_fires", {**fire, "lease_until": before})
    talks, silent = scene.store.conversations, SessionTimes(started_at=now - timedelta(hours=7))
    for name, place in (("dead", "/out"), ("empty", None), ("stalled", None), ("alive", None)):
        provenance = Provenance(artifacts_path=place)
        talks.sessions.create(NewSession(name, status="running", times=silent, provenance=provenance))
    talks.lifecycle.heartbeat("stalled", "w")
    talks.exchange.send(NewMessage("user", 1), to="box")
    for _ in range(6):
        assert talks.exchange.take("box", reader="r", lease=timedelta(milliseconds=1))
        scene.database.clock.advance(seconds=1)
    talks.sessions.touch("alive")


def _agreement(scene: Scene) -> None:
    """Among others a running run whose lease is gone, and the lease of a run that has ended (workflows W-156)."""
    scene.run("lost", "running")
    scene.raw.execute("UPDATE run_leases SET run_id = 'r'")
    scene.run("r", transition_seq=1)
    moved = {"to_status": "failed", "reason": "x", "source": "engine", "at": scene.database.clock.now()}
    insert(scene.raw, "run_transitions", {"run_id": "r", "seq": 1, **moved})
    session = scene.store.messaging.sessions.create(ConversationKey("p", "c", "u")).id
    scene.raw.execute(f"UPDATE messaging_sessions SET message_count = 4 WHERE id = '{session}'")
    scene.store.conversations.sessions.create(NewSession("s", status="running"))
    scene.raw.execute("UPDATE sessions SET status = 'failed'")
    root, now = begun(scene.store, "a"), scene.database.clock.now()
    for key, start, at, depth in (("deep", 0, 0, 7), ("past", 5, 5, 1), ("torn", 0, 1, 1)):
        insert(scene.raw, "progressions", {"id": key, "created_at": now, "start_ord": start, "next_ord": start})
        origin = {"parent_branch_id": root.id, "forked_at_ord": at, "fork_depth": depth}
        row = {"id": key, "session_id": root.session_id, "progression_id": key, "created_at": now, **origin}
        insert(scene.raw, "branches", row)
    spent = {"trigger_type": "api", "trigger_id": "t", "skill": "a", "started_at": now, "input_tokens": 10**12 + 1}
    insert(scene.raw, "executions", {"id": "x", **spent})


def _left(scene: Scene) -> None:
    scene.store.receipts.begin("prune", owner="a", policy={})
    scene.database.clock.advance(seconds=600)
    insert(scene.raw, "maintenance_permits", {"receipt_id": "r"})


#: By check: the plant, and how many findings it makes on SQLite and on Postgres.
PLANTS: dict[str, tuple[Callable[[Scene], None], int, int]] = {
    "DOC-02": (_schema, 1, 1),
    "DOC-03": (_settings, 0, 1),
    "DOC-05": (_permissions, 1, 1),
    "DOC-07": (_integrity, 1, 1),
    "DOC-08": (_orphans, 3, 3),
    "DOC-09": (_pointers, 8, 8),
    "DOC-10": (_logs, 4, 4),
    "DOC-11": (_lines, 1, 1),
    "DOC-12": (_sequences, 7, 7),
    "DOC-13": (_words, 7, 7),
    "DOC-14": (_contents, 5, 4),
    "DOC-15": (_stuck, 11, 11),
    "DOC-16": (_agreement, 8, 8),
    "DOC-17": (_left, 2, 2),
}

#: Faults that two checks see: a row without its run has broken a foreign key, too.
ALSO = {"DOC-07": {"DOC-02", "DOC-08"}}


@pytest.mark.parametrize("check", PLANTS)
def test_a_check_finds_the_fault_that_was_planted_for_it_and_no_other_check_does(scene: Scene, check: str) -> None:
    """maintenance OP-15, OP-17, case 21, case 23, case 62."""
    plant, on_sqlite, on_postgres = PLANTS[check]
    plant(scene)
    settings = scene.store.settings
    with StateStore(connect(settings), settings, scene.database.clock) as store:  # `open` mends a schema or refuses it
        found = findings(store, deep=True)
        only = findings(store, deep=True, only=[check])
    expected = on_sqlite if scene.database.name == "sqlite" else on_postgres
    assert sum(finding.check == check for finding in found) == expected, found
    assert {finding.check for finding in found} - {check} <= ALSO.get(check, set())
    assert all(finding.samples and finding.count for finding in found)
    assert only == [finding for finding in found if finding.check == check]


def _talk(store: StateStore) -> None:
    """Sessions that nothing is wrong with: one that runs, and one that has ended and has a fork of the first."""
    c, root = store.conversations, begun(store, "a", "b")
    c.branches.replace_system(root.id, NewMessage("system", "be kind"))
    c.lifecycle.transition(root.session_id, "running")
    c.lifecycle.transition(root.session_id, "completed", branch_id=root.id)
    c.sessions.create(NewSession("other"))
    c.branches.append(c.lineage.fork(root.id, at=1, session_id="other").id, [NewMessage("user", "c")])
    c.lifecycle.transition("other", "failed")
    c.changes.trim("other", below=4)


def test_a_sound_database_has_no_finding_and_an_examination_writes_nothing(scene: Scene) -> None:
    """maintenance OP-2, OP-15, OP-17, case 21."""
    database, store = scene.database, scene.store
    defining = database.open(migrate=True)
    defining.outputs.define("report", Report)
    for name in ("known", "other"):  # sub-agents of two sessions may have one name
        log = scene.log(name)
        folder = log.with_suffix("") / "subagents"
        make_private_directory(folder)
        shutil.copy(log, folder / "agent-1.jsonl")
    for key in ("a", "b"):
        whole_run(defining, key)
    waiting = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
    store.workflows.approvals.pause(waiting, Gate("g", "Go?"))
    session = store.messaging.sessions.resume(ConversationKey("p", "c", "u")).session.id
    store.messaging.messages.append(session, role="user", content="x")
    _talk(store)
    rows, files = counts(database, "report"), files_of(database.state_dir)
    digests = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in database.state_dir.rglob("*.jsonl")}
    report = store.maintenance.doctor.examine(deep=True)
    assert report.findings == ()
    assert report.worst() is None
    assert (len(report.checks_run), report.checks_skipped) == (20, ())
    assert counts(database, "report") == rows
    if database.name == "sqlite":
        assert {name for name in files_of(database.state_dir) if not name.endswith("-shm")} == {
            name for name in files if not name.endswith("-shm")
        }
    assert {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in digests} == digests


def test_a_check_that_fails_hides_no_other(scene: Scene) -> None:
    """maintenance OP-4, OP-15: it is told as skipped, with the reason."""
    scene.raw.execute("ALTER TABLE workflow_runs RENAME COLUMN restart_count TO gone")
    report = scene.store.maintenance.doctor.examine()
    assert {"DOC-16", "DOC-14"} <= {skipped.check for skipped in report.checks_skipped}
    assert "DOC-02" in {finding.check for finding in report.findings}
    assert "DOC-08" in report.checks_run


def test_checks_can_be_chosen_left_out_and_limited_in_time(store: Any) -> None:
    """maintenance OP-15."""
    examine = store.maintenance.doctor.examine
    assert examine(only=["DOC-07", "DOC-01"]).checks_run == ("DOC-01", "DOC-07")
    assert "DOC-07" not in examine(skip=["DOC-07"]).checks_run
    assert examine(only=["DOC-07"], time_limit=3_600).checks_run == ("DOC-07",)
    late = examine(time_limit=0)
    assert late.checks_run == ()
    assert {skipped.reason for skipped in late.checks_skipped} == {
        *("the time limit was reached", "only in a deep examination")
    }
    for wrong in ({"only": ["DOC-99"]}, {"skip": ["x"]}, {"only": "DOC-01"}, {"time_limit": -1}, {"deep": 1}):
        with pytest.raises(InvalidValue):
            examine(**wrong)


def test_without_a_database_that_is_the_finding_and_files_are_still_looked_at(tmp_path: Path) -> None:
    """maintenance OP-5, OP-15."""
    settings = Settings(url=str(tmp_path / "none.db"), read_only=True, state_dir=tmp_path)
    with StateStore(connect(settings), settings) as store:
        report = store.maintenance.doctor.examine()
    assert [(finding.check, finding.severity) for finding in report.findings] == [("DOC-01", "error")]
    assert report.checks_run == ("DOC-01", "DOC-04", "DOC-05", "DOC-11", "DOC-18", "DOC-19")
    assert list(tmp_path.iterdir()) == []


def test_the_journal_of_a_writer_that_died_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    """maintenance OP-15: file and journal are copied inside a transaction, which is what a killed writer leaves."""
    file, left = tmp_path / "a.db", tmp_path / "left"
    left.mkdir()
    with closing(sqlite3.connect(file, isolation_level=None)) as raw:
        for statement in ("CREATE TABLE filler (x)", "PRAGMA cache_size = 2", "BEGIN IMMEDIATE"):
            raw.execute(statement)
        raw.executemany("INSERT INTO filler VALUES (zeroblob(2000))", [()] * 100)
        for ending in ("", "-journal"):
            shutil.copyfile(f"{file}{ending}", left / f"b.db{ending}")
        raw.execute("ROLLBACK")
    before = {path: path.read_bytes() for path in left.iterdir()}
    settings = Settings(url=str(left / "b.db"), read_only=True, state_dir=left)
    with StateStore(connect(settings), settings) as store:
        found = findings(store, only=["DOC-01", "DOC-04"])
    assert [(finding.check, finding.severity) for finding in found] == [("DOC-01", "error"), ("DOC-04", "warning")]
    assert "left its journal" in found[0].message
    assert found[1].samples == (str(left / "b.db-journal"),)
    assert {path: path.read_bytes() for path in left.iterdir()} == before


def test_a_file_that_is_no_database_is_told_as_such(tmp_path: Path) -> None:
    """maintenance OP-5, OP-15, case 24."""
    letter = tmp_path / "letter.db"
    letter.write_text("a letter to somebody\n" * 100, encoding="utf-8")
    letter.chmod(0o600)
    settings = Settings(url=str(letter), read_only=True, state_dir=tmp_path)
    with StateStore(connect(settings), settings) as store:
        report = store.maintenance.doctor.examine()
    assert report.worst() == "error"
    assert [finding.check for finding in report.findings] == ["DOC-01"]


def test_a_database_that_is_behind_is_examined_as_far_as_it_goes(tmp_path: Path, postgres_url: str) -> None:
    """maintenance OP-5, OP-15, case 24."""
    for url in (str(tmp_path / "old.db"), postgres_url):
        settings = Settings(url=url, state_dir=tmp_path)
        with StateStore(connect(settings), settings) as store:
            migrate(store.backend, "0001")
            found = findings(store, skip=["DOC-03"])
            assert [(one.check, one.severity, one.samples) for one in found] == [("DOC-02", "error", ("0001",))]
            assert "migrate" in str(found[0].remedy)


_NEWER = "UPDATE lastlight_state_version SET version_num = '9999'"


@pytest.mark.parametrize(
    ("statements", "severity", "remedy"),
    [
        ([_NEWER], "warning", None),
        ([_NEWER, "INSERT INTO lastlight_meta (key, value) VALUES ('min_reader', '9000')"], "error", None),
        (["UPDATE lastlight_state_version SET version_num = 'abc'"], "error", "lastlight-state stamp --to"),
        (["UPDATE lastlight_state_version SET version_num = '0016'"], "error", None),
        (["DROP TABLE lastlight_state_version"], "error", "lastlight-state stamp --to"),
        (["DROP TABLE lastlight_state_version", "DROP TABLE run_loops"], "error", None),
    ],
)
def test_a_remedy_is_told_where_there_is_one_for_the_schema(
    fresh_database: Database, statements: list[str], severity: str, remedy: str | None
) -> None:
    """maintenance OP-15, case 24: a newer schema needs a newer library, and an unknown one somebody who looks."""
    store, raw = fresh_database.open(), fresh_database.raw()
    for statement in statements:
        raw.execute(statement)
    told = next(finding for finding in findings(store, only=["DOC-02"]) if finding.subject == "schema")
    assert (told.severity, (told.remedy or "").startswith(remedy or "")) == (severity, True)
    assert (told.remedy is None) is (remedy is None)


def test_settings_of_the_file_and_its_growth_are_told(tmp_path: Path) -> None:
    """maintenance OP-15, case 62."""
    settings = Settings(url=str(tmp_path / "a.db"), wal_autocheckpoint=0, state_dir=tmp_path)
    with StateStore.open(settings=settings) as store:
        wal = tmp_path / "a.db-wal"
        with wal.open("ab") as file:
            file.truncate(65 * 1024 * 1024)
        found = {finding.check: finding for finding in findings(store)}
    assert set(found) == {"DOC-03", "DOC-06"}
    assert (found["DOC-03"].severity, found["DOC-06"].remedy) == ("info", store.backend.command("checkpoint"))


@pytest.mark.parametrize(
    ("silence", "remedy"),
    [
        (timedelta(hours=7, seconds=1), "lastlight-state reap --older-than 420m"),
        (timedelta(hours=24), "lastlight-state reap --older-than 1440m"),
        (timedelta(hours=24, milliseconds=1), "lastlight-state reap"),
    ],
    ids=str,
)
def test_silent_sessions_are_ended_by_the_command_that_doctor_names(
    database: Database, silence: timedelta, remedy: str
) -> None:
    """maintenance OP-15, OP-33: `reap` alone ends nobody who has not been silent for more than a day."""
    store, begin = database.open(), database.clock.now() - silence
    times = SessionTimes(created_at=begin, started_at=begin)
    for name in ("dead", "older"):
        provenance = Provenance(artifacts_path="/out")
        store.conversations.sessions.create(NewSession(name, status="running", times=times, provenance=provenance))
    [found] = findings(store, only=["DOC-15"])
    assert str(found.remedy).partition(" --url ")[0] == remedy


def test_an_empty_log_beside_a_file_that_has_none_is_no_error(tmp_path: Path) -> None:
    """maintenance OP-15: SQLite would find no page in it."""
    file = tmp_path / "a.db"
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("CREATE TABLE filler (x)")
    file.with_name("a.db-wal").touch()
    settings = Settings(url=str(file), read_only=True, state_dir=tmp_path)
    with StateStore(connect(settings), settings) as store:
        assert [(one.check, one.severity) for one in findings(store, only=["DOC-04"])] == [("DOC-04", "info")]


def test_free_pages_worth_a_vacuum_are_told(state_store: StateStore) -> None:
    """maintenance OP-15."""
    raw_url = state_store.backend.files[0]
    with StateStore.open(raw_url) as store, store.transaction() as tx:
        tx.connection.exec_driver_sql("CREATE TABLE filler (x)")
        tx.connection.exec_driver_sql("INSERT INTO filler VALUES (zeroblob(20000000))")
    with StateStore.open(raw_url) as store, store.transaction() as tx:
        tx.connection.exec_driver_sql("DROP TABLE filler")
    found = findings(state_store, only=["DOC-06"])
    assert ("info", store.backend.command("vacuum")) in [(finding.severity, finding.remedy) for finding in found]


def test_too_little_space_and_a_journal_left_beside_the_file_are_told(
    state_store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-15."""
    file = state_store.backend.files[0]
    hot = file.with_name(file.name + "-journal")
    hot.write_bytes(b"x")
    hot.chmod(0o600)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    found = state_store.maintenance.doctor.examine(only=["DOC-04"])
    assert [finding.severity for finding in found.findings] == ["warning", "warning"]
    assert str(hot) in found.findings[1].samples
    size = sum(path.stat().st_size for path in state_store.backend.files if path.exists())
    for free, told in ((size - 1, 2), (size, 1)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: shutil._ntuple_diskusage(free, 0, free))
        assert len(findings(state_store, only=["DOC-04"])) == told


def test_files_that_are_links_or_were_left_behind_are_told_and_torn_ones_without_reading_them_whole(
    state_store: StateStore, tmp_path: Path
) -> None:
    """maintenance OP-15."""
    root = state_store.settings.agent_sessions / "projects" / "p"
    make_private_directory(root)
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(b"{}")
    (root / "link.jsonl").symlink_to(outside)
    (root / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    (root / "empty.jsonl").touch(0o600)
    (root / "left.tmp").touch(0o600)
    torn = root / "torn log.jsonl"
    torn.write_bytes(b'{"type"')
    torn.chmod(0o600)
    found = findings(state_store, only=["DOC-05", "DOC-11"])
    assert [(finding.check, finding.count) for finding in found] == [("DOC-05", 2), ("DOC-11", 1), ("DOC-11", 1)]
    assert str(found[1].remedy) == f"lastlight-state repair '{torn}' --seal"


@pytest.mark.parametrize("deep", [False, True])
def test_a_log_whose_name_is_no_text_is_known_by_nobody(scene: Scene, *, deep: bool) -> None:
    """maintenance DOC-10: and the check goes on."""
    odd = scene.store.settings.agent_sessions / "projects/p" / os.fsdecode(b"odd\xff.jsonl")
    odd.parent.mkdir(parents=True)
    odd.write_text("{}\n")
    [told] = [one for one in findings(scene.store, deep=deep) if one.check == "DOC-10"]
    assert (told.message, told.samples) == ("no execution and no session knows these logs", (str(odd),))


def test_a_run_may_name_many_executions(scene: Scene) -> None:
    """maintenance OP-15: all of them are looked for."""
    now = scene.database.clock.now()
    row = {"trigger_type": "t", "trigger_id": "t", "skill": "s", "started_at": now, "finished_at": now}
    names = [f"e{number}" for number in range(501)]
    for name in names:
        insert(scene.raw, "executions", {"id": name, "workflow_run_id": "live", "output_text": "x", **row})
    scratch = ", ".join(f'"{name}": {{"lastOutputExecutionId": "{name}"}}' for name in names)
    scene.run("live", "running", scratch="{" + scratch + "}", lease_expires_at=now)
    assert findings(scene.store, only=["DOC-09"]) == []


def test_a_copy_that_is_not_finished_is_told(scene: Scene) -> None:
    """maintenance OP-15, OP-55."""
    scene.store.receipts.begin("copy", owner="a", policy={})
    assert {finding.check for finding in findings(scene.store)} == {"DOC-17"}


def test_a_file_too_damaged_to_be_examined_is_an_error_and_not_only_a_check_that_failed(tmp_path: Path) -> None:
    """maintenance OP-15, OP-17."""
    settings = Settings(url=str(tmp_path / "a.db"), state_dir=tmp_path)
    with StateStore(connect(settings), settings) as store:
        migrate(store.backend)
        found = store.outputs.query.rows("SELECT rootpage FROM sqlite_master WHERE name = 'run_nodes'")
    with (tmp_path / "a.db").open("r+b") as damaged:
        damaged.seek((int(str(found.rows[0][0])) - 1) * 4096)
        damaged.write(b"\xff" * 4096)
    with StateStore(connect(settings), settings) as store:
        [told] = findings(store, only=["DOC-07"])
        [other] = findings(store, only=["DOC-13"])
    assert (told.check, told.severity) == ("DOC-07", "error")
    assert (other.check, other.severity) == ("DOC-13", "error")
