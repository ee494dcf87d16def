"""What looks like a fault and is none, to the moment and the number; a little further it is one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from support.conversations.talk import begun
from support.filled_store import scene
from support.guards import without_guards
from support.maintenance.rows import insert, run_row

from lastlight_state import StateStore
from lastlight_state.conversations import NewMessage, NewSession, SessionTimes
from lastlight_state.db.schema.columns import form_of
from lastlight_state.files.agent_log import Cwd
from lastlight_state.maintenance.doctor import files, logs, server
from lastlight_state.maintenance.doctor.check import MOST
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database

MILLISECOND = timedelta(milliseconds=1)


def told(store: StateStore, check: str, *, deep: bool = False) -> set[tuple[str, tuple[str, ...]]]:
    """The subject and the samples of each finding of a check."""
    found = store.maintenance.doctor.examine(only=[check], deep=deep)
    assert found.checks_skipped == ()
    return {(finding.subject, finding.samples) for finding in found.findings}


class Rows:
    """Writes rows past the library, at the time of the database's clock."""

    def __init__(self, database: Database) -> None:
        self.now = database.clock.now()
        self.raw = database.raw()

    def run(self, key: str, status: str, **more: Any) -> None:
        insert(self.raw, "workflow_runs", {**run_row(key, self.now, status), **more})

    def approval(self, key: str, run: str, status: str = "pending", **more: Any) -> None:
        row = {"id": key, "workflow_run_id": run, "gate": key, "summary": "s", "created_at": self.now}
        answer = {} if status == "pending" else {"responded_at": self.now, "responded_by": "ana"}
        insert(self.raw, "workflow_approvals", {**row, "status": status, **answer, **more})

    def request(self, key: str, run: str, status: str = "pending", **more: Any) -> None:
        row = {"id": key, "run_id": run, "node_id": key, "kind": "text", "requested_at": self.now, "prompt": "?"}
        answer = {} if status == "pending" else {"answered_at": self.now}
        insert(self.raw, "human_requests", {**row, "status": status, **answer, **more})

    def executions(self, rows: Iterable[dict[str, Any]]) -> None:
        common = {"trigger_type": "t", "trigger_id": "t", "skill": "s", "started_at": self.now}
        for row in rows:
            insert(self.raw, "executions", {"finished_at": self.now, **common, **row})


def test_leases_and_deadlines_are_told_when_they_are_over_and_still_matter(database: Database) -> None:
    """maintenance OP-15."""
    rows, store = Rows(database), database.open()
    rows.run("works", "running", lease_expires_at=rows.now)
    for status in ("queued", "paused", "failed"):
        rows.run(status, status, lease_expires_at=rows.now - timedelta(days=1))
    for status in ("pending", "approved"):
        rows.approval(status, "works", status, expires_at=rows.now)
    for status in ("pending", "answered"):
        rows.request(status, "works", status, expires_at=rows.now)
    fire = {"cron_name": "c", "source": "manual", "started_at": rows.now, "lease_until": rows.now}
    insert(rows.raw, "cron_fires", {"id": "fires", "status": "running", **fire})
    insert(rows.raw, "cron_fires", {"id": "fired", "status": "ok", "finished_at": rows.now, **fire})
    assert told(store, "DOC-15") == set()
    database.clock.advance(MILLISECOND)
    assert told(store, "DOC-15") == {
        ("workflow_runs", ("works",)),
        ("workflow_approvals", ("pending",)),
        ("human_requests", ("pending",)),
        ("cron_fires", ("fires",)),
    }


def test_a_run_that_is_paused_for_a_question_of_its_own_is_not_stuck(database: Database) -> None:
    """maintenance OP-15: an answered question is none, nor is that of another run."""
    rows, store = Rows(database), database.open()
    for key in ("approval", "request", "nothing"):
        rows.run(key, "paused", pause_reason="gate")
    rows.run("by hand", "paused", pause_reason="operator")
    rows.run("runs", "running", pause_reason="gate")
    rows.approval("a", "approval")
    rows.request("r", "request")
    rows.approval("answered", "nothing", "approved")
    rows.request("answered", "nothing", "answered")
    assert told(store, "DOC-15") == {("workflow_runs", ("nothing",))}


def test_a_pending_question_is_told_whose_own_run_has_ended(database: Database) -> None:
    """maintenance OP-15."""
    rows, store = Rows(database), database.open()
    rows.run("live", "running")
    rows.run("over", "failed")
    for run in ("live", "over"):
        for status in ("pending", "cancelled"):
            rows.approval(f"{run} {status}", run, status)
            rows.request(f"{run} {status}", run, status)
    assert told(store, "DOC-15") == {
        ("workflow_approvals", ("over pending",)),
        ("human_requests", ("over pending",)),
    }


def test_a_live_run_may_be_restarted_as_often_as_its_limit_says(database: Database) -> None:
    """maintenance OP-15."""
    rows, store = Rows(database), database.open()
    rows.run("at its limit", "running", restart_count=2, max_restarts=2)
    rows.run("over", "failed", restart_count=3, max_restarts=2)
    assert told(store, "DOC-16") == set()
    rows.run("beyond", "queued", restart_count=3, max_restarts=2)
    assert told(store, "DOC-16") == {("workflow_runs", ("beyond",))}


def test_a_transition_agrees_with_its_own_run_alone(database: Database) -> None:
    """maintenance OP-15."""
    rows, store = Rows(database), database.open()
    moved = {"reason": "x", "source": "engine", "at": rows.now}
    for key, status in (("ended", "failed"), ("wrong", "succeeded"), ("lives", "running")):
        rows.run(key, status, transition_seq=2)
        for seq, to in ((1, "running"), (2, "running" if key == "lives" else "failed")):
            insert(rows.raw, "run_transitions", {"run_id": key, "seq": seq, "to_status": to, **moved})
    assert told(store, "DOC-16") == {("workflow_runs", ("wrong succeeded failed",))}


def test_a_session_agrees_with_its_own_last_transition_alone(database: Database) -> None:
    """maintenance OP-15: whatever others have gone through."""
    rows, talks = Rows(database), database.open().conversations
    for key in ("sound", "wrong"):
        talks.sessions.create(NewSession(key, status="running"))
    talks.lifecycle.transition("sound", "completed")
    rows.raw.execute("UPDATE sessions SET status = 'failed' WHERE id = 'wrong'")
    assert told(database.open(), "DOC-16") == {("sessions", ("wrong failed running",))}


def test_a_run_counts_its_own_transitions_and_each_of_its_streams_by_itself(database: Database) -> None:
    """maintenance OP-15: whatever the others have reached."""
    rows, store = Rows(database), database.open()
    moved = {"reason": "x", "source": "engine", "at": rows.now, "to_status": "running"}
    for key, counted, last in (("sound", 3, 3), ("beyond", 2, 1), ("never", 1, 0)):
        rows.run(key, "running", transition_seq=counted)
        for seq in range(1, last + 1):
            insert(rows.raw, "run_transitions", {"run_id": key, "seq": seq, **moved})
    event = {"run_id": "sound", "type": "e", "occurred_at": rows.now, "payload": "{}"}
    for seq in range(3):
        insert(rows.raw, "run_events", {"seq": seq, **event})
    for stream, following in (("events", 3), ("signals", 1)):
        insert(rows.raw, "run_sequences", {"run_id": "sound", "stream": stream, "next_seq": following})
    assert told(store, "DOC-12") == {("workflow_runs", ("beyond", "never"))}


def test_a_silent_session_is_told_however_many_have_ended(database: Database) -> None:
    """maintenance OP-15."""
    store, begin = database.open(), database.clock.now() - timedelta(days=2)
    times = SessionTimes(created_at=begin, started_at=begin, last_message_at=begin)
    store.conversations.sessions.create(NewSession("silent", status="running", times=times))
    database.raw().execute(
        "INSERT INTO sessions (id, progression_id, status, created_at, updated_at) "
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MOST}) "
        "SELECT 'ended' || i, progression_id, 'completed', created_at, updated_at FROM sessions CROSS JOIN n"
    )
    assert told(store, "DOC-15") == {("sessions", ("silent",))}


def test_a_link_right_behind_the_last_position_of_its_order_is_told(database: Database) -> None:
    """maintenance OP-15: although there are as many links as positions."""
    rows, store = Rows(database), database.open()
    insert(rows.raw, "messages", {"id": "m", "role": "user", "content": "1", "created_at": rows.now})
    for key, at in (("sound", 3), ("behind", 4), ("before", 2)):
        insert(rows.raw, "progressions", {"id": key, "created_at": rows.now, "start_ord": 3, "next_ord": 4})
        insert(rows.raw, "progression_links", {"progression_id": key, "ord": at, "message_id": "m"})
    assert {sample for _, samples in told(store, "DOC-12") for sample in samples} == {"behind", "before"}


def test_work_that_has_ended_or_still_shows_life_is_not_left_over(database: Database) -> None:
    """maintenance OP-15."""
    store = database.open()
    store.receipts.finish(store.receipts.begin("prune", owner="a", policy={}))
    running = store.receipts.begin("prune", scope="other", owner="a", policy={})
    database.clock.advance(timedelta(minutes=10) - MILLISECOND)
    assert told(store, "DOC-17") == set()
    database.clock.advance(MILLISECOND)
    assert told(store, "DOC-17") == {("maintenance_receipts", (running.id,))}


def test_an_open_delivery_may_be_taken_five_times(database: Database) -> None:
    """maintenance OP-15: one that somebody acknowledged as often as it took."""
    store = database.open()
    exchange = store.conversations.exchange
    exchange.send(NewMessage("user", 1), to=["a", "b"])
    for take in range(6):
        assert exchange.take("b", reader="r", lease=timedelta(milliseconds=1))
        if take < 5:
            assert exchange.take("a", reader="r", lease=timedelta(milliseconds=1))
        database.clock.advance(seconds=1)
    exchange.ack("b", 0, reader="r")
    assert told(store, "DOC-15") == set()
    assert exchange.take("a", reader="r", lease=timedelta(milliseconds=1))
    assert told(store, "DOC-15") == {("exchange_deliveries", ("a 0",))}


def test_a_message_that_nothing_has_may_be_put_somewhere_for_a_day(database: Database) -> None:
    """maintenance OP-15: one that an order has is never told, and no other unless it is deep."""
    store = database.open()
    begun(store, "kept")
    store.conversations.messages.create(NewMessage("user", 1, id="stray"))
    store.conversations.progressions.create("nobody's")
    database.clock.advance(timedelta(days=1))
    assert told(store, "DOC-08", deep=True) == set()
    database.clock.advance(MILLISECOND)
    assert told(store, "DOC-08") == set()
    assert told(store, "DOC-08", deep=True) == {("messages", ("stray",)), ("progressions", ("nobody's",))}


@pytest.mark.parametrize("used", ["turns", "input_tokens", "output_tokens"])
def test_an_execution_is_told_that_ended_and_used_something_without_a_session(database: Database, used: str) -> None:
    """maintenance OP-15."""
    rows, store = Rows(database), database.open()
    (database.state_dir / "agent-sessions").mkdir()
    rows.executions(
        [
            {"id": "nameless", used: 1},
            {"id": "idle", used: 0},
            {"id": "works", used: 1, "finished_at": None},
            {"id": "writes", used: 1, "finished_at": None, "session_id": "s-1"},
        ]
    )
    assert told(store, "DOC-10") == {("executions", ("nameless",))}


def test_a_log_that_is_no_agents_is_missed_by_nobody(database: Database) -> None:
    """maintenance OP-15: although its name could be that of an agent's session."""
    store = database.open()
    for folder in ("agent-sessions/projects/-app", "agent-sessions/elsewhere/-app", "sessions/2026/02/03"):
        (database.state_dir / folder).mkdir(parents=True)
        (database.state_dir / folder / f"in-{folder.split('/')[1]}.jsonl").write_bytes(b"{}\n")
    known = str(database.state_dir / "agent-sessions/projects/-app/in-projects.jsonl")
    assert told(store, "DOC-10") == {("line files", (known,))}


def test_only_the_log_of_an_execution_that_ended_is_missed(database: Database) -> None:
    """maintenance OP-15: and none that was pruned."""
    rows, store = Rows(database), database.open()
    with store.agent_log.writer.open(place=Cwd("/work"), session_id="there", prompt="x"):
        pass
    rows.executions(
        [
            {"id": "kept", "session_id": "there"},
            {"id": "begins", "session_id": "not yet", "finished_at": None},
            {"id": "pruned", "session_id": "pruned"},
            {"id": "lost", "session_id": "lost"},
        ]
    )
    buried = {"receipt_id": "r", "deleted_at": rows.now}
    insert(rows.raw, "tombstones", {"kind": "agent_session", "id": "pruned", **buried})
    insert(rows.raw, "tombstones", {"kind": "run", "id": "lost", **buried})
    assert told(store, "DOC-10") == {("executions", ("lost lost",))}


@pytest.mark.parametrize(("newest", "lost"), [(2, set()), (3, {("executions", ("lost lost",))})])
def test_no_log_is_missed_where_there_may_be_more_than_were_looked_at(
    database: Database, monkeypatch: pytest.MonkeyPatch, newest: int, lost: set[Any]
) -> None:
    """maintenance OP-15: unless the examination is deep."""
    rows, store = Rows(database), database.open()
    for module in (files, logs):
        monkeypatch.setattr(module, "NEWEST", newest)
    for name in ("one", "two"):
        with store.agent_log.writer.open(place=Cwd("/work"), session_id=name, prompt="x"):
            pass
    rows.executions({"id": name, "session_id": name} for name in ("one", "two", "lost"))
    assert told(store, "DOC-10") == lost
    assert told(store, "DOC-10", deep=True) == {("executions", ("lost lost",))}


def test_a_time_may_be_a_day_ahead_of_the_clock(database: Database) -> None:
    """maintenance OP-15: clocks of other machines are."""
    rows, store = Rows(database), database.open()
    rows.run("ahead", "running", updated_at=rows.now + timedelta(days=1))
    assert told(store, "DOC-13") == set()
    rows.run("far ahead", "running", updated_at=rows.now + timedelta(days=1) + MILLISECOND)
    assert told(store, "DOC-13") == {("workflow_runs", ("far ahead",))}


def test_a_branch_may_be_forked_from_the_very_end(database: Database) -> None:
    """maintenance OP-15."""
    store = database.open()
    root = begun(store, "a", "b")
    store.conversations.sessions.create(NewSession("other"))
    store.conversations.lineage.fork(root.id, session_id="other")
    assert told(store, "DOC-16") == set()


@pytest.mark.parametrize(("worth", "share", "found"), [(0, 0, set()), (0, 1e-6, {"database"}), (1, 1e-6, set())])
def test_free_pages_are_told_that_are_a_large_part_of_a_database_worth_a_vacuum(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, worth: int, share: float, found: set[str]
) -> None:
    """maintenance OP-15: from a size on, and above a share."""
    store, raw = sqlite_database.open(), sqlite_database.raw()
    raw.execute("CREATE TABLE filler AS SELECT zeroblob(2000000) AS x")
    raw.execute("DROP TABLE filler")
    stats = store.maintenance.stats.collect()
    assert stats.free_bytes
    monkeypatch.setattr(server, "_WORTH", stats.size_bytes + worth)
    monkeypatch.setattr(server, "_FREE_SHARE", Fraction(stats.free_bytes, stats.size_bytes) - Fraction(share))
    assert {subject for subject, _ in told(store, "DOC-06")} == found


@pytest.mark.parametrize(("large", "beside", "found"), [(0, 0, set()), (-1, 0, {"wal"}), (0, -1, {"wal"})])
def test_a_write_ahead_log_is_told_that_is_large_or_larger_than_its_database(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, large: int, beside: int, found: set[str]
) -> None:
    """maintenance OP-15: not before it has more bytes than the limit."""
    size, store = 4 * 1024 * 1024, sqlite_database.open()
    with store.backend.files[1].open("ab") as log:
        log.truncate(size)
    monkeypatch.setattr(server, "_LARGE_WAL", size + large)
    monkeypatch.setattr(server, "_WAL_BESIDE", size + beside)
    assert {subject for subject, _ in told(store, "DOC-06")} == found


#: A value of another form, by the form, and whether a plain examination finds it.
OTHERWISE = {
    "time": ("'2026-07-27 23:00:00'", True),
    "flag": ("2", True),
    "whole number": ("'many' || rowid", True),
    "number": ("'much'", True),
    "JSON": ("'{'", False),
}


@pytest.mark.parametrize("form", OTHERWISE)
def test_values_in_another_form_are_named_in_every_column(sqlite_database: Database, form: str) -> None:
    """maintenance OP-15: of every table that the central schema has; JSON in a deep examination."""
    store, tables = scene(sqlite_database)
    raw = sqlite_database.raw()
    without_guards(raw)
    value, is_plain = OTHERWISE[form]
    spoilt = set()
    for table in tables:
        columns = [c.name for c in table.columns if form_of(c) == form and not c.primary_key and not c.foreign_keys]
        sets = ", ".join(f"{name} = {value}" for name in columns)
        if table.name in METADATA.tables and columns and raw.execute(f"UPDATE {table.name} SET {sets}").rowcount:
            spoilt |= {(table.name, f"{name} holds values that are no {form} of ours") for name in columns}
    check = "DOC-13" if is_plain else "DOC-14"
    findings = store.maintenance.doctor.examine(only=[check], deep=not is_plain).findings
    named = {(one.subject, one.message) for one in findings}
    assert {one for one in named if "holds values" in one[1]} == spoilt
