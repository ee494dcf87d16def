"""The beginning, end and takeover of a fire. Implements methods of `fires`.

A fire begins while its schedule's row, if there is one, is locked, and only once for each instant. Its end is stored in
the schedule in the same transaction. A write through a claim either changes the fire or changes nothing; in the second
case, another statement finds the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.rows.statements import Row, Values
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, ClaimLost, Conflict, CorruptData, InvalidValue, LostRace
from lastlight_state.schedules import checks, checks as shared, models
from lastlight_state.schedules.arguments import FireClaim, FireOutcome
from lastlight_state.schedules.fires import statements as sql
from lastlight_state.schedules.fires.statements import ANY_STATUS, NewFire, StaleFire, new_fire
from lastlight_state.schedules.models import FIRE, FIRES
from lastlight_state.schedules.records import Fire

# Checks of arguments about fires. Each returns values as statements name them.

_LIMITS = limits_of(FIRES)

#: The most names of crons that one call takes.
MOST_NAMES = 500


class ClaimParameters(TypedDict):
    """The fire and the epoch of a claim, as statements name them."""

    fire_id: str
    epoch: int


class Outcome(TypedDict):
    """The end of a fire, as columns."""

    status: str
    eligible: int | None
    scanned: int | None
    discovered: int | None
    dispatched: int | None
    failures: int | None
    note: str | None
    error: str | None


def create(
    cron_name: Any, owner: Any, source: Any, actor: Any, scheduled_for: Any, lease: Any, now: datetime
) -> NewFire:
    """Return the row of a new fire. A manual fire has no instant; every other fire has one."""
    valid.word("source", source, models.FIRE_SOURCES)
    if (scheduled_for is None) != (source == "manual"):
        problem = "must be None for a manual fire" if source == "manual" else f"must be given for a {source} fire"
        raise InvalidValue("scheduled_for", problem)
    return new_fire(
        shared.name("cron_name", cron_name),
        source=source,
        owner=shared.owner(owner),
        now=now,
        lease=shared.lease(lease),
        scheduled_for=None if scheduled_for is None else aware_utc("scheduled_for", scheduled_for),
        actor=valid.optional("actor", actor, _LIMITS.actor),
    )


def claim_parameters(claim: Any) -> ClaimParameters:
    """Check a claim. Return its fire id and epoch."""
    valid.argument_group("claim", claim, FireClaim)
    return {
        "fire_id": valid.lookup_text("claim.fire_id", claim.fire_id),
        "epoch": valid.number("claim.epoch", claim.epoch),
    }


def outcome(given: Any) -> Outcome:
    """Check an outcome. Return its columns, with the error as JSON text."""
    valid.argument_group("outcome", given, FireOutcome)
    status = valid.word("outcome.status", given.status, models.FIRE_RESULTS)
    if status == "failed" and given.error is None:
        raise InvalidValue("outcome.error", "must be given for a failed fire")
    return {
        "status": status,
        "eligible": _count("eligible", given.eligible),
        "scanned": _count("scanned", given.scanned),
        "discovered": _count("discovered", given.discovered),
        "dispatched": _count("dispatched", given.dispatched),
        "failures": _count("failures", given.failures),
        "note": valid.optional_content("outcome.note", given.note, _LIMITS.note),
        "error": shared.error("outcome.error", given.error),
    }


def attempts(value: Any) -> int:
    """Check the number of owners that a fire may have, and return it."""
    return valid.number("max_attempts", value, least=1)


def until(now: datetime, lease: Any) -> datetime:
    """Return the end of a lease that begins now."""
    return now + shared.lease(lease)


def over(now: datetime) -> datetime:
    """Return the end time to store for a lease that expires now.

    A lease is still valid at its very end, so this is a millisecond before now.
    """
    return now - timedelta(milliseconds=1)


def list_filters(cron_name: Any, status: Any, source: Any, since: Any) -> Row:
    """Check the filters of a list of fires, and return them by name."""
    return {
        "cron_name": None if cron_name is None else shared.name("cron_name", cron_name),
        "statuses": None if status is None else _statuses(status),
        "source": None if source is None else valid.word("source", source, models.FIRE_SOURCES),
        "since": None if since is None else aware_utc("since", since),
    }


def names(given: Any) -> list[str]:
    """Check the names of crons, at most 500. Return them without duplicates."""
    several = valid.several("names", given)
    valid.at_most("names", several, MOST_NAMES)
    return list(dict.fromkeys(shared.name("names", name) for name in several))


def _count(name: str, value: Any) -> int | None:
    return None if value is None else valid.number(f"outcome.{name}", value)


def _statuses(given: Any) -> dict[str, str | None]:
    several = [given] if isinstance(given, str) else valid.several("status", given)
    return ANY_STATUS.of(sorted({valid.word("status", status, models.FIRE_STATUSES) for status in several}))


def begin(unit: Unit, fire: NewFire) -> FireClaim:
    """Insert a row made by `sql.new_fire`, record the fire in its schedule, and return the claim on the fire.

    The schedule's row is locked first, so that fires which begin concurrently are seen.
    """
    name, now = fire["cron_name"], fire["started_at"]
    overlap = unit.value(sql.TOUCH_SCHEDULE, {"name": name, "fire_id": fire["id"], "now": now})
    live = unit.row(sql.LIVE, {"cron_name": name, "now": now}) if overlap == "skip" else None
    begun = unit.row(sql.INSERT, fire) if live is None else None
    if begun is None:
        raise _refusal(unit, fire, live)
    return begun.model_copy(update={"lease": fire["lease_until"] - now})


def _refusal(unit: Unit, fire: NewFire, live: tuple[str, str | None, datetime | None] | None) -> Conflict:
    stored = unit.row(sql.AT_INSTANT, fire)
    if stored is not None or live is None:
        key, status, owner = (None, None, None) if stored is None else stored
        problem = f"is the fire of {fire['cron_name']!r} for that instant"
        return AlreadyExists(FIRE, key, problem=problem, status=status, owner=owner)
    fire_id, owner, lease_expires_at = live
    return Conflict(
        f"fire {fire_id!r} of {fire['cron_name']!r} is running, and its fires must not overlap",
        code="overlap",
        fire_id=fire_id,
        owner=owner,
        lease_expires_at=lease_expires_at,
    )


def finish(unit: Unit, held: ClaimParameters, outcome: Outcome, at: datetime) -> Fire:
    """Store the outcome of the fire. The same outcome stored before is accepted."""
    fire = unit.row(sql.FINISH, {**held, **outcome, "at": at})
    if fire is not None:
        tell_schedule(unit, fire.cron_name, fire.id, None if fire.status == "ok" else outcome["error"])
        return fire
    stored = get(unit, held["fire_id"])
    if stored.epoch == held["epoch"] and _is_same(stored, outcome):
        return stored
    raise _claim_conflict(held, stored.status, stored.epoch, stored.owner)


def tell_schedule(unit: Unit, cron_name: str, fire_id: str, error: str | None) -> None:
    """Store the error of a fire with its schedule, unless the schedule has fired again since."""
    unit.change(sql.TELL_SCHEDULE, {"name": cron_name, "fire_id": fire_id, "schedule_error": error})


def get(unit: Unit, fire_id: str) -> Fire:
    """Return the whole fire. Raises `NotFound`."""
    fire = unit.row(sql.GET, {"fire_id": fire_id})
    if fire is None:
        raise valid.not_found(FIRE, fire_id)
    return fire


def refusal(unit: Unit, held: ClaimParameters) -> Conflict:
    """Return the error for a claim whose write changed nothing. Raises `NotFound`."""
    found = unit.row(sql.STATE, held)
    if found is None:
        raise valid.not_found(FIRE, held["fire_id"])
    _, status, owner, epoch = found
    return _claim_conflict(held, status, epoch, owner)


def _claim_conflict(held: ClaimParameters, status: str, epoch: int, owner: str | None) -> Conflict:
    fire_id, presented = held["fire_id"], held["epoch"]
    if epoch == presented:
        return LostRace(f"fire {fire_id!r} has ended: {status}", fire_id=fire_id, found=status)
    return ClaimLost(fire_id, kind="fire", presented=presented, current_epoch=epoch, held_by=owner, status=status)


def _is_same(stored: Fire, outcome: Values) -> bool:
    """True if the stored outcome equals the given one.

    Errors are compared as JSON values, because JSONB on Postgres does not keep their text.
    """
    given = outcome["error"]
    error = None if given is None else codec.decode(given)
    plain = (name for name in sql.OUTCOME if name != "error")
    return all(getattr(stored, name) == outcome[name] for name in plain) and codec.canonical(
        stored.error
    ) == codec.canonical(error)


# Taking over fires whose lease has expired, or abandoning fires that had too many owners.
#
# Each fire is changed in a transaction of its own, by a compare-and-set on its epoch: only one of several takers gets
# it.

#: A function of a repository that runs a work in a unit (`db.units.scope`).
Run = Callable[[Callable[[Unit], Any]], Any]


class LapsedClaim(ClaimParameters):
    """A claim whose lease has expired ``now``."""

    now: datetime


@dataclass(frozen=True)
class StaleTaker:
    """Takes over stale fires for one owner. Abandons fires that already had ``max_attempts`` owners."""

    owner: str
    now: datetime
    lease_expires_at: datetime
    max_attempts: int
    chosen: Mapping[str, list[str] | None]

    def take_claims(self, reading: Run, once: Run, writing: Run, limit: int) -> tuple[FireClaim, ...]:
        """Return at most ``limit`` claims, the earliest expired lease first. Only reads while nothing is stale.

        Abandoned fires do not count towards the limit.
        """
        return checks.claim_rows(
            self._stale(reading, limit), lambda row: self._take_or_abandon(row, once, writing), limit
        )

    def _stale(self, reading: Run, limit: int) -> Iterator[StaleFire | CorruptData]:
        """Yield stale fires, each once. They are read in batches, so that abandoned fires do not hide later ones."""
        seen, told = set[str](), set[str]()
        statement, given = sql.STALE.of(self.chosen)
        while True:
            asked = {**given, "now": self.now, "limit": limit}
            found: list[StaleFire | CorruptData]
            found = reading(lambda unit, asked=asked: unit.rows_or_errors(statement, asked).rows)  # type: ignore[misc]
            damaged = [row for row in found if isinstance(row, CorruptData) and str(row) not in told]
            unseen = [row for row in found if not isinstance(row, CorruptData) and row.id not in seen]
            yield from damaged
            yield from unseen
            seen.update(row.id for row in unseen)
            told.update(map(str, damaged))
            if len(found) < limit or not (unseen or damaged):
                return
            limit += len(damaged)  # damaged rows stay stale: read more rows to get past them

    def _take_or_abandon(self, row: StaleFire, once: Run, writing: Run) -> FireClaim | None:
        if row.attempts >= self.max_attempts:
            writing(lambda unit: self._abandon(unit, row))
            return None
        taken: FireClaim | None = once(lambda unit: self._take(unit, row))
        return taken

    def _take(self, unit: Unit, row: StaleFire) -> FireClaim | None:
        values = {"owner": self.owner, "lease_expires_at": self.lease_expires_at}
        taken = unit.row(sql.TAKE, {**self._of(row), **values})
        return taken and taken.model_copy(update={"lease": self.lease_expires_at - self.now})

    def _abandon(self, unit: Unit, row: StaleFire) -> None:
        error = _given_up(row)
        if unit.row(sql.ABANDON, {**self._of(row), "error": error, "at": self.now}) is not None:
            tell_schedule(unit, row.cron_name, row.id, error)

    def _of(self, row: StaleFire) -> LapsedClaim:
        return {"fire_id": row.id, "epoch": row.epoch, "now": self.now}


def _given_up(row: StaleFire) -> str:
    owners = "its owner" if row.attempts == 1 else f"{row.attempts} owners"
    error = {
        "type": "abandoned",
        "message": f"{owners} let the lease run out, the last was {row.owner!r}",
        "detail": {"owner": row.owner, "attempts": row.attempts},
    }
    return codec.encode("error", error, max_bytes=_LIMITS.error_json)
