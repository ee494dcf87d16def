"""Flags that one thread waits for, set by threads in which handlers of signals raise."""

from __future__ import annotations

import random
import signal
import threading
import time
from types import FrameType

from lastlight_state.backends.waiting import Flag


class _Rung(Exception):
    pass


def _ring(number: int, frame: FrameType | None) -> None:
    raise _Rung


def test_a_flag_can_be_set_and_waited_for_after_a_signal_in_the_middle_of_setting_it() -> None:
    """backends B-87: of 300 signals none leaves a lock behind."""
    chance, rung = random.Random(7), 0
    before = signal.signal(signal.SIGALRM, _ring)
    try:
        while rung < 300:
            flag = Flag()
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 6e-5))
                while True:
                    flag.set()
            except _Rung:
                rung += 1
            other = threading.Thread(target=flag.set, daemon=True)
            other.start()
            other.join(30)
            assert not other.is_alive()
            assert flag.wait(30)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_flag_wakes_the_thread_that_waits_and_waits_again_when_it_is_cleared() -> None:
    """backends B-87."""
    flag = Flag()
    assert not flag.wait(0)
    setting = threading.Timer(0.05, flag.set)
    setting.start()
    assert flag.wait(30)
    assert flag.is_set()
    setting.join()
    flag.clear()
    begun = time.monotonic()
    assert not flag.wait(0.1)
    assert time.monotonic() - begun < 30
