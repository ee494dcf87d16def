"""Tables of the schedules domain: crons, operators' overrides of them, and fires."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import Index, false, text, true
from sqlalchemy.orm import Mapped, mapped_column

from lastlight_state import cron
from lastlight_state.db.rows.statements import bind, constant, number
from lastlight_state.db.schema.base import Base, table_of
from lastlight_state.db.schema.declarations import KIB, describe_table, json_column, text_column, word_column
from lastlight_state.db.schema.guards import (
    Guard,
    Key,
    Reaction,
    append_only,
    declare,
    declare_reaction,
    no_replacement,
)
from lastlight_state.db.schema.indexes import through, where
from lastlight_state.db.valid import words

# Allowed words of the schedules domain, and limits that are not those of a column.

TargetKind = Literal["workflow", "handler"]
CatchUp = Literal["one", "all", "none"]
Overlap = Literal["allow", "skip"]
Origin = Literal["database", "config"]
FireSource = Literal["schedule", "manual", "backfill"]
FireStatus = Literal["running", "ok", "partial", "failed", "abandoned", "skipped", "missed"]
FireResult = Literal["ok", "partial", "failed"]

TARGET_KINDS = words(TargetKind)
CATCH_UPS = words(CatchUp)
OVERLAPS = words(Overlap)
ORIGINS = words(Origin)
FIRE_SOURCES = words(FireSource)
FIRE_STATUSES = words(FireStatus)
FIRE_RESULTS = words(FireResult)
#: The statuses of a fire that ran and has ended.
FINISHED = ("ok", "partial", "failed", "abandoned")

#: How many characters of an exception type's name an error keeps.
TYPE_CHARS = 80

# Limits and defaults of durations and counts.
GRACE_SECONDS = 604_800
SHORTEST_LEASE = timedelta(seconds=1)
LONGEST_LEASE = timedelta(hours=24)
LEASE = timedelta(minutes=5)
LONGEST_BACKFILL = timedelta(days=31)
BACKFILL = timedelta(hours=24)
#: The most fires that one call takes.
CLAIMS = 100

# Kinds of record, as `NotFound` and `AlreadyExists` name them.
CRON = "cron"
OVERRIDE = "cron_override"
FIRE = "cron_fire"


class CronOverrideModel(Base):
    """An operator's changes to one cron. If there is no row, the cron's own definition applies."""

    __tablename__ = "cron_overrides"
    __table_args__ = describe_table(
        "what operators changed about crons; no row means the default",
        kept="configuration; `clear` removes one",
        stays="says who operates the system",
    )

    name: Mapped[str] = text_column(200, primary_key=True, personal=False)
    enabled: Mapped[bool] = mapped_column(server_default=true())
    schedule: Mapped[str | None] = text_column(cron.PATTERN_BYTES, personal=False)
    updated_at: Mapped[datetime]
    updated_by: Mapped[str | None] = text_column(256, personal=True)
    # since 0002
    timezone: Mapped[str | None] = text_column(cron.ZONE_BYTES, personal=False)
    inherits_enabled: Mapped[bool] = mapped_column(server_default=false())


class CronScheduleModel(Base):
    """One cron: its pattern, what it starts, how it catches up on missed instants, and when it is due next."""

    __tablename__ = "cron_schedules"
    __table_args__ = describe_table(
        "schedules, with when each is due next",
        kept="configuration; a cron that is gone is retired",
        stays="configuration, which its owner changes",
    )

    name: Mapped[str] = text_column(200, primary_key=True, personal=False)
    pattern: Mapped[str] = text_column(cron.PATTERN_BYTES, personal=False)
    timezone: Mapped[str] = text_column(cron.ZONE_BYTES, server_default="UTC", personal=False)
    target_kind: Mapped[str] = text_column(None, server_default="workflow", personal=False)
    target: Mapped[str] = text_column(1024, personal=False)
    catch_up: Mapped[str] = text_column(None, server_default="one", personal=False)
    grace_seconds: Mapped[int] = mapped_column(server_default=text("60"))
    overlap: Mapped[str] = text_column(None, server_default="allow", personal=False)
    origin: Mapped[str] = text_column(None, server_default="database", personal=False)
    enabled: Mapped[bool] = mapped_column(server_default=true())
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    last_run_at: Mapped[datetime | None]
    next_run_at: Mapped[datetime | None]
    planned_with: Mapped[str | None] = text_column(None, personal=False)
    last_fire_id: Mapped[str | None] = text_column(None, personal=False)
    retired_at: Mapped[datetime | None]
    error_json: Mapped[Any] = json_column(16 * KIB, personal=True, nullable=True)
    payload: Mapped[Any] = json_column(64 * KIB, personal=True, nullable=True)


class CronFireModel(Base):
    """One fire of a cron: its instant, who ran it, how it ended, and what it started."""

    __tablename__ = "cron_fires"
    __table_args__ = describe_table(
        "fires of crons, one row each, also when nothing was dispatched",
        pruned_as=("fires",),
        stays="says who operates the system; a prune of fires removes it",
        newest=("started_at",),
    )

    id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    cron_name: Mapped[str] = text_column(200, personal=False)
    scheduled_for: Mapped[datetime | None]
    source: Mapped[str] = text_column(None, personal=False)
    actor: Mapped[str | None] = text_column(256, personal=True)
    target_kind: Mapped[str | None] = text_column(None, personal=False)
    target: Mapped[str | None] = text_column(1024, personal=False)
    status: Mapped[str] = word_column(FIRE_STATUSES, server_default="running")
    owner: Mapped[str | None] = text_column(256, personal=False)
    lease_until: Mapped[datetime | None]
    epoch: Mapped[int] = mapped_column(server_default=text("1"))
    attempts: Mapped[int] = mapped_column(server_default=text("1"))
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    eligible: Mapped[int | None]
    scanned: Mapped[int | None]
    discovered: Mapped[int | None]
    dispatched: Mapped[int | None]
    failures: Mapped[int | None]
    note: Mapped[str | None] = text_column(1024, personal=True)
    error_json: Mapped[Any] = json_column(16 * KIB, personal=True, nullable=True)
    payload: Mapped[Any] = json_column(64 * KIB, personal=True, nullable=True)


_schedule = CronScheduleModel.__table__.c
_fire = CronFireModel.__table__.c

Index(
    "ix_cron_schedules_due",
    _schedule.next_run_at,
    _schedule.name,
    _schedule.target,
    **where("next_run_at IS NOT NULL"),
)
Index("ix_cron_schedules_newest", _schedule.created_at, _schedule.name)
Index("uq_cron_fires_instant", _fire.cron_name, _fire.scheduled_for, unique=True, **where("scheduled_for IS NOT NULL"))
Index("ix_cron_fires_cron", _fire.cron_name, _fire.started_at, _fire.id)
Index("ix_cron_fires_newest", _fire.started_at, _fire.id)
Index("ix_cron_fires_running", _fire.cron_name, _fire.target, _fire.id, **where("status = 'running'"))


# A trigger that causes a cron to be planned again after its override changed, also by a program without plans.
#
# It marks a plan that does not fit the values now in effect: ``planned_with`` becomes `UNPLANNED`, and the next time
# lies in the past, so that the next `take_due` finds the cron among the due ones. That call plans the cron instead of
# firing it.

#: The ``planned_with`` of a cron that waits to be planned again. Other values are a zone, a blank and a pattern.
UNPLANNED = "unplanned"

_OVERRIDE = "FROM cron_overrides AS o WHERE o.name = cron_schedules.name"
_ENABLED = f"(SELECT CASE WHEN o.enabled AND o.inherits_enabled THEN NULL ELSE o.enabled END {_OVERRIDE})"

UNPLAN = declare_reaction(
    Reaction(
        "cron_overrides_unplan",
        "cron_overrides",
        "cron_schedules",
        key="name",
        sets="next_run_at = created_at, planned_with = 'unplanned'",
        when=(
            f"retired_at IS NULL AND coalesce({_ENABLED}, enabled) "
            # An instant that a caller set stays: there is no pattern that it must fit.
            "AND coalesce(planned_with, CASE WHEN next_run_at IS NULL THEN 'unplanned' END) "
            f"<> coalesce((SELECT o.timezone {_OVERRIDE}), timezone) || ' ' "
            f"|| coalesce((SELECT o.schedule {_OVERRIDE}), pattern)"
        ),
        says="the cron is planned again by the next `take_due`, if its plan does not fit the override",
        function="lastlight_unplan",
    )
)


# The three tables, and the columns and conditions that several statements share.

SCHEDULES = table_of(CronScheduleModel)

OVERRIDES = table_of(CronOverrideModel)

FIRES = table_of(CronFireModel)

THIS_SCHEDULE = SCHEDULES.c.name == bind("name", SCHEDULES.c.name)

IS_RUNNING = FIRES.c.status == constant("running")

#: An override's columns, joined to the row of its schedule; all NULL without an override.
OVERRIDDEN = (
    OVERRIDES.c.name.label("override_name"),
    OVERRIDES.c.enabled.label("override_enabled"),
    OVERRIDES.c.inherits_enabled.label("override_inherits"),
    OVERRIDES.c.schedule.label("override_schedule"),
    OVERRIDES.c.timezone.label("override_zone"),
)

WITH_OVERRIDE = SCHEDULES.outerjoin(OVERRIDES, OVERRIDES.c.name == SCHEDULES.c.name)

#: The time when a cron is due next. NULL while the cron waits to be planned again: then the stored time is only a mark.
NEXT_RUN_AT = sa.case((SCHEDULES.c.planned_with.is_distinct_from(constant(UNPLANNED)), SCHEDULES.c.next_run_at))

#: When the lease of a fire ends, under the name that records use.
LEASE_END = FIRES.c.lease_until.label("lease_expires_at")

#: The columns of a `FireClaim`.
CLAIM = (
    FIRES.c.id.label("fire_id"),
    FIRES.c.cron_name,
    FIRES.c.scheduled_for,
    FIRES.c.source,
    FIRES.c.target_kind,
    FIRES.c.target,
    FIRES.c.payload,
    FIRES.c.owner,
    FIRES.c.epoch,
    FIRES.c.attempts,
    LEASE_END,
)

#: The unique index by which an instant has one fire, for ``ON CONFLICT``.
INSTANT: dict[str, Any] = {
    "index_elements": [FIRES.c.cron_name, FIRES.c.scheduled_for],
    "index_where": FIRES.c.scheduled_for.is_not(None),
}

#: True if a fire of the cron ``:name`` runs on a lease that has not expired at ``:now``.
#:
#: Use it only in a statement after the one that locked the schedule's row. In the locking statement itself Postgres
#: would answer with the data from before it waited for the lock.
RUNS_LIVE = sa.exists(
    through(sa.select(number(1)), FIRES, "ix_cron_fires_running").where(
        FIRES.c.cron_name == bind("name", FIRES.c.cron_name),
        IS_RUNNING,
        FIRES.c.lease_until >= bind("now", FIRES.c.lease_until),
    )
)


# Triggers on crons and fires: rows cannot be deleted, and a finished fire cannot be changed.

CRONS = declare([*append_only("cron_schedules"), *no_replacement("cron_schedules", Key(("name",)))])

FIRE_GUARDS = declare(
    [
        *append_only("cron_fires"),
        *no_replacement("cron_fires", Key(("id",)), Key(("cron_name", "scheduled_for"))),
        Guard(
            "cron_fires_finished_stays",
            "cron_fires",
            "update",
            "a finished fire never changes",
            when="OLD.status <> 'running'",
            permit="any",
        ),
    ]
)
