"""How much memory a function takes. Other threads may allocate meanwhile, so it is measured up to three times."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

ROUNDS = 3


def _traced(work: Callable[[], object]) -> tuple[int, int, str]:
    """Return the bytes that are left after the work, the most that were held at once, and where the most is left."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        peak = tracemalloc.get_traced_memory()[1]
        gc.collect()
        left = tracemalloc.get_traced_memory()[0]
        lines = tracemalloc.take_snapshot().statistics("lineno")[:8]
    finally:
        tracemalloc.stop()
    return left, peak, "\n".join(map(str, lines))


def assert_left_bytes_below(most: int, work: Callable[[], object]) -> None:
    """Assert that the work leaves less memory than this, in one round of three."""
    rounds = []
    for _ in range(ROUNDS):
        left, _, lines = _traced(work)
        if left < most:
            return
        rounds.append(f"{left} bytes are left:\n{lines}")
    raise AssertionError(f"at most {most} bytes may be left, but\n" + "\n".join(rounds))


def assert_peak_bytes_below(most: int, work: Callable[[], object]) -> None:
    """Assert that the work holds less memory than this at once, in one round of three."""
    rounds = []
    for _ in range(ROUNDS):
        _, peak, lines = _traced(work)
        if peak < most:
            return
        rounds.append(f"{peak} bytes were held; left were:\n{lines}")
    raise AssertionError(f"at most {most} bytes may be held, but\n" + "\n".join(rounds))
