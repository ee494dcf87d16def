from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import STATES, Said, Target, call_on, files_of, lastlight_state
from support.each import with_each
from support.processes import started
from support.workflows.steps import Raw

from lastlight_state.cli.commands import log
from lastlight_state.cli.program import run
from lastlight_state.cli.views.logs import source_of
from lastlight_state.files.agent_log import Cwd
from lastlight_state.store import StateStore
from lastlight_state.testing.databases import Database
from lastlight_state.workflows import Trigger

FIRST, SECOND = "architect-1", "executor-1"
PROGRAM = [sys.executable, "-c", "from lastlight_state.cli import main; main()"]


@dataclass(frozen=True)
class Logged:
    """A running run of two executions, each with a session of three records."""

    store: StateStore
    words: tuple[str, ...]
    run: str
    execution: str
    folder: Path

    def path(self, session_id: str) -> Path:
        return self.folder / "agent-sessions" / "projects" / "-work" / f"{session_id}.jsonl"


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message_end", "message": {"role": "assistant", "content": list(blocks)}}


def write(store: StateStore, session_id: str) -> None:
    with store.agent_log.writer.open(place=Cwd("/work"), session_id=session_id, prompt=f"Do {session_id}.") as log:
        call = {"type": "toolCall", "id": "t1", "name": "bash", "arguments": {"command": "ls"}}
        log.feed(assistant({"type": "text", "text": "Looking.\nAround."}, call))
        log.feed({"type": "tool_execution_end", "toolCallId": "t1", "result": "no such file", "isError": True})


@pytest.fixture
def logged(database: Database) -> Iterator[Logged]:
    with database.open() as store:
        run_id = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
        first = store.workflows.executions.start("wf:architect", run_id=run_id, session_id=FIRST)
        write(store, FIRST)
        store.workflows.executions.finish(first.id, "succeeded")
        database.clock.advance(seconds=1)
        store.workflows.executions.start("wf:executor", run_id=run_id, session_id=SECOND)
        write(store, SECOND)
        flags = ("--url", database.url, "--state-dir", str(database.state_dir))
        yield Logged(store, flags, run_id, first.id, database.state_dir)


def records_of(said: Said) -> list[tuple[str, str]]:
    """Session and type of each record, of the objects that ``--json`` prints before the last one."""
    *records, last = [json.loads(line) for line in said.out.splitlines()]
    assert last["records"] == len(records)
    return [(record["session_id"], record["record"]["type"]) for record in records]


def test_the_log_of_a_run_is_that_of_its_sessions_in_the_order_they_began(logged: Logged) -> None:
    """maintenance OP-71, OP-72."""
    said = lastlight_state("log", logged.run, *logged.words, "--json")
    types = ["user", "assistant", "user"]
    assert records_of(said) == [(FIRST, kind) for kind in types] + [(SECOND, kind) for kind in types]
    assert json.loads(said.out.splitlines()[-1])["files"] == [str(logged.path(FIRST)), str(logged.path(SECOND))]


@pytest.mark.parametrize("which", ["execution", "session"])
def test_the_log_of_an_execution_is_that_of_its_session(which: str, logged: Logged) -> None:
    """maintenance OP-72."""
    key = logged.execution if which == "execution" else FIRST
    said = lastlight_state("log", key, *logged.words, "--json")
    assert {session for session, _ in records_of(said)} == {FIRST}


def test_people_get_one_line_for_each_record(logged: Logged) -> None:
    """maintenance OP-71."""
    said = lastlight_state("log", FIRST, *logged.words)
    at = "2026-02-03T12:34:56.789Z"
    assert said.out.splitlines() == [
        f"{at}  user       Do {FIRST}.",
        f'{at}  assistant  Looking.\\nAround. -> bash {{"command":"ls"}}',
        f"{at}  tool       failed: no such file",
    ]
    assert said.err == f"session {FIRST}: {logged.path(FIRST)}\n"


def test_limit_keeps_the_last_of_each_session(logged: Logged) -> None:
    """maintenance OP-72."""
    said = lastlight_state("log", logged.run, *logged.words, "--limit", "1", "--json")
    assert records_of(said) == [(FIRST, "user"), (SECOND, "user")]
    assert lastlight_state("log", logged.run, *logged.words, "--limit", "0").code == 2


def test_records_are_chosen_by_type_before_they_are_counted(logged: Logged) -> None:
    """maintenance OP-72."""
    said = lastlight_state("log", logged.run, *logged.words, "--type", "assistant", "--limit", "1", "--json")
    assert records_of(said) == [(FIRST, "assistant"), (SECOND, "assistant")]
    said = lastlight_state("log", logged.run, *logged.words, "--type", "user", "--limit", "1", "--json")
    assert records_of(said) == [(FIRST, "user"), (SECOND, "user")]
    none = lastlight_state("log", logged.run, *logged.words, "--type", "no-such-type")
    assert (none.code, none.out) == (0, "")
    assert "(no records)" in none.err


def test_raw_lines_are_those_of_the_file_byte_for_byte(logged: Logged) -> None:
    """maintenance OP-72."""
    logged.path(FIRST).write_bytes('{"type":"user", "message":"\\ud83d é","timestamp":"x","sessionId":"y"}\n'.encode())

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        assert run(["log", FIRST, *logged.words, "--raw"]) == 0
    assert out.buffer.getvalue() == logged.path(FIRST).read_bytes()
    for more in ((), ("--json",)):
        said = lastlight_state("log", FIRST, *logged.words, "--raw", *more)
        assert said.out.encode() == logged.path(FIRST).read_bytes()


ODD: list[Any] = [
    None, True, -1, 1e308, 2**70, "", "\x1b[2J", [], [[]], {"a": {}}, "x" * 300, "\u009b\u2028\u202e", [{"type": 5}],
]  # fmt: skip


def test_a_line_of_any_shape_is_one_harmless_line(logged: Logged) -> None:
    """maintenance OP-71, OP-72: whatever stands in one of its fields; raw on a terminal, too."""
    result = {"type": "result", "subtype": "success", "num_turns": 7, "total_cost_usd": 0.1, "stop_reason": "end_turn"}
    said = {"type": "assistant", "message": {"role": "assistant", "content": "x"}, "timestamp": "x", "sessionId": "y"}
    lines = [{**line, name: odd} for line in (result, said) for name in line for odd in ODD]
    lines += [{**said, "message": {**said["message"], name: odd}} for name in ("role", "content") for odd in ODD]  # type: ignore[dict-item]
    logged.path(FIRST).write_bytes(b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines))
    shown = lastlight_state("log", FIRST, *logged.words, "--quiet")
    assert (shown.code, len(shown.out.splitlines())) == (0, len(lines))
    terminal = Terminal()
    with redirect_stdout(terminal):
        assert run(["log", FIRST, *logged.words, "--raw", "--quiet"]) == 0
    assert [json.loads(line) for line in terminal.getvalue().splitlines()] == lines
    assert not set("\x1b\x9b\u2028\u202e") & set(shown.out + terminal.getvalue())


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_lines_that_cannot_be_read_are_counted_by_reason(logged: Logged) -> None:
    """maintenance OP-72."""
    with logged.path(FIRST).open("ab") as file:
        file.write(b"{broken\n[1]\n")
    said = lastlight_state("log", FIRST, *logged.words, "--json")
    assert json.loads(said.out.splitlines()[-1])["skipped"] == 2
    assert "2 lines could not be read: 1 not_object, 1 torn" in said.err


def test_every_kind_of_line_is_one_line_for_people(logged: Logged) -> None:
    lines: list[dict[str, Any]] = [
        {"type": "result", "subtype": "success", "num_turns": 7, "total_cost_usd": 0.13, "stop_reason": "end_turn"},
        {"type": "assistant", "isApiErrorMessage": True, "error": "overloaded"},
        {"role": "system", "subtype": "auto_retry_start", "content": "again"},
        {"type": "user", "message": "plain text"},
        {"type": "summary", "subtype": "x" * 1000},
    ]
    for line in lines:
        line |= {"timestamp": "2026-02-03T12:34:56.789Z", "sessionId": FIRST}
    logged.path(FIRST).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    told = [line[26:] for line in lastlight_state("log", FIRST, *logged.words).out.splitlines()]
    assert told == [
        "result     success, 7 turns, $0.1300, end_turn",
        "error      overloaded",
        "system     again",
        "user       plain text",
        f"summary    {'x' * 160}… [1,000 characters]",
    ]


def test_a_session_needs_no_database_and_looking_leaves_no_trace(logged: Logged, tmp_path: Path) -> None:
    """maintenance OP-2."""
    flags = ("--url", str(tmp_path / "nowhere.db"), "--state-dir", str(logged.folder))
    before = files_of(logged.folder / "agent-sessions")
    assert lastlight_state("log", FIRST, *flags).code == 0
    assert files_of(logged.folder / "agent-sessions") == before
    assert not (tmp_path / "nowhere.db").exists()


def test_an_execution_whose_log_is_gone_is_no_failure(logged: Logged) -> None:
    logged.path(FIRST).unlink()
    said = lastlight_state("log", logged.execution, *logged.words)
    assert (said.code, said.out) == (0, "")
    assert f"session {FIRST}: no log" in said.err


def test_a_session_id_that_no_log_can_have_hides_nothing(logged: Logged, database: Database) -> None:
    """maintenance OP-72: as rows of old versions and of other programs hold it."""
    raw = Raw(database)
    raw("UPDATE executions SET session_id = '../../x' WHERE session_id = ?", FIRST)
    said = lastlight_state("log", logged.run, *logged.words)
    assert said.code == 0
    assert "session ../../x: no log (" in said.err
    assert "Do " + SECOND in said.out


@with_each("key", ["nobody", "../../etc/passwd", "a b"])
def test_an_unknown_id_is_exit_1(key: str, logged: Logged) -> None:
    """maintenance OP-74."""
    said = lastlight_state("log", key, *logged.words, "--json")
    assert (said.code, said.error) == (1, "not_found")


def test_a_log_is_looked_for_in_every_state_of_the_database(target: Target, tmp_path: Path) -> None:
    """maintenance OP-72, OP-73."""
    key = target.ids.run if target.state == "populated" else "nobody"
    said = lastlight_state("log", key, "--url", target.url, "--state-dir", tmp_path, "--json")
    assert said.code == (1, 0, 6, 3, 6)[STATES.index(target.state)]


def test_following_a_run_ends_with_it_and_finds_the_session_that_began_later(logged: Logged) -> None:
    """maintenance OP-72."""
    command = [*PROGRAM, "log", logged.run, *logged.words, "--follow", "--json", "--quiet"]
    store = logged.store
    with started(command, stderr=None) as program:
        assert program.stdout is not None
        seen = [json.loads(program.stdout.readline()) for _ in range(6)]
        write(store, SECOND)
        seen += [json.loads(program.stdout.readline()) for _ in range(3)]
        store.workflows.executions.start("wf:reviewer", run_id=logged.run, session_id="reviewer-1")
        write(store, "reviewer-1")
        store.workflows.runs.finish(logged.run, "succeeded")
        seen += [json.loads(line) for line in program.stdout]
    assert program.returncode == 0
    assert [line.get("session_id") for line in seen] == [FIRST] * 3 + [SECOND] * 6 + ["reviewer-1"] * 3 + [None]
    assert seen[-1]["records"] == 12


def test_following_a_run_waits_for_its_first_session(database: Database) -> None:
    """maintenance OP-72."""
    with database.open() as store:
        run_id = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 2:
                store.workflows.executions.start("wf:p", run_id=run_id, session_id=FIRST)
                store.workflows.runs.finish(run_id, "succeeded")

        sessions = source_of(call_on(database.url), run_id, pause=pause).sessions(wait=True)
        assert list(sessions) == [FIRST]
    assert pauses == [0.5, 0.5]


def test_what_is_followed_is_chosen_by_type_and_a_file_that_begins_again_is_told(
    logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-72: all of the new file is printed, although as much of the old one was."""

    def pause(_: float) -> None:
        logged.path(SECOND).unlink()
        write(logged.store, SECOND)
        logged.store.workflows.runs.finish(logged.run, "succeeded")

    monkeypatch.setattr(log, "source_of", partial(source_of, pause=pause))
    said = lastlight_state("log", logged.run, *logged.words, "--follow", "--type", "assistant", "--json")
    assert records_of(said) == [(FIRST, "assistant"), (SECOND, "assistant"), (SECOND, "assistant")]
    assert f"session {SECOND}: the file was replaced, it begins again" in said.err


def test_following_a_session_goes_on_until_it_is_stopped(logged: Logged) -> None:
    """maintenance OP-72."""
    command = [*PROGRAM, "log", FIRST, *logged.words, "--follow", "--limit", "1", "--raw"]
    with started(command) as program:
        assert program.stdout is not None
        assert "no such file" in program.stdout.readline()
        write(logged.store, FIRST)
        assert f"Do {FIRST}." in program.stdout.readline()
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=60)
    assert program.returncode == 130
