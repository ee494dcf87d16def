import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import pytest
from hypothesis import given, settings, strategies as st

from lastlight_state.backends.sqlite.queue import FairLock


class Interrupted(Exception):
    pass


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.0005)


@pytest.fixture
def alarm() -> Iterator[Callable[[float], None]]:
    """Raises `Interrupted` in the main thread after so many seconds, as Ctrl-C would."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)

    def after(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    yield after
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@settings(deadline=None, max_examples=25)
@given(impatient=st.lists(st.booleans(), min_size=1, max_size=8))
def test_the_lock_is_given_in_the_order_it_was_asked_for_whoever_gives_up_meanwhile(impatient: list[bool]) -> None:
    """backends B-22: writers queue on a fair lock."""
    lock = FairLock()
    got: list[int] = []
    gave_up: list[int] = []

    def ask(number: int) -> None:
        if lock.acquire(0.01 if impatient[number] else 10):
            got.append(number)
            lock.release()
        else:
            gave_up.append(number)

    assert lock.acquire(0)
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(impatient))]
    for number, thread in enumerate(threads):
        thread.start()
        until(lambda number=number: len(lock._waiting) + len(gave_up) > number)  # type: ignore[misc]
    until(lambda: len(gave_up) == sum(impatient))
    lock.release()
    for thread in threads:
        thread.join()
    assert got == [number for number, leaves in enumerate(impatient) if not leaves]


def test_a_lock_that_is_held_is_not_given_within_the_timeout() -> None:
    lock = FairLock()
    assert lock.acquire(0)
    assert not lock.acquire(0.01)
    lock.release()
    assert lock.acquire(0)


def test_one_holds_it_at_a_time_however_short_the_patience() -> None:
    """The lock may be handed over in the very moment that a wait ends."""
    lock = FairLock()
    inside: list[int] = []
    crowds: list[int] = []

    def hurry(number: int) -> None:
        for _ in range(150):
            if lock.acquire(0.0002):
                inside.append(number)
                crowds.append(len(inside))
                inside.pop()
                lock.release()

    threads = [threading.Thread(target=hurry, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(crowds) == {1}
    assert lock.acquire(0)


def test_a_waiter_that_is_interrupted_leaves_the_queue(alarm: Callable[[float], None]) -> None:
    """The next holder must not wait for somebody who is gone."""
    lock = FairLock()
    assert lock.acquire(0)
    alarm(0.02)
    with pytest.raises(Interrupted):
        lock.acquire(10)
    lock.release()
    assert lock.acquire(0)
