"""The vocabularies of the schedules domain, and its bounds that are no column's."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from lastlight_state.db.valid import words

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

#: How many characters an error keeps of the name of an exception's type.
TYPE_CHARS = 80

# Durations and counts.
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
