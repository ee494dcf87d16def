"""Tables of the schedules domain."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import true
from sqlalchemy.orm import Mapped, mapped_column

from lastlight_state.db.base import Base, described


class CronOverrideModel(Base):
    """What an operator changed about one cron. No row: the configured default holds."""

    __tablename__ = "cron_overrides"
    __table_args__ = described("what operators changed about crons; no row means the default")

    name: Mapped[str] = mapped_column(primary_key=True)
    enabled: Mapped[bool] = mapped_column(server_default=true())
    schedule: Mapped[str | None]
    updated_at: Mapped[datetime]
    updated_by: Mapped[str | None]
