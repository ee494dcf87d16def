"""Taking of due crons. One transaction stores the fire and the next instant before anything runs.

First, without a lock, it is decided for each due cron whether to fire, to record a missed fire, or only to plan it
again. Then each cron has its own transaction, which locks the schedule's row and does nothing if the row was changed in
between. The unique index over instants makes sure that no instant fires twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self, TypedDict, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.lists.filters import Filtered
from lastlight_state.db.rows.records import Record
from lastlight_state.db.rows.statements import bind, columns_of, constant, number, statement_of
from lastlight_state.db.schema import columns
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import CorruptData
from lastlight_state.ids import new_id
from lastlight_state.schedules import checks
from lastlight_state.schedules.arguments import FireClaim
from lastlight_state.schedules.crons import plans
from lastlight_state.schedules.crons.plans import CronPlan
from lastlight_state.schedules.crons.statements import CHOSEN, PLAN, PLANNED
from lastlight_state.schedules.effective import OverrideColumns
from lastlight_state.schedules.models import (
    CLAIM,
    FIRES,
    INSTANT,
    OVERRIDDEN,
    RUNS_LIVE,
    SCHEDULES,
    THIS_SCHEDULE,
    UNPLANNED,
    WITH_OVERRIDE,
)

# The statements of `take_due`: find due crons, lock the row, store the fire, store the next instant.


class DueCron(Record):
    """The columns that decide about a due cron. No JSON: a damaged payload must not hide the other due crons."""

    name: str
    next_run_at: datetime
    planned_with: str | None
    pattern: str
    timezone: str
    enabled: bool
    catch_up: str
    grace_seconds: int
    overlap: str
    retired_at: datetime | None
    override: OverrideColumns

    _computed = frozenset({"override"})
    _consumed = frozenset(OverrideColumns._fields)

    @classmethod
    def of(cls, values: Any) -> Self:
        values["override"] = OverrideColumns.pop_from(values)
        return super().of(values)


_rows = sa.select(*columns_of(DueCron, SCHEDULES), *OVERRIDDEN).select_from(WITH_OVERRIDE)


def _select_due(chosen: Sequence[sa.ColumnElement[bool]]) -> sa.Select[Any]:
    behind = sa.tuple_(SCHEDULES.c.next_run_at, SCHEDULES.c.name) > sa.tuple_(
        sa.bindparam("after", type_=columns.KeyTimestamp), bind("after_name", SCHEDULES.c.name)
    )
    return (
        _rows.where(
            SCHEDULES.c.next_run_at.is_not(None),
            SCHEDULES.c.next_run_at <= bind("now", SCHEDULES.c.next_run_at),
            behind,
            *chosen,
        )
        .order_by(SCHEDULES.c.next_run_at, SCHEDULES.c.name)
        .limit(sa.bindparam("limit", type_=sa.Integer))
    )


#: Due crons, the earliest first, behind the place that the last portion reached.
DUE = Filtered(_select_due, None, DueCron, **CHOSEN)
#: Locks the row, to compare it with the one that was read. A row that another transaction holds is skipped, because it
#: is being taken or changed at this moment; so schedulers do not wait for one another.
LOCK_DUE = statement_of(
    _rows.where(THIS_SCHEDULE).with_for_update(of=SCHEDULES, key_share=True, skip_locked=True), DueCron
)

_decided = sa.select(
    sa.case(
        (
            sa.and_(
                bind("status", FIRES.c.status) == constant("running"),
                SCHEDULES.c.overlap == constant("skip"),
                RUNS_LIVE,
            ),
            constant("skipped"),
        ),
        else_=bind("status", FIRES.c.status),
    ).label("status"),
    SCHEDULES.c.name,
    SCHEDULES.c.target_kind,
    SCHEDULES.c.target,
    SCHEDULES.c.payload,
).where(THIS_SCHEDULE)
_fire = _decided.subquery("fire")
_runs = _fire.c.status == constant("running")
_now = bind("now", FIRES.c.started_at)

_values = {
    "id": bind("fire_id", FIRES.c.id),
    "cron_name": _fire.c.name,
    "scheduled_for": bind("read", FIRES.c.scheduled_for),
    "source": constant("schedule"),
    "target_kind": _fire.c.target_kind,
    "target": _fire.c.target,
    "status": _fire.c.status,
    "owner": sa.case((_runs, bind("owner", FIRES.c.owner)), else_=sa.null()),
    "lease_until": sa.case((_runs, bind("lease_expires_at", FIRES.c.lease_until)), else_=sa.null()),
    "epoch": number(1),
    "attempts": sa.case((_runs, number(1)), else_=number(0)),
    "started_at": _now,
    "finished_at": sa.case((_runs, sa.null()), else_=_now),
    "note": sa.case((_fire.c.status == constant("skipped"), constant("overlap")), else_=bind("note", FIRES.c.note)),
    "payload": _fire.c.payload,
}
#: Stores the fire of an instant, or nothing if the instant has a fire. If an earlier fire of the cron is still running
#: and its fires must not overlap, the fire is stored as ``skipped`` instead of ``running``.
FIRE = statement_of(
    insert(FIRES)
    .from_select(
        list(_values),
        sa.select(*_values.values()).select_from(_fire).where(sa.true()),  # else ON CONFLICT reads as a join's ON
        include_defaults=False,
    )
    .on_conflict_do_nothing(**INSTANT)
    .returning(*CLAIM, FIRES.c.status)
)

#: Stores the last fire and the next instant in the schedule's row.
FIRED = statement_of(
    sa.update(SCHEDULES)
    .where(THIS_SCHEDULE)
    .values(
        last_run_at=bind("now", SCHEDULES.c.last_run_at),
        last_fire_id=bind("fire_id", SCHEDULES.c.last_fire_id),
        **PLANNED,
    )
)


#: The notes that are stored with missed fires.
LATE = "late, and not caught up with"
TOO_OLD = "older than the backfill window, with all instants up to its begin"

_TICK = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Decision:
    """The decision about a due instant: the status of its fire (None for no fire), and the plan that follows."""

    status: Literal["running", "missed"] | None
    plan: CronPlan
    note: str | None = None


def decide(cron: DueCron, now: datetime, backfill_window: timedelta) -> Decision:
    """Decide about a due cron.

    A cron that is switched off does not fire. Neither does a cron whose instant was planned with a pattern or zone that
    no longer applies. If that instant also fits the effective pattern, it fires once, and the cron is planned from now.
    A cron without any further instant fires this last time, unless its instant only marks an unplanned cron.
    """
    held = plans.effective_of(cron, cron.override)
    if cron.retired_at is not None or not held.enabled:
        return Decision(None, plans.OFF)
    if cron.planned_with is not None and cron.planned_with != held.plan:
        plan = plans.next_plan(held, now)
        if plans.is_due_under_both(cron.next_run_at, cron.planned_with, held, now):
            is_late = cron.catch_up == "none" and not _on_time(now - cron.next_run_at, cron)
            return Decision("missed", plan, LATE) if is_late else Decision("running", plan)
        last = plan.error is not None and cron.planned_with != UNPLANNED
        return Decision("running" if last else None, plan)
    instant = cron.next_run_at
    if cron.catch_up == "all":
        if now - instant <= backfill_window:
            return Decision("running", plans.next_plan(held, instant))
        return Decision("missed", plans.next_plan(held, now - backfill_window - _TICK), TOO_OLD)
    if cron.catch_up == "none" and not _on_time(now - instant, cron):
        return Decision("missed", plans.next_plan(held, now), LATE)
    return Decision("running", plans.next_plan(held, now))


def _on_time(late: timedelta, cron: DueCron) -> bool:
    """Return whether a fire is on time.

    The times are compared as numbers, because a value written by hand may be too large for a timedelta.
    """
    return bool(late.total_seconds() <= cron.grace_seconds)


class Settlement(TypedDict):
    """What is decided about a due cron, as parameters. ``read`` is the instant that was due."""

    name: str
    read: datetime
    now: datetime
    fire_id: str
    status: Literal["running", "missed"] | None
    owner: str
    lease: timedelta
    lease_expires_at: datetime
    note: str | None
    next_run_at: datetime | None
    planned_with: str | None
    sets_error: bool
    error: str | None


T = TypeVar("T")

#: A function of a repository that runs a work in a unit (`db.units.scope`).
Run = Callable[[Callable[[Unit], T]], T]

#: A place before every instant and name.
_BEGIN: tuple[datetime, str] = (datetime(1, 1, 1, tzinfo=UTC), "")


@dataclass(frozen=True)
class DueTaker:
    """Takes due crons for one owner."""

    owner: str
    now: datetime
    lease: timedelta
    backfill_window: timedelta
    chosen: Mapping[str, list[str] | None] = field(default_factory=dict)

    def take_claims(self, reading: Run[Any], writing: Run[Any], limit: int) -> tuple[FireClaim, ...]:
        """Return at most ``limit`` claims, the earliest instant first. While nothing is due this only reads."""
        return checks.claim_rows(self._due_crons(reading, limit), lambda cron: self._take(writing, cron), limit)

    def _due_crons(self, reading: Run[Any], limit: int) -> Iterator[DueCron | CorruptData]:
        """Return due crons, each once. They are read in portions, so that none that gives no claim hides another."""
        last, seen = _BEGIN, set[str]()
        statement, given = DUE.of(self.chosen)
        while True:
            asked = {**given, "now": self.now, "after": last[0], "after_name": last[1], "limit": limit}
            found: list[DueCron | CorruptData]
            found = reading(lambda unit, asked=asked: unit.rows_or_errors(statement, asked).rows)  # type: ignore[misc]
            sound = [row for row in found if not isinstance(row, CorruptData)]
            yield from (row for row in found if isinstance(row, CorruptData))
            yield from (row for row in sound if row.name not in seen)
            seen.update(row.name for row in sound)
            if len(found) < limit or (sound and (sound[-1].next_run_at, sound[-1].name) == last):
                return  # SQLite compares times as text: a foreign spelling of the same time may sort after ours
            if sound:
                last = sound[-1].next_run_at, sound[-1].name
            else:
                limit *= 2  # no row of this batch can be read: read more rows

    def _take(self, writing: Run[Any], cron: DueCron) -> FireClaim | None:
        """Return the claim on a fire of one cron; None if it does not fire, or if somebody else was first.

        After missed instants are recorded, the cron may be due at an instant inside the backfill window. Then it is
        decided again.
        """
        decision = decide(cron, self.now, self.backfill_window)
        claim: FireClaim | None = self._settle_cron(writing, cron, decision)
        plan = decision.plan
        if decision.status == "missed" and plan.next_run_at is not None and plan.next_run_at <= self.now:
            further = cron.model_copy(update={"next_run_at": plan.next_run_at, "planned_with": plan.planned_with})
            return self._settle_cron(writing, further, decide(further, self.now, self.backfill_window))
        return claim

    def _settle_cron(self, writing: Run[Any], cron: DueCron, decision: Decision) -> FireClaim | None:
        plan = decision.plan
        values: Settlement = {
            "name": cron.name,
            "read": cron.next_run_at,
            "now": self.now,
            "fire_id": new_id(),
            "status": decision.status,
            "owner": self.owner,
            "lease": self.lease,
            "lease_expires_at": self.now + self.lease,
            "note": decision.note,
            "next_run_at": plan.next_run_at,
            "planned_with": plan.planned_with,
            "sets_error": plan.error is not None,
            "error": plan.error,
        }
        claim: FireClaim | None = writing(lambda unit: _settle(unit, cron, values))
        return claim


def _settle(unit: Unit, cron: DueCron, values: Settlement) -> FireClaim | None:
    """Store the decided fire, if any, and the next plan, unless the row has changed since the decision."""
    if unit.row(LOCK_DUE, values) != cron:
        return None
    fire = unit.row(FIRE, values) if values["status"] is not None else None
    runs = fire is not None and fire.pop("status") == "running"
    unit.change(FIRED if runs else PLAN, values)
    return FireClaim.of({**fire, "lease": values["lease"]}) if fire is not None and runs else None
