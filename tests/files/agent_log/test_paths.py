"""Names of files: slugs, session ids, and what must never become a path."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from support.agent_log.logs import SESSION, contents_below, path_of
from support.each import with_each

from lastlight_state.errors import InvalidValue, ReservedName, UnsafePath
from lastlight_state.files.agent_log import AgentLog, Cwd, Outcome, Slug, slug_for_cwd
from lastlight_state.files.agent_log.paths import checked_session_id, checked_slug, readable_id, scope_of, session_of

UNSAFE_IDS = ["", "a.b", "a/b", "é", "a b", "../x", "a\n", "a\0", "x" * 201, ".", ".."]
UNSAFE_SLUGS = ["", ".", "..", "a/b", "a\0", "x" * 256, "é" * 128, "\ud800"]


@with_each(
    ("cwd", "slug"),
    [
        ("/app", "-app"),
        ("/home/agent/workspace", "-home-agent-workspace"),
        ("/home/agent/workspace/", "-home-agent-workspace-"),
        ("relative/x", "relative-x"),
        ("/a b/c.d", "-a b-c.d"),
        ("//x", "--x"),
        ("/tmp/../etc", "-tmp-..-etc"),
        (r"C:\x", r"C:\x"),
        ("", ""),
    ],
)
def test_slashes_become_dashes_and_nothing_else_changes(cwd: str, slug: str) -> None:
    """agent-log L-10."""
    assert slug_for_cwd(cwd) == slug


@given(st.text(max_size=30))
def test_a_slug_never_holds_a_separator(cwd: str) -> None:
    """agent-log L-10, L-11."""
    assert "/" not in slug_for_cwd(cwd)
    assert len(slug_for_cwd(cwd)) == len(cwd)


@with_each("slug", UNSAFE_SLUGS)
def test_an_unsafe_slug_is_refused_and_nothing_is_created(log: AgentLog, tmp_path: Path, slug: str) -> None:
    """agent-log L-11."""
    with pytest.raises(UnsafePath):
        log.writer.open(place=Slug(slug), session_id="s-1")
    with pytest.raises(UnsafePath):
        log.sessions.find("s-1", slug=slug)
    assert contents_below(tmp_path) == []


@with_each("slug", ["x" * 255, "é" * 127 + "x"])
def test_a_slug_may_be_as_long_as_a_name_can_be(slug: str) -> None:
    """agent-log L-11."""
    assert checked_slug(slug) == slug


def test_a_working_directory_without_a_name_is_refused(log: AgentLog, tmp_path: Path) -> None:
    """agent-log L-10, L-11: the slug of an empty directory is empty."""
    with pytest.raises(UnsafePath):
        log.writer.open(place=Cwd(""))
    with log.writer.open(prompt="x") as writer, pytest.raises(UnsafePath):
        writer.feed({**SESSION, "cwd": ".."})
    assert contents_below(tmp_path) == []


@with_each("session_id", UNSAFE_IDS)
def test_an_unsafe_id_is_refused_and_nothing_is_created(log: AgentLog, tmp_path: Path, session_id: str) -> None:
    """agent-log L-12, L-61, L-82."""
    with pytest.raises(UnsafePath):
        log.writer.open(place=Cwd("/app"), session_id=session_id)
    with log.writer.open(place=Cwd("/app"), prompt="x") as writer:
        with pytest.raises(UnsafePath):
            writer.feed({**SESSION, "id": session_id})
        with pytest.raises(UnsafePath):
            writer.finish_failed(session_id, Outcome("error_x"))
        assert writer.session_id is None
    assert contents_below(tmp_path) == []


@with_each("session_id", ["a", "A-Z_09", "x" * 200, "agentic", "-", "exec-chat-slack_C1-1770120000000"])
def test_a_safe_id_is_its_file_name(log: AgentLog, session_id: str) -> None:
    """agent-log L-12, L-82."""
    with log.writer.open(place=Cwd("/app"), session_id=session_id, prompt="x") as writer:
        writer.finish(Outcome())
        assert writer.path == path_of(log, session_id, "-app")
    assert path_of(log, session_id, "-app").is_file()


def test_names_of_sub_agents_are_kept_for_them(log: AgentLog, tmp_path: Path) -> None:
    """agent-log L-13."""
    with pytest.raises(ReservedName):
        log.writer.open(place=Cwd("/app"), session_id="agent-1")
    with log.writer.open(place=Cwd("/app"), prompt="x") as writer, pytest.raises(ReservedName):
        writer.feed({**SESSION, "id": "agent-1"})
    assert contents_below(tmp_path) == []


def test_a_slug_directory_that_leads_out_of_the_tree_is_refused(log: AgentLog, tmp_path: Path) -> None:
    """agent-log L-15."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (log.root / "projects").mkdir(parents=True)
    (log.root / "projects" / "-app").symlink_to(outside)
    with log.writer.open(place=Cwd("/app"), session_id="s-1", prompt="x") as writer, pytest.raises(UnsafePath):
        writer.finish(Outcome())
    assert list(outside.iterdir()) == []
    (outside / "s-1.jsonl").write_text('{"type": "user"}\n')
    assert log.sessions.locations("s-1", slug="-app") == ()


def test_a_log_that_is_a_link_is_neither_written_nor_read(log: AgentLog, tmp_path: Path) -> None:
    """agent-log L-15."""
    outside = tmp_path / "outside"
    outside.write_bytes(b'{"type":"user"}\n')
    path = path_of(log)
    path.parent.mkdir(parents=True)
    path.symlink_to(outside)
    place = Slug(path.parent.name)
    with log.writer.open(place=place, session_id="s-1", prompt="x") as writer, pytest.raises(UnsafePath):
        writer.finish(Outcome())
    assert outside.read_bytes() == b'{"type":"user"}\n'
    assert log.sessions.find("s-1") is None


def test_new_logs_are_private(log: AgentLog) -> None:
    """agent-log L-15."""
    with log.writer.open(place=Cwd("/app"), session_id="s-1", prompt="x") as writer:
        writer.finish(Outcome())
    path = path_of(log, slug="-app")
    assert [entry.stat().st_mode & 0o777 for entry in (log.root, path.parent, path)] == [0o700, 0o700, 0o600]


def test_agents_in_app_chat_and_all_others_work_in_a_sandbox() -> None:
    """agent-log L-14."""
    assert (scope_of("-app"), scope_of("-app-"), scope_of("-home-agent-workspace")) == ("chat", "sandbox", "sandbox")


@with_each(
    ("name", "session_id"),
    [
        ("s-1.jsonl", "s-1"),
        ("a.b.jsonl", "a.b"),
        ("agent-1.jsonl", None),
        ("s-1.repaired.jsonl", None),
        ("s-1.jsonl.damaged-20260101", None),
        ("s-1.rejects", None),
        ("s-1.tmp.jsonl", None),
        (".hidden.jsonl", None),
        (".jsonl", None),
        ("s-1.txt", None),
        ("s-1", None),
    ],
)
def test_only_main_logs_are_sessions(name: str, session_id: str | None) -> None:
    """agent-log L-90, L-113."""
    assert session_of(name) == session_id


def test_an_id_that_is_no_text_is_an_invalid_value() -> None:
    with pytest.raises(InvalidValue):
        checked_session_id(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue):
        checked_slug(None)  # type: ignore[arg-type]
    with pytest.raises(UnsafePath):
        readable_id("")
