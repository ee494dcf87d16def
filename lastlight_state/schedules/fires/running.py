"""A block around the work of a fire: renews its lease while the block runs, and finishes the fire at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

from lastlight_state.db.renewals import Held, Renewed
from lastlight_state.errors import LostRace
from lastlight_state.schedules.arguments import FireClaim, FireError, FireOutcome
from lastlight_state.schedules.fires import checks
from lastlight_state.unwinding import block


class RunningFire(Held[FireClaim]):
    """The fire inside a block. The block sets ``outcome`` to say how the fire ended; unset, it ended ``ok``.

    ``lost`` becomes True when the lease can no longer be renewed, usually because another owner has taken the fire.
    Long work should stop then.
    """

    def __init__(self, claim: FireClaim) -> None:
        super().__init__(claim)
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


@block
def running(
    claim: FireClaim,
    lease: timedelta,
    heartbeat: Callable[[FireClaim], FireClaim],
    finish: Callable[[FireClaim, FireOutcome], object],
) -> Iterator[RunningFire]:
    """The block around a fire. ``heartbeat`` renews its claim, ``finish`` finishes it."""

    def renew(held: FireClaim) -> FireClaim | None:
        try:
            return heartbeat(held)
        except LostRace:  # the block has finished the fire
            return None

    fire = RunningFire(heartbeat(claim))
    with Renewed(fire, f"fire {claim.fire_id}", lease, renew):
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
