"""Tables of the schedules domain: crons, operators' overrides of them, and fires."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index, false, text, true
from sqlalchemy.orm import Mapped, mapped_column

from lastlight_state.db.base import Base, described, json_column
from lastlight_state.db.indexes import where


class CronOverrideModel(Base):
    """What an operator changed about one cron. Without a row the configured default is in effect."""

    __tablename__ = "cron_overrides"
    __table_args__ = described("what operators changed about crons; no row means the default")

    name: Mapped[str] = mapped_column(primary_key=True)
    enabled: Mapped[bool] = mapped_column(server_default=true())
    schedule: Mapped[str | None]
    updated_at: Mapped[datetime]
    updated_by: Mapped[str | None]
    # since 0002
    timezone: Mapped[str | None]
    inherits_enabled: Mapped[bool] = mapped_column(server_default=false())


class CronScheduleModel(Base):
    """One cron: its pattern, what it starts, how it catches up, and when it is due next."""

    __tablename__ = "cron_schedules"
    __table_args__ = described("schedules, with when each is due next")

    name: Mapped[str] = mapped_column(primary_key=True)
    pattern: Mapped[str]
    timezone: Mapped[str] = mapped_column(server_default="UTC")
    target_kind: Mapped[str] = mapped_column(server_default="workflow")
    target: Mapped[str]
    catch_up: Mapped[str] = mapped_column(server_default="one")
    grace_seconds: Mapped[int] = mapped_column(server_default=text("60"))
    overlap: Mapped[str] = mapped_column(server_default="allow")
    origin: Mapped[str] = mapped_column(server_default="database")
    enabled: Mapped[bool] = mapped_column(server_default=true())
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    last_run_at: Mapped[datetime | None]
    next_run_at: Mapped[datetime | None]
    planned_with: Mapped[str | None]
    last_fire_id: Mapped[str | None]
    retired_at: Mapped[datetime | None]
    error_json: Mapped[Any] = json_column(nullable=True)
    payload: Mapped[Any] = json_column(nullable=True)


class CronFireModel(Base):
    """One fire of a cron: who ran it, for which instant, how it ended and what it dispatched."""

    __tablename__ = "cron_fires"
    __table_args__ = described("fires of crons, one row each, also when nothing was dispatched")

    id: Mapped[str] = mapped_column(primary_key=True)
    cron_name: Mapped[str]
    scheduled_for: Mapped[datetime | None]
    source: Mapped[str]
    actor: Mapped[str | None]
    target_kind: Mapped[str | None]
    target: Mapped[str | None]
    status: Mapped[str] = mapped_column(server_default="running")
    owner: Mapped[str | None]
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
    note: Mapped[str | None]
    error_json: Mapped[Any] = json_column(nullable=True)
    payload: Mapped[Any] = json_column(nullable=True)


_schedule = CronScheduleModel.__table__.c
_fire = CronFireModel.__table__.c

Index(
    "ix_cron_schedules_due",
    _schedule.next_run_at,
    _schedule.name,
    _schedule.target,
    **where("next_run_at IS NOT NULL"),
)
Index("ix_cron_schedules_newest", _schedule.created_at.desc(), _schedule.name.desc())
Index("uq_cron_fires_instant", _fire.cron_name, _fire.scheduled_for, unique=True, **where("scheduled_for IS NOT NULL"))
Index("ix_cron_fires_cron", _fire.cron_name, _fire.started_at.desc(), _fire.id.desc())
Index("ix_cron_fires_newest", _fire.started_at.desc(), _fire.id.desc())
Index("ix_cron_fires_running", _fire.cron_name, _fire.target, _fire.id, **where("status = 'running'"))
