"""Runs maintenance work in steps: the owner's name, and the receipt's state when a step fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from lastlight_state.db.news.listeners import message_of
from lastlight_state.errors import ClaimLost, Conflict, StateError
from lastlight_state.receipts import Receipt, Receipts, steps


def owner() -> str:
    """Return the name of this process for receipts."""
    return steps.this_process()


def confirm_after(place: tuple[datetime, str], start: tuple[datetime, str]) -> None:
    """Raise `Conflict` ``order`` if the last record found does not sort after the start of the search.

    Otherwise the search would find that record forever. Another program wrote its time in a format that sorts
    differently.
    """
    if place <= start:
        raise Conflict(f"{place[1]!r:.300} has a time whose spelling does not sort as time does", code="order")


@contextmanager
def interruptible(receipts: Receipts, current: Callable[[], Receipt], *, again: str) -> Iterator[None]:
    """Set the ``current`` receipt to ``interrupted`` if the block raises, Ctrl-C included.

    A note on the exception names ``again`` as the way to continue. The receipt is not changed if another process has
    taken over the work, or if the work was refused and its receipt is finished.
    """
    try:
        yield
    except ClaimLost:
        raise
    except BaseException as error:
        if current().state in ("done", "failed"):
            raise
        with suppress(StateError):  # the error is raised anyway; a later call takes over a receipt left running
            receipts.finish(current(), "interrupted", error=message_of(error) or type(error).__name__)
        error.add_note(f"interrupted; to go on: {again}")
        raise


def fail_receipt(receipts: Receipts, receipt: Receipt, error: StateError) -> Receipt:
    """Finish the receipt of work that was refused before any write as ``failed``, unless another owner has it."""
    with suppress(StateError):
        return receipts.finish(receipt, "failed", error=message_of(error))
    return receipt


def run_steps(
    receipts: Receipts, receipt: Receipt, step: Callable[[Receipt], tuple[Receipt, bool]], *, again: str
) -> Receipt:
    """Run steps until a step returns that nothing is left, and return the finished receipt.

    Fails like `interruptible`.
    """
    going_on = True
    with interruptible(receipts, lambda: receipt, again=again):
        while going_on:
            receipt, going_on = step(receipt)
        return receipts.finish(receipt)
