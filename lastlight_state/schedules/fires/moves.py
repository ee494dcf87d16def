"""How a fire begins and ends. Works of `fires`.

A fire begins under the lock of its schedule's row, if there is one, and once for each instant. Its end is stored with
the schedule in the same transaction. A write through a claim changes the fire or nothing; if nothing, a second
statement finds out why.
"""

from __future__ import annotations

from datetime import datetime

from lastlight_state import codec
from lastlight_state.db import valid
from lastlight_state.db.statements import Values
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, ClaimLost, Conflict, LostRace
from lastlight_state.schedules.arguments import FireClaim
from lastlight_state.schedules.claiming import claim_of
from lastlight_state.schedules.fires import statements as sql
from lastlight_state.schedules.fires.checks import Held, Outcome
from lastlight_state.schedules.fires.statements import LiveFire, NewFire
from lastlight_state.schedules.records import Fire
from lastlight_state.schedules.words import FIRE


def begin(unit: Unit, fire: NewFire) -> FireClaim:
    """Insert a row of `sql.new_fire`, and store the run with its schedule.

    The schedule's row is locked first, so that fires begun by others at the same time are seen.
    """
    name, now = fire["cron_name"], fire["started_at"]
    overlap = unit.value(sql.TOUCH_SCHEDULE, {"name": name, "fire_id": fire["id"], "now": now})
    live = unit.row(sql.LIVE, {"cron_name": name, "now": now}) if overlap == "skip" else None
    begun = unit.row(sql.INSERT, fire) if live is None else None
    if begun is None:
        raise _refusal(unit, fire, live)
    return claim_of(begun, fire["lease_until"] - now)


def _refusal(unit: Unit, fire: NewFire, live: LiveFire | None) -> Conflict:
    stored = unit.row(sql.AT_INSTANT, fire)
    if stored is not None or live is None:
        key, status, owner = (None, None, None) if stored is None else (stored["id"], stored["status"], stored["owner"])
        problem = f"is the fire of {fire['cron_name']!r} for that instant"
        return AlreadyExists(FIRE, key, problem=problem, status=status, owner=owner)
    return Conflict(
        f"fire {live['id']!r} of {fire['cron_name']!r} is running, and its fires must not overlap",
        code="overlap",
        fire_id=live["id"],
        owner=live["owner"],
        lease_expires_at=live["lease_expires_at"],
    )


def finish(unit: Unit, held: Held, outcome: Outcome, at: datetime) -> Fire:
    """Store the outcome of the fire. The same outcome stored before is accepted."""
    fire = unit.find(Fire.of, sql.FINISH, {**held, **outcome, "at": at})
    if fire is not None:
        tell_schedule(unit, fire.cron_name, fire.id, None if fire.status == "ok" else outcome["error"])
        return fire
    stored = get(unit, held["fire_id"])
    if stored.epoch == held["epoch"] and _is_same(stored, outcome):
        return stored
    raise _refused(held, stored.status, stored.epoch, stored.owner)


def tell_schedule(unit: Unit, cron_name: str, fire_id: str, error: str | None) -> None:
    """Store the error of a fire with its schedule, unless the schedule has fired again since."""
    unit.change(sql.TELL_SCHEDULE, {"name": cron_name, "fire_id": fire_id, "schedule_error": error})


def get(unit: Unit, fire_id: str) -> Fire:
    """The whole fire. Raises `NotFound`."""
    fire = unit.find(Fire.of, sql.GET, {"fire_id": fire_id})
    if fire is None:
        raise valid.not_found(FIRE, fire_id)
    return fire


def refusal(unit: Unit, held: Held) -> Conflict:
    """The error for a claim whose write changed nothing. Raises `NotFound`."""
    row = unit.row(sql.STATE, held)
    if row is None:
        raise valid.not_found(FIRE, held["fire_id"])
    return _refused(held, row["status"], row["epoch"], row["owner"])


def _refused(held: Held, status: str, epoch: int, owner: str | None) -> Conflict:
    fire_id, presented = held["fire_id"], held["epoch"]
    if epoch == presented:
        return LostRace(f"fire {fire_id!r} has ended: {status}", fire_id=fire_id, found=status)
    return ClaimLost(fire_id, kind="fire", presented=presented, current_epoch=epoch, held_by=owner, status=status)


def _is_same(stored: Fire, outcome: Values) -> bool:
    """Return whether two outcomes are the same.

    Errors are compared as JSON values, because JSONB on Postgres does not keep their text.
    """
    given = outcome["error"]
    error = None if given is None else codec.decode(given)
    plain = (name for name in sql.OUTCOME if name != "error")
    return all(getattr(stored, name) == outcome[name] for name in plain) and codec.canonical(
        stored.error
    ) == codec.canonical(error)
