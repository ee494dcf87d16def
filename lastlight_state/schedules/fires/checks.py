"""Checks of what callers say about fires; each returns values as statements name them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypedDict

from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.statements import Row
from lastlight_state.errors import InvalidValue
from lastlight_state.schedules import checks as shared, words
from lastlight_state.schedules.arguments import FireClaim, FireOutcome
from lastlight_state.schedules.fires.statements import ANY_STATUS, NewFire, new_fire
from lastlight_state.schedules.tables import FIRES

_MOST = limits_of(FIRES)

#: The most crons that one call asks about.
MOST_NAMES = 500


class Held(TypedDict):
    """The fire and the epoch of a claim, as statements name them."""

    fire_id: str
    epoch: int


class Outcome(TypedDict):
    """How a fire ended, as columns."""

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
    """Return the row of a new fire. A manual fire has no instant, every other one has."""
    valid.word("source", source, words.FIRE_SOURCES)
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
        actor=valid.optional("actor", actor, _MOST.actor),
    )


def held(claim: Any) -> Held:
    """Return the fire and the epoch of a claim."""
    valid.group("claim", claim, FireClaim)
    return {
        "fire_id": valid.sought("claim.fire_id", claim.fire_id),
        "epoch": valid.number("claim.epoch", claim.epoch),
    }


def outcome(given: Any) -> Outcome:
    """Return an outcome as columns, its error as text."""
    valid.group("outcome", given, FireOutcome)
    status = valid.word("outcome.status", given.status, words.FIRE_RESULTS)
    if status == "failed" and given.error is None:
        raise InvalidValue("outcome.error", "must be given for a failed fire")
    return {
        "status": status,
        "eligible": _count("eligible", given.eligible),
        "scanned": _count("scanned", given.scanned),
        "discovered": _count("discovered", given.discovered),
        "dispatched": _count("dispatched", given.dispatched),
        "failures": _count("failures", given.failures),
        "note": valid.optional_content("outcome.note", given.note, _MOST.note),
        "error": shared.error("outcome.error", given.error),
    }


def attempts(value: Any) -> int:
    """How many owners a fire may have."""
    return valid.number("max_attempts", value, least=1)


def until(now: datetime, lease: Any) -> datetime:
    """The end of a lease that begins now."""
    return now + shared.lease(lease)


def over(now: datetime) -> datetime:
    """The end of a lease that has expired now. A lease still holds at its very end, hence a millisecond before."""
    return now - timedelta(milliseconds=1)


def list_filters(cron_name: Any, status: Any, source: Any, since: Any) -> Row:
    """Return the filters of a list."""
    return {
        "cron_name": None if cron_name is None else shared.name("cron_name", cron_name),
        "statuses": None if status is None else _statuses(status),
        "source": None if source is None else valid.word("source", source, words.FIRE_SOURCES),
        "since": None if since is None else aware_utc("since", since),
    }


def names(given: Any) -> list[str]:
    """At most 500 names of crons, each once."""
    several = valid.several("names", given)
    valid.at_most("names", several, MOST_NAMES)
    return list(dict.fromkeys(shared.name("names", name) for name in several))


def _count(name: str, value: Any) -> int | None:
    return None if value is None else valid.number(f"outcome.{name}", value)


def _statuses(given: Any) -> dict[str, str | None]:
    several = [given] if isinstance(given, str) else valid.several("status", given)
    return ANY_STATUS.of(sorted({valid.word("status", status, words.FIRE_STATUSES) for status in several}))
