"""Waits that end early when nobody wants the answer any more."""

from __future__ import annotations

import threading

from support.each import with_each

from lastlight_state.backends import waiting
from lastlight_state.backends.waiting import Patience
from lastlight_state.errors import BackendBusy


@with_each("begun", [True, False])
def test_a_pause_ends_when_its_call_is_given_up(*, begun: bool) -> None:
    """backends B-74: before it begins, and in the middle of it."""
    given, told = Patience(), threading.Event()

    def call() -> None:
        waiting.lend(given)
        try:
            waiting.pause(3600)
        except BackendBusy:
            told.set()

    thread = threading.Thread(target=call, daemon=True)
    if begun:
        thread.start()
        while given._gate is None:
            pass
        given.end()
    else:
        given.end()
        thread.start()
    assert told.wait(30)
