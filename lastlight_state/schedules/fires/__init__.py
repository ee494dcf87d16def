"""Fires: one row for each time a cron ran, or should have.

Whoever begins a fire holds it for a while: a lease, and an epoch that grows with each owner. Only the holder renews or
ends it. A fire whose lease is over is taken by another, a few times; then it is given up. So no row says running for
ever, and none is ended twice. Fires outlive their schedules, and need none.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Literal

from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.scope import TransactionScope
from lastlight_state.errors import MisuseError
from lastlight_state.schedules import checks as shared, words
from lastlight_state.schedules.arguments import FireClaim, FireOutcome
from lastlight_state.schedules.fires import (
    checks as fire_checks,
    health as fire_health,
    moves as fire_begin,
    moves as fire_ends,
    running as fire_running,
    statements as sql,
)
from lastlight_state.schedules.fires.running import RunningFire
from lastlight_state.schedules.fires.takeover import Taker
from lastlight_state.schedules.records import CronHealth, Fire, FireSummary


class Fires(Repository):
    """``store.schedules.fires``"""

    def create(
        self,
        cron_name: str,
        *,
        owner: str,
        source: Literal["manual", "backfill", "schedule"] = "manual",
        actor: str | None = None,
        scheduled_for: datetime | None = None,
        lease: timedelta = words.LEASE,
    ) -> FireClaim:
        """Begin a fire: "run now", an instant made up for, or one of a loop of your own. No schedule is needed.

        ``manual`` fires have no ``scheduled_for``, the others need it. An instant has one fire: a second is
        `AlreadyExists` with the first one's ``key``, ``status`` and ``owner``. A schedule of that name gives target
        and payload, and learns of the run, but its plan stays. Where its fires must not overlap and one runs on a live
        lease, `Conflict` ``overlap`` names it, and nothing is stored.
        """
        fire = fire_checks.create(cron_name, owner, source, actor, scheduled_for, lease, self._now())
        return self._writing(lambda unit: fire_begin.begin(unit, fire))

    def heartbeat(self, claim: FireClaim, *, lease: timedelta = words.LEASE) -> FireClaim:
        """Extend the lease from now on; it never gets shorter. The claim with its new end.

        A lease that is over but taken by nobody is extended, too. Raises `ClaimLost` after a takeover, `LostRace` for
        a fire that has ended, `NotFound`.
        """
        held, until = fire_checks.held(claim), fire_checks.until(self._now(), lease)
        row = self._held(sql.HEARTBEAT, held, until)
        return claim.model_copy(update={"lease_until": row["lease_until"]})

    def finish(self, claim: FireClaim, outcome: FireOutcome) -> Fire:
        """End the fire, and leave its error (or none) with the schedule if that has not fired since.

        Repeat-safe for the same outcome; for another one `LostRace` with the stored status in ``found``. Raises
        `ClaimLost` after a takeover, `NotFound`, `PayloadTooLarge` for an error of more than 16 KiB as JSON.
        """
        held, ended, now = fire_checks.held(claim), fire_checks.outcome(outcome), self._now()
        return self._writing(lambda unit: fire_ends.finish(unit, held, ended, now), repeatable=True)

    def release(self, claim: FireClaim) -> None:
        """Give the fire back undone: the next `claim_stale` takes it, and counts one attempt. Errors as `heartbeat`."""
        self._held(sql.RELEASE, fire_checks.held(claim), fire_checks.over(self._now()))

    def claim_stale(
        self, owner: str, *, limit: int = 10, lease: timedelta = words.LEASE, max_attempts: int = 3
    ) -> list[FireClaim]:
        """Take over fires whose lease is over, at most ``limit``, the one that ended first first.

        Each keeps its id and start and gets the next epoch. One that has had ``max_attempts`` owners is closed as
        ``abandoned`` instead: with 1, nothing that somebody began is ever run again.
        """
        now = self._now()
        taker = Taker(shared.owner(owner), now, fire_checks.until(now, lease), fire_checks.attempts(max_attempts))
        return taker.taken(self._reading, self._once, self._writing, shared.claims(limit))

    def get(self, fire_id: str) -> Fire:
        """The whole fire. Raises `NotFound`."""
        return self._reading(lambda unit: fire_ends.get(unit, fire_id))

    def find(self, fire_id: str) -> Fire | None:
        """The whole fire, or None."""
        valid.identifier("fire_id", fire_id)
        return self._reading(lambda unit: unit.find(Fire, sql.GET, {"fire_id": fire_id}))

    def list(
        self,
        *,
        cron_name: str | None = None,
        status: words.FireStatus | Collection[words.FireStatus] | None = None,
        source: words.FireSource | None = None,
        since: datetime | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[FireSummary]:
        """A page of fires, newest first. ``since`` is of their start, itself included; no status at all admits none."""
        given = fire_checks.list_filters(cron_name, status, source, since)
        valid.page_limit(limit)
        listing = sql.listing_of(given)
        return self._reading(
            lambda unit: listing.page(unit, FireSummary.of, limit=limit, page_token=page_token, given=given)
        )

    def latest(self, names: Collection[str]) -> dict[str, FireSummary]:
        """The newest fire of each cron, in any status; of equal starts the one created later. At most 500 names.

        Names without a fire are absent.
        """
        asked = fire_checks.names(names)
        return self._reading(lambda unit: fire_health.latest(unit, asked)) if asked else {}

    def health(self, names: Collection[str]) -> dict[str, CronHealth]:
        """How each cron has been doing, by its last 10 finished fires; those that never fired included.

        ``failure_streak`` counts from the newest back to the last ``ok``: 0 to 10. ``last_ok_at`` is None when none of
        the 10 was. They are looked for among the newest 200 fires, past those that run, were skipped or missed. At
        most 500 names; one round trip.
        """
        asked = fire_checks.names(names)
        return self._reading(lambda unit: fire_health.health(unit, asked)) if asked else {}

    def running(self, claim: FireClaim, *, lease: timedelta = words.LEASE) -> AbstractContextManager[RunningFire]:
        """A block around the work: the lease is renewed from a thread while it runs, and at its end the fire finished.

        ``with fires.running(claim) as fire``: the block sets ``fire.outcome``, else the fire ends ``ok``; or it
        finishes the fire itself, within a transaction. When the block raises, the fire is ``failed`` with that error,
        which is raised on unchanged, with a note where the failure could not be stored. A claim that is lost is
        `ClaimLost` before the block or at its end; ``fire.lost`` tells during it. Not in a transaction (`MisuseError`).
        """
        if isinstance(self._scope, TransactionScope):
            raise MisuseError("a fire runs longer than a transaction should: call running() on the store")
        fire_checks.held(claim)
        return fire_running.running(
            claim, shared.lease(lease), lambda held: self.heartbeat(held, lease=lease), self.finish
        )

    def _held(self, statement: Any, held: dict[str, Any], until: datetime) -> dict[str, Any]:
        """What a statement on a held fire returns."""
        row = self._once(lambda unit: unit.row(statement, {**held, "lease_until": until}), repeatable=True)
        if row is None:
            raise self._reading(lambda unit: fire_ends.refusal(unit, held))
        return row
