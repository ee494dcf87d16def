"""Entries of transcripts, made from lines of agent logs, records of run logs, or chat messages. Reads no files.

An entry is a dict with the same fields for every source. Its ``key`` stays the same while further entries arrive.
``record`` is a complete line, for lines without a message.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from lastlight_state.files.agent_log import LogLine, LogMessage, messages_of
from lastlight_state.files.run_log import (
    LlmRequest,
    LlmResponse,
    RunEnd,
    RunError,
    RunHeader,
    RunRecord,
    RunStart,
    ToolOutput,
)
from lastlight_state.messaging import MessagingMessage

Entry = dict[str, Any]

#: Most characters of a text on a page. Its file has the complete text.
MOST_TEXT = 256 * 1024

_EMPTY: Entry = {
    "key": "", "at": None, "role": "", "content": None, "reasoning": None, "calls": [], "call_id": None, "tool": None,
    "is_error": False, "raw_ref": None, "record": None, "phase": None, "place": None,
}  # fmt: skip


#: Most characters of a call or result that are shown while it is folded.
BRIEF = 100
#: Longest JSON text of a call that is parsed.
_PARSED = 16 * 1024
#: The fields shown of a reference to a complete result. A log may have any others beside them.
_REFERENCE = ("sha256", "bytes")


def entry(role: Any, **fields: Any) -> Entry:
    """Return an entry with this role. ``calls`` are its tool calls; a tool's result has the ``call_id`` of its call."""
    return {**_EMPTY, "role": role if isinstance(role, str) else str(role), **fields}


def pair_results(said: Iterable[Entry]) -> list[Entry]:
    """Return the entries. Each tool result is moved into the entry of its call, if that is among the entries."""
    found: list[Entry] = []
    calls: dict[str, Entry] = {}
    for one in said:
        answered = calls.get(str(one["call_id"])) if one["call_id"] else None
        if answered is not None and answered.get("result") is None:
            answered["result"] = one
            continue
        own = [{**call, "result": None} for call in one["calls"]]
        calls.update({str(call["id"]): call for call in own if call["id"]})
        found.append({**one, "calls": own})
    return found


def brief(value: Any) -> str:
    """Return a value's first line, or that of its first text part, as the caption of a folded call."""
    if isinstance(value, str) and value[:1] == "{" and len(value) < _PARSED:
        with suppress(ValueError):
            value = json.loads(value)
    texts = [part for part in value.values() if isinstance(part, str)] if isinstance(value, Mapping) else []
    if texts:
        value = texts[0]
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        value = value[0].get("text", value)
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= BRIEF else f"{line[:BRIEF]}…"


def shorten_texts(value: Any) -> Any:
    """Return a value in which each text over `MOST_TEXT` characters is cut, with its length appended."""
    if isinstance(value, str):
        return value if len(value) <= MOST_TEXT else f"{value[:MOST_TEXT]}… ({len(value)} characters in all)"
    if isinstance(value, Mapping):
        return {key: shorten_texts(part) for key, part in value.items()}
    return [shorten_texts(part) for part in value] if isinstance(value, list | tuple) else value


def of_line(line: LogLine) -> Iterator[Entry]:
    """Yield the entries of an agent log's line: its messages, or the line itself if it has none."""
    said, key = messages_of(line), _key(line.raw)
    if not said:
        yield entry(line.type or "line", key=key, at=line.timestamp, record=line.value)
    for message in said:
        yield _of_message(f"{key}-{message.part}", message)


def _of_message(key: str, message: LogMessage) -> Entry:
    calls = [_call(one) for one in message.tool_calls]
    return entry(
        message.role,
        key=key,
        at=message.timestamp,
        content=message.content,
        reasoning=message.reasoning,
        calls=calls,
        call_id=message.tool_call_id,
        is_error=message.is_error,
        raw_ref=None if message.raw_ref is None else {name: message.raw_ref.get(name) for name in _REFERENCE},
        record=message.extra or None,
    )


def of_record(record: RunRecord) -> Iterator[Entry]:
    """Yield the entries of a run log's record.

    A request to the model repeats all earlier messages, so it is shown as one record.
    """
    at, key = record.started_at if isinstance(record, RunHeader) else record.ts, _key(record.raw or b"")
    common = {"key": key, "at": at}
    if isinstance(record, RunStart):
        asked = record.input.parts if record.input.text is None else record.input.text
        yield entry("user", **common, content=asked)
    elif isinstance(record, LlmResponse):
        for place, message in enumerate(record.output.messages):
            yield _of_answer(message, **common | {"key": f"{key}-{place}"})
    elif isinstance(record, ToolOutput):
        told = {"tool": record.tool, "call_id": record.tool_call_id, "content": record.result_raw}
        yield entry("tool", **common, **told, is_error=record.is_error is True)
    elif isinstance(record, RunError):
        yield entry(record.type, **common, content=f"{record.error.name}: {record.error.message}", is_error=True)
    elif isinstance(record, RunEnd) and record.final is not None:
        yield entry(record.type, **common, content=record.final)
    elif isinstance(record, LlmRequest):
        yield entry(f"{record.type} {record.seq}", **common, record=record.to_json())
    else:
        yield entry(record.type, **common, record=record.to_json())


def _of_answer(message: Mapping[str, Any], **common: Any) -> Entry:
    """Return the entry of a model's message, in either of the two usual formats."""
    content, calls = message.get("content"), [_call(one) for one in _objects(message.get("tool_calls"))]
    thoughts: list[str] = []
    if isinstance(content, Sequence) and not isinstance(content, str):
        blocks = _objects(content)
        calls += [_call(block) for block in blocks if block.get("type") == "tool_use"]
        thoughts = [block["thinking"] for block in blocks if isinstance(block.get("thinking"), str)]
        texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
        others = [block for block in content if not _is_told(block)]
        content = "\n".join(texts) if not others else content
    reasoning = "\n".join(thoughts) or None
    return entry(message.get("role"), **common, content=content, reasoning=reasoning, calls=calls)


def _is_told(block: Any) -> bool:
    """True if a block of a message is displayed: a text, reasoning or a tool call."""
    return isinstance(block, Mapping) and (
        block.get("type") == "tool_use" or any(isinstance(block.get(name), str) for name in ("text", "thinking"))
    )


def _call(call: Mapping[str, Any]) -> Entry:
    """Return a tool call's id, tool name and arguments."""
    function = call.get("function")
    if isinstance(function, Mapping):
        return {"id": call.get("id"), "tool": function.get("name"), "arguments": function.get("arguments")}
    return {"id": call.get("id"), "tool": call.get("name"), "arguments": call.get("input")}


def _objects(values: Any) -> list[Mapping[str, Any]]:
    found: Iterable[Any] = values if isinstance(values, list | tuple) else ()
    return [value for value in found if isinstance(value, Mapping)]


def of_chat(message: MessagingMessage) -> Entry:
    """Return the entry of a chat message."""
    return entry(message.role, key=str(message.id), at=message.timestamp, content=message.content)


def _key(raw: bytes) -> str:
    return f"{zlib.crc32(raw):08x}"
