"""The messages view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.agent_log.logs import AT, FIXTURES, agent_log, put
from support.each import with_each

from lastlight_state.codec import dump_line
from lastlight_state.files.agent_log import AgentLog, LogMessage


def shown(log: AgentLog, *lines: dict[str, Any]) -> list[LogMessage]:
    """The messages of these lines."""
    put(log, b"".join(map(dump_line, lines)))
    return list(log.reader.messages("s-1").messages)


def short(messages: list[LogMessage]) -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in messages]


def user(content: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": content}, "timestamp": AT}


def assistant(*content: Any, **message: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"role": "assistant", "content": list(content), **message}}


def result(call: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": content, **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call: str, arguments: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": "bash", "input": arguments or {}}


def test_a_whole_session_is_shown(log: AgentLog) -> None:
    """agent-log L-143."""
    put(log, (FIXTURES / "written-later.jsonl").read_bytes())
    messages = list(log.reader.messages("s-1").messages)
    roles = [message.role for message in messages]
    assert roles == ["user", "assistant", "tool", "system", "system", "assistant", "tool", "assistant", "system"]
    spoken = messages[1]
    assert (spoken.reasoning, spoken.model) == ("Look around first.", "anthropic/claude-sonnet-4-6")
    call = {"id": "call_1", "function": {"name": "bash", "arguments": '{"command":"ls -la \\"src\\"","timeout":120}'}}
    assert spoken.tool_calls == (call,)
    assert messages[3].extra == {"subtype": "auto_retry_start", "sessionId": "0198c0de-7e57-7abc-8def-0123456789ab"}
    assert (messages[6].is_error, messages[6].tool_call_id) == (True, "call_2")
    assert messages[8].content == "quota exceeded"


def test_text_beside_tool_results_stays_and_errors_are_kept(log: AgentLog) -> None:
    """agent-log L-143, case 44."""
    reference = {"sha256": "0" * 64, "bytes": 1, "chars": 1}
    line = user([result("a", "ok", raw_ref=reference), result("b", "no", is_error=True), text("go on")])
    messages = shown(log, line)
    assert short(messages) == [("tool", "ok"), ("tool", "no"), ("user", "go on")]
    assert [message.is_error for message in messages] == [False, True, False]
    assert [message.tool_call_id for message in messages] == ["a", "b", None]
    assert messages[0].raw_ref == reference
    assert [(message.offset, message.part) for message in messages] == [(0, 0), (0, 1), (0, 2)]


@with_each(
    ("line", "messages"),
    [
        (user("hi"), [("user", "hi")]),
        (user([text("a"), text("b")]), [("user", "a\nb")]),
        (user([text("a"), result("c", "r"), text("b")]), [("user", "a"), ("tool", "r"), ("user", "b")]),
        (user([{"type": "image"}]), []),
        (user(None), []),
        (user([result("c", [text("x"), text("y")])]), [("tool", "x\ny")]),
        (user([result("c", {"a": 1})]), [("tool", '{"a":1}')]),
        (user([result("c", None)]), [("tool", "")]),
        (user([result("c", "")]), [("tool", "")]),
        (user([result("c", [{"type": "image"}])]), [("tool", '[{"type":"image"}]')]),
        ({"type": "user", "message": "plain words"}, [("user", "plain words")]),
        ({"type": "user", "message": '{"role":"user","content":"from json"}'}, [("user", "from json")]),
        ({"type": "user", "message": "{not json"}, [("user", "{not json")]),
        ({"type": "user", "content": "direct"}, [("user", "direct")]),
        ({"type": "user"}, []),
        (assistant(text("a"), text("b")), [("assistant", "a\nb")]),
        (assistant({"type": "thinking", "thinking": "hm"}), []),
        (assistant(text("")), []),
        ({"type": "assistant", "message": "said"}, [("assistant", "said")]),
        ({"type": "assistant", "message": {"content": "said"}}, [("assistant", "said")]),
        ({"type": "assistant", "isApiErrorMessage": True, "error": "boom"}, [("system", "boom")]),
        ({"type": "assistant", "isApiErrorMessage": True, "error": ""}, []),
        ({**assistant(text("told")), "isApiErrorMessage": True}, [("assistant", "told")]),
        ({**assistant(text("told")), "error": "boom"}, [("assistant", "told")]),
        ({"type": "tool_result", "tool_use_id": "c", "content": "r"}, [("tool", "r")]),
        ({"type": "tool_use", "id": "c", "name": "ls"}, [("assistant", "")]),
        ({"role": "user", "content": "role line"}, [("user", "role line")]),
        ({"role": "system", "content": ""}, []),
        ({"role": "system"}, []),
        ({"role": "tool", "content": [1]}, [("tool", [1])]),
        ({"type": "result", "result": "x"}, []),
        ({"type": "system", "subtype": "init"}, []),
        ({"type": "summary", "summary": "x"}, []),
        ({"type": "queue-operation"}, []),
        ({"type": "login"}, []),
        ({"type": "last-prompt"}, []),
        ({"type": "attachment"}, []),
        ({"type": "from-the-future", "role": "user", "content": "x"}, []),
        ({"x": 1}, []),
    ],
)
def test_lines_of_every_generation_are_shown_as_messages(
    tmp_path: Path, line: dict[str, Any], messages: list[tuple[str, Any]]
) -> None:
    """agent-log L-143."""
    log = agent_log(tmp_path)
    assert short(shown(log, line)) == messages


def test_what_an_assistant_did_is_told(log: AgentLog) -> None:
    """agent-log L-143."""
    thoughts = [{"type": "thinking", "thinking": words} for words in ("one", "two")]
    content = [thoughts[0], use("c", {"a": [1]}), thoughts[1], use("d")]
    message = shown(log, assistant(*content, model="m", stop_reason="tool_use"))[0]
    assert (message.content, message.reasoning, message.model, message.finish_reason) == ("", "two", "m", "tool_use")
    assert [call["function"]["arguments"] for call in message.tool_calls] == ['{"a":[1]}', "{}"]


def test_times_are_those_of_the_line(log: AgentLog) -> None:
    """agent-log L-143."""
    dated, undated = shown(log, user("a"), assistant(text("b")))
    assert dated.timestamp is not None
    assert dated.timestamp.isoformat() == "2026-02-03T12:00:01+00:00"
    assert undated.timestamp is None


def test_the_messages_of_a_line_stay_on_one_page(log: AgentLog) -> None:
    """agent-log L-144, L-95."""
    lines = [user("0"), user([result("c", str(n)) for n in range(1, 4)]), user("4")]
    put(log, b"".join(map(dump_line, lines)))
    pages = [log.reader.messages("s-1", limit=2)]
    while not pages[-1].at_end:
        pages.append(log.reader.messages("s-1", limit=2, after=pages[-1].cursor))
    assert [[message.content for message in page.messages] for page in pages] == [["0"], ["1", "2", "3"], ["4"]]


def test_lines_without_messages_are_passed_over(log: AgentLog) -> None:
    """agent-log L-144."""
    put(log, dump_line({"type": "result"}) * 600 + dump_line(user("late")))
    page = log.reader.messages("s-1", limit=5)
    assert (short(list(page.messages)), page.at_end) == ([("user", "late")], True)


def test_messages_of_sub_agents_can_be_merged_in(log: AgentLog) -> None:
    """agent-log L-96, L-145."""
    path = put(log, dump_line(user("main")))
    own = path.with_suffix("") / "subagents"
    own.mkdir(parents=True)
    (own / "agent-a.jsonl").write_bytes(dump_line({**user("sub"), "timestamp": "2026-01-01T00:00:00Z"}))
    messages = log.reader.messages("s-1", include_agents=True).messages
    assert [(message.source, message.content) for message in messages] == [("agent-a", "sub"), ("main", "main")]


def test_a_page_of_messages_is_filled_exactly(log: AgentLog) -> None:
    """agent-log L-95, L-144: lines that fit together up to the limit are one page."""
    lines = [user("0"), user([result("c", "1"), result("c", "2")]), user("3"), user("4")]
    put(log, b"".join(map(dump_line, lines)))
    first = log.reader.messages("s-1", limit=3)
    assert [message.content for message in first.messages] == ["0", "1", "2"]
    second = log.reader.messages("s-1", limit=3, after=first.cursor)
    assert [message.content for message in second.messages] == ["3", "4"]


def test_what_is_no_block_among_others_is_passed_over(log: AgentLog) -> None:
    """agent-log L-143."""
    odd = ["plain", 5, None, ["text"], text("hi")]
    assert short(shown(log, user(odd), assistant(text("yes")))) == [("user", "hi"), ("assistant", "yes")]
