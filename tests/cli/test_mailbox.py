"""The command for mailboxes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli.calls import Said, lastlight_state
from support.mailbox.files import INBOUND, OUTBOUND, inbound, made, outbound, reply, send, sql

from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, Mailboxes


@pytest.fixture
def host(tmp_path: Path) -> HostMailbox:
    return Mailboxes(tmp_path / "v2-sessions").create("group", "session")


def said(host: HostMailbox, *words: object) -> Said:
    return lastlight_state("mailbox", *words, "--state-dir", host.folder.parents[2])


def test_mailboxes_are_listed_and_counted(host: HostMailbox) -> None:
    """mailbox MB-104: without writing into either file."""
    assert lastlight_state("mailbox", "ls", "--state-dir", host.folder).out == "(no mailboxes)\n"
    made(host.folder.with_name("theirs") / "inbound.db", INBOUND)
    made(host.folder.with_name("theirs") / "outbound.db", OUTBOUND)
    send(host)
    before = [path.read_bytes() for path in sorted(host.folder.parent.rglob("*.db"))]
    assert [line.split()[:2] for line in said(host, "ls").out.splitlines()[1:]] == [
        ["group", "session"],
        ["group", "theirs"],
    ]
    first = said(host, "ls", "--limit", 1, "--json").data
    assert len(first["items"]) == 1
    more = said(host, "ls", "--limit", 1).out.splitlines()[-1]
    assert more == f"more: --page-token {first['next_page_token']}"
    assert said(host, "show", "group/session", "--json").data["status"]["due"] == 1
    assert said(host, "show", "group/theirs", "--json").data["status"]["pending"] == 0
    assert said(host, "verify", "group/theirs").out == "sound\n"
    assert [path.read_bytes() for path in sorted(host.folder.parent.rglob("*.db"))] == before


def test_a_mailbox_is_checked_and_swept(host: HostMailbox) -> None:
    """mailbox MB-104: findings are exit code 1, and a message that failed is sent again."""
    agent = AgentMailbox.open(host.folder)
    agent.inbox.complete(send(host).id)
    message = reply(agent)
    host.outbox.mark_failed(message.id, error="gone", permanent=True)
    assert said(host, "sweep", "group/session", "--json").data["sync"]["completed"] == 1
    assert said(host, "requeue", "group/session", message.id).out == "is due again\n"
    assert len(host.outbox.take_due()) == 1
    sql(inbound(host), "UPDATE messages_in SET recurrence = '0 9 * * *', status = 'failed'")
    assert said(host, "verify", "group/session").code == 1
    for wrong in (("odd",), ("show",), ("show", "group/unknown"), ("requeue", "group/session")):
        assert said(host, *wrong).code != 0
    assert outbound(host).exists()


def test_old_messages_are_removed_when_it_is_confirmed(host: HostMailbox) -> None:
    """mailbox MB-35, MB-104: from the host's file, or from the agent's."""
    agent = AgentMailbox.open(host.folder)
    host.inbox.fail(send(host).id, error="gone")
    host.outbox.mark_delivered(reply(agent).id)
    old = ("prune", "group/session", "--keep-days", 0)
    assert said(host, "prune", "group/session").out == "removed 0 messages of 0 bytes, and 0 receipts\n"
    assert said(host, *old, "--dry-run").out.startswith("would remove 1 messages of ")
    assert said(host, *old).code == 1
    assert said(host, *old, "-y", "--json").data["pruned"]["messages"] == 1
    assert said(host, *old, "--side", "agent", "-y", "--json").data["pruned"]["messages"] == 1
    settled = said(host, *old, "-y", "--json").data["pruned"]
    assert (settled["messages"], settled["receipts"]) == (0, 1), "the host's message went before"
    assert said(host, *old, "--side", "nobody").code == 2


def test_a_whole_session_is_removed_when_it_is_confirmed(host: HostMailbox) -> None:
    """mailbox MB-35, MB-104: not while its agent works."""
    agent, message = AgentMailbox.open(host.folder), send(host)
    whole = ("prune", "group/session", "--whole")
    agent.inbox.claim(message.id)
    assert said(host, *whole, "-y").code == 1
    agent.inbox.release(message.id)
    assert said(host, *whole, "--dry-run").out.startswith("would remove 1 messages of ")
    assert said(host, *whole).code == 1
    assert host.folder.exists()
    assert said(host, *whole, "-y", "--json").data["pruned"]["messages"] == 1
    assert not host.folder.exists()
