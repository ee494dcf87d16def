"""What each call says of messages that are not there, of odd input, and of files that others planted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from support.between import before
from support.each import with_each
from support.mailbox.files import PLACE, ids, inbound, outbound, reply, send, sql
from support.mailbox.pairs import mailbox_pair
from support.migrations.nobody import as_nobody

from lastlight_state.errors import (
    BackendUnavailable,
    InvalidValue,
    NestedTransaction,
    NotFound,
    PayloadTooLarge,
    StateError,
)
from lastlight_state.files.mailbox import AgentMailbox, Attachment, HostMailbox, Mailboxes, When
from lastlight_state.files.mailbox.folder import creation
from lastlight_state.testing import FrozenClock

MINUTE = timedelta(minutes=1)


def test_each_side_reads_a_message_that_was_settled(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-40: by its id, whole."""
    message = send(host)
    agent.inbox.complete(message.id)
    host.sweep.sync()
    found = agent.inbox.get(message.id)
    assert (found.id, found.status, found.content) == (message.id, "completed", {"text": "hello"})
    assert agent.inbox.find(message.id) == found
    answer = reply(agent)
    assert host.outbox.get(answer.id) == agent.outbox.get(answer.id)
    assert host.outbox.resolve_seq(answer.seq or 0).id == answer.id


def test_what_is_not_there_is_not_found(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-25, MB-34, MB-36, MB-43: in every call that names one message."""
    calls: list[Callable[[], object]] = [
        lambda: agent.inbox.get("gone"),
        lambda: agent.outbox.get("gone"),
        lambda: agent.outbox.delivery("gone"),
        lambda: agent.outbox.resolve_seq(99),
        lambda: host.inbox.get("gone"),
        lambda: host.inbox.fail("gone", error="no"),
        lambda: host.inbox.retry("gone"),
        lambda: host.tasks.get("gone"),
        lambda: host.outbox.get("gone"),
        lambda: host.outbox.files("gone"),
        lambda: host.outbox.requeue("gone"),
        lambda: host.outbox.mark_failed("gone", error="no"),
        lambda: host.outbox.resolve_seq(99),
    ]
    for call in calls:
        with pytest.raises(NotFound):
            call()
    assert [side.find("gone") for side in (agent.inbox, agent.outbox, host.outbox)] == [None] * 3


def test_nothing_is_released_settled_or_claimed_where_no_message_is_named(
    host: HostMailbox, agent: AgentMailbox
) -> None:
    """mailbox MB-43: no ids are no transaction."""
    send(host)
    agent.inbox.take()
    stamp = outbound(host).stat().st_mtime_ns
    agent.inbox.release()
    agent.inbox.complete()
    assert agent.inbox.claim() == ()
    assert outbound(host).stat().st_mtime_ns == stamp
    assert len(host.sweep.claims()) == 1


@with_each("content", [["q_1"], "q_1", {"payload": "q_1"}, {"payload": ["questionId"]}])
def test_odd_content_answers_no_question(tmp_path: Path, frozen_clock: FrozenClock, content: Any) -> None:
    """mailbox MB-47"""
    host, agent = mailbox_pair(tmp_path, frozen_clock)
    host.inbox.send(kind="system", content=content)
    assert agent.inbox.find_response("q_1") is None
    answer = host.inbox.send(kind="system", content={"questionId": "q_1"})
    found = agent.inbox.find_response("q_1")
    assert found is not None
    assert found.id == answer.id


def test_files_are_bytes_or_a_path_beside_content_that_can_name_them(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-60: nothing is stored otherwise."""
    odd = Attachment("a", "text")  # type: ignore[arg-type]
    fine = Attachment("a", b"bytes")
    calls: list[tuple[str, Callable[[], object]]] = [
        ("bytes or a path", lambda: host.inbox.send(kind="chat", content={}, attachments=[odd])),
        ("bytes or a path", lambda: agent.outbox.send(kind="chat", content={}, files=[odd])),
        ("must be an object", lambda: host.inbox.send(kind="chat", content=["x"], attachments=[fine])),
        ("must be an object", lambda: agent.outbox.send(kind="chat", content=["x"], files=[fine])),
        ("Mars", lambda: host.inbox.send(kind="chat", content={}, when=When(timezone="Mars/Olympus"))),
    ]
    for problem, call in calls:
        with pytest.raises(InvalidValue, match=problem):
            call()
    assert (host.inbox.list().items, agent.outbox.list().items) == ((), ())


@with_each(("plant", "kind"), [(Path.mkdir, "a directory"), (os.mkfifo, "a FIFO")])
def test_what_is_no_file_is_named_and_not_read(
    tmp_path: Path, frozen_clock: FrozenClock, plant: Any, kind: str
) -> None:
    """mailbox MB-65: nor waited for."""
    host, agent = mailbox_pair(tmp_path, frozen_clock)
    agent.outbox.send("m", kind="chat", content={}, routing=PLACE, files=[Attachment("a", b"bytes")])
    path = host.folder / "outbox" / "m" / "a"
    path.unlink()
    plant(path)
    assert host.outbox.files("m").skipped == (("'a'", f"expected a regular file, found {kind}"),)


def test_files_of_an_id_that_names_no_folder_are_not_read(host: HostMailbox) -> None:
    """mailbox MB-63: as others may store it; names that are not safe are not read either."""
    insert = "INSERT INTO messages_out (id, seq, timestamp, kind, content) VALUES (?, ?, '2026-01-01', 'chat', ?)"
    sql(outbound(host), insert, ["../../etc", 1, '{"files": ["passwd"]}'])
    sql(outbound(host), insert, ["m", 3, '{"files": ["../inbound.db", 5]}'])
    assert host.outbox.files("../../etc").skipped == (("../../etc", "the id is not a safe name"),)
    assert [problem for _, problem in host.outbox.files("m").skipped] == ["not a safe name"] * 2


def test_a_link_in_a_folder_of_files_is_neither_measured_nor_removed(
    host: HostMailbox, frozen_clock: FrozenClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """mailbox MB-64: by a prune, and by a sweep of what killed calls left."""
    message = host.inbox.send("m", kind="chat", content={}, attachments=[Attachment("a", b"12345")])
    size = len(sql(inbound(host), "SELECT content FROM messages_in")[0][0]) + 5
    outside = tmp_path / "outside"
    outside.write_bytes(b"x" * 1000)
    link, old = host.folder / "inbox" / "m" / "link", host.folder / "inbox" / "old"
    link.symlink_to(outside)
    old.symlink_to(tmp_path)
    os.utime(tmp_path, (0, 0))
    assert host.sweep.tidy() == 0
    assert caplog.records == []
    host.inbox.fail(message.id, error="no")
    frozen_clock.advance(MINUTE)
    report = host.inbox.prune(settled_before=frozen_clock.now(), dry_run=False)
    assert (report.messages, report.size_bytes) == (1, size)
    assert (link.is_symlink(), old.is_symlink(), outside.exists()) == (True, True, True)


def test_a_prune_leaves_files_that_a_call_is_about_to_store(host: HostMailbox, frozen_clock: FrozenClock) -> None:
    """mailbox MB-61, MB-35: under the id of a message that goes."""
    message = host.inbox.send("m", kind="chat", content={}, attachments=[Attachment("a", b"12345")])
    coming = host.folder / "inbox" / "m" / ".new-coming"
    coming.write_bytes(b"later")
    host.inbox.fail(message.id, error="no")
    frozen_clock.advance(MINUTE)
    host.inbox.prune(settled_before=frozen_clock.now(), dry_run=False)
    assert [path.name for path in coming.parent.iterdir()] == [coming.name]


def test_a_folder_that_vanishes_while_leftovers_are_looked_for_is_passed_over(
    host: HostMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-61: another host has removed it."""
    old = host.folder / "inbox" / "old"
    old.mkdir()
    os.utime(old, (0, 0))
    names, vanished = os.listdir, ["vanished"]
    monkeypatch.setattr(os, "listdir", lambda held: names(held) + [vanished.pop() for _ in vanished[:1]])
    assert host.sweep.tidy() == 1


def test_a_session_that_cannot_be_removed_is_said(
    mailboxes: Mailboxes, host: HostMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-35: it is gone under its name, and a later creation removes what is left."""

    def failing(path: Path, **_options: object) -> None:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(shutil, "rmtree", failing)
    with pytest.raises(BackendUnavailable):
        mailboxes.prune("group", "session", dry_run=False)
    assert mailboxes.list().items == ()


def test_a_heartbeat_that_is_none_counts_as_none(mailboxes: Mailboxes, host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-55, MB-06: a folder of that name; and one that belongs to another user cannot be set."""
    (host.folder / ".heartbeat").mkdir()
    assert not agent.beat()
    assert mailboxes.list().items[0].heartbeat_at is None


@pytest.mark.skipif(os.geteuid() != 0, reason="whoever may not give files away owns its own")
def test_a_heartbeat_of_another_user_cannot_be_set(frozen_clock: FrozenClock) -> None:
    """mailbox MB-55: it may be written, and its time may not be."""
    with TemporaryDirectory() as folder:  # where others may go, unlike pytest's
        Path(folder).chmod(0o755)
        beat = Path(folder) / ".heartbeat"
        beat.touch()
        beat.chmod(0o666)
        now = frozen_clock.now()
        assert not as_nobody(lambda: creation.beat(Path(folder), now))
        assert creation.beat(Path(folder), now)
        assert creation.last_beat(Path(folder)) == now


def test_a_block_of_a_mailbox_is_not_opened_twice(host: HostMailbox) -> None:
    """mailbox MB-48: neither by the mailbox nor by the one that the block got; what it did stays."""
    with host.transaction() as together:
        together.inbox.send("m", kind="chat", content={})
        for side in (host, together):
            with pytest.raises(NestedTransaction), side.transaction():
                pass
    assert host.inbox.get("m").id == "m"


def test_a_timed_tool_may_be_silent_for_as_long_as_it_declared(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-51: to the millisecond."""
    started = frozen_clock.now()
    agent.tool_started("Bash", timedelta(hours=2))
    frozen_clock.advance(timedelta(hours=2))
    assert host.sweep.assess(agent_started_at=started).action == "ok"
    frozen_clock.advance(timedelta(milliseconds=1))
    assert host.sweep.assess(agent_started_at=started).reason == "silent"


def test_a_drain_takes_no_more_than_it_was_told(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-85, MB-82: one at least."""
    sent = [reply(agent) for _ in range(3)]
    assert host.outbox.drain(lambda _due: "p-1", limit=1).delivered == 1
    assert [message.id for message in host.outbox.list_waiting().items] == ids(sent[1:])
    assert host.outbox.drain(lambda _due: "p-1", limit=2).delivered == 2
    with pytest.raises(InvalidValue, match="limit"):
        host.outbox.drain(lambda _due: "p-1", limit=0)


def test_a_script_belongs_to_the_content_of_a_task(host: HostMailbox) -> None:
    """mailbox MB-36, MB-37: it is kept, changed and taken away; content of others has none."""
    made = host.tasks.create("report", prompt="p", script="echo 1", when=When())
    assert (made.script, host.inbox.get("report").content) == ("echo 1", {"prompt": "p", "script": "echo 1"})
    assert host.tasks.update("report", prompt="q").script == "echo 1"
    assert host.tasks.update("report", script="echo 2").script == "echo 2"
    removed = host.tasks.update("report", script=None)
    assert (removed.script, removed.prompt) == (None, "q")
    host.inbox.send("theirs", kind="task", content=["p"])
    assert host.tasks.get("theirs").script is None
    with pytest.raises(PayloadTooLarge):
        host.tasks.create(prompt="p", script="x" * (2**21), when=When())


def test_a_conversation_that_another_has_taken_over_meanwhile_is_not_taken_twice(
    agent: AgentMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-92: between the look and the write."""
    insert = "INSERT INTO session_state (key, value, updated_at) VALUES ('sdk_session_id', 'old', '2026-01-01')"
    sql(outbound(agent), insert)
    state = agent.state
    happened = before(monkeypatch, state, "_writing", lambda: sql(outbound(agent), "DELETE FROM session_state"))
    assert state.continuation("claude") is None
    assert happened == ["_writing"]
    assert state.list() == []


@with_each("door", ["group", "."])
def test_a_mailbox_behind_a_closed_door_is_no_error_of_the_operating_system(door: str) -> None:
    """mailbox MB-06: it may be there, so it is not said to be missing."""
    with TemporaryDirectory() as folder:  # where others may go, unlike pytest's
        boxes = Mailboxes(Path(folder))
        boxes.create("group", "session")
        calls: dict[str, Callable[[], object]] = {
            "list": lambda: boxes.list(group="group"),
            "host": lambda: boxes.host("group", "session"),
            "agent": lambda: boxes.agent("group", "session"),
            "create": lambda: boxes.create("group", "session"),
            "ensure": lambda: boxes.ensure("group", "session"),
            "prune": lambda: boxes.prune("group", "session"),
        }
        for inside in (boxes.root, boxes.root / "group"):
            inside.chmod(0o755)
        (boxes.root / door).chmod(0o600)
        try:
            said = as_nobody(lambda: {name: _code_of(call) for name, call in calls.items()})
        finally:
            (boxes.root / door).chmod(0o700)
        assert said == dict.fromkeys(calls, "backend_unavailable")


def _code_of(call: Callable[[], object]) -> str:
    try:
        call()
    except StateError as error:
        return error.code
    except OSError as error:
        return type(error).__name__
    return "nothing"
