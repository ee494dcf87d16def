"""The queue of a writer, between the threads that append and the one that takes."""

import threading
from types import FrameType
from typing import Any

from support.tracing import traced

from lastlight_state.journal.writer import queue as module
from lastlight_state.journal.writer.queue import Entry, Queue


def entry() -> Entry:
    return Entry({"payload": "{}"}, is_keyed=False)


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
