"""How a fire begins: under the schedule's row, if there is one, and once for each instant.

How a fire ends: its holder says so, and its schedule learns of it in the same transaction.

A write through a claim changes the row or nothing. Why it changed nothing is found out after it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.db import valid
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, ClaimLost, Conflict, LostRace
from lastlight_state.schedules.arguments import FireClaim
from lastlight_state.schedules.fires import statements as fire_rows, statements as sql
from lastlight_state.schedules.records import Fire
from lastlight_state.schedules.words import FIRE


def begin(unit: Unit, fire: dict[str, Any]) -> FireClaim:
    """Insert a row of `fire_rows.new_fire`, and tell its schedule.

    The schedule's row comes first: what runs beside it is looked at after whoever else held it is done.
    """
    name, now = fire["cron_name"], fire["started_at"]
    overlap = unit.value(fire_rows.TOUCH_SCHEDULE, {"name": name, "fire_id": fire["id"], "now": now})
    live = unit.row(fire_rows.LIVE, {"cron_name": name, "now": now}) if overlap == "skip" else None
    claim = unit.find(FireClaim, fire_rows.INSERT, fire) if live is None else None
    if claim is None:
        raise _refusal(unit, fire, live)
    return claim


def _refusal(unit: Unit, fire: dict[str, Any], live: dict[str, Any] | None) -> Conflict:
    stored = unit.row(fire_rows.AT_INSTANT, fire)
    if stored is not None or live is None:
        found = stored or {"id": None, "status": None, "owner": None}
        problem = f"is the fire of {fire['cron_name']!r} for that instant"
        return AlreadyExists(FIRE, found["id"], problem=problem, status=found["status"], owner=found["owner"])
    return Conflict(
        f"fire {live['id']!r} of {fire['cron_name']!r} is running, and its fires must not overlap",
        code="overlap",
        fire_id=live["id"],
        owner=live["owner"],
        lease_until=live["lease_until"],
    )


#: The id and epoch of a claim, as statements name them.
Held = dict[str, Any]


def finish(unit: Unit, held: Held, outcome: dict[str, Any], at: datetime) -> Fire:
    """Give the fire its outcome, or find that it has this very one."""
    fire = unit.find(Fire, sql.FINISH, {**held, **outcome, "at": at})
    if fire is not None:
        tell_schedule(unit, fire.cron_name, fire.id, None if fire.status == "ok" else outcome["error_json"])
        return fire
    stored = get(unit, held["fire_id"])
    if stored.epoch == held["epoch"] and _is_same(stored, outcome):
        return stored
    raise _refused(held, stored.status, stored.epoch, stored.owner)


def tell_schedule(unit: Unit, cron_name: str, fire_id: str, error: str | None) -> None:
    """Leave the error of a fire with its schedule, unless the schedule has fired again since."""
    unit.change(sql.TELL_SCHEDULE, {"name": cron_name, "fire_id": fire_id, "schedule_error": error})


def get(unit: Unit, fire_id: str) -> Fire:
    """The whole fire. Raises `NotFound`."""
    fire = unit.find(Fire, sql.GET, {"fire_id": fire_id})
    if fire is None:
        raise valid.not_found(FIRE, fire_id)
    return fire


def refusal(unit: Unit, held: Held) -> Conflict:
    """Why a claim that changed nothing no longer holds. Raises `NotFound`."""
    row = unit.row(sql.STATE, held)
    if row is None:
        raise valid.not_found(FIRE, held["fire_id"])
    return _refused(held, row["status"], row["epoch"], row["owner"])


def _refused(held: Held, status: str, epoch: int, owner: str | None) -> Conflict:
    fire_id, presented = held["fire_id"], held["epoch"]
    if epoch == presented and status != "running":
        return LostRace(f"fire {fire_id!r} has ended: {status}", fire_id=fire_id, found=status)
    return ClaimLost(fire_id, kind="fire", presented=presented, current_epoch=epoch, held_by=owner, status=status)


def _is_same(stored: Fire, outcome: dict[str, Any]) -> bool:
    """Errors are compared as values: one database keeps its own spelling of them."""
    given = outcome["error_json"]
    error = None if given is None else codec.decode(given)
    plain = (name for name in sql.OUTCOME if name != "error_json")
    return all(getattr(stored, name) == outcome[name] for name in plain) and codec.canonical(
        stored.error_json
    ) == codec.canonical(error)
