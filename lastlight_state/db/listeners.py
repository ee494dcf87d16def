"""Callbacks that users of a store register for its events."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from lastlight_state.db import valid
from lastlight_state.metrics import Metrics

_log = logging.getLogger("lastlight_state.db")


class Listeners:
    """Callbacks by topic. One that raises is logged and counted; the others are still called."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._by_topic: dict[str, list[Callable[[Any], object]]] = {}

    def subscribe(self, topic: str, callback: Callable[[Any], object]) -> Callable[[], None]:
        """Call ``callback`` with each fact of the topic; returns the function that ends it."""
        valid.callback("callback", callback)
        listening = self._by_topic.setdefault(topic, [])
        listening.append(callback)

        def unsubscribe() -> None:
            if callback in listening:
                listening.remove(callback)

        return unsubscribe

    def notify(self, topic: str, fact: Any) -> None:
        """Call all callbacks of the topic."""
        for callback in tuple(self._by_topic.get(topic, ())):
            try:
                callback(fact)
            except Exception:  # noqa: BLE001 - one listener must not silence the others
                self._metrics.count("failed_hooks")
                _log.exception("a listener of %s failed", topic)
