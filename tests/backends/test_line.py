import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.each import with_each
from support.tracing import traced

from lastlight_state.backends import fair_lock as module
from lastlight_state.backends.fair_lock import FairLock, Turn
from lastlight_state.errors import NestedTransaction


class Interrupted(Exception):
    pass


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
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


@settings(max_examples=25)
@given(impatient=st.lists(st.booleans(), min_size=1, max_size=8))
def test_the_lock_is_given_in_the_order_it_was_asked_for_whoever_gives_up_meanwhile(impatient: list[bool]) -> None:
    """backends B-22: writers queue on a fair lock."""
    line = FairLock()
    got: list[int] = []
    gave_up: list[int] = []

    def ask(number: int) -> None:
        turn = Turn()
        if line.enter(turn, 0.01 if impatient[number] else 10):
            got.append(number)
            line.leave(turn)
        else:
            gave_up.append(number)

    first = Turn()
    assert line.enter(first, 0)
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(impatient))]
    for number, thread in enumerate(threads):
        thread.start()
        until(lambda number=number: len(line) - 1 + len(gave_up) > number)  # type: ignore[misc]
    until(lambda: len(gave_up) == sum(impatient))
    line.leave(first)
    for thread in threads:
        thread.join()
    assert got == [number for number, leaves in enumerate(impatient) if not leaves]


def test_a_place_that_is_taken_is_not_given_within_the_timeout() -> None:
    line, first, second = FairLock(), Turn(), Turn()
    assert line.enter(first, 0)
    asked = time.monotonic()
    assert not elsewhere(lambda: line.enter(second, 0.05))
    assert time.monotonic() - asked >= 0.05
    line.leave(first)
    assert line.enter(second, 0)


@with_each("places", [1, 3])
def test_no_more_have_a_place_at_a_time_than_there_are_however_short_the_patience(places: int) -> None:
    """backends B-22: a place may become free in the very moment that a wait ends."""
    line = FairLock(places)
    inside: list[int] = []
    crowds: list[int] = []

    def hurry(number: int) -> None:
        for _ in range(150):
            turn = Turn()
            if line.enter(turn, 0.0002):
                inside.append(number)
                crowds.append(len(inside))
                inside.remove(number)
                line.leave(turn)

    threads = [threading.Thread(target=hurry, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(crowds) <= places
    assert len(line) == 0


@with_each("places", [1, 3])
def test_whoever_looks_along_the_line_is_not_disturbed_by_those_who_come_and_go(places: int) -> None:
    """backends B-22: another thread enters and leaves at each instruction of a call."""
    line = FairLock(places)
    held = [Turn() for _ in range(places)]
    assert all(line.enter(turn, 0) for turn in held)
    for turn in held:
        turn.thread = 0  # of none of the threads here

    def disturb(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != module.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            assert not elsewhere(lambda: line.enter(Turn(), 0))
        return disturb

    with traced(disturb):
        waited = line.enter(Turn(), 0)
    assert not waited
    line.leave(held[0])
    assert len(line) == places - 1


def test_one_that_waits_and_is_interrupted_is_passed_over(alarm: Callable[[float], None]) -> None:
    """backends B-40: the next must not wait for somebody who is gone."""
    line, first, next_one = FairLock(), Turn(), Turn()
    assert elsewhere(lambda: line.enter(first, 0))
    alarm(0.02)
    with pytest.raises(Interrupted):
        wait_in(line)
    line.leave(first)
    assert line.enter(next_one, 1)


def test_one_that_has_a_place_and_is_gone_is_passed_over_by_whoever_waits() -> None:
    """backends B-40."""
    line, next_one = FairLock(), Turn()
    gone = Turn()
    gone.handle = weakref.ref(Turn())  # of a statement that is over
    assert elsewhere(lambda: line.enter(gone, 0))
    assert line.enter(next_one, 1)


def test_a_thread_may_wait_where_others_have_places_too() -> None:
    """backends B-42: one of them may go."""
    line = FairLock(2)
    assert elsewhere(lambda: line.enter(Turn(), 0))
    assert line.enter(Turn(), 0)
    assert not line.enter(Turn(), 0)


def test_a_thread_does_not_wait_for_itself() -> None:
    """backends B-42: in a signal's handler, in the middle of a call of the same thread."""
    line = FairLock()
    assert line.enter(Turn(), 0)
    with pytest.raises(NestedTransaction):
        line.enter(Turn(), 10)


def elsewhere(work: Callable[[], bool]) -> bool:
    """What the work gives in a thread of its own."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def wait_in(line: FairLock) -> None:
    """Wait as a call does, which leaves the line however it ends."""
    turn = Turn()
    try:
        line.enter(turn, 10)
    finally:
        line.leave(turn)


def test_who_waits_is_called_when_a_place_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-22: and need not look for itself."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 60.0)
    line, first, next_one = FairLock(), Turn(), Turn()
    assert line.enter(first, 0)
    waiting = threading.Thread(target=line.enter, args=(next_one, 60))
    waiting.start()
    until(lambda: next_one.gate is not None)
    line.leave(first)
    waiting.join(30)
    assert not waiting.is_alive()
    assert line.serves(next_one)
