"""What a claim is, without any database: one run, who holds it, and what each call does to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any


class Refused(Exception):
    """The call is refused with an error of this code, and changes nothing."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Before:
    """What a release puts back."""

    status: str
    owner: str | None
    heartbeat: datetime | None
    lease_end: datetime | None
    restarts: int


@dataclass
class Model:
    """A run as the rules of claims see it."""

    started: datetime
    lease_end: datetime | None
    most_restarts: int
    status: str = "running"
    owner: str | None = None
    epoch: int = 0
    heartbeat: datetime | None = None
    restarts: int = 0
    wake_at: datetime | None = None
    before: Before | None = None
    writes: int = 0

    def kind(self, now: datetime) -> str | None:
        """How it may be claimed, if at all."""
        if self.status == "paused":
            return "due" if self.wake_at is not None and self.wake_at <= now else None
        if self.status != "running" or (self.wake_at is not None and self.wake_at > now):
            return None
        if self.lease_end is None:
            return "offered"
        if self.lease_end >= now:
            return None
        return "offered" if self.owner is None else "abandoned"

    def at_limit(self, now: datetime) -> bool:
        return self.kind(now) == "abandoned" and self.restarts >= self.most_restarts

    def take(self, now: datetime, owner: str, lease: timedelta) -> None:
        kind = self.kind(now)
        own = self.status == "running" and self.owner == owner and self._lease_runs(now)
        in_grace = self.status == "running" and self.owner is None and not self._put_off(now)
        if kind is None and not own and not in_grace:
            raise Refused("lost_race" if self.status == "running" else "run_status")
        if self.at_limit(now):
            raise Refused("restart_limit")
        if not own or self.before is None:
            self.before = Before(self.status, self.owner, self.heartbeat, self.lease_end, self.restarts)
        self.status = "running"
        self.restarts += kind == "abandoned"
        self._hold(now, owner, lease)

    def transfer(self, now: datetime, epoch: int, owner: str, lease: timedelta) -> None:
        self._fence(epoch)
        self._hold(now, owner, lease)

    def beat(self, now: datetime, epoch: int, lease: timedelta) -> None:
        self._fence(epoch)
        assert self.lease_end is not None
        self.heartbeat = now if self.heartbeat is None else max(self.heartbeat, now)
        self.lease_end = max(self.lease_end, now + lease)

    def write(self, epoch: int | None) -> None:
        if epoch is None and self.owner is not None:
            raise Refused("claim_lost")
        if epoch is not None:
            self._fence(epoch)
        if self.status == "failed":
            raise Refused("run_status")
        self.writes += 1

    def pause(self, epoch: int, until: datetime) -> None:
        self._fence(epoch)
        self._end("paused")
        self.wake_at = until

    def finish(self, epoch: int) -> None:
        self._fence(epoch)
        self._end("failed")

    def resume(self) -> None:
        if self.status != "paused":
            raise Refused("run_status")
        self.status, self.lease_end, self.wake_at = "running", None, None

    def release(self, epoch: int, retry_at: datetime | None) -> None:
        self._fence(epoch)
        assert self.before is not None
        kept = self.before if self.before.owner is not None else replace(self.before, lease_end=None)
        self.status, self.owner, self.heartbeat = kept.status, kept.owner, kept.heartbeat
        self.lease_end, self.restarts, self.before = kept.lease_end, kept.restarts, None
        self.epoch += 1
        self.wake_at = retry_at or self.wake_at

    def give_up(self, now: datetime) -> bool:
        if not self.at_limit(now):
            return False
        self._end("failed")
        return True

    def shown(self) -> dict[str, Any]:
        """The columns that show it."""
        return {
            "status": self.status,
            "claim_owner": self.owner,
            "claim_epoch": self.epoch,
            "heartbeat_at": self.heartbeat,
            "lease_expires_at": self.lease_end,
            "restart_count": self.restarts,
            "wake_at": self.wake_at,
            "scratch": {"writes": self.writes} if self.writes else None,
        }

    def _put_off(self, now: datetime) -> bool:
        return self.wake_at is not None and self.wake_at > now

    def _lease_runs(self, now: datetime) -> bool:
        return self.lease_end is not None and self.lease_end >= now

    def _fence(self, epoch: int) -> None:
        if self.owner is None or epoch != self.epoch:
            raise Refused("claim_lost")

    def _hold(self, now: datetime, owner: str, lease: timedelta) -> None:
        self.owner, self.lease_end = owner, now + lease
        self.epoch += 1
        self.heartbeat = now if self.heartbeat is None else max(self.heartbeat, now)

    def _end(self, status: str) -> None:
        self.epoch += self.owner is not None
        self.status, self.owner, self.lease_end, self.wake_at = status, None, None, None
