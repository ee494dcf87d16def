"""What a session is about."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.agent_log.logs import (
    FIXTURES,
    NOW,
    SANDBOX,
    SESSION,
    agent_log,
    call,
    ended,
    path_of,
    put,
    said,
    snapshot,
    text,
)
from support.each import with_each

from lastlight_state.codec import dump_line
from lastlight_state.errors import BackendUnavailable, NotFound
from lastlight_state.files.agent_log import AgentLog, Outcome, tree as recent


def at(hour: int, minute: int = 0) -> str:
    return f"2026-02-03T{hour:02}:{minute:02}:00.000Z"


def moment(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 2, 3, hour, minute, tzinfo=UTC)


def line(kind: str = "user", **fields: Any) -> bytes:
    return dump_line({"type": kind, "message": {"role": kind, "content": "hi"}, "sessionId": "s-1", **fields})


def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all blocks that are read from now on."""
    sizes: list[int] = []
    real = os.pread

    def counting(descriptor: int, size: int, offset: int) -> bytes:
        data = real(descriptor, size, offset)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counting)
    return sizes


def test_a_session_of_the_first_writers_is_summarised(log: AgentLog) -> None:
    """agent-log L-4, L-92."""
    put(log, (FIXTURES / "original-first.jsonl").read_bytes(), "exec-issue-41")
    found = log.sessions.summary("exec-issue-41")
    assert (found.id, found.slug, found.scope, found.session_type) == (
        "exec-issue-41",
        SANDBOX.name,
        "sandbox",
        "agent",
    )
    assert found.started_at == datetime(2026, 1, 5, 8, tzinfo=UTC)
    assert found.last_message_at == datetime(2026, 1, 5, 8, 0, 9, 600_000, tzinfo=UTC)
    assert (found.model, found.message_count, found.tool_call_count) == ("anthropic/claude-sonnet-4-6", 4, 1)
    assert found.first_prompt == "You are the triage agent. Look at issue 41 of acme/widgets."
    assert found.last_assistant_text == "This is a bug in the parser."
    assert (found.result_count, found.error_count, found.issues, found.torn_tail) == (1, 1, 0, False)
    assert found.last_result is not None
    assert (found.last_result.subtype, found.last_result.stop_reason) == ("success", "success")
    assert (found.last_result.turns, found.last_result.cost_usd) == (2, 0.13)


def test_the_usage_of_a_log_is_that_of_all_its_runs(log: AgentLog) -> None:
    """agent-log L-146: a result holds running totals, so the last one of each run counts."""

    def result(turns: int, milliseconds: int, at: str | None = None) -> bytes:
        told = {"num_turns": turns, "total_cost_usd": 0.25 * turns, "total_input_tokens": 100 * turns}
        when = {} if at is None else {"timestamp": f"2026-02-03T{at}.000Z"}
        return dump_line({"type": "result", "subtype": "success", "duration_ms": milliseconds, **told, **when})

    error = line("assistant", isApiErrorMessage=True, error="overloaded")
    first = [
        line(),
        result(2, 1_000, "12:00:01"),
        line(),
        result(5, 3_001, "12:00:03"),
        error,
        result(5, 0, "12:00:09"),
    ]
    put(log, b"".join([*first, line(), result(4, 1_000, "13:00:01"), line(), result(1, 7), line(), result(1, 7)]))
    usage = log.sessions.summary("s-1").usage
    assert (usage.turns, usage.cost_usd, usage.input_tokens, usage.duration_ms) == (11, 2.75, 1_100, 1_014)
    put(log, line(), "s-2")
    assert set(log.sessions.summary("s-2").usage.model_dump().values()) == {0}


def test_a_session_of_the_later_writers_is_summarised(log: AgentLog) -> None:
    """agent-log L-4, L-92."""
    session_id = "0195f0aa-0000-7000-8000-000000000007"
    put(log, (FIXTURES / "original-later.jsonl").read_bytes(), session_id)
    found = log.sessions.summary(session_id)
    assert (found.model, found.message_count, found.tool_call_count, found.error_count) == ("openai/gpt-5.2", 4, 1, 0)
    assert found.last_result is not None
    assert (found.last_result.subtype, found.last_result.input_tokens) == ("error_fatal", 900)


@with_each("name", ["original-first.jsonl", "original-later.jsonl"])
def test_appending_to_a_file_of_the_first_writers_leaves_its_bytes(tmp_path: Path, name: str) -> None:
    """agent-log L-1, L-4."""
    log = agent_log(tmp_path)
    before = (FIXTURES / name).read_bytes()
    put(log, before)
    with log.writer.open(place=SANDBOX, session_id="s-1", prompt="go on") as writer:
        writer.finish(Outcome())
    assert path_of(log).read_bytes().startswith(before)
    assert len(log.reader.read("s-1").lines) == before.count(b"\n") + 2


def test_an_empty_file_started_when_it_was_changed(log: AgentLog) -> None:
    """agent-log L-92: never now."""
    os.utime(put(log, ""), (1_000_000_000.25, 1_000_000_000.25))
    found = log.sessions.summary("s-1")
    assert found.started_at == datetime.fromtimestamp(1_000_000_000.25, UTC)
    assert (found.last_message_at, found.message_count, found.last_result, found.bytes) == (None, 0, None, 0)


def test_times_are_least_and_greatest_over_main_and_sub_agent_files(log: AgentLog) -> None:
    """agent-log L-92."""
    main = put(log, line(timestamp=at(10)) + line(timestamp=at(9)) + line(timestamp="?") + line(timestamp=at(10, 30)))
    own = main.with_suffix("") / "subagents" / "agent-a.jsonl"
    own.parent.mkdir(parents=True)
    own.write_bytes(line(timestamp=at(12), agentId="a") + line("assistant", timestamp=at(8)))
    found = log.sessions.summary("s-1")
    assert (found.started_at, found.last_message_at) == (moment(8), moment(12))
    assert (found.message_count, found.agent_ids) == (6, ("a",))
    assert [entry.timestamp for entry in log.reader.read("s-1").lines] == [moment(10), moment(9), None, moment(10, 30)]


def test_a_sub_agents_file_beside_the_log_belongs_to_the_session_it_names(log: AgentLog) -> None:
    """agent-log L-97: its first dated record decides."""
    put(log, line(timestamp=at(9)), "s-1")
    other = put(log, line(timestamp=at(9)), "s-2")
    undated = dump_line({"type": "summary", "sessionId": "s-2"})
    other.with_name("agent-x.jsonl").write_bytes(undated + line(timestamp=at(10)) + line(timestamp=at(11)))
    other.with_name("agent-nobody.jsonl").write_bytes(undated)
    assert [log.sessions.summary(name).message_count for name in ("s-1", "s-2", "s-1")] == [3, 1, 3]


def test_a_sub_agents_file_that_cannot_be_read_is_nobodys(log: AgentLog, tmp_path: Path) -> None:
    """agent-log L-5, L-15."""
    main = put(log, line(timestamp=at(9)))
    main.with_name("agent-beside.jsonl").symlink_to(tmp_path / "nowhere")
    main.with_name("agent-empty.jsonl").touch()
    own = main.with_suffix("") / "subagents"
    own.mkdir(parents=True)
    (own / "agent-link.jsonl").symlink_to(main)
    (own / "agent-gone.jsonl").symlink_to(tmp_path / "nowhere")
    assert len(log.reader.read("s-1", include_agents=True).lines) == 1
    assert log.sessions.summary("s-1").message_count == 1


def test_texts_are_bounded(log: AgentLog) -> None:
    """agent-log L-92."""
    with log.writer.open(prompt="p" * 600) as writer:
        writer.feed_many([SESSION, said(text("a" * 5_000)), said(text("")), snapshot()])
    found = log.sessions.summary("s-1")
    assert (len(found.first_prompt), len(found.last_assistant_text)) == (500, 4_000)
    assert found.last_result is not None


def test_a_session_meta_line_tells_source_model_and_start(log: AgentLog) -> None:
    """agent-log L-92."""
    meta = dump_line({"role": "session_meta", "platform": "slack", "model": "m", "timestamp": at(7)})
    put(log, line(timestamp=at(6)) + meta + line("assistant", timestamp=at(8)))
    found = log.sessions.summary("s-1")
    assert (found.source, found.model, found.started_at, found.message_count) == ("slack", "m", moment(7), 2)
    put(log, dump_line({"role": "session_meta", "source": "cli"}), "s-2")
    assert (log.sessions.summary("s-2").source, log.sessions.summary("s-2").message_count) == ("cli", 0)


TYPES = ((("triage", "issue"), "triage"), (("issue",), "any-issue"), (("beyond",), "never"))


@with_each(
    ("content", "word"),
    [
        ("You triage an issue", "triage"),
        ("An issue", "any-issue"),
        ([{"type": "text", "text": "You triage"}, {"type": "text", "text": "one issue"}], "triage"),
        ("x" * 500 + "beyond", "agent"),
        ("hello", "agent"),
    ],
)
def test_a_session_type_is_found_in_the_first_prompt(tmp_path: Path, content: Any, word: str) -> None:
    """agent-log L-93."""
    log = agent_log(tmp_path, session_types=TYPES)
    put(log, line(message={"content": content}) + line(message={"content": "triage issue"}))
    assert log.sessions.summary("s-1").session_type == word


def test_without_a_match_a_chat_is_a_chat(tmp_path: Path) -> None:
    """agent-log L-93."""
    log = agent_log(tmp_path, session_types=TYPES)
    put(log, line(), slug="-app")
    put(log, line("assistant"), "s-2", slug="-app")
    assert [log.sessions.summary(name).session_type for name in ("s-1", "s-2")] == ["chat", "chat"]


def test_of_a_grown_file_only_the_new_bytes_are_read(log: AgentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-94, L-120: also behind an unterminated record, which counts once."""
    path = put(log, line(timestamp=at(9)) * 3_000 + line("assistant", timestamp=at(9))[:-1])
    assert log.sessions.summary("s-1").message_count == 3_001
    with path.open("ab") as file:
        file.write(b"\n" + line(timestamp=at(11)) + b"bad\n" + line()[:30])
    read = bytes_read(monkeypatch)
    found = log.sessions.summary("s-1")
    assert (found.message_count, found.issues, found.torn_tail) == (3_002, 1, True)
    assert found.last_message_at == moment(11)
    assert sum(read) < 1_000


def test_a_replaced_or_shrunk_file_is_counted_anew(log: AgentLog) -> None:
    """agent-log L-94."""
    path = put(log, line() * 5)
    assert log.sessions.summary("s-1").message_count == 5
    path.write_bytes(line() * 2)
    assert log.sessions.summary("s-1").message_count == 2
    clean = path.with_name("clean")
    clean.write_bytes(line() * 9)
    clean.replace(path)
    assert log.sessions.summary("s-1").message_count == 9


@with_each("is_replaced", [True, False])
def test_a_file_with_another_beginning_and_the_same_end_is_counted_anew(tmp_path: Path, is_replaced: bool) -> None:
    """agent-log L-94: if it is another file; one that is only longer by then is counted on from where it was read."""
    log = agent_log(tmp_path)
    other = line("assistant").replace(b"assistant", b"assistent")
    path = put(log, line("assistant") * 3 + line() * 9)
    before = log.sessions.summary("s-1").message_count
    clean = path.with_name("clean")
    clean.write_bytes(other * 3 + line() * 9)
    if is_replaced:
        clean.replace(path)
    else:
        path.write_bytes(path.read_bytes() + line())
    assert log.sessions.summary("s-1").message_count == (9 if is_replaced else before + 1)


@with_each(("later", "turns"), [(-2, 3), (-1, 2), (0, 2), (1, 2), (2, 3)])
def test_results_of_one_beginning_are_of_one_run_but_for_a_millisecond(tmp_path: Path, later: int, turns: int) -> None:
    """agent-log L-146: which rounding takes."""
    log = agent_log(tmp_path)
    results = [
        dump_line({"type": "result", "subtype": "success", "num_turns": n, "duration_ms": took, "timestamp": ended_at})
        for n, took, ended_at in (
            (1, 1_000, "2026-02-03T12:00:01.000Z"),
            (2, 3_000 + later, "2026-02-03T12:00:03.000Z"),
        )
    ]
    put(log, line() + results[0] + line() + results[1])
    assert log.sessions.summary("s-1").usage.turns == turns


def test_a_bounded_number_of_summaries_is_kept(log: AgentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-94: the ones asked for least lately are read again."""
    monkeypatch.setattr(recent, "MOST", 3)
    files = []
    for n in range(5):
        put(log, line() * 1_000, f"s{n}")
        files.append(log.sessions.get(f"s{n}"))
    log.sessions.summaries(files)
    read = bytes_read(monkeypatch)
    assert log.sessions.summaries(files[2:])[0].message_count == 1_000
    assert sum(read) < 1_000
    assert log.sessions.summaries(files[:1])[0].message_count == 1_000
    assert sum(read) > 50_000


def test_summaries_come_in_the_order_asked_without_those_that_vanished(log: AgentLog) -> None:
    """agent-log L-142."""
    for name in ("a", "b", "c"):
        put(log, line(), name)
    files = [log.sessions.get(name) for name in ("b", "a", "c")]
    files[1].path.unlink()
    assert [summary.id for summary in log.sessions.summaries(files)] == ["b", "c"]
    with pytest.raises(NotFound):
        log.sessions.summary("a")


def test_numbers_of_results_are_read_as_far_as_they_are_numbers(log: AgentLog) -> None:
    """agent-log L-92."""
    put(log, b'{"type":"result","num_turns":"?","total_cost_usd":null,"stop_reason":"end_turn","result":5}\n')
    result = log.sessions.summary("s-1").last_result
    assert result is not None
    assert (result.turns, result.cost_usd, result.result, result.subtype, result.stop_reason) == (
        0,
        0,
        "",
        None,
        "end_turn",
    )


def test_calls_and_errors_are_counted(log: AgentLog) -> None:
    """agent-log L-92."""
    with log.writer.open(model="m") as writer:
        writer.feed_many([SESSION, said(call("a"), call("b")), ended("a", "x", isError=True)])
        writer.finish_failed("x", Outcome("error_x"), error="e")
    found = log.sessions.summary("s-1")
    assert (found.tool_call_count, found.message_count, found.error_count, found.result_count) == (2, 2, 1, 1)
    assert found.last_message_at == NOW


def test_a_log_that_cannot_be_opened_is_backend_unavailable(log: AgentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-24."""
    put(log, line())

    def fail(*arguments: Any, **options: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", fail)
    for attempt in (
        lambda: log.sessions.summary("s-1"),
        lambda: log.reader.read("s-1"),
        lambda: log.reader.tail("s-1"),
    ):
        with pytest.raises(BackendUnavailable):
            attempt()


def test_a_sub_agents_file_counts_once_and_other_files_do_not(log: AgentLog) -> None:
    """agent-log L-92, L-97: of two with one name, that in the session's own directory."""
    main = put(log, line(timestamp=at(9)))
    own = main.with_suffix("") / "subagents"
    own.mkdir(parents=True)
    for name in ("agent-1.jsonl", "notes.jsonl", "agent-1.txt"):
        (own / name).write_bytes(line(timestamp=at(10)))
    main.with_name("agent-1.jsonl").write_bytes(line(timestamp=at(10)) * 5)
    assert log.sessions.summary("s-1").message_count == 2


def test_a_sub_agents_file_that_became_anothers_is_asked_again(log: AgentLog) -> None:
    """agent-log L-97: one with another beginning."""
    beside = put(log, line(timestamp=at(9))).with_name("agent-1.jsonl")
    beside.write_bytes(line(timestamp=at(10)) * 2)
    assert log.sessions.summary("s-1").message_count == 3
    beside.write_bytes(line("assistant", sessionId="s-2", timestamp=at(10)) * 2)
    assert log.sessions.summary("s-1").message_count == 1


def test_what_is_no_text_is_no_agent_and_no_last_text(log: AgentLog) -> None:
    """agent-log L-92."""
    said_last = dump_line({"role": "assistant", "content": "bye", "timestamp": at(9), "sessionId": "s-1"})
    other = dump_line({"role": "assistant", "content": [{"text": 1}], "timestamp": at(9), "sessionId": "s-1"})
    put(log, line(agentId="") + line(agentId=5) + line(agentId="a") * 2 + said_last + other)
    found = log.sessions.summary("s-1")
    assert (found.agent_ids, found.last_assistant_text) == (("a",), "bye")


def test_a_first_prompt_is_the_users_and_a_last_text_is_no_empty_one(log: AgentLog) -> None:
    """agent-log L-92: whoever spoke before, and whatever came without words afterwards."""
    spoken = [("system", "rules"), ("assistant", "bye"), ("tool", "done"), ("user", "hello"), ("assistant", "")]
    put(log, b"".join(dump_line({"role": role, "content": content, "sessionId": "s-1"}) for role, content in spoken))
    found = log.sessions.summary("s-1")
    assert (found.first_prompt, found.last_assistant_text) == ("hello", "bye")


def test_an_assistant_that_only_called_has_not_said_its_last_word(log: AgentLog) -> None:
    """agent-log L-92: nor has one that names no agent another one."""
    told = {"role": "assistant", "content": [{"type": "text", "text": "done"}]}
    called = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "ls"}]}
    put(log, line("assistant", message=told, agentId="a") + line("assistant", message=called, agentId="a"))
    found = log.sessions.summary("s-1")
    assert (found.last_assistant_text, found.agent_ids) == ("done", ("a",))
