"""Checks of what callers hand to a mailbox."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.clock import aware_utc, iso_text
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue
from lastlight_state.mailbox import words
from lastlight_state.mailbox.arguments import Routing, StalePolicy
from lastlight_state.mailbox.shown import RoutingColumns
from lastlight_state.settings import Settings


def message_id(value: Any) -> str:
    """The id of a message."""
    return valid.identifier("id", value, words.ID_BYTES)


def kind(value: Any) -> str:
    """A kind of message: any name of 1 to 64 characters."""
    name = valid.identifier("kind", value, 4 * words.KIND_CHARACTERS)
    if len(name) > words.KIND_CHARACTERS:
        raise InvalidValue("kind", f"{len(name)} characters, more than the limit of {words.KIND_CHARACTERS}")
    return name


def content(value: Any, settings: Settings) -> str:
    """Content as it is stored: compact JSON, because the original searches it as text."""
    return codec.encode("content", value, max_bytes=settings.limits.message_content, max_depth=words.CONTENT_DEPTH)


def routing(value: Routing | None) -> RoutingColumns:
    """Return the columns of a routing."""
    given = Routing() if value is None else valid.group("routing", value, Routing)
    return {
        "channel_type": valid.optional("routing.channel_type", given.channel_type, words.ROUTING_BYTES),
        "platform_id": valid.optional("routing.platform_id", given.platform_id, words.ROUTING_BYTES),
        "thread_id": valid.optional("routing.thread_id", given.thread_id, words.ROUTING_BYTES),
    }


def time_text(where: str, moment: datetime | None) -> str | None:
    """A time as most columns hold it. Naive ones are `InvalidValue`."""
    return None if moment is None else iso_text(aware_utc(where, moment))


def error_text(value: Any) -> str:
    """Return what went wrong, in words."""
    return valid.content("error", value, words.ERROR_BYTES)


def policy(value: Any) -> StalePolicy:
    """Return the times after which an agent counts as stuck."""
    given = valid.group("policy", value, StalePolicy)
    for name in ("silent_after", "claim_after"):
        valid.duration(f"policy.{name}", getattr(given, name), most=words.LONGEST_SILENCE)
    kept = None if given.max_context is None else valid.number("policy.max_context", given.max_context)
    return replace(given, timed_tools=kinds("policy.timed_tools", given.timed_tools), max_context=kept)


def kinds(where: str, values: Any) -> frozenset[str]:
    """Kinds of messages to pass over."""
    return frozenset(valid.sought(where, value) for value in valid.several(where, values))
