"""Argument groups: a cron's definition, the claim on a fire, the outcome of a fire, and a fire's error."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from lastlight_state.db.news.listeners import message_of, storable
from lastlight_state.db.rows.records import Record
from lastlight_state.schedules.models import LEASE, TYPE_CHARS, CatchUp, FireResult, Overlap, TargetKind


@dataclass(frozen=True)
class CronSpec:
    """The definition of a cron: what it starts, and when.

    ``payload`` is JSON of at most 64 KiB, copied to each fire. A fire is on time if it begins at most ``grace_seconds``
    after its instant. ``catch_up`` decides about overdue instants: with ``one``, a single fire replaces all of them;
    with ``all``, each one fires; with ``none``, none fires. With ``overlap="skip"``, an instant is skipped while an
    earlier fire is still running.
    """

    pattern: str
    target: str
    target_kind: TargetKind = "workflow"
    timezone: str = "UTC"
    payload: Any = None
    catch_up: CatchUp = "one"
    grace_seconds: int = 60
    overlap: Overlap = "allow"
    enabled: bool = True


@dataclass(frozen=True)
class FireError:
    """The error of a failed fire. ``detail`` is any JSON; the whole error is at most 16 KiB as JSON."""

    message: str
    type: str | None = None
    detail: Any = None

    @classmethod
    def of(cls, error: BaseException, *, detail: Any = None) -> FireError:
        """Return the error for an exception: its type's name, and at most 4,000 characters of its message.

        Characters that a database refuses are replaced, so that every exception can be stored.
        """
        return cls(message_of(error), storable(type(error).__name__, TYPE_CHARS), detail)


@dataclass(frozen=True)
class FireOutcome:
    """The outcome of a fire, and its counts. A count is None if it does not apply, 0 if nothing was found.

    The status ``failed`` needs an ``error``; a plain text becomes its message. ``note`` is at most 1 KiB.
    """

    status: FireResult = "ok"
    eligible: int | None = None
    scanned: int | None = None
    discovered: int | None = None
    dispatched: int | None = None
    failures: int | None = None
    note: str | None = None
    error: FireError | str | None = None


class FireClaim(Record):
    """The right to run one fire, valid until another owner takes over the fire.

    It can be passed to other processes as JSON. ``epoch`` grows with each owner. ``fire_id`` stays the same for all
    owners, so use it as the idempotency key of the work that the fire starts. A heartbeat renews the lease for the time
    ``lease``.
    """

    fire_id: str
    cron_name: str
    scheduled_for: datetime | None
    source: str
    target_kind: str | None
    target: str | None
    payload: Any
    owner: str
    epoch: int
    attempts: int
    lease_expires_at: datetime
    lease: timedelta = LEASE

    _computed = frozenset({"lease"})

    @classmethod
    def of(cls, values: Any) -> Self:
        values.setdefault("lease", LEASE)
        return super().of(values)
