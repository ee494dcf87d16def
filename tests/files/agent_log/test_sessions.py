"""Finding and listing sessions by their files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.agent_log.logs import agent_log, contents_below, path_of, put
from support.each import with_each
from support.jsonl.lines import counted

from lastlight_state.errors import BackendUnavailable, InvalidValue, NotFound, UnsafePath
from lastlight_state.files.agent_log import AgentLog

NOBODY = 65_534


def touch(log: AgentLog, session_id: str, seconds: float, slug: str = "-w") -> Path:
    """A log changed at that time."""
    path = put(log, "{}\n", session_id, slug)
    os.utime(path, (seconds, seconds))
    return path


def ids(log: AgentLog, **options: object) -> list[str]:
    return [file.id for file in log.sessions.list(**options)]  # type: ignore[arg-type]


def test_sessions_are_listed_newest_first_with_ties_by_slug_and_id(log: AgentLog) -> None:
    """agent-log L-90."""
    for session_id, seconds, slug in (
        ("b", 5, "-w"),
        ("a", 5, "-w"),
        ("z", 5, "-a"),
        ("new", 9, "-w"),
        ("old", 1, "-a"),
    ):
        touch(log, session_id, seconds, slug)
    assert ids(log) == ["new", "z", "a", "b", "old"]
    newest = log.sessions.list(limit=1).items[0]
    assert (newest.slug, newest.scope, newest.bytes, newest.safe) == ("-w", "sandbox", 3, True)
    assert newest.modified_at == datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC)
    assert newest.path == path_of(log, "new", "-w")


def test_pages_neither_skip_nor_repeat_while_files_change(log: AgentLog) -> None:
    """agent-log L-90."""
    for n in range(7):
        touch(log, f"s{n}", 100 + n // 2)
    page = log.sessions.list(limit=3)
    touch(log, "newer", 999)
    seen = [file.id for file in page]
    while page.next_page_token:
        page = log.sessions.list(limit=3, page_token=page.next_page_token)
        seen += [file.id for file in page]
    assert sorted(seen) == [f"s{n}" for n in range(7)]
    assert len(page) == 1
    assert log.sessions.list(limit=8).next_page_token is None


def test_scope_and_slug_filter(log: AgentLog) -> None:
    """agent-log L-14, L-90."""
    touch(log, "c", 1, "-app")
    touch(log, "w", 2, "-w")
    assert (ids(log, scope="chat"), ids(log, scope="sandbox"), ids(log, scope="all")) == (["c"], ["w"], ["w", "c"])
    assert (ids(log, slug="-app"), ids(log, slug="-app", scope="sandbox"), ids(log, slug="none")) == (["c"], [], [])


def test_a_listing_reads_no_log(log: AgentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-120."""
    touch(log, "a", 1)
    calls = counted(monkeypatch, os, "open", "read", "pread")
    assert ids(log) == ["a"]
    assert log.sessions.find("a") is not None
    assert calls == []


def test_without_a_directory_there_is_nothing_and_nothing_is_made(log: AgentLog, tmp_path: Path) -> None:
    """agent-log L-90."""
    page = log.sessions.list()
    assert (page.items, page.next_page_token, page.skipped) == ((), None, 0)
    assert log.sessions.find("a") is None
    assert contents_below(tmp_path) == []


def test_what_cannot_be_looked_at_is_skipped_and_hides_nothing_else(log: AgentLog, tmp_path: Path) -> None:
    """agent-log L-15, L-90."""
    touch(log, "good", 1)
    projects = log.root / "projects"
    (projects / "plain-file").write_text("")
    (projects / "dangling").symlink_to(tmp_path / "nowhere")
    (projects / "loop").symlink_to(projects / "loop")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "stranger.jsonl").write_text("{}\n")
    (projects / "outside").symlink_to(outside)
    (projects / "inside").symlink_to(projects / "-w")
    (projects / os.fsdecode(b"bad\xff")).mkdir()
    (projects / "-w" / "dangling.jsonl").symlink_to(tmp_path / "nowhere")
    (projects / "-w" / "linked.jsonl").symlink_to(outside / "stranger.jsonl")
    (projects / "-w" / "directory.jsonl").mkdir()
    (projects / "-w" / os.fsdecode(b"bad\xff.jsonl")).write_text("")
    (projects / "-w" / "agent-1.jsonl").write_text("")
    page = log.sessions.list()
    assert [(file.slug, file.id) for file in page] == [("-w", "good"), ("inside", "good")]
    assert page.skipped == 5 + 2 * 4


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A directory that everybody may enter; and the test is nobody in particular."""
    root = Path(tempfile.mkdtemp(prefix="ll-", dir="/tmp"))
    root.chmod(0o777)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    yield root
    if user == 0:
        os.seteuid(0)
    for directory in root.rglob("*"):
        directory.chmod(0o700)
    shutil.rmtree(root)


def test_an_unreadable_directory_is_skipped_and_hides_nothing_else(unprivileged: Path) -> None:
    """agent-log L-90."""
    log = agent_log(unprivileged)
    touch(log, "good", 1)
    touch(log, "hidden", 2, "-locked")
    locked = log.root / "projects" / "-locked"
    locked.chmod(0)
    page = log.sessions.list()
    assert ([file.id for file in page], page.skipped) == (["good"], 1)
    assert log.sessions.find("hidden") is None
    (log.root / "projects").chmod(0)
    with pytest.raises(BackendUnavailable):
        log.sessions.list()
    assert log.sessions.find("good", slug="-w") is None


def test_ids_that_we_would_not_write_are_listed_as_such_and_can_be_read(log: AgentLog) -> None:
    """agent-log L-90."""
    touch(log, "a.b c", 1)
    assert [(file.id, file.safe) for file in log.sessions.list()] == [("a.b c", False)]
    assert len(log.reader.read("a.b c").lines) == 1


def test_copies_of_a_repair_are_no_sessions(log: AgentLog) -> None:
    """agent-log L-113."""
    path = touch(log, "s", 1)
    for name in ("s.repaired.jsonl", "s.jsonl.damaged-20260101T000000", "s.rejects", "s.tmp.jsonl", ".s.jsonl"):
        path.with_name(name).write_text("{}\n")
    assert ids(log) == ["s"]


def test_an_id_in_two_slugs_is_found_where_it_changed_last(log: AgentLog) -> None:
    """agent-log L-91."""
    touch(log, "s", 1, "-b")
    touch(log, "s", 1, "-a")
    touch(log, "s", 7, "-c")
    assert [file.slug for file in log.sessions.locations("s")] == ["-c", "-a", "-b"]
    assert log.sessions.get("s").slug == "-c"
    assert log.sessions.get("s", slug="-b").slug == "-b"
    assert len(log.sessions.list()) == 3


def test_an_unknown_session_is_none_or_not_found(log: AgentLog) -> None:
    """agent-log L-91."""
    assert log.sessions.find("s") is None
    assert log.sessions.locations("s") == ()
    with pytest.raises(NotFound) as caught:
        log.sessions.get("s")
    assert (caught.value.kind, caught.value.key) == ("agent_session", "s")


@with_each("session_id", ["", "a/b", "../x", "a\0", "x" * 300])
def test_an_id_that_names_no_file_is_unsafe(log: AgentLog, session_id: str) -> None:
    """agent-log L-12."""
    with pytest.raises(UnsafePath):
        log.sessions.find(session_id)


def test_limits_scopes_and_tokens_are_checked(log: AgentLog) -> None:
    """agent-log L-90."""
    for n in range(3):
        touch(log, f"s{n}", n)
    token = log.sessions.list(limit=1).next_page_token
    assert token is not None
    bad_calls: list[dict[str, object]] = [
        {"limit": 0},
        {"limit": 501},
        {"scope": "everything"},
        {"page_token": "?"},
        {"page_token": token[:-4]},
        {"page_token": token, "scope": "chat"},
        {"page_token": "bnVsbA"},
        {"page_token": "W1siYWxsIixudWxsXSwieCIsIi13IiwiczEiXQ"},
    ]
    for options in bad_calls:
        with pytest.raises(InvalidValue):
            ids(log, **options)
