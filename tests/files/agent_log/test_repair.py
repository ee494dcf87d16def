"""Checking a log and sealing its torn tail."""

from __future__ import annotations

import pytest
from support.agent_log.logs import SANDBOX, agent_log, ended, path_of, put

from lastlight_state.errors import NotFound, UnsafePath
from lastlight_state.files.agent_log import AgentLog, Slug

USER = (
    b'{"type":"user","message":{"role":"user","content":"hi"},"timestamp":"2026-02-03T12:00:01.000Z","sessionId":"s-1"}'
)
RESULT = (
    b'{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"x"}]},'
    b'"timestamp":"2026-02-03T12:00:01.000Z","sessionId":"s-1"}'
)


def test_a_check_counts_what_is_wrong_and_says_where(log: AgentLog) -> None:
    """agent-log L-110."""
    other = RESULT.replace(b"c1", b"c2")
    path = put(log, b"\n".join([USER, USER[:20] + RESULT, b"null", RESULT, other, b"", USER[:30]]))
    before = path.read_bytes()
    found = log.repair.check("s-1")
    assert (found.lines, found.records, found.recovered) == (6, 4, 1)
    assert [(issue.offset, issue.reason) for issue in found.issues] == [
        (len(USER) + 1, "torn"),
        (before.index(b"null"), "not_object"),
    ]
    assert (found.issue_count, found.torn_tail) == (2, True)
    assert (found.missing_raw, found.repeated_results) == ((), ("c1",))
    assert path.read_bytes() == before


def test_a_check_names_the_untruncated_results_that_are_gone(log: AgentLog) -> None:
    """agent-log L-110."""
    with log.writer.open(place=SANDBOX, session_id="s-1", sync="os") as writer:
        writer.feed_many([ended("c1", "x" * 70_000), ended("c2", "y" * 70_000)])
    first, second = log.raw.list("s-1")
    assert log.repair.check("s-1").missing_raw == ()
    (path_of(log).with_suffix("") / "raw" / f"{first.sha256}.txt").unlink()
    assert log.repair.check("s-1").missing_raw == (first.sha256,)
    assert second.sha256 not in log.repair.check("s-1").missing_raw


def test_check_and_seal_change_nothing_of_a_healthy_log(log: AgentLog) -> None:
    """agent-log L-110."""
    path = put(log, USER + b"\n" + RESULT + b"\n")
    before = path.read_bytes(), path.stat().st_mtime_ns
    found = log.repair.check("s-1")
    assert (found.lines, found.records, found.issue_count, found.torn_tail) == (2, 2, 0, False)
    assert log.repair.seal("s-1") is False
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_a_torn_tail_is_sealed_once_and_the_next_line_stands_alone(log: AgentLog) -> None:
    """agent-log L-110; maintenance OP-66."""
    path = put(log, USER + b"\n" + USER[:40])
    assert (log.repair.seal("s-1"), log.repair.seal("s-1")) == (True, False)
    with log.writer.open(place=SANDBOX, session_id="s-1", sync="os") as writer:
        writer.append([{"type": "x"}])
    assert path.read_bytes() == USER + b"\n" + USER[:40] + b'\n{"type":"x"}\n'


def test_the_log_of_one_directory_is_checked_when_it_is_named(log: AgentLog) -> None:
    """agent-log L-91, L-110."""
    put(log, USER + b"\n", slug="-a")
    put(log, USER + b"\nx\n", slug="-b")
    assert [log.repair.check("s-1", slug=slug).issue_count for slug in ("-a", "-b")] == [0, 1]
    assert log.repair.seal("s-1", slug="-a") is False


def test_what_is_no_log_is_neither_checked_nor_sealed(log: AgentLog) -> None:
    """agent-log L-110."""
    for call in (log.repair.check, log.repair.seal):
        with pytest.raises(NotFound):
            call("unknown")
        with pytest.raises(UnsafePath):
            call("../x")
    assert not log.root.exists()


def test_copies_rejects_and_second_names_are_no_sessions(log: AgentLog) -> None:
    """agent-log L-113: no listing, no search and no summary shows them."""
    path = put(log, USER + b"\n")
    for name in (
        "s-1.repaired.jsonl",
        "s-1.repaired.jsonl.rejects",
        "s-1.jsonl.damaged-20260203T120030.000Z",
        "s-1.jsonl.damaged-20260203T120030.000Z.rejects",
        ".s-1.jsonl.damaged-20260203T120030.000Z.tmp",
    ):
        path.with_name(name).write_bytes(USER + b"\n")
    page = log.sessions.list()
    assert ([file.id for file in page], page.skipped) == (["s-1"], 0)
    assert len(log.reader.search("hi", scope="all")) == 1
    assert log.sessions.summary("s-1").message_count == 1


def test_one_directory_is_read_when_it_is_named(log: AgentLog) -> None:
    """agent-log L-91: by every reader of lines."""
    put(log, USER + b"\n", slug="-a")
    put(log, RESULT + b"\n" + RESULT + b"\n", slug="-b")
    reader = log.reader
    for slug, lines in (("-a", 1), ("-b", 2)):
        assert len(reader.read("s-1", slug=slug).lines) == lines
        assert len(reader.tail("s-1", slug=slug).lines) == lines
        assert len(reader.messages("s-1", slug=slug).messages) == lines
        assert len(list(reader.scan("s-1", slug=slug))) == lines
    assert agent_log(log.root.parent).sessions.get("s-1", slug=Slug("-a").name).slug == "-a"
