"""Crons: what runs when, the plan of each, and the claims of those that are due.

``next_run_at`` is what decides: it is computed when a cron is defined or claimed, never while polling. Nothing here
runs anything: the service's own loop asks for due fires, runs them, and says how they ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.db.repository import UNSET, Repository, UnsetType
from lastlight_state.schedules import checks as shared, words
from lastlight_state.schedules.arguments import CronSpec, FireClaim, FireError
from lastlight_state.schedules.crons import (
    checks as cron_checks,
    definitions,
    definitions as configuration,
    plans as tracking,
    rows,
    statements as sql,
)
from lastlight_state.schedules.crons.claims import Claimer
from lastlight_state.schedules.records import Cron, CronSummary, SyncReport


class Crons(Repository):
    """``store.schedules.crons``"""

    def put(
        self,
        name: str,
        spec: CronSpec,
        *,
        enabled: bool | UnsetType = UNSET,
        next_run_at: datetime | UnsetType | None = UNSET,
    ) -> Cron:
        """Define a cron made at run time, new or again; a retired one comes back with its history.

        A new cron is first due at its first instant after now. An existing one keeps its switch unless ``enabled`` is
        given, and its next instant, due or not, as long as pattern and zone stay what they are. ``next_run_at`` is
        taken as it is: past is due now, None is never; it needs no parser. Raises `InvalidValue` for a pattern that
        cannot be read or never matches, `ReservedName` for a configured cron, `MisuseError` without the extra
        ``cron``.
        """
        said = cron_checks.definition(name, spec, origin="database", parsed=next_run_at is UNSET)
        switch = cron_checks.said_flag("enabled", enabled)
        instant = cron_checks.said_instant(next_run_at)
        now = self._now()
        return self._writing(
            lambda unit: definitions.put(unit, said, now, enabled=switch, next_run_at=instant), repeatable=True
        )

    def sync(self, specs: Mapping[str, CronSpec]) -> SyncReport:
        """Make the configured crons these, all or nothing: add, change, revive, and retire those that are absent.

        Crons that are equal are not written, so any number of replicas may call this at their start; an empty mapping
        retires every configured cron. The configured ``enabled`` always holds: switch a cron off with an override.
        Raises `InvalidValue` naming all crons that are wrong, `Conflict` ``cron_origin`` naming all that were made at
        run time, `MisuseError` without the extra ``cron``.
        """
        wanted = cron_checks.definitions(specs)
        now = self._now()
        found = self._reading(lambda unit: configuration.compare(unit, wanted))
        if not found.none:
            found = self._writing(lambda unit: configuration.bring(unit, wanted, now))
        return found.report

    def get(self, name: str) -> Cron:
        """The cron, retired or not, with what holds after an override. Raises `NotFound`."""
        return self._reading(lambda unit: rows.get(unit, name))

    def find(self, name: str) -> Cron | None:
        """The cron, retired or not, or None."""
        values = {"name": valid.sought("name", name)}
        return self._reading(lambda unit: unit.find(Cron, rows.GET, values))

    def list(
        self,
        *,
        enabled: bool | None = None,
        origin: words.Origin | None = None,
        due_before: datetime | None = None,
        retired: bool | None = False,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[CronSummary]:
        """A page of crons, newest first, without payload and error: all but the retired unless ``retired`` says so.

        ``enabled`` is whether it is in effect, after overrides. ``retired``: True lists those alone, None all.
        """
        given = cron_checks.list_filters(enabled, origin, due_before, retired)
        valid.page_limit(limit)
        return self._reading(
            lambda unit: sql.LIST.page(unit, CronSummary.of, limit=limit, page_token=page_token, given=given)
        )

    def retire(self, name: str) -> Cron:
        """Take a cron out of lists and out of firing; its history stays, fires that run go on. Idempotent.

        Its name may come back with `put` or `sync`. Raises `NotFound`.
        """
        now = self._now()
        return self._writing(lambda unit: definitions.retire(unit, name, now), repeatable=True)

    def update_run(
        self,
        name: str,
        *,
        expected_next_run_at: datetime | None,
        last_run_at: datetime | None,
        next_run_at: datetime | None,
        error: FireError | str | None = None,
    ) -> Cron:
        """For loops of your own: note a run and set the next time, if the next time is still the expected one.

        No error clears the last one. A loop that calls this **before** it fires, and fires only if it succeeds, fires
        each instant once. Raises `LostRace` with the ``current`` next time, `Conflict` ``retired``, `NotFound`; then
        nothing was written.
        """
        values = {
            "name": shared.name("name", name),
            "last_run_at": cron_checks.instant("last_run_at", last_run_at),
            "next_run_at": cron_checks.instant("next_run_at", next_run_at),
            "error": shared.error("error", error),
        }
        expected = cron_checks.instant("expected_next_run_at", expected_next_run_at)
        return self._writing(lambda unit: tracking.track(unit, values, expected))

    def claim_due(
        self,
        owner: str,
        *,
        limit: int = 10,
        lease: timedelta = words.LEASE,
        backfill_window: timedelta = words.BACKFILL,
    ) -> list[FireClaim]:  # type: ignore[valid-type]
        """Claim due fires for ``owner``: at most ``limit``, at most one per cron, the earliest instant first.

        Any number of processes may call this at once: each instant of a cron is fired once. The plan has moved on and
        the fire is stored as running when this returns; run it, and say how it ended with ``fires.finish``. While
        nothing is due it only reads. Raises `MisuseError` when something is due and the extra ``cron`` is absent.
        """
        claimer = Claimer(
            owner=shared.owner(owner),
            now=self._now(),
            lease=shared.lease(lease),
            backfill_window=shared.duration("backfill_window", backfill_window, timedelta(0), words.LONGEST_BACKFILL),
        )
        return claimer.claimed(self._reading, self._writing, shared.claims(limit))

    def next_due_at(self) -> datetime | None:
        """When there is something to do next: a cron is due, or the lease of a running fire ends. None for never."""
        found = self._reading(lambda unit: unit.rows(sql.NEXT))[0]
        return min(filter(None, found.values()), default=None)

    def replan(self, name: str | None = None) -> int:
        """Compute the plans anew that do not fit any more: new zone data, rows changed by hand. How many changed.

        One cron, or all. Each enabled cron without a plan gets one; instants that are due, and those that a caller
        said, stay. Raises `NotFound` for an unknown name.
        """
        now = self._now()
        if name is not None:
            return int(self._writing(lambda unit: tracking.replan(unit, rows.lock(unit, name), now)))
        return sum(
            self._writing(lambda unit, name=name: tracking.replan(unit, rows.find_locked(unit, name), now))  # type: ignore[misc]
            for name in tracking.misfits(self._reading, now)
        )
