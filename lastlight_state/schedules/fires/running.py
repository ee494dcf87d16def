"""A block of work around a fire: its lease is renewed while the block runs, and its end is stored with the block's.

Renewals come from a thread of the block's own, a third of a lease apart, which ends with the block in any case. A
renewal that the database fails is tried again at the next turn; a claim that is lost ends them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from lastlight_state.errors import BackendError, LostRace
from lastlight_state.schedules.arguments import FireClaim, FireError, FireOutcome
from lastlight_state.schedules.fires import checks as fire_checks

#: Renewals in the time of a lease.
RENEWALS = 3

_log = logging.getLogger("lastlight_state.schedules")


class RunningFire:
    """What a block has in hand. It says how the fire ended by setting ``outcome``; unset, it ended ``ok``.

    ``lost`` turns true when the lease is renewed no more, as a rule because another has taken the fire; long work can
    stop early then.
    """

    def __init__(self, claim: FireClaim) -> None:
        self.claim = claim
        self.lost = False
        self._outcome: FireOutcome | None = None

    @property
    def outcome(self) -> FireOutcome | None:
        """How the fire ended. What could not be stored is `InvalidValue` right where it is set."""
        return self._outcome

    @outcome.setter
    def outcome(self, outcome: FireOutcome | None) -> None:
        if outcome is not None:
            fire_checks.outcome(outcome)
        self._outcome = outcome


@contextmanager
def running(
    claim: FireClaim,
    lease: timedelta,
    heartbeat: Callable[[FireClaim], FireClaim],
    finish: Callable[[FireClaim, FireOutcome], object],
) -> Iterator[RunningFire]:
    """The block around a fire, with how to renew its claim and how to finish it."""
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
    """Store that the block raised. Whatever comes of that, the block's own error is the one to be seen."""
    try:
        finish(fire.claim, FireOutcome("failed", error=FireError.of(error)))
    except Exception as failure:  # noqa: BLE001 - told in a note of the error that matters
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
            _log.warning("the lease of fire %r could not be renewed: %s", fire.claim.fire_id, error)
        except LostRace:  # the block has finished the fire
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the next turn would meet it again
            fire.lost = True
            _log.warning("the lease of fire %r is renewed no more: %s", fire.claim.fire_id, error)
            return
