"""Crons: the definitions of what runs when, and the taking of due crons.

Each cron stores its next instant, ``next_run_at``. It is computed when the cron is defined or taken, never while
polling. This module runs no jobs: a service's own loop takes due fires, runs them, and stores how they ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from lastlight_state.db import valid
from lastlight_state.db.repository import UNSET, Repository, UnsetType
from lastlight_state.db.rows.records import Page
from lastlight_state.schedules import checks as shared, models
from lastlight_state.schedules.arguments import CronSpec, FireClaim, FireError
from lastlight_state.schedules.crons import definitions, plans, statements as sql
from lastlight_state.schedules.crons.takes import DueTaker
from lastlight_state.schedules.records import Cron, CronSummary, SyncReport


class Crons(Repository):
    """``store.schedules.crons``: define, list and plan crons, and take due fires."""

    def put(
        self,
        name: str,
        spec: CronSpec,
        *,
        enabled: bool | UnsetType = UNSET,
        next_run_at: datetime | UnsetType | None = UNSET,
    ) -> Cron:
        """Create a cron, or change the definition of an existing one.

        A retired cron becomes active again and keeps its history. A new cron is first due at its first instant after
        now. An existing cron stays switched on or off unless ``enabled`` is given. It keeps its next instant, due or
        not, unless its pattern or time zone changes. A given ``next_run_at`` is stored unchanged: a past time is due
        now, None is never due. A cron that is switched on again is planned from now; instants during the pause do not
        fire.

        Raises `InvalidValue` for a pattern that cannot be read or never matches, `ReservedName` for a configured cron,
        and `MisuseError` if the pattern must be parsed and the extra ``cron`` is not installed.
        """
        said = definitions.definition(name, spec, origin="database", parsed=next_run_at is UNSET)
        switch = definitions.optional_flag("enabled", enabled)
        instant = definitions.optional_instant("next_run_at", next_run_at)
        now = self._now()
        return self._writing(
            lambda unit: definitions.put(unit, said, now, enabled=switch, next_run_at=instant), repeatable=True
        )

    def sync(self, specs: Mapping[str, CronSpec]) -> SyncReport:
        """Make these the configured crons: add, change and reactivate them; retire configured crons that are not given.

        All or nothing. Unchanged crons are not written, so that every replica may call this when it starts. An empty
        mapping retires every configured cron. The configured ``enabled`` always applies: use an override to switch a
        cron off.

        Raises `InvalidValue` naming every invalid cron, `Conflict` ``cron_origin`` naming every cron that was created
        at run time with `put`, and `MisuseError` if the extra ``cron`` is not installed.
        """
        wanted = definitions.definitions(specs)
        now = self._now()
        found = self._reading(lambda unit: definitions.compare(unit, wanted))
        if not found.is_empty:
            found = self._writing(lambda unit: definitions.apply(unit, wanted, now))
        return found.report

    def get(self, name: str) -> Cron:
        """Return the cron, retired or not, with what is in effect after an override. Raises `NotFound`."""
        return self._get_row(plans.GET, {"name": name}, kind=models.CRON, key=name)

    def find(self, name: str) -> Cron | None:
        """Return the cron, retired or not, or None."""
        return self._find(plans.GET, {"name": valid.lookup_text("name", name)})

    def list(
        self,
        *,
        enabled: bool | None = None,
        origin: models.Origin | None = None,
        due_before: datetime | None = None,
        retired: bool | None = False,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[CronSummary]:
        """Return a page of crons, newest first, without payload and error.

        ``enabled`` filters by whether crons are switched on, after overrides. ``retired``: False lists only crons that
        are not retired, True only retired ones, None both.
        """
        given = definitions.list_filters(enabled, origin, due_before, retired)
        return self._page(sql.LIST, given, limit, page_token)

    def retire(self, name: str) -> Cron:
        """Stop a cron from firing and hide it from lists. Its history stays, and running fires go on. Idempotent.

        `put` or `sync` may bring the name back. Raises `NotFound`.
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
        """Store a run and the next instant, if the stored next instant is still the expected one.

        For loops that do not use `take_due`. If a loop calls this **before** it fires, and fires only if the call
        succeeds, each instant fires once. ``error=None`` clears the stored error. Raises `LostRace` with the
        ``current`` next instant, `Conflict` ``retired``, or `NotFound`; then nothing is written.
        """
        values: plans.TrackedRun = {
            "name": shared.name("name", name),
            "last_run_at": definitions.instant("last_run_at", last_run_at),
            "next_run_at": definitions.instant("next_run_at", next_run_at),
            "error": shared.error("error", error),
        }
        expected = definitions.instant("expected_next_run_at", expected_next_run_at)
        return self._writing(lambda unit: plans.track(unit, values, expected))

    def take_due(
        self,
        *,
        owner: str,
        lease: timedelta = models.LEASE,
        limit: int = 10,
        backfill_window: timedelta = models.BACKFILL,
        names: Collection[str] | None = None,
        targets: Collection[str] | None = None,
    ) -> tuple[FireClaim, ...]:
        """Take due fires for ``owner``: at most ``limit``, at most one per cron, the earliest instant first.

        ``names`` and ``targets`` (at most 50 each) restrict this to crons with these names, and to crons with these
        targets. Any number of processes may call this at once: each instant of a cron fires once. When this returns,
        the fires are stored as running and their crons have their next instants. Run each fire, and store how it ended
        with ``fires.finish``. Take only as many as you can run at once, because nothing renews the leases of fires that
        wait. While nothing is due, this only reads.

        If another program has changed a cron's override, the cron is planned from this call on; earlier instants do not
        fire. A cron that fails is logged and does not stop other crons. A cron that can no longer be planned, for
        example because its pattern is damaged, fires one last time: its next instant becomes None, and its error states
        the reason. Raises `MisuseError` if something is due and the extra ``cron`` is not installed.
        """
        taker = DueTaker(
            owner=shared.owner(owner),
            now=self._now(),
            lease=shared.lease(lease),
            backfill_window=valid.duration("backfill_window", backfill_window, most=models.LONGEST_BACKFILL),
            chosen=shared.cron_filters(names, targets),
        )
        most = shared.claims(limit)
        return () if [] in taker.chosen.values() else taker.take_claims(self._reading, self._writing, most)

    def next_due_at(
        self, *, names: Collection[str] | None = None, targets: Collection[str] | None = None
    ) -> datetime | None:
        """Return the next time at which a cron is due or a running fire's lease ends. Return None if there is none.

        Returns a past time if `take_due` must plan a cron again because another program changed its override. ``names``
        and ``targets`` restrict the crons as in `take_due`.
        """
        chosen = shared.cron_filters(names, targets)
        if [] in chosen.values():
            return None
        statement, given = sql.NEXT.of(chosen)
        [times] = self._list_rows(statement, given)
        return min(filter(None, times), default=None)

    def replan(self, name: str | None = None) -> int:
        """Recompute those next instants, of one cron or of all, that no longer match their pattern.

        Return how many changed. Use this after an update of time zone data, or after schedules were changed by hand. An
        enabled cron without a next instant gets one. Due instants, and instants that a caller set, stay. Raises
        `NotFound` for an unknown name.
        """
        now = self._now()
        if name is not None:
            return int(self._writing(lambda unit: plans.replan(unit, plans.lock(unit, name), now)))
        return sum(
            self._writing(lambda unit, name=name: plans.replan(unit, plans.find_locked(unit, name), now))  # type: ignore[misc]
            for name in plans.mismatched_names(self._reading, now)
        )
