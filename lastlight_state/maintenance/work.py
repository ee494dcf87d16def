"""A piece of maintenance work in steps: its owner, and what its receipt says when a step fails."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress

from lastlight_state.db.told import message_of
from lastlight_state.errors import ClaimLost, StateError
from lastlight_state.receipts import Receipt, Receipts


def owner() -> str:
    """This process, as receipts name it."""
    return f"{socket.gethostname()[:200]}:{os.getpid()}"


def ended(
    receipts: Receipts, receipt: Receipt, step: Callable[[Receipt], tuple[Receipt, bool]], *, again: str
) -> Receipt:
    """Do steps until one says that nothing is left; the finished receipt.

    After an exception, Ctrl-C included, the receipt is ``interrupted``, and a note says what goes on: ``again``.
    """
    try:
        going_on = True
        while going_on:
            receipt, going_on = step(receipt)
    except ClaimLost:  # another process goes on with this work
        raise
    except BaseException as error:
        with suppress(StateError):  # what happened is on its way up; a receipt left running is taken over later
            receipts.finish(receipt, "interrupted", error=message_of(error) or type(error).__name__)
        error.add_note(f"interrupted; to go on: {again}")
        raise
    return receipts.finish(receipt)
