"""Several processes on one side of a mailbox, and processes that are killed between any two calls of the system."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest
from support.loading import load
from support.mailbox.files import ids, inbound, outbound, reply, send, sql
from support.run_log.killed import STEPS, ended, forked, killed_at

from lastlight_state.errors import AlreadyExists, BackendBusy
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, Mailboxes, NewDestination, When
from lastlight_state.settings import Settings


@pytest.fixture(autouse=True)
def loaded() -> None:
    """What a forked process would otherwise load again."""
    load("files", "backends")


def at_once(*works: Callable[[], object]) -> None:
    """Each in a process of its own, all of which succeed."""
    children = [forked(work) for work in works]
    assert [ended(child) for child in children] == [0] * len(works)


def test_processes_of_both_sides_send_at_once(host: HostMailbox) -> None:
    """mailbox MB-22, case 5: each message is stored, and numbers are unique and keep to their side."""

    def sends() -> None:
        for _ in range(5):
            send(HostMailbox.open(host.folder))

    def replies() -> None:
        for _ in range(5):
            reply(AgentMailbox.open(host.folder))

    at_once(sends, replies, sends, replies)
    numbers = [seq for (seq,) in sql(inbound(host), "SELECT seq FROM messages_in ORDER BY rowid")]
    answers = [seq for (seq,) in sql(outbound(host), "SELECT seq FROM messages_out ORDER BY rowid")]
    assert (len(set(numbers)), len(set(answers))) == (10, 10)
    assert (numbers, answers) == (sorted(numbers), sorted(answers))


def test_processes_of_an_agent_take_each_message_once(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-42"""
    sent = [send(host).id for _ in range(12)]

    def takes() -> None:
        own = AgentMailbox.open(host.folder)
        taken = own.inbox.take(limit=3)
        own.outbox.send(kind="chat", content=ids(taken))

    at_once(takes, takes, takes, takes)
    batches = [agent.outbox.get(one.id).content for one in agent.outbox.list().items]
    assert sorted(one for batch in batches for one in batch) == sorted(sent)


def test_hosts_that_sweep_at_once_store_one_successor(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-39"""
    task = host.tasks.create("daily", prompt="x", when=When(recurrence="@daily"))
    agent.inbox.complete(task.id)

    def sweeps() -> None:
        HostMailbox.open(host.folder).sweep.run(agent_started_at=None)

    at_once(sweeps, sweeps, sweeps)
    assert len(host.tasks.list().items) == 1
    assert sql(inbound(host), "SELECT status, count(*) FROM messages_in GROUP BY 1 ORDER BY 1") == [
        ("completed", 1),
        ("pending", 1),
    ]


def test_a_reader_that_stays_makes_its_writer_busy(host: HostMailbox) -> None:
    """mailbox MB-72: nothing is written, and the next try succeeds."""
    hurried = HostMailbox.open(host.folder, settings=Settings(busy_timeout=0.01, retry_seconds=0))
    with closing(sqlite3.connect(inbound(host), isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM messages_in").fetchall() == [(0,)]
        with pytest.raises(BackendBusy):
            send(hurried)
        reader.execute("COMMIT")
    assert sql(inbound(host), "SELECT count(*) FROM messages_in") == [(0,)]
    assert send(hurried).seq == 2


def test_a_reader_never_sees_destinations_half_replaced(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-90: it sees the old set or the new one."""
    sets = [[NewDestination(f"{word}{i}", "channel", None, "c", f"p{i}") for i in range(3)] for word in "ab"]
    host.routing.replace_destinations(sets[0])

    def replaces() -> None:
        own = HostMailbox.open(host.folder)
        for number in range(10):
            own.routing.replace_destinations(sets[number % 2])

    child = forked(replaces)
    seen = {tuple(one.name for one in agent.routing.list_destinations()) for _ in range(20)}
    assert ended(child) == 0
    assert seen <= {tuple(one.name for one in entries) for entries in sets}


@pytest.mark.slow
def test_a_killed_creation_leaves_no_session_or_a_whole_one(mailboxes: Mailboxes) -> None:
    """mailbox MB-03: at each call of the system that changes files."""
    codes = []
    for step in STEPS:
        codes.append(killed_at(step, partial(mailboxes.create, "group", f"s-{step}")))
        found = [one.session for one in mailboxes.list().items]
        if f"s-{step}" in found:
            assert send(mailboxes.host("group", f"s-{step}")).seq == 2
            with pytest.raises(AlreadyExists):
                mailboxes.create("group", f"s-{step}")
        else:
            assert send(mailboxes.create("group", f"s-{step}")).seq == 2
    assert set(codes) == {-9, 0}
