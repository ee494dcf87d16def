"""A ``with`` statement gives its lock back, whenever a signal's handler raises."""

from __future__ import annotations

import ast
import inspect
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lastlight_state
from lastlight_state import locks

#: The locks of the standard library that no ``with`` statement of a main thread holds, or that nobody waits for.
_PLAIN = {"lazy.py", "locks.py", "backends/waiting.py", "inspector/pages/health.py"}


class Stopped(BaseException):
    """What the handler raises."""


@pytest.fixture
def alarm() -> Iterator[None]:
    """Let a handler raise at each alarm."""

    def stop(*_: Any) -> None:
        raise Stopped

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def is_free(lock: Any) -> bool:
    """True if another thread can take the lock."""
    free: list[bool] = []

    def ask() -> None:
        free.append(lock.acquire(blocking=False))
        if free[0]:
            lock.release()

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    return free[0]


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_a_statement_that_a_signal_cuts_off_gives_its_lock_back(alarm: None, kind: str) -> None:
    """backends B-87: on CPython 3.14 half of such signals left a lock of the standard library taken for ever."""
    lock, cut_off = getattr(locks, kind)(), 0
    end = time.monotonic() + 1
    while time.monotonic() < end:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005)
            while True:
                with lock:
                    pass
        except Stopped:
            cut_off += 1
        assert is_free(lock)
    assert cut_off > 20


def test_a_reentrant_lock_is_a_condition_of_its_owner() -> None:
    """backends B-87"""
    lock = locks.RLock()
    condition = threading.Condition(lock)
    with lock, condition:
        assert not condition.wait(0)
        condition.notify_all()
    with pytest.raises(RuntimeError):
        lock.release()


@pytest.mark.slow
def test_all_locks_of_statements_are_such_locks() -> None:
    """backends B-87: whoever makes a plain one looks here first."""
    home = Path(inspect.getfile(lastlight_state)).parent
    plain = {
        path.relative_to(home).as_posix()
        for path in home.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if ast.unparse(node) in ("threading.Lock()", "threading.RLock()", "from threading import Lock")
    }
    assert plain <= _PLAIN
