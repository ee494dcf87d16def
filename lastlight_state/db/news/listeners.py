"""Callbacks that users of a store register for its events."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from lastlight_state.db import valid
from lastlight_state.metrics import Metrics

# The message of an exception, as text that every database can store.

#: The most characters of an exception's message that are kept.
MESSAGE_CHARS = 4_000
#: The end of a message that was cut off.
CUT = " …[cut]"

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


def message_of(error: BaseException) -> str:
    """Return the message of an exception, at most 4,000 characters of it."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a job's exception may be unable to say anything
        text = "(an exception without a text)"
    return storable(text, MESSAGE_CHARS)


def storable(text: str, most: int) -> str:
    """Return the text without lone surrogates and control characters, cut off if it is too long.

    Databases refuse some of these characters, and JSON needs six bytes for each of the others.
    """
    kept = text if len(text) <= most else text[: most - len(CUT)] + CUT
    whole = kept.encode("utf-8", "replace").decode()
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", whole)


_log = logging.getLogger("lastlight_state.db")


class Listeners:
    """Callbacks by topic. A callback that raises is logged and counted; the others are still called."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._by_topic: dict[str, list[Callable[[Any], object]]] = {}

    def subscribe(self, topic: str, callback: Callable[[Any], object]) -> Callable[[], None]:
        """Register a callback for each event of the topic. Returns the function that unregisters it."""
        valid.callback("callback", callback)
        listening = self._by_topic.setdefault(topic, [])
        listening.append(callback)

        def unsubscribe() -> None:
            if callback in listening:
                listening.remove(callback)

        return unsubscribe

    def notify(self, topic: str, fact: Any) -> None:
        """Call all callbacks of the topic with this event."""
        for callback in tuple(self._by_topic.get(topic, ())):
            try:
                callback(fact)
            except Exception:  # noqa: BLE001 - one listener must not silence the others
                self._metrics.count("failed_hooks")
                _log.exception("a listener of %s failed", topic)
