"""Leases that are renewed while a block of work runs.

Renewals come from a thread of the block's own, a third of a lease apart, which ends with the block in any case. A
renewal that the database fails is tried again at the next turn; a claim that is lost ends them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Generic, TypeVar

from lastlight_state.errors import BackendError

C = TypeVar("C")

#: Renewals in the time of a lease.
RENEWALS = 3

_log = logging.getLogger("lastlight_state.db")


class Held(Generic[C]):
    """What a block has in hand: the claim as it was last renewed.

    ``lost`` turns true when the claim is renewed no more, as a rule because another has taken its place; long work can
    stop early then.
    """

    def __init__(self, claim: C) -> None:
        self.claim = claim
        self.lost = False


@contextmanager
def renewed(held: Held[C], what: str, lease: timedelta, renew: Callable[[C], C | None]) -> Iterator[None]:
    """A block in which the claim is renewed. ``what`` names in logs what is claimed.

    ``renew`` gives the renewed claim, or None when there is nothing to renew any more because the block has ended it.
    """
    ended = threading.Event()
    interval = lease.total_seconds() / RENEWALS
    name = f"lastlight-{what.replace(' ', '-')}"
    renewals = threading.Thread(target=_renew, args=(held, what, interval, renew, ended), name=name, daemon=True)
    renewals.start()
    try:
        yield
    finally:
        ended.set()
        renewals.join()


def _renew(held: Held[C], what: str, interval: float, renew: Callable[[C], C | None], ended: threading.Event) -> None:
    while not ended.wait(interval):
        try:
            claim = renew(held.claim)
        except BackendError as error:
            _log.warning("the lease of %s could not be renewed yet: %s", what, error)
            continue
        except Exception as error:  # noqa: BLE001 - whatever it is, the next turn would meet it again
            held.lost = True
            _log.warning("the lease of %s is no longer renewed: %s", what, error)
            return
        if claim is None:
            return
        held.claim = claim
