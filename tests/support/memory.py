"""How much memory a function takes. Other threads may allocate meanwhile, so it is measured up to three times."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

ROUNDS = 3


def assert_left_bytes_below(most: int, work: Callable[[], object]) -> None:
    """Assert that the work leaves less memory than this, in one round of three."""
    _assert_below(most, work, _left_bytes)


def assert_peak_bytes_below(most: int, work: Callable[[], object]) -> None:
    """Assert that the work holds less memory than this at once, in one round of three."""
    _assert_below(most, work, lambda: tracemalloc.get_traced_memory()[1])


def _left_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _assert_below(most: int, work: Callable[[], object], measure: Callable[[], int]) -> None:
    rounds = []
    for _ in range(ROUNDS):
        gc.collect()
        tracemalloc.start()
        try:
            work()
            found = measure()
            largest = tracemalloc.take_snapshot().statistics("lineno")[:8] if found >= most else []
        finally:
            tracemalloc.stop()
        if found < most:
            return
        rounds.append("\n".join([f"{found} bytes, the largest of those that are left:", *map(str, largest)]))
    raise AssertionError("\n".join([f"below {most} bytes were expected:", *rounds]))
