"""A block around the work of a fire: renews its lease while the block runs, and finishes the fire when the block ends.

A thread of the block renews the lease, three times in the time of a lease. After a database error it tries again at the
next turn; after the claim was lost it stops. The thread always ends with the block.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from lastlight_state.errors import BackendError, LostRace
from lastlight_state.schedules.arguments import FireClaim, FireError, FireOutcome
from lastlight_state.schedules.fires import checks

#: How often a lease is renewed in its time.
RENEWALS = 3

_log = logging.getLogger("lastlight_state.schedules")


class RunningFire:
    """The fire inside a block. The block sets ``outcome`` to say how the fire ended; unset, it ended ``ok``.

    ``lost`` becomes True when the lease can no longer be renewed, usually because another owner has taken the fire.
    Long work should stop then.
    """

    def __init__(self, claim: FireClaim) -> None:
        self.claim = claim
        self.lost = False
        self._outcome: FireOutcome | None = None

    @property
    def outcome(self) -> FireOutcome | None:
        """How the fire ended. Setting an outcome that cannot be stored raises `InvalidValue`."""
        return self._outcome

    @outcome.setter
    def outcome(self, outcome: FireOutcome | None) -> None:
        if outcome is not None:
            checks.outcome(outcome)
        self._outcome = outcome


@contextmanager
def running(
    claim: FireClaim,
    lease: timedelta,
    heartbeat: Callable[[FireClaim], FireClaim],
    finish: Callable[[FireClaim, FireOutcome], object],
) -> Iterator[RunningFire]:
    """The block around a fire. ``heartbeat`` renews its claim, ``finish`` finishes it."""
    fire = RunningFire(heartbeat(claim))
    with _renewed(fire, lease.total_seconds() / RENEWALS, heartbeat):
        try:
            yield fire
        except BaseException as error:
            _finish_failed(fire, error, finish)
            raise
    _finish(fire, finish)


def _finish(fire: RunningFire, finish: Callable[[FireClaim, FireOutcome], object]) -> None:
    try:
        finish(fire.claim, fire.outcome or FireOutcome())
    except LostRace:
        if fire.outcome is not None:
            raise  # else the block has finished the fire itself, in a transaction of its own


def _finish_failed(fire: RunningFire, error: BaseException, finish: Callable[[FireClaim, FireOutcome], object]) -> None:
    """Store that the block raised. If that fails, too, the block's own exception is still the one that is raised."""
    try:
        finish(fire.claim, FireOutcome("failed", error=FireError.of(error)))
    except Exception as failure:  # noqa: BLE001 - told in a note on the block's exception
        error.add_note(f"fire {fire.claim.fire_id!r} could not be finished: {type(failure).__name__}: {failure}")


@contextmanager
def _renewed(fire: RunningFire, interval: float, heartbeat: Callable[[FireClaim], FireClaim]) -> Iterator[None]:
    ended = threading.Event()
    name = f"lastlight-fire-{fire.claim.fire_id}"
    renewals = threading.Thread(target=_renew, args=(fire, interval, heartbeat, ended), name=name, daemon=True)
    renewals.start()
    try:
        yield
    finally:
        ended.set()
        renewals.join()


def _renew(
    fire: RunningFire, interval: float, heartbeat: Callable[[FireClaim], FireClaim], ended: threading.Event
) -> None:
    while not ended.wait(interval):
        try:
            fire.claim = heartbeat(fire.claim)
        except BackendError as error:
            _log.warning("the lease of fire %r could not be renewed yet: %s", fire.claim.fire_id, error)
        except LostRace:  # the block has finished the fire
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the next turn would meet it again
            fire.lost = True
            _log.warning("the lease of fire %r is no longer renewed: %s", fire.claim.fire_id, error)
            return
