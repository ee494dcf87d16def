"""How a fire begins: under the schedule's row, if there is one, and once for each instant."""

from __future__ import annotations

from typing import Any

from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict
from lastlight_state.schedules import fire_rows
from lastlight_state.schedules.arguments import FireClaim
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
