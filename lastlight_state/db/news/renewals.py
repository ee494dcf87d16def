"""Leases that are renewed while a block of work runs.

Each block has a thread that renews its lease every third of the lease's length. The thread ends with the block,
whatever exception interrupts it. If the database fails a renewal, the next interval tries again. If the claim is lost,
the renewals end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Generic, TypeVar

from lastlight_state import unwinding
from lastlight_state.backends.waiting import Flag
from lastlight_state.errors import BackendError

C = TypeVar("C")

#: The number of renewals in the length of a lease.
RENEWALS = 3

_log = logging.getLogger("lastlight_state.db")


class Held(Generic[C]):
    """The claim that a block holds, in its last renewed state.

    ``lost`` becomes true when the claim can no longer be renewed, usually because another holder has taken it. Long
    work can then stop early.
    """

    def __init__(self, claim: C) -> None:
        self.claim = claim
        self.lost = False


class RenewalBlock(unwinding.HeldResource, Generic[C]):
    """A block during which a thread renews the claim. ``what`` names the claimed object in logs.

    ``renew`` returns the renewed claim, or None if the block has ended the claim itself and no renewal is needed.
    """

    def __init__(self, held: Held[C], what: str, lease: timedelta, renew: Callable[[C], C | None]) -> None:
        self._held = held
        self._what = what
        self._interval = lease.total_seconds() / RENEWALS
        self._renew = renew
        self._ended = Flag()
        name = f"lastlight-{what.replace(' ', '-')}"
        self._thread = threading.Thread(target=self._renew_until_ended, name=name, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def _leave(self, *raised: object) -> None:
        self._ended.set()
        self._thread.join()
        self.handle = None

    __exit__ = unwinding.Exit(_leave)

    def end_interrupted(self, handle: object) -> None:
        """Stop the renewals, without waiting for a renewal that is in progress."""
        self._ended.set()

    def _renew_until_ended(self) -> None:
        while not self._ended.wait(self._interval) and not self.is_gone and self._renewed_once():
            pass

    def _renewed_once(self) -> bool:
        """Renew the claim. Returns True if renewals should go on."""
        held = self._held
        try:
            claim = self._renew(held.claim)
        except BackendError as error:
            _log.warning("the lease of %s could not be renewed yet: %s", self._what, error)
            return True
        except Exception as error:  # noqa: BLE001 - whatever it is, the next turn would meet it again
            held.lost = True
            _log.warning("the lease of %s is no longer renewed: %s", self._what, error)
            return False
        if claim is None:
            return False
        held.claim = claim
        return True
