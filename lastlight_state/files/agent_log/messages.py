"""Turns lines of every format into messages for display.

A line may be an envelope of the current form, an older envelope whose ``message`` is text or JSON text, or a role line.
Other lines (results, breadcrumbs, summaries, unknown types) yield no message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lastlight_state.codec import load_line
from lastlight_state.files.agent_log import events
from lastlight_state.files.agent_log.events import time_of
from lastlight_state.files.agent_log.records import LogLine, LogMessage

_ROLE_KEYS = frozenset({"role", "content", "timestamp"})


def messages_of(line: LogLine) -> list[LogMessage]:
    """Return the messages of one line, in the order of its blocks."""
    common: dict[str, Any] = {"offset": line.offset, "source": line.source, "timestamp": time_of(line.value)}
    return [
        LogMessage(part=number, **common, **fields)
        for number, fields in enumerate(parts_of(line.value))
        if not (fields["role"] == "system" and not fields["content"])
    ]


def parts_of(value: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the fields of each message in a line, as dicts."""
    kind = value.get("type")
    if value.get("isApiErrorMessage") is True and isinstance(value.get("error"), str):
        yield _message("system", value["error"])
    elif kind == "user":
        yield from _of_user(content_of(value))
    elif kind == "assistant":
        yield from _of_assistant(value.get("message"), content_of(value))
    elif kind == "tool_result":
        yield _of_result(value)
    elif kind == "tool_use":
        yield _message("assistant", "", tool_calls=(_call(value),))
    elif kind is None and isinstance(value.get("role"), str):
        others = {key: part for key, part in value.items() if key not in _ROLE_KEYS}
        yield _message(value["role"], value.get("content"), extra=others)


def text_of(content: Any, *, joined_by: str = "\n") -> str:
    """Return the text of a message's content: the content itself, or its text blocks."""
    if isinstance(content, str):
        return content
    blocks = [block for block in content if _is(block, "text")] if isinstance(content, list) else []
    return joined_by.join(block["text"] for block in blocks if isinstance(block.get("text"), str))


def _of_user(content: Any) -> Iterator[dict[str, Any]]:
    if isinstance(content, str):
        yield _message("user", content)
        return
    texts: list[Any] = []
    for block in content if isinstance(content, list) else ():
        if not _is(block, "tool_result"):
            texts.append(block)
            continue
        yield from _user_text(texts)
        texts = []
        yield _of_result(block)
    yield from _user_text(texts)


def _user_text(blocks: list[Any]) -> Iterator[dict[str, Any]]:
    text = text_of(blocks)
    if text:
        yield _message("user", text)


def _of_result(block: Mapping[str, Any]) -> dict[str, Any]:
    content = block.get("content")
    text = text_of(content)
    if not text and content is not None and not isinstance(content, str):
        text = events.compact_json(content)
    reference = block.get("raw_ref")
    return _message(
        "tool",
        text,
        tool_call_id=events.text(block, "tool_use_id"),
        is_error=block.get("is_error") is True,
        raw_ref=reference if isinstance(reference, dict) else None,
    )


def _of_assistant(message: Any, content: Any) -> Iterator[dict[str, Any]]:
    text = text_of(content)
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    calls = tuple(_call(block) for block in blocks if _is(block, "tool_use"))
    if not text and not calls:
        return
    thoughts = [block["thinking"] for block in blocks if isinstance(block.get("thinking"), str)]
    told = _decode_message(message)
    yield _message(
        "assistant",
        text,
        tool_calls=calls,
        reasoning=thoughts[-1] if thoughts else None,
        finish_reason=events.text(told, "stop_reason"),
        model=events.text(told, "model"),
    )


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    given = block.get("input")
    arguments = given if isinstance(given, str) else events.compact_json({} if given is None else given)
    return {"id": block.get("id"), "function": {"name": block.get("name"), "arguments": arguments}}


def content_of(value: Mapping[str, Any]) -> Any:
    """Return the content of a line's message, which may be an object, JSON text of one, or plain text."""
    message = value.get("message")
    opened = _decode_message(message)
    if "content" in opened:
        return opened["content"]
    return message if isinstance(message, str) else value.get("content")


def _decode_message(message: Any) -> dict[str, Any]:
    if isinstance(message, str):
        try:
            message = load_line(message.encode("utf-8", "surrogatepass"))
        except ValueError:
            return {}
    return message if isinstance(message, dict) else {}


def _is(block: Any, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def _message(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "extra": {}} | fields
