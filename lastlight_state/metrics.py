"""Counters of a store's events: retries, calls that gave up, failed hooks, unreadable rows, and more.

Each counter is an attribute that only grows. If OpenTelemetry is installed, its counters ``lastlight_state.<name>`` get
the same numbers. Without it nothing is imported, and the attributes still count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

from lastlight_state.lazy import load
from lastlight_state.locks import Lock

# Hooks for observing repository calls and waits, which `lastlight_state.telemetry` sets on request.

P = ParamSpec("P")
T = TypeVar("T")

#: The things that are waited for: a connection of the pool, a SQLite file's write lock, a named lock of Postgres.
Awaited = Literal["pool", "file", "named"]


class Observer(Protocol):
    """A function that gets a repository call, makes it, and returns its result."""

    def __call__(self, method: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any: ...


#: The observer of each repository call. None: no observer.
observer: Observer | None = None
#: A function that returns the caller's trace and span, as a run stores them. None: no telemetry.
current_span: Callable[[], tuple[str, str] | None] | None = None
#: A callback for each wait, with the thing waited for and the seconds. None: no callback.
waits: Callable[[Awaited, float], None] | None = None


def time_call(awaited: Awaited, call: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Make a call that may wait, and report how long it took, even if it fails.

    Units check `waits` first, so a store without telemetry never calls this function.
    """
    told = waits
    if told is None:
        return call(*given, **named)
    began = time.perf_counter()
    try:
        return call(*given, **named)
    finally:
        told(awaited, time.perf_counter() - began)


#: The most labels that are counted separately. Labels are few; this limit protects the memory if they are made from
#: data.
MOST_LABELS = 1_000


class Metrics:
    """The counters of one store. The value of each attribute is its count so far."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.retries = 0
        self.gave_up = 0
        self.failed_hooks = 0
        self.executions_without_session = 0
        self.damaged_rows = 0
        #: Counters of mailboxes: stored messages, and messages taken to be worked on or sent; retries after a failure;
        #: sends that may have happened before; unreadable times; messages numbered without the other side's file;
        #: copies of a crashed writer's file.
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
        """Add to a counter, from any thread. ``label`` is the label of the transaction in which the event happened."""
        with self._lock:
            setattr(self, name, getattr(self, name) + amount)
            if label is not None and (label in self._by_label or len(self._by_label) < MOST_LABELS):
                counts = self._by_label.setdefault(label, {})
                counts[name] = counts.get(name, 0) + amount
        counter = _exported_counter(name)
        if counter is not None:
            counter.add(amount, {} if label is None else {"label": label})

    def of(self, label: str) -> dict[str, int]:
        """Return the counts of transactions with this label, by counter name."""
        with self._lock:
            return dict(self._by_label.get(label, {}))


@lru_cache
def _exported_counter(name: str) -> Any:
    try:
        meter = load("opentelemetry.metrics").get_meter("lastlight_state")
    except ImportError:
        return None
    return meter.create_counter(f"lastlight_state.{name}")
