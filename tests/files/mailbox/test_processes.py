"""Host and agent as two processes, and processes that are killed."""

from __future__ import annotations

import hashlib
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest
from support.mailbox.files import inbound, outbound, reply, send, sql
from support.preloaded import run_program
from support.processes import started

from lastlight_state.files.mailbox import AgentMailbox, HostMailbox

#: Sends numbered messages until all are sent, settles what is acknowledged and delivers what comes back. What is
#: delivered goes into a file, a line for each call of the adapter. A kill can cut a write to a file between two pages:
#: lines of 16 bytes never lie on two.
HOST = """
import sys, time
from datetime import timedelta
from pathlib import Path
from lastlight_state.files.mailbox import HostMailbox, NewMessage, Routing
folder, wanted = Path(sys.argv[1]), int(sys.argv[2])
host = HostMailbox.open(folder)
calls = open(folder / "calls", "a", buffering=1)
sent = len([name for name in (f"m-{i}" for i in range(wanted)) if host.inbox.find(name)])
def deliver(due):
    calls.write(due.message.content["answers"].rjust(15) + "\\n")
print("ready", flush=True)
while True:
    numbers = range(sent, min(sent + 10, wanted))
    batch = [NewMessage("chat", {"number": i}, id=f"m-{i}", routing=Routing("c", "p")) for i in numbers]
    host.inbox.send_many(batch)
    sent += len(batch)
    host.sweep.sync()
    host.outbox.drain(deliver, limit=20, lease=timedelta(seconds=1))
    found = host.status()
    if sent == wanted and not found.pending and not found.undelivered:
        break
    time.sleep(0.001)
print("done", flush=True)
"""
#: Answers every message, the reply and the completion in one commit.
AGENT = """
import sys, time
from lastlight_state.files.mailbox import AgentMailbox, Routing
agent = AgentMailbox.open(sys.argv[1])
agent.start()
print("ready", flush=True)
while True:
    batch = agent.inbox.take(limit=10)
    for message in batch:
        with agent.transaction() as together:
            content = {"answers": message.id}
            together.outbox.send(kind="chat", content=content, routing=Routing("c", "p"), in_reply_to=message.id)
            together.inbox.complete(message.id)
    if not batch.messages:
        time.sleep(0.001)
"""
#: Dies in the middle of a transaction that has written to the file already.
DYING = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("PRAGMA cache_spill = 1")
connection.execute("BEGIN IMMEDIATE")
connection.execute(f"UPDATE {sys.argv[2]} SET content = content || hex(zeroblob(4000))")
os.kill(os.getpid(), 9)
"""


def program(text: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", text, *map(str, arguments)]


def killed(path: Path, table: str) -> None:
    done = run_program(program(DYING, path, table), check=False)
    assert done.returncode == -signal.SIGKILL
    assert Path(f"{path}-journal").stat().st_size > 0


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("wanted", "kills"), [(24, 1), pytest.param(10_000, 5, marks=pytest.mark.soak)])
def test_nothing_is_lost_or_invented_by_two_processes_that_are_killed(
    host: HostMailbox, wanted: int, kills: int
) -> None:
    """mailbox MB-21, MB-22, MB-48, case 22: every message is answered once and delivered at least once."""
    for _ in range(kills):
        exchange(host, wanted, kill="host")
        exchange(host, wanted, kill="agent")
    exchange(host, wanted, kill=None)
    answers = sql(outbound(host), "SELECT json_extract(content, '$.answers') FROM messages_out")
    assert sorted(answer for (answer,) in answers) == sorted(f"m-{i}" for i in range(wanted))
    calls = (host.folder / "calls").read_text().split()
    assert set(calls) == {f"m-{i}" for i in range(wanted)}
    assert sql(inbound(host), "SELECT DISTINCT status FROM messages_in") == [("completed",)]
    numbers_in = [seq for (seq,) in sql(inbound(host), "SELECT seq FROM messages_in ORDER BY rowid")]
    numbers_out = [seq for (seq,) in sql(outbound(host), "SELECT seq FROM messages_out ORDER BY rowid")]
    assert (numbers_in, numbers_out) == (sorted(numbers_in), sorted(numbers_out))
    assert len({*numbers_in, *numbers_out}) == 2 * wanted
    assert host.verify() == []


def exchange(host: HostMailbox, wanted: int, kill: str | None) -> None:
    """Both processes, until the host is done, or until one is killed after some messages."""
    with (
        started(program(HOST, host.folder, wanted)) as hosting,
        started(program(AGENT, host.folder)) as answering,
    ):
        for process in (hosting, answering):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        if kill is None:
            assert hosting.stdout is not None
            assert hosting.stdout.readline() == "done\n"
            return
        before = delivered(host)
        while delivered(host) < min(before + 7, wanted) and hosting.poll() is None:
            time.sleep(0.01)
        (hosting if kill == "host" else answering).send_signal(signal.SIGKILL)


def delivered(host: HostMailbox) -> int:
    """How often the adapter was called."""
    return (host.folder / "calls").read_text().count("\n")


@pytest.mark.parametrize("side", ["host", "agent"])
def test_a_writer_that_died_in_a_transaction_blocks_no_reader(
    host: HostMailbox, agent: AgentMailbox, side: str
) -> None:
    """mailbox MB-73, case 10: its reader sees the last commit and writes nothing; it recovers by itself."""
    sent, answer = [send(host) for _ in range(20)], [reply(agent) for _ in range(20)]
    path, table = (inbound(host), "messages_in") if side == "host" else (outbound(host), "messages_out")
    killed(path, table)
    before = digests(host.folder)
    for _ in range(2):
        if side == "host":
            assert len(agent.inbox.peek(limit=100)) == len(sent)
        else:
            assert host.outbox.get(answer[0].id).content == {"text": "yes"}
    assert digests(host.folder) == before
    if side == "host":
        send(host)
    else:
        reply(agent)
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]
    assert sql(path, f"SELECT count(*) FROM {table}") == [(21,)]


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_crashed_writers_file_is_copied_by_another_process(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-74: to close any descriptor of a database file would drop this process's locks on it."""
    answers = [reply(agent) for _ in range(20)]
    killed(outbound(host), "messages_out")
    opened: list[str] = []
    watches = [True]
    sys.addaudithook(lambda event, given: opened.append(str(given[0])) if watches and event == "open" else None)
    assert host.outbox.get(answers[0].id).id == answers[0].id
    watches.clear()
    assert host.metrics.mailbox_copies == 1
    assert [path for path in opened if path.startswith(str(outbound(host)))] == []


def test_a_journal_that_names_another_file_is_not_followed(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-73: SQLite would open that file, and might remove it."""
    for _ in range(20):
        reply(agent)
    killed(outbound(host), "messages_out")
    victim = host.folder / "victim"
    victim.write_text("kept")
    name = str(victim).encode()
    with Path(f"{outbound(host)}-journal").open("ab") as journal:
        checksum = sum(name).to_bytes(4, "big")
        tail = len(name).to_bytes(4, "big") + checksum + bytes.fromhex("d9d505f920a163d7")
        journal.write(b"\0\0\0\1" + name + tail)
    assert send(host).seq == 2
    assert victim.read_text() == "kept"


def test_every_poll_sees_what_another_process_has_written(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-49"""
    assert len(agent.inbox.peek()) == 0
    sends = "HostMailbox.open(sys.argv[1]).inbox.send('x', kind='chat', content={})"
    code = f"import sys; from lastlight_state.files.mailbox import *; {sends}"
    run_program(program(code, host.folder), check=True)
    assert [message.id for message in agent.inbox.peek()] == ["x"]


def test_a_file_in_another_journal_mode_is_converted(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-70: by its owner, with its data."""
    send(host)
    connection = sqlite3.connect(inbound(host))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    send(HostMailbox.open(host.folder))
    assert sql(inbound(host), "PRAGMA journal_mode") == [("delete",)]
    assert len(agent.inbox.peek()) == 2
