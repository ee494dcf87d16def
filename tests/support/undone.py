"""Transactions that fail after their work, as a caller's code may."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from lastlight_state import StateStore, Transaction


class Boom(Exception):
    """What the caller's own code raised."""


def undone(store: StateStore, work: Callable[[Transaction], object], **options: Any) -> None:
    """Do the work in a transaction, then fail in its block."""
    with suppress(Boom), store.transaction(**options) as tx:
        work(tx)
        raise Boom
