"""Transcripts: agent logs, run logs and chats as conversations, read in parts from either end, with search."""

from __future__ import annotations

import codecs
import os
from collections.abc import Hashable, Iterable
from typing import Any, cast

from lastlight_state.errors import InvalidValue
from lastlight_state.inspector import entries, parts, phases
from lastlight_state.inspector.entries import Entry
from lastlight_state.inspector.page import Ask, Page, View
from lastlight_state.inspector.parts import Part, Reading
from lastlight_state.inspector.phases import Phase

page = Page(
    "transcripts",
    "Transcripts",
    "/transcripts",
    "t",
    personal=frozenset({"record", "platform_message_id", "channel_id", "thread_id"}),
)

#: Most bytes of a complete result on a page.
RAW_BYTES = 256 * 1024
SCOPES, STATES, ORDERS = ("chat", "sandbox"), ("running", "crashed", "unknown", "ended"), ("newest", "oldest")


@page.look(live=True, takes="scope state project session since platform user limit page_token runs chats")
def transcript_list(ask: Ask) -> View:
    """Show a page of agent logs, one of run logs, and one of chats."""
    limit, scope, state = ask.part["limit"], cast("Any", ask.text("scope")), cast("Any", ask.text("state"))
    logs = ask.store.agent_log.sessions.list(
        scope=scope or "all", slug=ask.text("project"), limit=limit, page_token=ask.text("page_token")
    )
    runs = ask.store.run_log.runs.list(
        session_id=ask.text("session"), state=state, since=ask.moment("since"), limit=limit, page_token=ask.text("runs")
    )
    chats = ask.store.messaging.sessions.list(
        platform=ask.text("platform"), user_id=ask.text("user"), limit=limit, page_token=ask.text("chats")
    )
    with ask.store.view() as moment:
        done = {one.id: moment.workflows.executions.find_by_session(one.id) for one in logs.items}
    data = {"logs": _without_paths(logs), "executions": done, "runs": _without_paths(runs), "chats": chats}
    return View("transcripts.html", data, "Transcripts", {"scopes": SCOPES, "states": STATES})


def _log_mark(ask: Ask) -> Hashable:
    """Return a value that changes whenever an agent log changes."""
    found = ask.store.agent_log.sessions.get(ask.path["session_id"], slug=ask.text("project"))
    return found.bytes, found.modified_at


@page.look("/agents/{session_id}", live=True, mark=_log_mark, takes="project order limit page_token find at")
def agent(ask: Ask) -> View:
    """Show a part of an agent log: its end, an earlier part, or its beginning."""
    key, reader = ask.path["session_id"], ask.store.agent_log.reader
    found = ask.store.agent_log.sessions.get(key, slug=ask.text("project"))

    def backwards(n: int, before: str | None) -> Part:
        part = reader.tail(key, n=n, before=before, slug=found.slug)
        then, said = part.before if len(part.lines) == n else None, _flat(map(entries.of_line, part.lines))
        return Part(said, _bytes(part.lines), then, part.before, list(part.issues), part.reset)

    def forwards(n: int, after: str | None) -> Part:
        part = reader.read(key, after=after, limit=n, slug=found.slug)
        then, said = None if part.at_end else part.cursor, _flat(map(entries.of_line, part.lines))
        return Part(said, _bytes(part.lines), then, part.before, list(part.issues), part.reset)

    with ask.store.view() as moment:
        done = moment.workflows.executions.find_by_session(key)
        chat = moment.messaging.sessions.find_by_agent_session(key)
        marks = phases.of_agent(moment, key, None if done is None else done.run_id)
    data = {
        "kind": "agents",
        "id": found.id,
        "project": found.slug,
        "file": found.model_dump(exclude={"path"}),
        "execution": done,
        "chat": chat,
    }
    return _transcript(ask, data, backwards, forwards, marks)


@page.look("/agents/{session_id}/results/{sha256}")
def result(ask: Ask) -> View:
    """Show part of a result that the agent log has shortened. Each part reads and checks the complete file."""
    key, sha256 = ask.path["session_id"], ask.path["sha256"]
    start = _offset(ask)
    with ask.store.agent_log.raw.open(key, sha256, slug=ask.text("project")) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(start)
        read = file.read(RAW_BYTES)
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    text = decoder.decode(read, final=start + len(read) >= size)
    end = start + len(read) - len(decoder.getstate()[0])  # a character cut at the end belongs to the next part
    token = None if end >= size else str(end)
    data = {"session_id": key, "sha256": sha256, "bytes": size, "from": start, "to": end, "text": text}
    return View("result.html", {**data, "part": {"next_page_token": token, "damaged": []}}, f"Result of {key}")


def _run_mark(ask: Ask) -> Hashable:
    """Return a value that changes whenever a run log changes."""
    found = ask.store.run_log.runs.get(ask.path["run_id"])
    return found.size_bytes, found.state, found.last_ts


@page.look("/runs/{run_id}", live=True, mark=_run_mark, takes="order limit page_token find at")
def run(ask: Ask) -> View:
    """Show a part of a run log: its end, an earlier part, or its beginning."""
    key, runs = ask.path["run_id"], ask.store.run_log.runs
    found = runs.get(key)

    def backwards(n: int, before: str | None) -> Part:
        part = runs.last(key, n=n, before=before)
        then, said = part.before if len(part.records) == n else None, _flat(map(entries.of_record, part.records))
        return Part(said, _bytes(part.records), then, part.before, list(part.damage), part.reset)

    def forwards(n: int, after: str | None) -> Part:
        part = runs.tail(key, after=after, limit=n)
        then, said = None if part.at_end else part.cursor, _flat(map(entries.of_record, part.records))
        return Part(said, _bytes(part.records), then, part.before, list(part.damage), part.reset)

    marks = phases.of_run(ask.store.workflows.runs.find(key))
    data = {"kind": "runs", "id": key, "project": None, "file": found.model_dump(exclude={"path"})}
    return _transcript(ask, data, backwards, forwards, marks)


def _chat_mark(ask: Ask) -> Hashable:
    """Return a value that changes whenever a chat changes."""
    found = ask.store.messaging.sessions.get(ask.path["session_id"])
    return found.message_count, found.version


@page.look("/chats/{session_id}", live=True, mark=_chat_mark, takes="order limit page_token find at")
def chat(ask: Ask) -> View:
    """Show a part of a chat: its end, an earlier part, or its beginning."""
    key, messaging = ask.path["session_id"], ask.store.messaging
    found = messaging.sessions.get(key)

    def backwards(n: int, before: str | None) -> Part:
        part = messaging.messages.history(key, limit=n, before=_number(before))
        then, start = str(part[0].id) if len(part) == n else None, str(part[0].id - 1) if part else before
        return Part(list(map(entries.of_chat, part)), sum(len(one.content) for one in part), then, start)

    def forwards(n: int, after: str | None) -> Part:
        part = messaging.messages.since(key, after=_number(after) or 0, limit=n)
        then = str(part[-1].id) if len(part) == n else None
        return Part(list(map(entries.of_chat, part)), sum(len(one.content) for one in part), then, after)

    data = {"kind": "chats", "id": key, "project": None, "session": found}
    return _transcript(ask, data, backwards, forwards, [])


def _transcript(ask: Ask, data: dict[str, Any], backwards: Reading, forwards: Reading, marks: list[Phase]) -> View:
    """Show a part of a transcript: backwards from its end, forwards from its start or a time, or search matches."""
    order, find, at = ask.text("order") or ORDERS[0], ask.text("find"), ask.moment("at")
    if order not in ORDERS:
        raise InvalidValue("order", f"expected one of {', '.join(ORDERS)}", permitted=ORDERS)
    limit, then, is_there = ask.part["limit"], ask.text("page_token"), True
    if at is not None and not find:
        order = "oldest"
        then, is_there = parts.place_of(forwards, at, then)
    read, is_back = (forwards, False) if order == "oldest" else (backwards, True)
    if find:
        shown = parts.search(read, find, limit, then, backwards=is_back)
    else:
        shown = parts.window(read, limit, then, backwards=is_back)
    data |= {
        "order": order,
        "find": find,
        "at": at,
        "is_there": is_there,
        "phases": marks,
        "said": {"items": phases.mark_phases(shown.said, marks), "next_page_token": shown.then, "damaged": []},
        "problems": shown.problems,
    }
    return View("transcript.html", data, f"Transcript {data['id']}", live=not find)


def _flat(found: Iterable[Iterable[Entry]]) -> list[Entry]:
    return [one for part in found for one in part]


def _bytes(lines: Iterable[Any]) -> int:
    return sum(len(line.raw or b"") for line in lines)


def _without_paths(found: Any) -> dict[str, Any]:
    """Return a page of log files as data, without the files' paths."""
    items = [one.model_dump(exclude={"path"}) for one in found.items]
    return {"items": items, "next_page_token": found.next_page_token, "damaged": [], "skipped": found.skipped}


def _number(token: str | None) -> int | None:
    if token is None:
        return None
    if not (token.isascii() and token.isdecimal() and len(token) < 19):
        raise InvalidValue("page_token", "expected a token of this page: it is damaged, or of another page")
    return int(token)


def _offset(ask: Ask) -> int:
    return _number(ask.text("page_token")) or 0
