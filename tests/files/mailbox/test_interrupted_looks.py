"""A look at the other side's file that a signal's handler cuts off: it leaves no lock and no descriptor."""

from __future__ import annotations

import fcntl
import gc
import itertools
import os
import struct
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.mailbox.files import outbound, reply
from support.open_files import targets

from lastlight_state.backends.sqlite import file_connections, locked_reads, untrusted
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox

_FILES = {module.__file__ for module in (file_connections, locked_reads, untrusted)}


class Stopped(BaseException):
    """What the handler of a signal raises."""


@contextmanager
def interrupted(step: int) -> Iterator[None]:
    """Raise in these modules as a function is entered, or as one in C has returned: where handlers of signals run."""
    left = itertools.count(step, -1)

    def hear(frame: FrameType, event: str, returned: Any) -> None:
        if getattr(returned, "__name__", None) == "__enter__":  # of a lock: then CPython runs none, but for 3.14
            return
        if event in ("call", "c_return") and frame.f_code.co_filename in _FILES and next(left) == 1:
            raise Stopped

    sys.setprofile(hear)
    try:
        yield
    finally:
        sys.setprofile(None)


def is_held(path: Path) -> bool:
    """True if anybody keeps a writer from committing. Ask while this process has no lock of SQLite's own."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        asked = struct.pack(locked_reads._LOCK, fcntl.F_WRLCK, os.SEEK_SET, locked_reads._PENDING, 512, 0)
        answer = struct.unpack(locked_reads._LOCK, fcntl.fcntl(descriptor, locked_reads._GET or 0, asked))
    finally:
        os.close(descriptor)
    return bool(answer[0] != fcntl.F_UNLCK)


# From 3.13 on Python says of a connection that an exception dropped that nobody has closed it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_reader_that_is_cut_off_leaves_no_lock_and_no_descriptor(host: HostMailbox, agent: AgentMailbox) -> None:
    """backends B-87: wherever that is, while the exception is still looked at, or with the next call."""
    agent.start()
    reply(agent)
    host.outbox.list_waiting()
    before, kept = targets(), []
    for step in itertools.count(1):
        try:
            with interrupted(step):
                host.outbox.list_waiting()
        except Stopped as error:
            kept.append(error)
        else:
            break
        if is_held(outbound(host)):
            assert host.outbox.list_waiting().items
            assert not is_held(outbound(host)), traceback.format_tb(kept[-1].__traceback__)[-4:]
    assert len(kept) > 100, "the loop ended at the first look that nothing interrupted"
    kept.clear()
    gc.collect()
    assert targets() == before
