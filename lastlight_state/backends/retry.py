"""Repeats a whole unit of work while the database is busy.

Up to six retries, 50 ms doubling to 2 s, each stretched or shortened by up to a quarter so that writers do not meet
again in step. The database's own busy timeout waits finely before that; this is the coarse part behind it. A lost
connection is met by repeating once, and only when it is certain that nothing was written.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from lastlight_state.backends import patience
from lastlight_state.backends.patience import Deadline
from lastlight_state.errors import BackendBusy, BackendError, BackendUnavailable
from lastlight_state.metrics import Metrics

T = TypeVar("T")

_LEAST_STRETCH, _MOST_STRETCH = 0.75, 1.25

_log = logging.getLogger("lastlight_state.backends")


@dataclass(frozen=True)
class Retry:
    """The retry budget of a store. ``sleep`` and ``stretch`` (a factor around 1) can be replaced by tests."""

    metrics: Metrics
    #: No repetition begins later than this many seconds after the first failure. None: the repeats are the limit.
    seconds: float | None = None
    #: For how long one attempt waits for a lock.
    lock_seconds: float = 0.0
    limit: int = 6
    base: float = 0.05
    cap: float = 2.0
    sleep: Callable[[float], None] = patience.pause
    stretch: Callable[[], float] = field(default=lambda: random.uniform(_LEAST_STRETCH, _MOST_STRETCH))  # noqa: S311 - not for secrets

    def run(self, attempt: Callable[[], T], *, repeatable: bool = False, label: str | None = None) -> T:
        """The result of ``attempt``, which is a whole unit and may run several times. ``label`` names it in metrics.

        ``repeatable``: a second run after an unknown outcome finds what the first one wrote, so it may be repeated too.
        """
        try:
            return attempt()
        except BackendError as error:
            return self.again(attempt, error, repeatable=repeatable, label=label)

    def again(self, attempt: Callable[[], T], error: BackendError, *, repeatable: bool, label: str | None = None) -> T:
        """The result of a repetition after the first attempt failed with ``error``, or the last error."""
        with Deadline(self._after_failure) as deadline:
            return self._again(attempt, error, deadline.end - self.lock_seconds, repeatable=repeatable, label=label)

    @property
    def most_seconds(self) -> float:
        """How long a call waits for locks and between its repetitions, at most."""
        return self.lock_seconds + self._after_failure

    @property
    def _after_failure(self) -> float:
        pauses = sum(min(self.cap, self.base * 2**repeat) for repeat in range(self.limit)) * _MOST_STRETCH
        last: float = pauses + max(0, self.limit - 1) * self.lock_seconds
        return (last if self.seconds is None else min(self.seconds, last)) + self.lock_seconds

    def _again(
        self, attempt: Callable[[], T], error: BackendError, last: float, *, repeatable: bool, label: str | None
    ) -> T:
        """The same, with no repetition that would begin later than ``last``."""
        repeats, in_doubt = 0, False
        while True:
            in_doubt = in_doubt or error.outcome == "unknown"
            busy = isinstance(error, BackendBusy)
            allowed = self._limit_when_busy(error) if busy else _when_unavailable(error, repeatable)
            pause = min(self.cap, self.base * 2**repeats) * self.stretch()
            if repeats >= allowed or time.monotonic() + pause > last:
                if in_doubt:
                    error.outcome = "unknown"  # of an earlier attempt, whatever came of the last
                self.gives_up(error, repeats, label=label)
                raise error
            self.sleep(pause)
            repeats += 1
            self.metrics.count("retries", label=label)
            try:
                return attempt()
            except BackendError as next_error:
                error = next_error

    def gives_up(self, error: BackendError, repeats: int = 0, *, label: str | None = None) -> None:
        """Count and log a call that gives up because others held the locks, and not because it was cancelled."""
        if isinstance(error, BackendBusy) and error.details.get("reason") != patience.CANCELLED:
            self.metrics.count("gave_up", label=label)
            _log.warning("%s gave up after %d repetitions: %s", label or "a call", repeats, type(error).__name__)

    def _limit_when_busy(self, error: BackendError) -> int:
        """0 for an error that must not be retried (``final``), else the limit."""
        return 0 if error.details.get("final") else self.limit


def _when_unavailable(error: BackendError, repeatable: bool) -> int:
    if not isinstance(error, BackendUnavailable):
        return 0
    if error.outcome == "unknown" and not repeatable:
        return 0
    return int(error.details.get("repeats", 0))
