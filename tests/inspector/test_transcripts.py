"""Transcripts: agent logs, run logs and chats as conversations."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from inspector.conftest import LONG
from inspector.test_pages import HOSTILE, JSON, Parsed
from starlette.testclient import TestClient
from support.agent_log import logs as agent_logs
from support.each import with_each
from support.run_log.logs import EXAMPLE_RUN, RUN, event, head, put

from lastlight_state import StateStore
from lastlight_state.codec import dump_line
from lastlight_state.files.agent_log import AgentLog, Reader
from lastlight_state.files.run_log.runs import Runs
from lastlight_state.inspector import entries, inspector
from lastlight_state.inspector.page import Ask
from lastlight_state.inspector.pages import transcripts
from lastlight_state.inspector.rendering import segment
from lastlight_state.messaging import MessageDraft
from lastlight_state.testing import Database
from lastlight_state.workflows import ExecutionOptions, Trigger
from lastlight_state.workflows.arguments import RunOptions

OTHERS = "/transcripts/agents/others"


def said(client: TestClient, address: str) -> list[dict[str, Any]]:
    """Return the entries of a page."""
    found: list[dict[str, Any]] = client.get(address, headers=JSON).json()["said"]["items"]
    return found


def contents(client: TestClient, address: str) -> list[Any]:
    return [one["content"] for one in said(client, address)]


def line(number: int, text: str = "said") -> bytes:
    """Return a line of an agent log with a text."""
    return dump_line({"type": "user", "timestamp": agent_logs.AT, "message": {"content": f"{text} {number}"}})


def put_log(log: AgentLog, data: bytes, session_id: str = "others") -> Path:
    return agent_logs.put(log, data, session_id)


def linked(client: TestClient, address: str, relation: str = "next") -> str:
    """Return the address that a page leads to."""
    tags = Parsed(client.get(address).text).tags
    [link] = [str(attributes["href"]) for _, attributes in tags if attributes.get("rel") == relation]
    return address.partition("?")[0] + link


def test_what_the_store_knows_is_listed(browser: TestClient) -> None:
    """inspector IN-70: agent logs, run logs and chats, each with its filters, and no place on the disk."""
    data = browser.get("/transcripts", headers=JSON).json()
    assert [one["id"] for one in data["logs"]["items"]] == ["log-0"]
    assert [one["run_id"] for one in data["runs"]["items"]] == [EXAMPLE_RUN]
    assert {one["id"] for one in data["chats"]["items"]} == {"ms-0", "ms-1", "ms-2"}
    assert not any("path" in one for kind in ("logs", "runs") for one in data[kind]["items"])
    none = browser.get("/transcripts?scope=chat&state=crashed&user=nobody", headers=JSON).json()
    assert [none[kind]["items"] for kind in ("logs", "runs", "chats")] == [[], [], []]


def test_an_agent_log_is_a_conversation(browser: TestClient, filled: StateStore) -> None:
    """inspector IN-71: its messages, with calls and long results folded; a line without a message is shown whole."""
    asked, answer, crumb = said(browser, "/transcripts/agents/log-0")
    assert (asked["role"], asked["content"]) == ("user", "Look.")
    assert answer["content"] == "I look."
    [call] = answer["calls"]
    assert (call["tool"], call["id"]) == ("bash", "call-1")
    assert (call["result"]["role"], call["result"]["call_id"]) == ("tool", "call-1")
    assert crumb["record"]["where"] == "here"
    page = Parsed(browser.get("/transcripts/agents/log-0").text)
    assert [tag for tag, _ in page.tags].count("details") == 2
    assert f"/transcripts/agents/log-0/results/{sha256(LONG.encode()).hexdigest()}" in str(page.tags)
    blocks = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "So."}]
    put_log(filled.agent_log, dump_line({"type": "assistant", "message": {"content": blocks}}))
    assert [(one["content"], one["reasoning"]) for one in said(browser, OTHERS)] == [("So.", "hm")]


def test_a_run_log_is_a_conversation(browser: TestClient) -> None:
    """inspector IN-72: what was asked, what the model answered with its calls, results, and all other records whole."""
    found = said(browser, f"/transcripts/runs/{EXAMPLE_RUN}")
    assert [one["role"] for one in found] == [
        "header", "user", "llm.request 1", "assistant", "agent.event", "agent.event", "run.status", "run.end",
    ]  # fmt: skip
    [call] = found[3]["calls"]
    assert (found[1]["content"], call["tool"]) == ("list files", call["result"]["tool"])
    assert found[2]["record"]["input"]["messages"]
    assert all(one["content"] is not None or one["record"] is not None or one["calls"] for one in found)


def test_a_chat_is_a_conversation(browser: TestClient, filled: StateStore) -> None:
    """inspector IN-73: and what comes is at its end."""
    assert contents(browser, "/transcripts/chats/ms-0") == ["hello 0", "hello 1", "hello 2"]
    filled.messaging.messages.append_many("ms-0", [MessageDraft("assistant", f"answer {n}") for n in range(20)])
    assert contents(browser, "/transcripts/chats/ms-0?limit=2") == ["answer 18", "answer 19"]


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("kind", ["agents", "runs", "chats"])
def test_every_entry_is_met_once_from_either_end(filled: StateStore, kind: str, order: str) -> None:
    """inspector IN-74: page by page, by the links of the pages."""
    put_log(filled.agent_log, b"".join(map(line, range(55))))
    put(filled.run_log, [head(), *map(event, range(54))])
    filled.messaging.messages.append_many("ms-1", [MessageDraft("user", f"said {n}") for n in range(55)])
    client, key = TestClient(inspector(filled)), {"agents": "others", "runs": RUN, "chats": "ms-1"}[kind]
    address = f"/transcripts/{kind}/{key}?order={order}&limit=25"
    whole = [one["key"] for one in said(client, f"/transcripts/{kind}/{key}?limit=500")]
    pages = [[one["key"] for one in said(client, address)]]
    for _ in range(2):
        address = linked(client, address)
        pages.append([one["key"] for one in said(client, address)])
    assert [len(page) for page in pages] == [25, 25, 5]
    ordered = pages if order == "oldest" else pages[::-1]
    assert (len(set(whole)), [key for page in ordered for key in page]) == (55, whole)
    assert client.get(address, headers=JSON).json()["said"]["next_page_token"] is None


@pytest.mark.parametrize("query", ["", "?order=oldest"])
@pytest.mark.parametrize("kind", ["agents", "runs"])
def test_a_page_of_a_log_of_200_mb_reads_a_bounded_part(
    sqlite_database: Database, kind: str, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """inspector IN-75: of lines with 60 KiB it has fewer, and so it has about half a megabyte."""
    store = sqlite_database.open()
    if kind == "agents":
        path = put_log(store.agent_log, b"")
        lines = [line(number, "x" * 60_000) for number in range(50)]
    else:
        path = put(store.run_log, [head()])
        lines = [dump_line(event(number) | {"x": "x" * 60_000}) for number in range(50)]
    with path.open("ab") as file:
        for _ in range(67):
            file.writelines(lines)
    assert path.stat().st_size > 200_000_000
    count, read = 0, os.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        nonlocal count
        found = read(descriptor, size, offset)
        count += len(found)
        return found

    monkeypatch.setattr(os, "pread", counted)
    client = TestClient(inspector(store))
    found = said(client, f"/transcripts/{kind}/{'others' if kind == 'agents' else RUN}{query}")
    assert 9 <= len(found) <= 20
    assert 0 < count < 4_000_000


def test_a_whole_result_is_shown_part_by_part(browser: TestClient) -> None:
    """inspector IN-76: no character is torn between two parts."""
    address, parts = f"/transcripts/agents/log-0/results/{sha256(LONG.encode()).hexdigest()}", []
    for _ in range(2):
        parts.append(browser.get(address, headers=JSON).json())
        address = linked(browser, address) if parts[-1]["part"]["next_page_token"] else address
    assert "".join(part["text"] for part in parts) == LONG
    assert parts[1]["part"]["next_page_token"] is None
    assert parts[0]["to"] == parts[1]["from"] < parts[1]["to"] == parts[1]["bytes"]


@with_each("name", ["../../secret", "..", "/etc/passwd", "a/../../x", ".hidden", "a\0b", ""])
def test_nothing_outside_the_directories_of_the_store_is_shown(filled: StateStore, name: str) -> None:
    """inspector IN-77: whatever an address names; nor what a link leads to."""
    (filled.agent_log.root.parent / "secret.jsonl").write_bytes(line(1, "secret"))
    client, text = TestClient(inspector(filled)), segment(name)
    for address in (
        f"/transcripts/agents/{text}",
        f"/transcripts/agents/log-0?project={text.replace('~', '%')}x",
        f"/transcripts/agents/log-0/results/{text}",
        f"/transcripts/agents/{text}/results/{'0' * 64}",
        f"/transcripts/runs/{text}",
    ):
        answer = client.get(address)
        assert answer.status_code in (400, 404), address
        assert "secret 1" not in answer.text


def test_a_link_is_not_followed(filled: StateStore, tmp_path: Path) -> None:
    """inspector IN-77."""
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(line(1, "secret"))
    path = put_log(filled.agent_log, b"", "plain")
    path.with_name("linked.jsonl").symlink_to(outside)
    answer = TestClient(inspector(filled)).get("/transcripts/agents/linked")
    assert answer.status_code >= 400
    assert "secret" not in answer.text


def test_a_page_is_made_again_only_when_its_file_has_changed(filled: StateStore, fresh_database: Database) -> None:
    """inspector IN-78."""
    for kind, key in (("agents/{session_id}", "others"), ("runs/{run_id}", RUN), ("chats/{session_id}", "ms-1")):
        [route] = [one for one in transcripts.page.routes if one.path == f"/transcripts/{kind}"]
        name = kind.partition("{")[2].rstrip("}")
        path = put_log(filled.agent_log, line(0))
        put(filled.run_log, [head()])
        ask = Ask(filled, fresh_database.clock, {name: key}, {})
        assert route.live
        assert route.mark is not None
        before = route.mark(ask)
        assert route.mark(ask) == before
        with path.open("ab") as file:
            file.write(line(1))
        put(filled.run_log, [head(), event(0)])
        filled.messaging.messages.append("ms-1", role="user", content="more")
        assert route.mark(ask) != before


def test_lines_that_cannot_be_read_are_told(filled: StateStore) -> None:
    """inspector IN-71."""
    put_log(filled.agent_log, line(0) + b"no record\n" + line(1))
    client = TestClient(inspector(filled))
    for order in ("newest", "oldest"):
        data = client.get(f"{OTHERS}?order={order}", headers=JSON).json()
        assert [(one["offset"], one["reason"]) for one in data["problems"]] == [(len(line(0)), "bad_json")]
        assert len(data["said"]["items"]) == 2


def test_lines_that_are_no_records_hide_none_before_them(filled: StateStore) -> None:
    """inspector IN-74: objects without a type are not shown, and what is before them is on the page."""
    put(filled.run_log, [head(), event(0), *({"no": "type"} for _ in range(12)), event(1)])
    found = said(TestClient(inspector(filled)), f"/transcripts/runs/{RUN}")
    assert [one["role"] for one in found] == ["header", "agent.event", "agent.event"]


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("kind", ["agents", "runs"])
def test_a_page_of_a_file_that_is_replaced_shows_the_new_one_alone(
    filled: StateStore, kind: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """inspector IN-121: also when that happens between two reads of one page."""
    path = put_log(filled.agent_log, b"".join(map(line, range(30))))
    if kind == "runs":
        path = put(filled.run_log, [head(), *map(event, range(30))])
    whole = path.read_bytes()
    verbs = {"agents": (Reader, "tail", "read"), "runs": (Runs, "last", "tail")}
    owner, *names = verbs[kind]
    name = names[order == "oldest"]
    read = getattr(owner, name)

    def replaced(self: Any, *given: Any, **named: Any) -> Any:
        found = read(self, *given, **named)
        path.write_bytes(whole.splitlines(keepends=True)[0] + dump_line(event(99) | {"new": True}))
        return found

    monkeypatch.setattr(owner, name, replaced)
    client, key = TestClient(inspector(filled)), {"agents": "others", "runs": RUN}[kind]
    found = said(client, f"/transcripts/{kind}/{key}?order={order}")
    assert len(found) == 2
    assert found[1]["record"]["new"] is True


def test_of_a_very_long_text_a_page_has_the_beginning(filled: StateStore) -> None:
    """inspector IN-122: wherever it stands in a line, and it says how long the text is."""
    text = "x" * (entries.MOST_TEXT + 1)
    block = {"type": "tool_use", "id": "c", "name": "t", "input": {"deep": [text]}}
    values: list[dict[str, Any]] = [
        {"type": "user", "message": {"content": text}},
        {"type": "assistant", "message": {"content": [block]}},
        {"type": "crumb", "where": text},
    ]
    put_log(filled.agent_log, b"".join(map(dump_line, values)))
    asked, answer, crumb = said(TestClient(inspector(filled)), OTHERS)
    cut = text[:-1] + "… (262145 characters in all)"
    assert asked["content"] == crumb["record"]["where"] == cut
    assert len(answer["calls"][0]["arguments"]) == len(cut)  # it is JSON text


def test_hostile_lines_are_shown_and_do_nothing(filled: StateStore) -> None:
    """inspector IN-5: whatever a field of a line holds."""
    odd: list[Any] = [HOSTILE, {"a": HOSTILE}, [HOSTILE, None, 7], None, 10**30]
    values = [
        shape
        for one in odd
        for shape in (
            {"type": "user", "message": {"content": one}},
            {"type": "assistant", "message": {"content": [{"type": "tool_use", "id": one, "name": one, "input": one}]}},
            {"type": "tool_result", "tool_use_id": one, "content": one, "raw_ref": {"sha256": one, "bytes": one}},
            {"type": one, "timestamp": one},
            {"role": HOSTILE, "content": one, "other": one},
        )
    ]
    put_log(filled.agent_log, b"".join(dump_line(value) for value in values))
    records = [
        {"type": kind, "run_id": RUN, "ts": one, "seq": 1, "output": {"messages": [{"role": one, "content": [one]}]}}
        for one in odd
        for kind in ("llm.response", "tool.output", "x.a.b", HOSTILE)
    ]
    put(filled.run_log, [head() | {"ts": {"a": HOSTILE}}, *records])
    client = TestClient(inspector(filled))
    for address in (OTHERS, f"/transcripts/runs/{RUN}", "/transcripts"):
        for query in ("", "?order=oldest") if address != "/transcripts" else ("",):
            answer = client.get(address + query)
            assert answer.status_code == 200, answer.text
            assert client.get(address + query, headers=JSON).status_code == 200
            parsed = Parsed(answer.text)
            assert [tag for tag, _ in parsed.tags if tag == "img"] == []
            assert len([tag for tag, _ in parsed.tags if tag == "script"]) == 1


def test_what_was_said_is_hidden_with_personal_data(filled: StateStore) -> None:
    """inspector IN-7: texts, thoughts, arguments, whole lines and results; who calls which tool stays."""
    cut = {
        "type": "tool_result",
        "tool_use_id": "c",
        "content": "x",
        "raw_ref": {"sha256": "0" * 64, "of": "zoe-wrote"},
    }
    spoken = {"role": "user", "content": "zoe-wrote", "other": "zoe-wrote"}
    put_log(filled.agent_log, dump_line(spoken) + dump_line(cut))
    start = {"type": "run.start", "run_id": RUN, "ts": agent_logs.AT, "input": {"type": "text", "text": "zoe-wrote"}}
    put(filled.run_log, [head(), start, event(0) | {"event": {"text": "zoe-wrote"}}])
    filled.messaging.messages.append("ms-1", role="user", content="zoe-wrote")
    shown, hidden = (TestClient(inspector(filled, hide_personal=hide)) for hide in (False, True))
    for address in (OTHERS, f"/transcripts/runs/{RUN}", "/transcripts/chats/ms-1", "/transcripts"):
        for headers in ({}, JSON):
            assert "zoe-wrote" in shown.get(address, headers=headers).text
            assert "zoe-wrote" not in hidden.get(address, headers=headers).text
    log = hidden.get("/transcripts/agents/log-0", headers=JSON).text
    assert ("git diff" in log, "squeak" in log, '"bash"' in log) == (False, False, True)
    result = f"/transcripts/agents/log-0/results/{sha256(LONG.encode()).hexdigest()}"
    assert "squeak" not in hidden.get(result).text


def test_a_run_leads_to_its_logs_and_back(filled: StateStore) -> None:
    """inspector IN-79: an execution to the log of its agent, a run to the run log of its id, a chat to its agent's."""
    w = filled.workflows
    run = w.runs.create("w", trigger=Trigger("t", type="cli"), phase="p", options=RunOptions(id=EXAMPLE_RUN))
    w.executions.start("w:s", run_id=run.id, options=ExecutionOptions(id="with-log"), session_id="log-0")
    chat = filled.messaging.sessions.get("ms-0")
    filled.messaging.sessions.update("ms-0", version=chat.version, agent_session_id="log-0")
    client = TestClient(inspector(filled))

    def links(address: str) -> set[str]:
        return {str(attributes.get("href")) for _, attributes in Parsed(client.get(address).text).tags}

    assert {"/transcripts/agents/log-0", f"/transcripts/runs/{EXAMPLE_RUN}"} <= links(f"/runs/{run.id}")
    assert "/transcripts/agents/log-0" in links(f"/runs/{run.id}/executions/with-log")
    assert {f"/runs/{run.id}", "/transcripts/chats/ms-0"} <= links("/transcripts/agents/log-0")
    assert "/transcripts/agents/log-0" in links("/transcripts/chats/ms-0")
    assert f"/transcripts/runs/{EXAMPLE_RUN}" not in links("/runs/home")
