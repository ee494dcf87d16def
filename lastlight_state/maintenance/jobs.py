"""Work of maintenance in steps: its owner, and what its receipt says when a step fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from lastlight_state.db.news.listeners import message_of
from lastlight_state.errors import ClaimLost, Conflict, StateError
from lastlight_state.receipts import Receipt, Receipts, steps


def owner() -> str:
    """Return the name that receipts give to this process."""
    return steps.this_process()


def confirm_after(place: tuple[datetime, str], start: tuple[datetime, str]) -> None:
    """Raise `Conflict` ``order`` if the last record that a look found does not come after the look's start.

    It would be found for ever. Another program wrote its time in a spelling that sorts elsewhere.
    """
    if place <= start:
        raise Conflict(f"{place[1]!r:.300} has a time whose spelling does not sort as time does", code="order")


@contextmanager
def interruptible(receipts: Receipts, current: Callable[[], Receipt], *, again: str) -> Iterator[None]:
    """Set the ``current`` receipt to ``interrupted`` if the block fails, Ctrl-C included.

    A note of the exception says what goes on: ``again``. Work that another process has taken over is left to it, and a
    receipt that is finished already, because the work was refused, stays as it is.
    """
    try:
        yield
    except ClaimLost:
        raise
    except BaseException as error:
        if current().state in ("done", "failed"):
            raise
        with suppress(StateError):  # what happened is on its way up; a receipt left running is taken over later
            receipts.finish(current(), "interrupted", error=message_of(error) or type(error).__name__)
        error.add_note(f"interrupted; to go on: {again}")
        raise


def refused(receipts: Receipts, receipt: Receipt, error: StateError) -> Receipt:
    """Return the receipt of work refused before anything was stored: ``failed``, unless another owner has it."""
    with suppress(StateError):
        return receipts.finish(receipt, "failed", error=message_of(error))
    return receipt


def ended(
    receipts: Receipts, receipt: Receipt, step: Callable[[Receipt], tuple[Receipt, bool]], *, again: str
) -> Receipt:
    """Do steps until one says that nothing is left; the finished receipt. Fails as `interruptible` says."""
    going_on = True
    with interruptible(receipts, lambda: receipt, again=again):
        while going_on:
            receipt, going_on = step(receipt)
        return receipts.finish(receipt)
