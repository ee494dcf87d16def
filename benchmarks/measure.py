"""Pairs of the same work, timed in turn so that both meet the same noise."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

Work = Callable[[], object]

#: What tells the time. On a machine that is busy with other work, the time of this thread's processor says more, as
#: long as the work is its own and not a server's.
CLOCKS = {"wall": time.perf_counter, "processor": time.thread_time}
_clock = [time.perf_counter]


#: The most rounds and calls of a comparison; None for what each one asks for.
_HURRIED_ROUNDS, _HURRIED_CALLS = 5, 100
_hurried = [False]


def hurry() -> None:
    """Measure fewer rounds of fewer calls from now on: a third of the time, and more noise."""
    _hurried[0] = True


def tell_time_by(name: str) -> None:
    """Measure by this clock from now on."""
    _clock[0] = CLOCKS[name]


@dataclass(frozen=True)
class Result:
    """One path on one database. Times are microseconds per call, medians over the rounds.

    Where a path is about bytes, ``unit`` says so, and both numbers are bytes.
    """

    path: str
    database: str
    ours_us: float
    raw_us: float
    ratio: float
    best_ratio: float
    goal: float | None
    unit: str = "us"

    @property
    def met(self) -> bool | None:
        """Whether the ratio is within its goal; None without one."""
        return None if self.goal is None else self.ratio <= self.goal

    def divided(self, calls: int) -> Result:
        """The same result per call, where each timed call made ``calls`` of them."""
        return replace(self, ours_us=round(self.ours_us / calls, 1), raw_us=round(self.raw_us / calls, 1))

    def as_row(self) -> str:
        """The result as a row of the table in ``docs/performance.md``."""
        goal = ("", "") if self.goal is None else (f"≤ {self.goal:g}", "met" if self.met else "missed")
        unit = "" if self.unit == "us" else f" {self.unit}"
        numbers = f"{self.ours_us:g}{unit} | {self.raw_us:g}{unit} | {self.ratio:g} | {self.best_ratio:g}"
        return f"| {self.path} | {self.database} | {numbers} | {goal[0]} | {goal[1]} |"

    def as_dict(self) -> dict[str, object]:
        """The result as JSON shows it."""
        return {**asdict(self), "met": self.met}


def compare(
    path: str, database: str, ours: Work, raw: Work, *, goal: float | None, calls: int = 300, rounds: int = 9
) -> Result:
    """Time ``ours`` and ``raw`` in turn. The ratio is the median of the ratios round by round.

    The best one is that of the least times of both, which other work on the machine disturbs the least.
    """
    if _hurried[0]:
        calls, rounds = min(calls, _HURRIED_CALLS), min(rounds, _HURRIED_ROUNDS)
    for _ in range(3):
        _time(ours, max(1, calls // 10))
        _time(raw, max(1, calls // 10))
    pairs = []
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            first, second = (ours, raw) if turn % 2 else (raw, ours)
            times = {first: _time(first, calls)}
            times[second] = _time(second, calls)
            pairs.append((times[ours], times[raw]))
    finally:
        gc.enable()
    ratios = [mine / theirs for mine, theirs in pairs]
    return Result(
        path,
        database,
        ours_us=round(statistics.median(mine for mine, _ in pairs), 1),
        raw_us=round(statistics.median(theirs for _, theirs in pairs), 1),
        ratio=round(statistics.median(ratios), 2),
        best_ratio=round(min(mine for mine, _ in pairs) / min(theirs for _, theirs in pairs), 2),
        goal=goal,
    )


def _time(work: Work, calls: int) -> float:
    [clock] = _clock
    begin = clock()
    for _ in range(calls):
        work()
    return (clock() - begin) / calls * 1e6
