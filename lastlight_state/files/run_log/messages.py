"""Message histories: dropping the unfinished parts of a cancelled or crashed turn, and handling notices of resumes.

Calls and results are recognised in both usual forms: ``tool_calls`` with ``tool`` messages, and content blocks
``tool_use`` with ``tool_result``. Everything else is kept as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Literal, NamedTuple

from lastlight_state.db.gate import guard_arguments
from lastlight_state.errors import InvalidValue
from lastlight_state.files.run_log import paths
from lastlight_state.files.run_log.fields import JsonObject


class Dropped(NamedTuple):
    """A tool call or result that was dropped, or a message that became empty, with its position in the history."""

    kind: Literal["call", "result", "message"]
    position: int
    call_id: str | None = None


class Normalised(NamedTuple):
    """A history that a provider accepts, and the parts that were dropped from it."""

    messages: tuple[JsonObject, ...]
    dropped: tuple[Dropped, ...]


@guard_arguments
def normalise(messages: Iterable[Mapping[str, Any]]) -> Normalised:
    """Return the history without results that lack a call, calls that lack a result, and assistant messages left empty.

    The order of messages, unknown roles and unknown fields are kept. The given messages are not changed.
    """
    given = [_copy(message) for message in messages]
    paired = _paired_calls(given)
    kept: list[JsonObject] = []
    dropped: list[Dropped] = []
    for index, message in enumerate(given):
        if message.get("role") == "tool":
            if (index, _text(message.get("tool_call_id"))) in paired:
                kept.append(message)
            else:
                dropped.append(Dropped("result", index, _text(message.get("tool_call_id"))))
            continue
        lost = list(_strip(message, index, paired))
        dropped += lost
        if lost and not message.get("content") and not message.get("tool_calls"):
            dropped.append(Dropped("message", index))
        else:
            kept.append(message)
    return Normalised(tuple(kept), tuple(dropped))


@guard_arguments
def without_marks(messages: Iterable[Mapping[str, Any]]) -> tuple[JsonObject, ...]:
    """Return the messages without the marks of resume notices, for providers that accept no extra fields."""
    return tuple(_unmark_message(message) if is_notice(message) else _copy(message) for message in messages)


def is_notice(message: Any) -> bool:
    """True if a resume inserted this message to report a changed environment."""
    meta = message.get("meta") if isinstance(message, Mapping) else None
    return isinstance(meta, dict) and bool(meta.get(paths.NOTICE))


def _copy(message: Any) -> JsonObject:
    if not isinstance(message, Mapping):
        raise InvalidValue("messages", f"expected objects, got {type(message).__name__}")
    return deepcopy(dict(message))


def _unmark_message(message: Mapping[str, Any]) -> JsonObject:
    copy = _copy(message)
    meta = copy.pop("meta")
    del meta[paths.NOTICE]
    return {**copy, "meta": meta} if meta else copy


def _paired_calls(messages: list[JsonObject]) -> set[tuple[int, Any]]:
    """Return the calls that have a result and the results that have a call, by message index and the id of the call."""
    open_calls: dict[Any, int] = {}
    paired: set[tuple[int, Any]] = set()
    for index, message in enumerate(messages):
        for call_id in _results(message):
            asked = open_calls.pop(call_id, None)
            if asked is not None:
                paired |= {(asked, call_id), (index, call_id)}
        open_calls |= dict.fromkeys(_calls(message), index)
    return paired


def _calls(message: JsonObject) -> Iterator[str]:
    for call in _objects(message.get("tool_calls")):
        if isinstance(call.get("id"), str):
            yield call["id"]
    for block in _objects(message.get("content")):
        if block.get("type") == "tool_use" and isinstance(block.get("id"), str):
            yield block["id"]


def _results(message: JsonObject) -> Iterator[str]:
    if message.get("role") == "tool" and isinstance(message.get("tool_call_id"), str):
        yield message["tool_call_id"]
    for block in _objects(message.get("content")):
        if block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str):
            yield block["tool_use_id"]


def _strip(message: JsonObject, index: int, paired: set[tuple[int, Any]]) -> Iterator[Dropped]:
    """Remove unpaired calls and results from a message."""
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        lost = [call for call in _objects(calls) if (index, _text(call.get("id"))) not in paired]
        if lost:
            message["tool_calls"] = [call for call in calls if call not in lost]
            if not message["tool_calls"]:
                del message["tool_calls"]
            yield from (Dropped("call", index, _text(call.get("id"))) for call in lost)
    content = message.get("content")
    if isinstance(content, list):
        gone = [block for block in _objects(content) if not _belongs(block, index, paired)]
        message["content"] = [block for block in content if block not in gone]
        for block in gone:
            is_call = block.get("type") == "tool_use"
            yield Dropped("call" if is_call else "result", index, _text(block.get("id" if is_call else "tool_use_id")))


def _belongs(block: JsonObject, index: int, paired: set[tuple[int, Any]]) -> bool:
    name = {"tool_use": "id", "tool_result": "tool_use_id"}.get(str(block.get("type")))
    return name is None or (index, _text(block.get(name))) in paired


def _objects(values: Any) -> list[JsonObject]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
