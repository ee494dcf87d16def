"""A piece of maintenance work in steps: its owner, and what its receipt says when a step fails."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from lastlight_state.db.told import message_of
from lastlight_state.errors import ClaimLost, StateError
from lastlight_state.receipts import Receipt, Receipts


def owner() -> str:
    """This process, as receipts name it."""
    return f"{socket.gethostname()[:200]}:{os.getpid()}"


@contextmanager
def interruptible(receipts: Receipts, current: Callable[[], Receipt], *, again: str) -> Iterator[None]:
    """Set the ``current`` receipt to ``interrupted`` if the block fails, Ctrl-C included.

    A note of the exception says what goes on: ``again``. Work that another process has taken over is left to it.
    """
    try:
        yield
    except ClaimLost:
        raise
    except BaseException as error:
        with suppress(StateError):  # what happened is on its way up; a receipt left running is taken over later
            receipts.finish(current(), "interrupted", error=message_of(error) or type(error).__name__)
        error.add_note(f"interrupted; to go on: {again}")
        raise


def ended(
    receipts: Receipts, receipt: Receipt, step: Callable[[Receipt], tuple[Receipt, bool]], *, again: str
) -> Receipt:
    """Do steps until one says that nothing is left; the finished receipt. Fails as `interruptible` says."""
    going_on = True
    with interruptible(receipts, lambda: receipt, again=again):
        while going_on:
            receipt, going_on = step(receipt)
    return receipts.finish(receipt)
