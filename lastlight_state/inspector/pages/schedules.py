"""Schedules: crons with their next due times and overrides, fires by outcome, and days with missed due times."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, cast

from lastlight_state import View as Moment, cron
from lastlight_state.errors import StateError
from lastlight_state.inspector.page import Ask, Page, View
from lastlight_state.inspector.stories import told_crons
from lastlight_state.schedules import CronSummary
from lastlight_state.schedules.models import FIRE_SOURCES, FIRE_STATUSES, ORIGINS

page = Page("schedules", "Schedules", "/schedules", "s")

#: Due times that are shown ahead, and days of the calendar: the default and the maximum.
AHEAD, DAYS, MOST_DAYS = 5, 14, 92
SWITCHES = {"on": True, "off": False}
RETIRED = {"retired": True, "all": None}


@page.look(live=True, takes="enabled retired origin days missed limit page_token")
def cron_list(ask: Ask) -> View:
    """Show a page of crons with the outcomes of their last fires, and the missed due times of all crons."""
    enabled, retired = SWITCHES.get(ask.text("enabled") or ""), RETIRED.get(ask.text("retired") or "", False)
    origin: Any = ask.text("origin")  # the library refuses another word
    since = _since(ask)
    with ask.store.view() as moment:
        crons = moment.schedules.crons.list(enabled=enabled, origin=origin, retired=retired, **ask.part)
        data = {
            "crons": {**crons.model_dump(), "items": told_crons(moment, crons.items, ask.clock.now())},
            "next_due_at": moment.schedules.crons.next_due_at(),
            **_missed_fires(ask, moment, since),
            "calendar": _calendar(ask, moment),
        }
    return View("schedules.html", data, "Schedules", {"origins": sorted(ORIGINS)})


@page.look("/crons/{name}", live=True, takes="status source since days missed limit page_token")
def cron_page(ask: Ask) -> View:
    """Show a cron with its override, its next due times and its fires."""
    name, since = ask.path["name"], _since(ask)
    with ask.store.view() as moment:
        found = moment.schedules.crons.get(name)
        data = {
            "cron": found,
            "override": moment.schedules.overrides.find(name),
            "told": told_crons(moment, [found], ask.clock.now())[0],
            "fires": _fires(ask, moment, name),
            **_ahead(ask, found),
            **_missed_fires(ask, moment, since, name),
            "calendar": _calendar(ask, moment, name),
        }
    return View("cron.html", data, f"Cron {name}", _words())


@page.look("/fires")
def fires(ask: Ask) -> View:
    """Show a page of fires, including those of crons that are no longer defined."""
    with ask.store.view() as moment:
        data = {"fires": _fires(ask, moment, ask.text("cron"))}
    return View("fires.html", data, "Fires", _words())


@page.look("/fires/{id}")
def fire(ask: Ask) -> View:
    """Show a fire with its payload and its error."""
    found = ask.store.schedules.fires.get(ask.path["id"])
    return View("fire.html", {"fire": found}, f"Fire of {found.cron_name}")


def _fires(ask: Ask, moment: Moment, name: str | None) -> Any:
    statuses, source = cast("Any", ask.texts("status")) or None, cast("Any", ask.text("source"))
    since = ask.moment("since")
    return moment.schedules.fires.list(cron_name=name, status=statuses, source=source, since=since, **ask.part)


def _ahead(ask: Ask, found: CronSummary) -> dict[str, Any]:
    """Return the next due times of the schedule in effect, or the reason why it cannot be read on this machine."""
    if not found.effective_enabled:
        return {"ahead": [], "ahead_problem": None}
    try:
        instants = cron.upcoming(found.effective_pattern, found.effective_timezone, ask.clock.now(), AHEAD)
    except StateError as error:  # the extra is not installed, or the time zone is unknown on this machine
        return {"ahead": [], "ahead_problem": str(error)}
    return {"ahead": instants, "ahead_problem": None}


def _missed_fires(ask: Ask, moment: Moment, since: datetime, name: str | None = None) -> dict[str, Any]:
    """Return the due times that were missed, and the times that are due but not yet taken by a worker."""
    missed = moment.schedules.fires.list(cron_name=name, status="missed", since=since, page_token=ask.text("missed"))
    if name is not None:
        return {"missed": missed}
    due = moment.schedules.crons.list(enabled=True, due_before=ask.clock.now())
    return {"missed": missed, "overdue": due}


def _calendar(ask: Ask, moment: Moment, name: str | None = None) -> list[dict[str, Any]]:
    """Return the number of fires by outcome for each UTC day, today first."""
    days = moment.schedules.fires.daily(_days(ask), cron_name=name)
    return [{"day": f"{day.start:%Y-%m-%d}", "counts": day.counts} for day in reversed(days)]


def _since(ask: Ask) -> datetime:
    """Return the UTC midnight at which the calendar begins."""
    return ask.clock.now().replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=_days(ask) - 1)


def _days(ask: Ask) -> int:
    return ask.number("days", DAYS, most=MOST_DAYS)


def _words() -> dict[str, Any]:
    return {"statuses": sorted(FIRE_STATUSES), "sources": sorted(FIRE_SOURCES)}
