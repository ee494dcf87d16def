"""Tables of the schedules domain: crons, operators' overrides of them, and fires."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index, false, text, true
from sqlalchemy.orm import Mapped, mapped_column

from lastlight_state import cron
from lastlight_state.db.base import Base
from lastlight_state.db.declarations import KIB, described, json_column, text_column, word_column
from lastlight_state.db.indexes import where
from lastlight_state.schedules.words import FIRE_STATUSES


class CronOverrideModel(Base):
    """What an operator changed about one cron. Without a row the configured default is in effect."""

    __tablename__ = "cron_overrides"
    __table_args__ = described(
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
    """One cron: its pattern, what it starts, how it catches up, and when it is due next."""

    __tablename__ = "cron_schedules"
    __table_args__ = described(
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
    """One fire of a cron: who ran it, for which instant, how it ended and what it dispatched."""

    __tablename__ = "cron_fires"
    __table_args__ = described(
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
