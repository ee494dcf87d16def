"""Locks that a ``with`` statement always releases, also on CPython 3.14.

CPython 3.14 may run a signal handler between a lock's ``__enter__`` and the body of the statement (CPython issue
148874; 3.13 and before, and 3.15, do not). If the handler raises there, the lock is never released, and every thread
that requests it waits for ever.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info[:2] != (3, 14):
    Lock, RLock = threading.Lock, threading.RLock
else:

    class Lock:
        """A lock whose ``__enter__`` is a Python function, so that no signal handler runs between it and the body."""

        _make: Any = staticmethod(threading.Lock)

        def __init__(self) -> None:
            self._lock = self._make()

        def __enter__(self) -> bool:
            taken: list[bool] = []
            try:
                taken.extend(map(self._lock.acquire, (True,)))  # acquires and records the lock in one instruction
            except BaseException:
                if taken:
                    self._lock.release()
                raise
            return True

        #: Written in C, because a handler could interrupt a Python function before its first line.
        __exit__ = property(lambda self: self._lock.__exit__)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._lock, name)

    class RLock(Lock):
        """A reentrant lock with the same property as `Lock`."""

        _make = staticmethod(threading.RLock)
