"""Folders of sessions: made whole, adopted, and left by nobody's name."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from support.between import before
from support.each import with_each
from support.mailbox.files import OUTBOUND, inbound, made, outbound, reply, send

from lastlight_state.errors import (
    AlreadyExists,
    BackendBusy,
    BackendUnavailable,
    CorruptData,
    NotFound,
    UnsafePath,
)
from lastlight_state.files.mailbox import (
    AgentMailbox,
    HostMailbox,
    Mailboxes,
    face,
    heartbeat_path,
    inbound_db_path,
    inbox_dir,
    outbound_db_path,
    outbox_dir,
    session_dir,
)
from lastlight_state.files.mailbox.folder import Place
from lastlight_state.files.mailbox.folder.creation import complete, create
from lastlight_state.files.mailbox.shared import files
from lastlight_state.settings import Settings


def test_a_session_is_a_folder_with_a_pair_of_files(
    mailboxes: Mailboxes, host: HostMailbox, agent: AgentMailbox
) -> None:
    """mailbox MB-01, MB-06: other folders of the group are left alone and not listed."""
    (mailboxes.root / "group" / ".claude-shared").mkdir()
    (mailboxes.root / "group" / "agent-runner-src").mkdir()
    assert session_dir(mailboxes.root, "group", "session") == host.folder
    assert agent.beat()
    ways = (inbound_db_path, outbound_db_path, heartbeat_path, inbox_dir, outbox_dir)
    expected = [inbound(host), outbound(host), *(host.folder / name for name in (".heartbeat", "inbox", "outbox"))]
    assert [way(mailboxes.root, "group", "session") for way in ways] == expected
    assert all(path.exists() for path in expected)
    [info] = mailboxes.list()
    assert (info.group, info.session, info.medium) == ("group", "session", "files")
    mailboxes.create("group", "another")
    page = mailboxes.list(group="group", limit=1)
    rest = mailboxes.list(group="group", limit=1, page_token=page.next_page_token)
    assert [info.session for info in (*page, *rest)] == ["another", "session"]
    assert rest.next_page_token is None


@with_each("name", ["../x", "a/b", "", "a\0b", "x" * 300, ".", "..", ".hidden"])
def test_a_name_that_would_leave_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    """mailbox MB-02: before any path is touched."""
    mailboxes = Mailboxes(tmp_path / "root")
    for group, session in ((name, "s"), ("g", name)):
        for call in (mailboxes.create, mailboxes.ensure, mailboxes.host, mailboxes.agent):
            with pytest.raises(UnsafePath):
                call(group, session)
    assert not (tmp_path / "root").exists()


def test_a_folder_behind_a_link_is_refused(mailboxes: Mailboxes, host: HostMailbox, tmp_path: Path) -> None:
    """mailbox MB-02"""
    (mailboxes.root / "group" / "linked").symlink_to(host.folder)
    (mailboxes.root / "other").symlink_to(host.folder.parent)
    for group, session in (("group", "linked"), ("other", "session")):
        with pytest.raises(UnsafePath):
            mailboxes.host(group, session)
    with pytest.raises(UnsafePath):
        HostMailbox.open(mailboxes.root / "group" / "linked")


def test_a_session_is_made_once(mailboxes: Mailboxes, host: HostMailbox) -> None:
    """mailbox MB-03: nothing but the session is left in the folder of the group."""
    send(host)
    with pytest.raises(AlreadyExists):
        mailboxes.create("group", "session")
    assert mailboxes.ensure("group", "session").inbox.list().items != ()
    assert [path.name for path in (mailboxes.root / "group").iterdir()] == ["session"]


@with_each("make", [create, complete])
def test_a_session_that_cannot_be_made_leaves_nothing_and_tells_why(tmp_path: Path, make: Any) -> None:
    """mailbox MB-03: an error of the database as it is, one of the file system as BackendUnavailable."""
    place = Place.below(tmp_path, "group", "session")
    if make is complete:
        place.path.mkdir(parents=True)
    for error, expected in ((BackendBusy("busy"), BackendBusy), (OSError(28, "No space left"), BackendUnavailable)):

        def fill(path: Path, name: str, error: Exception = error) -> None:
            raise error

        with pytest.raises(expected):
            make(place, fill, directory_mode=0o700, file_mode=0o600)
        assert [path for path in tmp_path.rglob("*") if path not in (place.path, place.path.parent)] == []


def test_a_mailbox_that_is_neither_there_nor_can_be_made_tells_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-03: what kept it from being made is told."""

    def fill(path: Path, name: str) -> None:
        raise BackendBusy("busy")

    monkeypatch.setattr(face, "fill", fill)
    with pytest.raises(BackendBusy):
        Mailboxes(tmp_path).ensure("group", "session")


def test_looking_makes_nothing(mailboxes: Mailboxes) -> None:
    """mailbox MB-04"""
    for call in (mailboxes.host, mailboxes.agent):
        with pytest.raises(NotFound):
            call("group", "session")
    assert not mailboxes.root.exists()
    assert mailboxes.list().items == ()


def test_a_missing_file_is_not_found_and_a_damaged_one_is_named(mailboxes: Mailboxes, host: HostMailbox) -> None:
    """mailbox MB-04: `ensure` adds what is missing."""
    inbound(host).write_bytes(b"garbage" * 1000)
    with pytest.raises(CorruptData, match=r"inbound\.db"):
        mailboxes.host("group", "session")
    inbound(host).unlink()
    with pytest.raises(NotFound):
        mailboxes.host("group", "session")
    assert send(mailboxes.ensure("group", "session")).seq == 2


def test_a_file_that_vanishes_before_it_is_opened_is_not_made_again(
    mailboxes: Mailboxes, host: HostMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-04."""
    happened = before(monkeypatch, files, "is_regular", inbound(host).unlink)
    with pytest.raises(NotFound):
        mailboxes.host("group", "session")
    assert happened
    assert not inbound(host).exists()


def test_a_file_of_the_other_side_that_cannot_be_opened_is_not_called_damaged(tmp_path: Path) -> None:
    """mailbox MB-04."""
    host = Mailboxes(tmp_path, settings=Settings(retry_seconds=0)).create("group", "session")
    outbound(host).with_name("outbound.db-journal").mkdir()
    with pytest.raises(BackendUnavailable):
        host.sweep.claims()


@pytest.mark.parametrize(("name", "said"), [("inbound.db", "inbound.db"), ("outbound.db", "outbound.db"), (None, None)])
def test_what_a_mailbox_lacks_is_told(mailboxes: Mailboxes, host: HostMailbox, name: str | None, said: Any) -> None:
    """mailbox MB-04: one of its files, or everything."""
    if name is None:
        shutil.rmtree(host.folder)
    else:
        (host.folder / name).unlink()
    with pytest.raises(NotFound) as refusal:
        Place.below(mailboxes.root, "group", "session").refuse_missing()
    assert refusal.value.details.get("reason") == (said and f"it has no {said}")


def test_an_empty_file_of_the_other_side_is_an_empty_mailbox(mailboxes: Mailboxes, host: HostMailbox) -> None:
    """mailbox MB-04: a reader meets no error of the driver."""
    outbound(host).write_bytes(b"")
    again = mailboxes.host("group", "session")
    assert again.outbox.take_due() == []
    assert again.sweep.claims() == []
    assert send(again).seq == 2


def test_a_file_that_vanishes_while_sessions_are_listed_stops_no_list(
    mailboxes: Mailboxes, host: HostMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-06"""
    lstat, gone = Path.lstat, outbound(host)

    def seen_last(path: Path) -> os.stat_result:
        found = lstat(path)
        if path == gone:
            path.unlink()
        return found

    size = gone.stat().st_size
    monkeypatch.setattr(Path, "lstat", seen_last)
    assert [[info.outbound_bytes for info in mailboxes.list()] for _ in range(2)] == [[size], [None]]


def test_files_and_folders_are_private(host: HostMailbox) -> None:
    """mailbox MB-05"""
    paths = [host.folder, host.folder / "inbox", host.folder / "outbox", inbound(host), outbound(host)]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in paths]
    assert modes == [0o700, 0o700, 0o700, 0o600, 0o600]


def test_a_group_that_shares_the_files_may_write_them(tmp_path: Path) -> None:
    """mailbox MB-05: with ``mailbox_mode``, also those that `ensure` adds."""
    mailboxes = Mailboxes(tmp_path, settings=Settings(mailbox_mode="group"))
    host = mailboxes.create("group", "session")
    for again in (False, True):
        if again:
            outbound(host).unlink()
            (host.folder / "outbox").rmdir()
            mailboxes.ensure("group", "session")
        paths = [host.folder, host.folder / "inbox", host.folder / "outbox", inbound(host), outbound(host)]
        modes = [stat.S_IMODE(path.stat().st_mode) & 0o777 for path in paths]
        assert modes == [0o770, 0o770, 0o770, 0o660, 0o660]


def test_either_side_opens_its_folder_without_a_store(host: HostMailbox) -> None:
    """mailbox MB-01: a process in a container has nothing else."""
    agent = AgentMailbox.open(str(host.folder))
    send(HostMailbox.open(host.folder))
    assert len(agent.inbox.take()) == 1
    assert reply(agent).seq == 3
    assert repr(agent) == "AgentMailbox('group/session')"


def test_a_folder_with_one_file_of_the_original_is_completed(mailboxes: Mailboxes) -> None:
    """mailbox MB-03: what is there is left as it is."""
    folder = mailboxes.root / "group" / "session"
    made(folder / "outbound.db", OUTBOUND)
    before = (folder / "outbound.db").read_bytes()
    send(mailboxes.ensure("group", "session"))
    assert (folder / "outbound.db").read_bytes() == before
    assert (folder / "inbox").is_dir()
