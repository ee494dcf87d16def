"""Breadcrumbs: what happened around the messages, as lines that a dashboard may show. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import floor, isfinite

from lastlight_state.agent_log import events
from lastlight_state.agent_log.arguments import Event
from lastlight_state.agent_log.envelopes import Envelope, Stamp

_LONGEST_REASON, _KEPT_OF_LONGER = 200, 197
_EXTENSION_FIELDS = ("status", "mode", "provider", "toolCount", "reason")
_SKILL_FIELDS = ("discovered", "skills", "mappedPaths", "noSkills")
_LISTS = frozenset({"skills", "mappedPaths"})


def _extension_status(event: Event, stamp: Stamp) -> Envelope | None:
    extension = events.text(event, "extension")
    if extension is None:
        return None
    told = {name: event[name] for name in _EXTENSION_FIELDS if name in event}
    return {"type": "system", "subtype": "extension_status", "extension": extension} | told | stamp.keys()


def _skills_status(event: Event, stamp: Stamp) -> Envelope | None:
    status = events.text(event, "status")
    if status is None:
        return None
    told = {
        name: event[name]
        for name in _SKILL_FIELDS
        if name in event and (name not in _LISTS or isinstance(event[name], list))
    }
    return {"type": "system", "subtype": "skills_status", "status": status} | told | stamp.keys()


def _auto_retry_start(event: Event, stamp: Stamp) -> Envelope:
    attempt, most, delay = (_whole(event.get(name)) for name in ("attempt", "maxAttempts", "delayMs"))
    attempts = "" if attempt is None else f" {attempt}" + ("" if most is None else f"/{most}")
    seconds = "" if delay is None else f" in {floor(delay / 1000 + 0.5)}s"
    reason = events.text(event, "errorMessage")
    text = _in_one_line("transient error" if reason is None else reason)
    return _note("auto_retry_start", f"⏳ Auto-retry{attempts}{seconds} after model error: {text}", stamp)


def _auto_retry_end(event: Event, stamp: Stamp) -> Envelope:
    attempt = _whole(event.get("attempt"))
    attempts = "" if attempt is None else f" {attempt}"
    error = events.text(event, "finalError")
    if not error:
        return _note("auto_retry_end", f"✓ Auto-retry recovered after{attempts} attempt(s).", stamp)
    return _note("auto_retry_end", f"❌ Auto-retry gave up after{attempts} attempt(s): {_in_one_line(error)}", stamp)


#: By type of event: its line, or None when it is malformed.
BREADCRUMBS: Mapping[str, Callable[[Event, Stamp], Envelope | None]] = {
    "extension_status": _extension_status,
    "skills_status": _skills_status,
    "auto_retry_start": _auto_retry_start,
    "auto_retry_end": _auto_retry_end,
}


def _note(subtype: str, content: str, stamp: Stamp) -> Envelope:
    return {"role": "system", "subtype": subtype, "content": content} | stamp.keys()


def _whole(value: object) -> int | float | None:
    told = events.number(value)
    if told is None or not isfinite(told):
        return None
    return int(told) if told == int(told) else told


def _in_one_line(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= _LONGEST_REASON else line[:_KEPT_OF_LONGER] + "…"
