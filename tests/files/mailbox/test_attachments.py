"""Files of messages: kept below the session's folder, whatever they are called and whoever shares it."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.between import before
from support.each import with_each
from support.mailbox.files import PLACE, inbound, outbound, send, sql
from support.mailbox.pairs import mailbox_pair

from lastlight_state.errors import AlreadyExists, InvalidValue, PayloadTooLarge, StateError, UnsafePath
from lastlight_state.files.mailbox import AgentMailbox, Attachment, HostMailbox, NewDestination, NewMessage
from lastlight_state.files.mailbox.folder import attachments
from lastlight_state.settings import Limits, Settings
from lastlight_state.testing import FrozenClock

LEFT = pytest.mark.logs("files of a message are left")


def stored(host: HostMailbox) -> list[str]:
    """Every file below the session's folder but its own."""
    found = [path for path in host.folder.rglob("*") if path.is_file() and path.suffix != ".db"]
    return sorted(str(path.relative_to(host.folder)) for path in found)


def given(*names: Any) -> list[Attachment]:
    return [Attachment(name, b"bytes") for name in names]


def test_files_are_kept_and_named_in_the_content(host: HostMailbox, tmp_path: Path) -> None:
    """mailbox MB-60: those that are handed over, and those in the content as base64."""
    source = tmp_path / "source"
    source.write_bytes(b"from a path")
    encoded = base64.b64encode(b"encoded").decode()
    content = {"text": "see", "attachments": [None, {"name": "b.txt", "data": encoded, "x": 1}, {"url": "u"}]}
    files = [Attachment("a.txt", source, mime="text/plain")]
    message = host.inbox.send("m", kind="chat", content=content, attachments=files)
    assert message.content["attachments"] == [
        None,
        {"name": "b.txt", "x": 1, "localPath": "inbox/m/b.txt"},
        {"url": "u"},
        {"name": "a.txt", "mimeType": "text/plain", "localPath": "inbox/m/a.txt"},
    ]
    assert (host.folder / "inbox/m/a.txt").read_bytes() == b"from a path"
    assert (host.folder / "inbox/m/b.txt").read_bytes() == b"encoded"
    assert stored(host) == ["inbox/m/a.txt", "inbox/m/b.txt"]


@with_each("data", [5, None, "not base64!", "\u00e9\u00e9\u00e9\u00e9", "abc", "Y!Q==", ["x"]])
def test_what_cannot_be_decoded_is_refused(tmp_path: Path, frozen_clock: FrozenClock, data: object) -> None:
    """mailbox MB-60, case 59: nothing is stored; empty data is an empty file, and other entries stay untouched."""
    host, _ = mailbox_pair(tmp_path, frozen_clock)
    with pytest.raises(InvalidValue):
        host.inbox.send(kind="chat", content={"attachments": [{"name": "a", "data": data}]})
    assert (stored(host), host.inbox.list().items) == ([], ())
    host.inbox.send("m", kind="chat", content={"attachments": [{"name": "a", "data": ""}]})
    assert (host.folder / "inbox/m/a").read_bytes() == b""
    with pytest.raises(InvalidValue, match="content: must not be None"):
        host.inbox.send(kind="chat", content=None)
    for content in ([None], {"attachments": "none"}, {"attachments": [None, 3, "data", ["data"]]}):
        assert host.inbox.send(kind="chat", content=content).content == content


@with_each(
    "name",
    ["../x.txt", "a/b.txt", ".", "..", "", "C:\\x.txt", "C:x.txt", "é" * 100 + "x", "a\0b", " x", None, 5],
)
def test_a_file_with_an_unsafe_name_is_kept_under_another(tmp_path: Path, frozen_clock: FrozenClock, name: Any) -> None:
    """mailbox MB-62: inside the folder, with the wish in the entry."""
    host, _ = mailbox_pair(tmp_path, frozen_clock)
    encoded = base64.b64encode(b"kept").decode()
    text = name.replace("\0", "\x01") if isinstance(name, str) else name
    message = host.inbox.send("m", kind="chat", content={"attachments": [{"name": text, "data": encoded}]})
    [entry] = message.content["attachments"]
    assert entry["name"].startswith("attachment-1")
    assert (host.folder / entry["localPath"]).read_bytes() == b"kept"
    assert entry.get("originalName") == text
    assert len(stored(host)) == 1


@with_each("name", ["é" * 100, ":a", "a b", "..x", "x."])
def test_a_file_with_a_safe_name_keeps_it(tmp_path: Path, frozen_clock: FrozenClock, name: str) -> None:
    """mailbox MB-62: up to 200 bytes."""
    host, _ = mailbox_pair(tmp_path, frozen_clock)
    message = host.inbox.send("m", kind="chat", content={}, attachments=given(name))
    assert message.content["attachments"] == [{"name": name, "localPath": f"inbox/m/{name}"}]


@with_each(
    ("name", "ending"),
    [
        ("a/b.c", ".c"),
        ("a/b.123456789", ".123456789"),
        ("a/b.1234567890", ""),
        ("a/b.éa", ""),
        ("a/b.-a", ""),
        ("a/b", ""),
        (None, ""),
    ],
)
def test_a_made_up_name_has_the_ending_of_the_wish(
    tmp_path: Path, frozen_clock: FrozenClock, name: Any, ending: str
) -> None:
    """mailbox MB-62: where it is short and plain."""
    host, _ = mailbox_pair(tmp_path, frozen_clock)
    content = {"attachments": [{"name": name, "data": ""}]}
    message = host.inbox.send("m", kind="chat", content=content)
    assert message.content["attachments"][0]["name"] == f"attachment-1{ending}"


def test_equal_names_are_both_kept(host: HostMailbox) -> None:
    """mailbox MB-62"""
    host.inbox.send("m", kind="chat", content={}, attachments=given("a.txt", "a.txt", "A.TXT"))
    assert stored(host) == ["inbox/m/A-3.TXT", "inbox/m/a-2.txt", "inbox/m/a.txt"]


def test_a_refused_message_leaves_no_file(host: HostMailbox) -> None:
    """mailbox MB-61: those of the message that has the id stay."""
    host.inbox.send("m", kind="chat", content={}, attachments=given("a.txt"))
    with pytest.raises(AlreadyExists):
        host.inbox.send("m", kind="chat", content={}, attachments=given("a.txt", "b.txt"))
    with suppress(ZeroDivisionError), host.transaction() as together:
        together.inbox.send("n", kind="chat", content={}, attachments=given("c.txt"))
        raise ZeroDivisionError
    assert stored(host) == ["inbox/m/a.txt"]
    assert (host.folder / "inbox/m/a.txt").read_bytes() == b"bytes"
    assert os.listdir(host.folder / "inbox") == ["m"]  # noqa: PTH208 - names alone


def test_a_batch_that_is_refused_leaves_no_file(host: HostMailbox) -> None:
    """mailbox MB-61: also of the messages before the one that is refused, and what was there stays."""
    host.inbox.send("taken", kind="chat", content={}, attachments=given("a.txt"))
    batch = [NewMessage("chat", {}, name, attachments=given("b.txt")) for name in ("first", "taken")]
    with pytest.raises(AlreadyExists):
        host.inbox.send_many(batch)
    assert stored(host) == ["inbox/taken/a.txt"]
    assert os.listdir(host.folder / "inbox") == ["taken"]  # noqa: PTH208 - names alone


def test_a_file_that_cannot_have_its_name_refuses_its_message(host: HostMailbox) -> None:
    """mailbox MB-61: a directory stands there; nothing is stored."""
    planted = host.folder / "inbox" / "m" / "b.txt"
    planted.mkdir(parents=True)
    with pytest.raises(StateError):
        host.inbox.send("m", kind="chat", content={}, attachments=given("a.txt", "b.txt"))
    assert (host.inbox.find("m"), stored(host), planted.is_dir()) == (None, [], True)


def test_a_folder_without_attachments_has_nothing_to_tidy(host: HostMailbox) -> None:
    """mailbox MB-61: as in sessions of the original."""
    (host.folder / "inbox").rmdir()
    assert host.sweep.tidy() == 0


def test_a_delivery_without_files_warns_of_none(
    host: HostMailbox, agent: AgentMailbox, caplog: pytest.LogCaptureFixture
) -> None:
    """mailbox MB-65: nor does one whose files somebody has removed."""
    agent.outbox.send("plain", kind="chat", content={}, routing=PLACE)
    agent.outbox.send("m", kind="chat", content={}, routing=PLACE, files=given("a"))
    shutil.rmtree(host.folder / "outbox")
    assert host.outbox.drain(lambda _due: "p-1").delivered == 2
    assert caplog.records == []


def test_files_that_somebody_removes_while_they_are_cleared_are_no_reason_to_warn(
    host: HostMailbox, agent: AgentMailbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """mailbox MB-65."""
    agent.outbox.send("m", kind="chat", content={}, routing=PLACE, files=given("a"))
    happened = before(monkeypatch, attachments, "_remove", lambda: shutil.rmtree(host.folder / "outbox"))
    host.outbox.mark_delivered("m")
    assert happened
    assert caplog.records == []


def test_what_a_killed_call_left_is_replaced_or_removed(host: HostMailbox, frozen_clock: FrozenClock) -> None:
    """mailbox MB-61: by a message of that id, or by a sweep after an hour."""
    for name in ("m", "gone"):
        (host.folder / "inbox" / name).mkdir()
        (host.folder / "inbox" / name / "a.txt").write_text("old")
    host.inbox.send("m", kind="chat", content={}, attachments=given("a.txt"))
    moment = frozen_clock.now().timestamp()
    for name in ("m", "gone"):
        os.utime(host.folder / "inbox" / name, (moment, moment))
    assert host.sweep.tidy() == 0
    frozen_clock.advance(timedelta(hours=2))
    assert host.sweep.tidy() == 1
    assert stored(host) == ["inbox/m/a.txt"]
    assert (host.folder / "inbox/m/a.txt").read_bytes() == b"bytes"


def test_an_unsafe_message_id_names_no_folder(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-63: its files lie below a digest; an agent's are refused."""
    message = host.inbox.send("../../b", kind="chat", content={}, attachments=given("x"))
    assert message.content["attachments"][0]["localPath"].startswith("inbox/id-")
    assert len(stored(host)) == 1
    with pytest.raises(UnsafePath):
        agent.outbox.send("../../b", kind="chat", content={}, files=given("x"))


def test_files_of_an_agent_are_read_and_cleared_after_delivery(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-65: those of a message that is not delivered stay."""
    sent = agent.outbox.send("m", kind="chat", content={"text": "see"}, routing=PLACE, files=given("a.txt", "b.txt"))
    assert sent.content["files"] == ["a.txt", "b.txt"]
    found = host.outbox.files("m")
    assert ([(file.name, file.data) for file in found.files], found.skipped) == (
        [("a.txt", b"bytes"), ("b.txt", b"bytes")],
        (),
    )
    host.outbox.mark_failed("m", error="later")
    assert len(stored(host)) == 2
    host.outbox.mark_delivered("m")
    assert stored(host) == []


def test_a_missing_file_does_not_hold_a_message_back(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-65: it is named, and so is a link; the folder that cannot be cleared changes nothing."""
    agent.outbox.send("m", kind="chat", content={}, routing=PLACE, files=given("a", "b", "c"))
    folder = host.folder / "outbox" / "m"
    (folder / "a").unlink()
    (folder / "b").unlink()
    (folder / "b").symlink_to("/etc/passwd")
    (folder / "deeper").mkdir()
    found = host.outbox.files("m")
    assert [file.name for file in found.files] == ["c"]
    assert [name for name, _ in found.skipped] == ["'a'", "'b'"]
    assert host.outbox.drain(lambda _due: "p-1").delivered == 1
    assert ((folder / "deeper").is_dir(), (folder / "b").is_symlink(), (folder / "c").exists()) == (True, True, False)


@pytest.mark.parametrize(
    "planted", [*(pytest.param(name, marks=LEFT) for name in ("outbox", "outbox/m")), "outbox/m/a"]
)
def test_a_planted_link_leads_nowhere(host: HostMailbox, agent: AgentMailbox, tmp_path: Path, planted: str) -> None:
    """mailbox MB-64: nothing outside is read or removed, and the text is delivered."""
    outside = tmp_path / "outside"
    (outside / "m").mkdir(parents=True)
    for path in (outside / "a", outside / "m" / "a"):
        path.write_text("secret")
    agent.outbox.send("m", kind="chat", content={}, routing=PLACE, files=given("a"))
    path = host.folder / planted
    path.rename(tmp_path / "away")
    path.symlink_to({"outbox": outside, "outbox/m": outside / "m", "outbox/m/a": outside / "a"}[planted])
    assert host.outbox.files("m").files == ()
    assert host.outbox.drain(lambda _due: "p-1").delivered == 1
    assert sorted(found.read_text() for found in outside.rglob("a")) == ["secret", "secret"]


@LEFT
def test_a_planted_link_is_not_written_through(host: HostMailbox, tmp_path: Path) -> None:
    """mailbox MB-64: the message with the file is refused."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (host.folder / "inbox").rmdir()
    (host.folder / "inbox").symlink_to(outside)
    with pytest.raises(UnsafePath):
        host.inbox.send("m", kind="chat", content={}, attachments=given("a"))
    assert list(outside.iterdir()) == []
    assert host.inbox.find("m") is None


def test_a_mailbox_that_takes_no_bytes_of_files_takes_messages_without_files(host: HostMailbox) -> None:
    """mailbox MB-13."""
    settings = Settings(limits=Limits(attachment=0, attachments_total=0))
    strict = HostMailbox.open(host.folder, settings=settings)
    strict.inbox.send("empty", kind="chat", content={})
    with pytest.raises(PayloadTooLarge):
        strict.inbox.send("full", kind="chat", content={}, attachments=[Attachment("a", b"1")])


def test_bounds_hold(host: HostMailbox) -> None:
    """mailbox MB-13: what is past one stores no message and no file; those that may grow are settings."""
    limits = Limits(
        attachment=4, attachments=2, attachments_total=6, agent_state=3, destinations=1, message_content=1000
    )
    settings = Settings(limits=limits)
    host, agent = HostMailbox.open(host.folder, settings=settings), AgentMailbox.open(host.folder, settings=settings)
    host.inbox.send("fits", kind="chat", content={}, attachments=[Attachment("a", b"1234"), Attachment("b", b"12")])
    agent.state.put("k", "123")
    before = (stored(host), sql(inbound(host), "SELECT count(*) FROM messages_in"))
    channels = [NewDestination(name, "channel", channel_type="slack", platform_id="C") for name in "ab"]
    embedded = {"attachments": [{"name": "a", "data": base64.b64encode(b"12345").decode()}]}
    files = [
        [Attachment("a", b"12345")],
        [Attachment(name, b"1") for name in "abc"],
        [Attachment("a", b"1234"), Attachment("b", b"123")],
    ]
    too_much: list[Callable[[], object]] = [
        *(partial(host.inbox.send, kind="chat", content={}, attachments=one) for one in files),
        *(partial(agent.outbox.send, kind="chat", content={}, files=one) for one in files),
        partial(host.inbox.send, kind="chat", content=embedded),
        partial(host.inbox.send, kind="chat", content="x" * 1000),
        partial(agent.state.put, "k", "1234"),
        partial(host.routing.replace_destinations, channels),
    ]
    for call in too_much:
        with pytest.raises(PayloadTooLarge):
            call()
    odd: list[Callable[[], object]] = [
        partial(host.inbox.send, "x" * 513, kind="chat", content={}),
        partial(host.inbox.send, kind="k" * 65, content={}),
        partial(agent.outbox.send, kind="chat", content=nested(65)),
        partial(agent.state.put, "k" * 257, "v"),
    ]
    for call in odd:
        with pytest.raises(InvalidValue):
            call()
    assert (stored(host), sql(inbound(host), "SELECT count(*) FROM messages_in")) == before
    assert sql(outbound(host), "SELECT count(*) FROM messages_out") == [(0,)]
    assert agent.state.get("k") == "123"


def nested(levels: int) -> Any:
    return [] if levels == 1 else [nested(levels - 1)]


def test_a_path_that_cannot_be_read_is_refused(host: HostMailbox, tmp_path: Path) -> None:
    """mailbox MB-60: before anything is stored."""
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(StateError):
            host.inbox.send(kind="chat", content={}, attachments=[Attachment("a", path)])
    assert send(host).seq == 2
