"""Search over the messages of many sessions."""

from __future__ import annotations

import os
from typing import Any

import pytest
from support.agent_log.logs import put
from support.each import with_each

from lastlight_state.codec import dump_line
from lastlight_state.errors import InvalidValue
from lastlight_state.files.agent_log import AgentLog


def line(content: Any) -> bytes:
    return dump_line(
        {"type": "user", "message": {"role": "user", "content": content}, "timestamp": "2026-02-03T10:00:00Z"}
    )


def session(log: AgentLog, session_id: str, seconds: float, *contents: Any, slug: str = "-w") -> None:
    path = put(log, b"".join(map(line, contents)), session_id, slug)
    os.utime(path, (seconds, seconds))


def test_a_text_is_found_whatever_its_case_in_the_newest_sessions_first(log: AgentLog) -> None:
    """agent-log L-98."""
    session(log, "old", 1, "a NEEDLE here", "nothing")
    session(log, "new", 2, "nothing", [{"type": "tool_result", "tool_use_id": "c", "content": "Needle needle"}])
    session(log, "chat", 3, "needle", slug="-app")
    hits = log.reader.search("needle")
    assert [(hit.session_id, hit.role, hit.snippet) for hit in hits] == [
        ("new", "tool", "Needle needle"),
        ("old", "user", "a NEEDLE here"),
    ]
    assert (hits[0].slug, hits[0].offset, hits[0].part) == ("-w", len(line("nothing")), 0)
    assert hits[0].timestamp is not None
    assert [hit.session_id for hit in log.reader.search("needle", scope="chat")] == ["chat"]
    assert len(log.reader.search("needle", scope="all")) == 3


def test_a_snippet_shows_what_stands_around(log: AgentLog) -> None:
    """agent-log L-98."""
    session(log, "s", 1, "b" * 100 + "İx.+" + "a" * 200)
    assert log.reader.search("X.+")[0].snippet == "b" * 59 + "İx.+" + "a" * 120


def test_sessions_and_hits_are_bounded(log: AgentLog) -> None:
    """agent-log L-98."""
    for n in range(5):
        session(log, f"s{n}", n, "needle one", "needle two")
    assert [hit.session_id for hit in log.reader.search("needle", sessions=2)] == ["s4", "s4", "s3", "s3"]
    assert [hit.session_id for hit in log.reader.search("needle", limit=3)] == ["s4", "s4", "s3"]


def test_what_is_damaged_or_no_text_is_passed_over(log: AgentLog) -> None:
    """agent-log L-5, L-98."""
    put(log, b'needle\n{"role":"x","content":["needle"]}\n{"type":"result","result":"needle"}\n', slug="-w")
    assert log.reader.search("needle") == []


def test_a_session_that_vanishes_meanwhile_hides_nothing(log: AgentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-90, L-98."""
    session(log, "old", 1, "needle")
    session(log, "new", 2, "needle")
    real, [new] = os.open, log.root.rglob("new.jsonl")

    def vanishing(path: Any, *arguments: Any, **options: Any) -> int:
        new.unlink(missing_ok=True)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", vanishing)
    assert [hit.session_id for hit in log.reader.search("needle")] == ["old"]


@with_each("options", [{"text": ""}, {"limit": 0}, {"limit": 501}, {"sessions": 0}, {"sessions": 501}])
def test_an_empty_text_and_unbounded_searches_are_refused(log: AgentLog, options: dict[str, Any]) -> None:
    """agent-log L-98."""
    with pytest.raises(InvalidValue):
        log.reader.search(**{"text": "x", **options})
