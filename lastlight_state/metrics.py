"""Counters of what a store met: retries, calls that gave up, failed hooks, rows that cannot be read, and more.

Each counter is an attribute that only grows. When OpenTelemetry is installed, the same numbers are added to its
counters ``lastlight_state.<name>``; without it nothing is imported and nothing is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

from lastlight_state.lazy import load
from lastlight_state.locks import Lock

# Where calls of repositories and waits can be watched, by whoever asks for that in `lastlight_state.telemetry`.

P = ParamSpec("P")
T = TypeVar("T")

#: What is waited for: a connection of the pool, the write lock of a SQLite file, a named lock of Postgres.
Awaited = Literal["pool", "file", "named"]


class Observer(Protocol):
    """Makes the call that it is told of, and returns what the call returned."""

    def __call__(self, method: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any: ...


#: Who watches each call of a repository. None: nobody.
observer: Observer | None = None
#: Returns the trace and the span that the caller is in, as a run stores them. None: nobody knows.
current_span: Callable[[], tuple[str, str] | None] | None = None
#: Told of what was waited for, and how many seconds. None: nobody asks.
waits: Callable[[Awaited, float], None] | None = None


def timed(awaited: Awaited, call: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Make a call that may wait, and tell how long it took, also where it failed.

    What each unit waits for looks for `waits` first, so that a store without telemetry does not come here.
    """
    told = waits
    if told is None:
        return call(*given, **named)
    began = time.perf_counter()
    try:
        return call(*given, **named)
    finally:
        told(awaited, time.perf_counter() - began)


#: How many labels are counted apart. Labels are few; one made from data does not fill the memory.
MOST_LABELS = 1_000


class Metrics:
    """The counters of one store. Reading an attribute gives the count so far."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.retries = 0
        self.gave_up = 0
        self.failed_hooks = 0
        self.executions_without_session = 0
        self.damaged_rows = 0
        #: Of mailboxes: messages stored, and taken to be worked on or sent; tries after a failure; sends that may have
        #: happened before; times that cannot be read; messages numbered without the other side's file; copies of a
        #: crashed writer's file.
        self.mailbox_sent = 0
        self.mailbox_taken = 0
        self.mailbox_retried = 0
        self.mailbox_in_doubt = 0
        self.mailbox_unreadable_times = 0
        self.mailbox_lone_numbers = 0
        self.mailbox_copies = 0
        self._by_label: dict[str, dict[str, int]] = {}

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}={count}" for name, count in vars(self).items() if not name.startswith("_"))
        return f"Metrics({counts})"

    def count(self, name: str, amount: int = 1, *, label: str | None = None) -> None:
        """Add to a counter, from any thread. ``label`` names the transaction that it happened in."""
        with self._lock:
            setattr(self, name, getattr(self, name) + amount)
            if label is not None and (label in self._by_label or len(self._by_label) < MOST_LABELS):
                counts = self._by_label.setdefault(label, {})
                counts[name] = counts.get(name, 0) + amount
        counter = _exported(name)
        if counter is not None:
            counter.add(amount, {} if label is None else {"label": label})

    def of(self, label: str) -> dict[str, int]:
        """Return what was counted in transactions with this label, by the counter's name."""
        with self._lock:
            return dict(self._by_label.get(label, {}))


@lru_cache
def _exported(name: str) -> Any:
    try:
        meter = load("opentelemetry.metrics").get_meter("lastlight_state")
    except ImportError:
        return None
    return meter.create_counter(f"lastlight_state.{name}")
