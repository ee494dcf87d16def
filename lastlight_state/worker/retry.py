"""The number of times that a workflow's function is called again after it raised, and the pauses in between."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue

#: The longest pause that may be set.
_LONGEST = timedelta(days=366)


@dataclass(frozen=True)
class Retry:
    """The number of times that a workflow's function is called for one run, and the pauses between the tries.

    ``attempts`` counts all tries: with 1, the first exception ends the run as failed. Before the second try the run
    waits for ``pause``. Each further pause is ``factor`` times as long, at most ``longest``. An exception of a type in
    ``final`` ends the run at once. `RunFailed` always does.
    """

    attempts: int = 3
    pause: timedelta = timedelta(seconds=10)
    factor: float = 2.0
    longest: timedelta = timedelta(minutes=10)
    final: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        valid.number("retry.attempts", self.attempts, least=1)
        for name in ("pause", "longest"):
            valid.duration(f"retry.{name}", getattr(self, name), most=_LONGEST, least=timedelta(0))
        if not 1 <= self.factor < math.inf:
            raise InvalidValue("retry.factor", "expected a number of at least 1")
        if not all(isinstance(kind, type) for kind in self.final):
            raise InvalidValue("retry.final", "expected a tuple of exception types")

    def pause_after(self, tries: int) -> timedelta:
        """Return the pause before the next try, given the number of failed tries."""
        longest = self.longest.total_seconds()
        seconds = min(self.pause.total_seconds(), longest)
        for _ in range(tries - 1):
            if not 0 < seconds < longest or self.factor == 1:
                break
            seconds = min(seconds * self.factor, longest)
        return timedelta(seconds=seconds)
