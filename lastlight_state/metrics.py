"""Counters of what a store met: retries, failed hooks, executions without a session, rows that cannot be read.

Each counter is an attribute that only grows. When OpenTelemetry is installed, the same numbers are added to its
counters ``lastlight_state.<name>``; without it nothing is imported and nothing is lost.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any


class Metrics:
    """The counters of one store. Reading an attribute gives the count so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.retries = 0
        self.failed_hooks = 0
        self.executions_without_session = 0
        self.damaged_rows = 0

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}={count}" for name, count in vars(self).items() if not name.startswith("_"))
        return f"Metrics({counts})"

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter, from any thread."""
        with self._lock:
            setattr(self, name, getattr(self, name) + amount)
        counter = _exported(name)
        if counter is not None:
            counter.add(amount)


@lru_cache
def _exported(name: str) -> Any:
    if find_spec("opentelemetry") is None:
        return None
    try:
        meter = import_module("opentelemetry.metrics").get_meter("lastlight_state")
    except ImportError:  # the namespace is there, for some other library of its family
        return None
    return meter.create_counter(f"lastlight_state.{name}")
