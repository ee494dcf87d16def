"""How calls get from coroutines to threads."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from lastlight_state.aio.lanes import WorkQueue


def test_each_item_is_got_once_and_none_is_forgotten() -> None:
    """backends B-173: by whichever thread, while several put and several get."""
    queue: WorkQueue[int] = WorkQueue()
    got: list[int] = []

    def get() -> None:
        for _ in range(1000):
            queue.soon()
            got.append(queue.get())

    def put(first: int) -> None:
        for number in range(first, 4000, 4):
            queue.put(number)
            if number % 97 == 0:
                time.sleep(0.001)  # until all who get are asleep

    getting = [threading.Thread(target=get) for _ in range(4)]
    putting = [threading.Thread(target=put, args=(first,)) for first in range(4)]
    for thread in [*getting, *putting]:
        thread.start()
    for thread in [*putting, *getting]:
        thread.join(30)
    assert Counter(got) == Counter(range(4000))


def test_of_the_threads_that_wait_the_one_that_came_last_is_woken() -> None:
    """backends B-173: so a task that awaits alone is served by one thread."""
    queue: WorkQueue[int] = WorkQueue()
    got: list[tuple[str, int]] = []

    def get() -> None:
        queue.soon()
        got.append((threading.current_thread().name, queue.get()))

    for number, name in enumerate(("first", "second", "last"), 1):
        threading.Thread(target=get, name=name, daemon=True).start()
        while len(queue._gates) < number:
            time.sleep(0.001)
    queue.put(1)
    while not got:
        time.sleep(0.001)
    queue.put(2)
    queue.put(3)
    while len(got) < 3:
        time.sleep(0.001)
    assert got[0] == ("last", 1)
    assert {name for name, _ in got} == {"first", "second", "last"}


def test_no_thread_is_woken_for_an_item_that_another_comes_for() -> None:
    """backends B-173."""
    queue: WorkQueue[int] = WorkQueue()

    def get() -> None:
        queue.soon()
        queue.get()

    sleeper = threading.Thread(target=get, daemon=True)
    sleeper.start()
    while not queue._gates:
        time.sleep(0.001)
    queue.soon()
    queue.put(1)
    assert len(queue._gates) == 1
    queue.put(2)
    sleeper.join(30)
    assert queue.get() in {1, 2}


def test_a_thread_waits_for_an_item_no_longer_than_it_says() -> None:
    """backends B-173."""
    queue: WorkQueue[int] = WorkQueue()
    queue.soon()
    with pytest.raises(TimeoutError):
        queue.get(0.01)
    assert queue._gates == []


def test_a_thread_that_takes_an_item_is_not_counted_on_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-173: an item that comes in that very moment wakes a thread that sleeps."""
    queue: WorkQueue[str] = WorkQueue()
    got: list[str] = []

    def sleep() -> None:
        queue.soon()
        got.append(queue.get())

    class Counted(list[None]):
        """Puts an item while a thread gives up its place among those that are about to come."""

        def pop(self, *_: object) -> None:
            monkeypatch.setattr(queue, "_soon", [*self])
            queue.put("third")
            queue._soon.pop()

    sleeper = threading.Thread(target=sleep, daemon=True)
    sleeper.start()
    while not queue._gates:
        time.sleep(0.001)
    queue.soon()
    queue.soon()
    queue.put("first")
    queue.put("second")
    monkeypatch.setattr(queue, "_soon", Counted(queue._soon))
    assert queue.get() == "first"
    sleeper.join(5)
    assert got == ["second"]
