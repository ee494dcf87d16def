"""Settling that is cut off, and what a call reads of files with a long history."""

from __future__ import annotations

import os
import pwd
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from support.loading import load
from support.mailbox.files import inbound, outbound, reply, send, sql
from support.migrations.nobody import as_nobody
from support.run_log.killed import ended, forked

from lastlight_state.backends.base import Checkout, Mode
from lastlight_state.backends.sqlite import SqliteBackend
from lastlight_state.errors import BackendBusy
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, Mailboxes, NewMessage, When
from lastlight_state.settings import Settings
from lastlight_state.testing import FrozenClock

#: More statements than settling takes.
STEPS = range(16)


def killed_at(step: int, work: Callable[[], object]) -> int:
    """The exit code of a child that is killed before its n-th statement that changes a file."""
    left = [step]
    acquire = SqliteBackend.acquire

    def lend(backend: SqliteBackend, mode: Mode, checkout: Checkout | None = None) -> Checkout:
        lent = acquire(backend, mode, checkout)
        execute = lent.execute

        def dying(statement: str, *given: Any) -> Any:
            left[0] -= statement.startswith(("INSERT", "UPDATE", "DELETE"))
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return execute(statement, *given)

        lent.execute = dying
        return lent

    def doomed() -> None:
        SqliteBackend.acquire = lend  # type: ignore[method-assign, assignment]
        work()

    return ended(forked(doomed))


@pytest.mark.slow
def test_settling_that_is_killed_leaves_a_series_with_one_live_message(
    mailboxes: Mailboxes, host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-39, case 26: at each statement; the next sweep goes on, and no occurrence is there twice."""
    load("files", "backends")
    codes = set()

    def settle() -> None:
        mailboxes.host("group", "session").sweep.sync()

    daily = When(process_after=frozen_clock.now(), recurrence="0 9 * * *")
    for step in STEPS:
        task = host.tasks.create(f"report-{step}", prompt="write it", when=daily)
        agent.inbox.claim(task.id)
        agent.inbox.complete(task.id)
        codes.add(killed_at(step, settle))
        host.sweep.sync()
        host.sweep.advance()
        rows = sql(
            inbound(host), "SELECT status, count(*) FROM messages_in WHERE series_id = ? GROUP BY 1", [task.series_id]
        )
        assert dict(rows) == {"completed": 1, "pending": 1}, step
    assert codes == {-signal.SIGKILL, 0}


def test_settling_that_meets_a_busy_database_settles_nothing(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-39, MB-50: at each statement; it is no unreadable series, and the next sweep goes on."""
    hurried = HostMailbox.open(host.folder, settings=Settings(busy_timeout=0.001, retry_seconds=0), clock=frozen_clock)
    task = host.tasks.create("report", prompt="p", when=When(recurrence="0 9 * * *"))
    agent.inbox.complete(task.id)
    acquire = SqliteBackend.acquire
    left: list[int] = []

    def lend(backend: SqliteBackend, mode: Mode, checkout: Checkout | None = None) -> Checkout:
        lent = acquire(backend, mode, checkout)
        execute = lent.execute

        def busy(statement: str, *given: Any) -> Any:
            if mode is Mode.WRITE and statement.startswith(("SELECT", "INSERT", "UPDATE")):
                left[0] -= 1
                if left[0] < 0:
                    error = sqlite3.OperationalError("database is locked")
                    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_BUSY, "SQLITE_BUSY"
                    raise error
            return execute(statement, *given)

        lent.execute = busy
        return lent

    monkeypatch.setattr(SqliteBackend, "acquire", lend)
    reports = []
    for step in STEPS:
        left[:] = [step]
        try:
            reports.append(hurried.sweep.sync())
        except BackendBusy:
            left[:] = [1000]
            assert [row.status for row in host.inbox.list()] == ["pending"], step
    assert len(reports) < len(STEPS) - 3
    assert (reports[0].completed, reports[0].successors, reports[0].unreadable_series) == (1, 1, ())


def test_each_side_works_where_it_may_not_write_the_others_file(frozen_clock: FrozenClock) -> None:
    """mailbox MB-71: every step of an exchange, by the modes of the files."""
    load("files", "backends")
    with TemporaryDirectory() as folder:  # where others may go, unlike pytest's
        Path(folder).chmod(0o755)
        mailboxes = Mailboxes(Path(folder) / "v2-sessions", clock=frozen_clock)
        host = mailboxes.create("group", "session")
        agent = mailboxes.agent("group", "session")
        sent, answer = send(host), reply(agent)
        agent.inbox.claim(sent.id)
        agent.inbox.complete(sent.id)
        _give_away(Path(folder))
        outbound(host).chmod(0o444)

        def as_host() -> list[Any]:
            own = mailboxes.host("group", "session")
            settled = own.sweep.sync().completed
            [due] = own.outbox.take_due()
            own.outbox.mark_delivered(due.message.id)
            own.inbox.send(kind="chat", content={})
            return [settled, due.message.id, own.status().pending, [str(found) for found in own.verify()]]

        assert as_nobody(as_host) == [1, answer.id, 1, []]
        outbound(host).chmod(0o600)
        inbound(host).chmod(0o444)

        def as_agent() -> list[Any]:
            own = mailboxes.agent("group", "session")
            own.start()
            [taken] = own.inbox.take().messages
            own.inbox.complete(taken.id)
            return [own.outbox.delivery(answer.id).status, own.status().pending]

        assert as_nobody(as_agent)[0] == "delivered"
        assert sql(outbound(host), "SELECT count(*) FROM processing_ack WHERE status = 'completed'") == [(1,)]


def _give_away(folder: Path) -> None:
    """To nobody, where the tests run as root, whom no mode keeps from writing."""
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)


def test_what_waits_is_listed_in_pages(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-84: until it is delivered or has failed; also what has no number."""
    sql(
        outbound(agent),
        "INSERT INTO messages_out (id, timestamp, kind, content)"
        " VALUES ('theirs', '2026-01-01 00:00:00', 'chat', '{}')",
    )
    sent = [reply(agent) for _ in range(5)]
    host.outbox.mark_delivered(sent[1].id)
    host.outbox.mark_failed(sent[2].id, error="gone", permanent=True)
    found, token = [], None
    while True:
        page = host.outbox.list_waiting(limit=2, page_token=token)
        found += [message.id for message in page.items]
        token = page.next_page_token
        if token is None:
            break
    assert found == ["theirs", sent[0].id, sent[3].id, sent[4].id]
    assert host.outbox.list_waiting().items[1].routing == sent[0].routing


def test_acknowledgements_do_not_outgrow_the_live_work_and_no_call_reads_the_history(
    host: HostMailbox, agent: AgentMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-46, MB-75: polling, settling, delivering and counting read by index."""
    for _ in range(6):
        host.inbox.send_many([_chat() for _ in range(50)])
        while batch := agent.inbox.take(limit=100).messages:
            agent.inbox.complete(*(message.id for message in batch))
        host.sweep.sync()
    agent.inbox.complete(send(host).id)
    assert sql(outbound(agent), "SELECT count(*) FROM processing_ack")[0][0] <= 101
    send(host)
    reply(agent)
    plans = _plans_of(
        monkeypatch, host, agent.inbox.take, host.inbox.count_due, host.sweep.sync, host.outbox.take_due, host.status
    )
    walks = [line for line in plans if line.startswith("SCAN messages") and "INDEX" not in line]
    assert plans
    assert walks == []


def _chat() -> Any:
    return NewMessage("chat", {"text": "hello"})


def _plans_of(monkeypatch: pytest.MonkeyPatch, host: HostMailbox, *calls: Callable[[], object]) -> list[str]:
    """The lines of the plans of every SELECT that these calls run."""
    seen: set[str] = set()
    acquire = SqliteBackend.acquire

    def lend(backend: SqliteBackend, mode: Mode, checkout: Checkout | None = None) -> Checkout:
        lent = acquire(backend, mode, checkout)
        execute = lent.execute

        def noted(statement: str, *given: Any) -> Any:
            seen.add(statement)
            return execute(statement, *given)

        lent.execute = noted
        return lent

    with monkeypatch.context() as patched:
        patched.setattr(SqliteBackend, "acquire", lend)
        for call in calls:
            call()
    found = []
    for path in (inbound(host), outbound(host)):
        with closing(sqlite3.connect(path)) as connection:
            for statement in seen:
                table = "messages_in" if path == inbound(host) else "messages_out"
                if statement.startswith("SELECT") and table in statement:
                    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", [None] * statement.count("?"))
                    found += [row[3] for row in rows]
    return found
