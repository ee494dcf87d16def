"""What a caller says about a queued writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.journal import words
from lastlight_state.journal.arguments import WriterOptions
from lastlight_state.journal.tables import EVENTS

_MOST = limits_of(EVENTS)


def options(given: Any) -> WriterOptions:
    """The options, each in its range."""
    found = valid.group("options", given, WriterOptions)
    valid.number("options.max_queued", found.max_queued, least=1)
    valid.number("options.max_queued_bytes", found.max_queued_bytes, least=1)
    valid.number("options.max_batch", found.max_batch, least=1, most=words.BATCH)
    valid.seconds("options.linger", found.linger)
    valid.seconds("options.full_timeout", found.full_timeout)
    valid.word("options.when_full", found.when_full, words.WHEN_FULL)
    return found


def timeout(value: Any) -> float | None:
    """Seconds, or None to wait without end."""
    return None if value is None else valid.seconds("timeout", value)


def callables(where: str, given: Any) -> list[Callable[..., Any]]:
    """Functions, or objects that can be called."""
    found = valid.several(where, given)
    for i, one in enumerate(found):
        valid.callback(f"{where}[{i}]", one)
    return found


def types(given: Any) -> frozenset[str]:
    """Types of events; empty for all."""
    return frozenset(valid.identifier("types", one, _MOST.type) for one in valid.several("types", given))
