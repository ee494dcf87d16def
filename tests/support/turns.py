"""A lock that tells when a thread asks for it, to see that what threads share is used by one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

#: The most seconds that anything here takes.
PATIENCE = 30


class Asked:
    """Stands where a lock of the library stood: `news` is set when another thread than the maker asks for it."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._maker = threading.get_ident()
        self.news = threading.Event()
        self.was_asked = False

    def __enter__(self) -> bool:
        if threading.get_ident() != self._maker:
            self.was_asked = True
            self.news.set()
        return bool(self._lock.__enter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.__exit__(kind, error, trace)


def outcome_of_waiting(
    owner: Any, lock_name: str, call: Callable[[], object], meanwhile: Callable[[], object] = lambda: None
) -> object:
    """Hold the lock, see that a call in another thread waits for it, and return what the call gives afterwards.

    ``meanwhile`` is called while the other thread waits.
    """
    lock = Asked(getattr(owner, lock_name))
    setattr(owner, lock_name, lock)
    outcomes: list[object] = []

    def run() -> None:
        try:
            outcomes.append(call())
        except Exception as error:  # noqa: BLE001 - judged by the test
            outcomes.append(error)
        finally:
            lock.news.set()

    thread = threading.Thread(target=run)
    try:
        with lock:
            thread.start()
            assert lock.news.wait(PATIENCE)
            assert (lock.was_asked, outcomes) == (True, [])
            meanwhile()
    finally:
        thread.join(PATIENCE)
        setattr(owner, lock_name, lock._lock)
    assert not thread.is_alive()
    [outcome] = outcomes
    return outcome
