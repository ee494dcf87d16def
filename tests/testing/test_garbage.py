"""The collections of garbage that tests rely on."""

from __future__ import annotations

import gc
import threading
import weakref

from support.garbage import collect


class _Cycle:
    itself: _Cycle

    def __init__(self) -> None:
        self.itself = self


class _Slow(_Cycle):
    begun = threading.Event()
    may_end = threading.Event()

    def __del__(self) -> None:
        self.begun.set()
        self.may_end.wait(30)


def test_a_collection_is_made_also_while_another_thread_is_in_the_middle_of_one() -> None:
    def drop() -> None:
        _Slow()
        gc.collect()

    other = threading.Thread(target=drop)
    other.start()
    assert _Slow.begun.wait(30)
    dropped = weakref.ref(_Cycle())
    gc.collect()  # returns at once
    assert dropped() is not None
    threading.Timer(0.05, _Slow.may_end.set).start()
    collect()
    assert dropped() is None
    other.join()
