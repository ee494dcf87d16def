"""The queue of a writer, between the threads that append and the one that takes."""

import threading
from datetime import UTC, datetime
from types import FrameType
from typing import Any

from support.tracing import traced

from lastlight_state.journal import NewEvent
from lastlight_state.journal.events.checks import event
from lastlight_state.journal.writer import queue as module
from lastlight_state.journal.writer.queue import Entry, Queue


def entry(payload: str = "{}") -> Entry:
    draft = event("run", NewEvent("progress"), datetime.now(UTC))
    return Entry({**draft, "payload": payload}, is_keyed=False)


def test_who_waits_looks_again_when_something_becomes_of_an_entry() -> None:
    """journal W-7: also where little time is left; without any it looks once."""
    queue = Queue(9, 9)
    looks: list[int] = []

    def second() -> bool:
        looks.append(len(looks))
        queue.wake()
        return len(looks) == 2

    assert queue.wait(second, 0.9)
    assert not queue.wait(lambda: False, 0)
    assert len(looks) == 2


def test_who_waits_no_more_is_not_woken() -> None:
    """journal W-7: however often somebody has waited."""
    queue = Queue(9, 9)
    woken: list[int] = []
    with queue.registered_waker(lambda: woken.append(1)):
        queue.wake()
    queue.wake()
    assert woken == [1]


def test_a_queue_has_room_for_what_it_may_hold() -> None:
    """journal W-6: for so many events, so many bytes of payloads, and for one of any size while it is empty."""
    few, small, empty = Queue(2, 100), Queue(9, 4), Queue(9, 1)
    assert [few.offer(entry()) for _ in range(3)] == [True, True, False]
    assert [small.offer(entry()) for _ in range(3)] == [True, True, False]
    assert [empty.offer(entry()) for _ in range(2)] == [True, False]
    first, second = small.entries()
    small.remove(second)
    assert (len(small), small.bytes, second.has_left) == (2, 4, False)
    small.remove(first)
    assert (len(small), small.bytes, first.has_left) == (1, 2, True)
    assert small.offer(entry('"é"')) is False
    small.remove(second)
    assert small.offer(entry('"é"'))
    assert (len(small), small.bytes) == (1, 4)
    for left in (*small.entries(), first):
        small.remove(left)
    assert (len(small), small.bytes, small.last) == (0, 0, None)


def test_the_first_entries_are_read_while_others_append() -> None:
    """journal W-5: another thread appends at each instruction of the read."""
    queue = Queue(10_000, 10**9)
    first = entry()
    queue.offer(first)

    def disturb(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != module.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            other = threading.Thread(target=queue.offer, args=(entry(),))
            other.start()
            other.join()
        return disturb

    with traced(disturb):
        found = queue.head(1)
    assert found == [first]
    assert len(queue) > 5
