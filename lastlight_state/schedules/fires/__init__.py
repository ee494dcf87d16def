"""Fires: one row for each time at which a cron ran, or should have run.

The process that begins a fire holds a claim on it: a lease that must be renewed, and an epoch that grows with each
owner. Only the holder can renew or finish the fire. When a lease has expired, another owner may take over the fire;
after a few owners it is abandoned. So no fire stays ``running`` for ever, and none is finished twice. A fire needs no
schedule, and stays when its schedule is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from lastlight_state.db import valid
from lastlight_state.db.news.renewals import Held, RenewalBlock
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, RowT, Statement
from lastlight_state.db.units.scope import TransactionScope
from lastlight_state.errors import LostRace, MisuseError
from lastlight_state.schedules import checks as shared, models
from lastlight_state.schedules.arguments import FireClaim, FireError, FireOutcome
from lastlight_state.schedules.fires import health, statements as sql, transitions
from lastlight_state.schedules.fires.transitions import StaleTaker
from lastlight_state.schedules.records import CronHealth, Fire, FireDay, FireSummary
from lastlight_state.unwinding import block

#: The most days of `daily`.
MOST_DAYS = 366

# A block around the work of a fire: it renews the lease while it runs, and finishes the fire at its end.


class RunningFire(Held[FireClaim]):
    """The fire inside a block. The block sets ``outcome`` to store how the fire ended; if not set, it ended ``ok``.

    ``lost`` becomes True when the lease can no longer be renewed, usually because another owner has taken the fire.
    Long work should then stop.
    """

    def __init__(self, claim: FireClaim) -> None:
        super().__init__(claim)
        self._outcome: FireOutcome | None = None

    @property
    def outcome(self) -> FireOutcome | None:
        """Return the outcome that the block has set, or None.

        Setting an outcome that cannot be stored raises `InvalidValue`.
        """
        return self._outcome

    @outcome.setter
    def outcome(self, outcome: FireOutcome | None) -> None:
        if outcome is not None:
            transitions.outcome(outcome)
        self._outcome = outcome


@block
def fire_block(
    claim: FireClaim,
    lease: timedelta,
    heartbeat: Callable[[FireClaim], FireClaim],
    finish: Callable[[FireClaim, FireOutcome], object],
) -> Iterator[RunningFire]:
    """Run a block around a fire. ``heartbeat`` renews the fire's claim, ``finish`` stores its outcome."""

    def renew(held: FireClaim) -> FireClaim | None:
        try:
            return heartbeat(held)
        except LostRace:  # the block has finished the fire
            return None

    fire = RunningFire(heartbeat(claim))
    with RenewalBlock(fire, f"fire {claim.fire_id}", lease, renew):
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
            raise  # without an outcome, the block has finished the fire itself, in its own transaction


def _finish_failed(fire: RunningFire, error: BaseException, finish: Callable[[FireClaim, FireOutcome], object]) -> None:
    """Store that the block raised ``error``. If that fails, only add a note to ``error``."""
    try:
        finish(fire.claim, FireOutcome("failed", error=FireError.of(error)))
    except Exception as failure:  # noqa: BLE001 - a note on the block's exception tells
        error.add_note(f"fire {fire.claim.fire_id!r} could not be finished: {type(failure).__name__}: {failure}")


class Fires(Repository):
    """``store.schedules.fires``: begin, renew, finish and list the fires of crons."""

    def create(
        self,
        cron_name: str,
        *,
        owner: str,
        source: Literal["manual", "backfill", "schedule"] = "manual",
        actor: str | None = None,
        scheduled_for: datetime | None = None,
        lease: timedelta = models.LEASE,
    ) -> FireClaim:
        """Begin a fire outside the plan: "run now", a missed instant, or an instant of your own loop.

        ``manual`` fires have no ``scheduled_for``; all other fires need it. An instant has only one fire: a second one
        raises `AlreadyExists` with the ``key``, ``status`` and ``owner`` of the first. No schedule is needed. If a
        schedule has this name, the fire copies its target and payload, and the schedule keeps its next instant. If the
        schedule's fires must not overlap and one is running, raises `Conflict` ``overlap`` with that fire's name, and
        nothing is stored.
        """
        fire = transitions.create(cron_name, owner, source, actor, scheduled_for, lease, self._now())
        return self._writing(lambda unit: transitions.begin(unit, fire))

    def heartbeat(self, claim: FireClaim, *, lease: timedelta | None = None) -> FireClaim:
        """Extend the lease from now, by the claim's length or by ``lease``. A lease never gets shorter.

        Returns the claim with the lease's new end, and with the length for the next heartbeat. An expired lease is
        extended, too, unless another owner has taken over the fire. Raises `ClaimLost` after a takeover, `LostRace` for
        a finished fire, `NotFound`.
        """
        held, length = transitions.claim_parameters(claim), claim.lease if lease is None else lease
        (until,) = self._write_held(sql.HEARTBEAT, held, transitions.until(self._now(), length))
        return claim.model_copy(update={"lease_expires_at": until, "lease": length})

    def finish(self, claim: FireClaim, outcome: FireOutcome) -> Fire:
        """Store how the fire ended. Store its error, or None, also in the schedule, unless a later fire has begun.

        Storing the same outcome again changes nothing; another outcome raises `LostRace` with the stored status in
        ``found``. Raises `ClaimLost` after a takeover, `NotFound`, `PayloadTooLarge` for an error of more than 16 KiB
        as JSON.
        """
        held, ended, now = transitions.claim_parameters(claim), transitions.outcome(outcome), self._now()
        return self._writing(lambda unit: transitions.finish(unit, held, ended, now), repeatable=True)

    def release(self, claim: FireClaim) -> None:
        """Give up the claim without finishing the fire, so that the next `take_stale` takes it.

        Raises as `heartbeat` does.
        """
        self._write_held(sql.RELEASE, transitions.claim_parameters(claim), transitions.over(self._now()))

    def take_stale(
        self,
        *,
        owner: str,
        lease: timedelta = models.LEASE,
        limit: int = 10,
        max_attempts: int = 3,
        names: Collection[str] | None = None,
        targets: Collection[str] | None = None,
    ) -> tuple[FireClaim, ...]:
        """Take over at most ``limit`` fires whose lease has expired, the earliest first.

        ``names`` and ``targets`` (at most 50 each) restrict this to fires of these crons, and to fires with these
        targets. Each fire keeps its id and start, and its epoch grows. A fire that has had ``max_attempts`` owners is
        closed as ``abandoned`` instead; with 1, a fire that was begun is never run again.
        """
        now = self._now()
        chosen = shared.cron_filters(names, targets)
        taker = StaleTaker(
            shared.owner(owner), now, transitions.until(now, lease), transitions.attempts(max_attempts), chosen
        )
        most = shared.claims(limit)
        return () if [] in chosen.values() else taker.take_claims(self._reading, self._once, self._writing, most)

    def get(self, fire_id: str) -> Fire:
        """Return the whole fire. Raises `NotFound`."""
        return self._get_row(sql.GET, {"fire_id": fire_id}, kind=models.FIRE, key=fire_id)

    def find(self, fire_id: str) -> Fire | None:
        """Return the whole fire, or None."""
        return self._find(sql.GET, {"fire_id": valid.identifier("fire_id", fire_id)})

    def list(
        self,
        *,
        cron_name: str | None = None,
        status: models.FireStatus | Collection[models.FireStatus] | None = None,
        source: models.FireSource | None = None,
        since: datetime | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[FireSummary]:
        """Return a page of fires that began at ``since`` or later, newest first. ``status`` is one status or several.

        Filtering by a rare status or source reads all fires from ``since`` on, of the cron or of all crons.
        """
        given = transitions.list_filters(cron_name, status, source, since)
        return self._page(sql.listing_of(given), given, limit, page_token)

    def latest(self, names: Collection[str]) -> dict[str, FireSummary]:
        """Return the newest fire of each cron, in any status, by name. Names without a fire are absent. At most 500
        names.
        """
        asked = transitions.names(names)
        return self._reading(lambda unit: health.latest(unit, asked)) if asked else {}

    def health(self, names: Collection[str]) -> dict[str, CronHealth]:
        """Return the health of each cron by name: how its last 10 finished fires ended.

        Includes crons that never fired. ``failure_streak`` counts the fires after the last ``ok``: 0 to 10.
        ``last_ok_at`` is None if none of the 10 ended ``ok``. Only the newest 200 fires of each cron are read; running,
        skipped and missed fires are not counted. At most 500 names; one round trip.
        """
        asked = transitions.names(names)
        return self._reading(lambda unit: health.health(unit, asked)) if asked else {}

    def daily(self, days: int = 14, *, cron_name: str | None = None) -> tuple[FireDay, ...]:
        """Count the fires of each of the last ``days`` days (1 to 366) in UTC by status, oldest day first, today last.

        Days without fires are included. Fires that begin in the future, and fires with an unreadable status, are not
        counted. Reads all fires of these days, of the cron or of all crons.
        """
        now, length = self._now(), valid.number("days", days, least=1, most=MOST_DAYS)
        today = now.replace(hour=0, minute=0, second=0, microsecond=0)
        starts = [today - timedelta(days=back) for back in range(length - 1, -1, -1)]
        values: Row = {"since": starts[0], "until": now + timedelta(milliseconds=1)}
        if cron_name is not None:
            values["cron_name"] = valid.identifier("cron_name", cron_name)
        statement = sql.BY_DAY if cron_name is None else sql.BY_DAY_OF_CRON
        counted: dict[str, dict[str, int]] = {}
        for day, status, fires in self._reading(lambda unit: unit.readable_rows(statement, values)[0]):
            counted.setdefault(day, {})[status] = fires
        return tuple(FireDay(start=start, counts=counted.get(f"{start:%Y-%m-%d}", {})) for start in starts)

    def running(self, claim: FireClaim, *, lease: timedelta | None = None) -> AbstractContextManager[RunningFire]:
        """Run a block around the work of a fire.

        The lease is renewed during the block, and the fire is finished at its end. ``with fires.running(claim) as
        fire``: the block may set ``fire.outcome``, else the fire ends ``ok``. The block may also finish the fire
        itself, in a transaction. If the block raises, the fire ends ``failed`` with that exception, which is re-raised
        unchanged; if the failure could not be stored, a note is added to the exception. A lost claim raises `ClaimLost`
        before the block or at its end; inside the block ``fire.lost`` is True. Raises `MisuseError` in a transaction.
        """
        if isinstance(self._scope, TransactionScope):
            raise MisuseError("a fire runs longer than a transaction should: call running() on the store")
        transitions.claim_parameters(claim)
        length = claim.lease if lease is None else lease
        return fire_block(claim, shared.lease(length), partial(self.heartbeat, lease=length), self.finish)

    def _write_held(self, statement: Statement[RowT], held: transitions.ClaimParameters, until: datetime) -> RowT:
        """Return the row that a write to a held fire returned.

        If the claim no longer holds, raise an error with the reason.
        """
        values = {**held, "lease_expires_at": until}
        row = self._once(lambda unit: unit.row(statement, values), repeatable=True)
        if row is None:
            raise self._reading(lambda unit: transitions.refusal(unit, held))
        return row
