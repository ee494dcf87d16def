"""A disk that fails at any one call: an error of the library, or the same answer; nothing held, nothing half."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.agent_log.logs import SESSION, agent_log, call, contents_below, ended, path_of, put, said, text
from support.each import with_each
from support.failing_disk import failures

from lastlight_state.errors import BackendUnavailable, NotFound, StateError
from lastlight_state.files.agent_log import AgentLog, repair

Call = Callable[[AgentLog], Any]

LONG = "a result\n" * 10_000
DIGEST = hashlib.sha256(LONG.encode()).hexdigest()


def _write(log: AgentLog, session_id: str = "s-1", words: str = LONG) -> None:
    with log.writer.open(prompt="go", sync="end") as writer:
        writer.feed_many([{**SESSION, "id": session_id}, said(call("c")), ended("c", words), said(text("done"))])
        writer.sync()


@pytest.fixture
def filled(log: AgentLog) -> AgentLog:
    """A session with a long result and a sub-agent, and another session that is torn."""
    _write(log)
    agent = path_of(log).with_suffix("") / "subagents" / "agent-1.jsonl"
    agent.parent.mkdir()
    agent.write_bytes(path_of(log).read_bytes())
    beside = path_of(log, "agent-2")
    beside.write_bytes(path_of(log).read_bytes())
    put(log, path_of(log).read_bytes() + b"?\n{torn", "s-2")
    return log


READS: dict[str, Call] = {
    "find": lambda log: log.sessions.get("s-1").path,
    "read": lambda log: log.reader.read("s-1"),
    "read torn": lambda log: log.reader.read("s-2"),
    "messages": lambda log: log.reader.messages("s-1"),
    "tail": lambda log: log.reader.tail("s-2"),
    "scan": lambda log: list(log.reader.scan("s-1")),
    "raws": lambda log: log.raw.list("s-1"),
    "check": lambda log: log.repair.check("s-2"),
}
#: What leaves out what cannot be read, or tells it as damage.
LISTS: dict[str, Call] = {
    "list": lambda log: log.sessions.list(),
    "summary": lambda log: log.sessions.summary("s-1"),
    "summaries": lambda log: log.sessions.summaries(log.sessions.list()),
    "read agents": lambda log: log.reader.read("s-1", include_agents=True),
    "search": lambda log: log.reader.search("done"),
    "raw": lambda log: log.raw.get("s-1", DIGEST),
    "verify": lambda log: log.raw.verify("s-1"),
}


def _again(log: AgentLog) -> AgentLog:
    """The same files, seen by somebody who knows nothing of them."""
    return agent_log(log.root.parent)


@with_each("name", READS)
def test_what_cannot_be_read_is_unavailable_and_never_another_answer(filled: AgentLog, name: str) -> None:
    """agent-log L-24: whichever call of the system fails; the next reading is as ever."""
    work = READS[name]
    expected = work(filled)
    for failure in failures(filled.root, work, lambda _: _again(filled)):
        told = isinstance(failure.outcome, BackendUnavailable)
        gone = failure.call in ("stat", "lstat") and isinstance(failure.outcome, NotFound)
        assert told or gone or failure.outcome == expected, failure
    assert work(filled) == work(_again(filled)) == expected


@with_each("name", [*READS, *LISTS])
@with_each("code", [errno.EIO, errno.ENOENT])
def test_what_is_taken_away_while_it_is_read_is_an_error_of_the_library(filled: AgentLog, name: str, code: int) -> None:
    """agent-log L-24: or it is left out."""
    work = (READS | LISTS)[name]
    for failure in failures(filled.root, work, lambda _: _again(filled), code):
        assert isinstance(failure.outcome, StateError) or not isinstance(failure.outcome, Exception), failure
    assert work(filled) == work(_again(filled))


def _remove(log: AgentLog) -> bool:
    return repair.remove(path_of(log), lambda *_: True)


WRITES: dict[str, Call] = {
    "write": _write,
    "append": lambda log: _write(log, words="again" * 20_000),
    "seal": lambda log: log.repair.seal("s-1"),
    "remove": _remove,
}


@with_each("name", WRITES)
def test_what_cannot_be_written_is_told_and_can_be_repeated(tmp_path: Path, name: str) -> None:
    """agent-log L-24, L-72, L-121: no lock is held on, nothing half is left, and no reference without its file."""
    logs: list[AgentLog] = []

    def prepared(failing: int) -> AgentLog:
        log = agent_log(tmp_path / str(failing))
        if name != "write":
            _write(log)
        if name == "seal":
            put(log, path_of(log).read_bytes() + b"{torn")
        logs.append(log)
        return log

    found = list(failures(tmp_path, WRITES[name], prepared))
    assert found
    for failure, log in zip(found, logs, strict=False):
        assert isinstance(failure.outcome, StateError) or not isinstance(failure.outcome, Exception), failure
        if failure.call != "unlink":
            assert [left.name for left in contents_below(log.root) if left.suffix == ".tmp"] == [], failure
        WRITES[name](log)
        if name == "remove":
            assert contents_below(path_of(log).parent) == [], failure
        else:
            assert log.raw.verify("s-1").missing == (), failure
