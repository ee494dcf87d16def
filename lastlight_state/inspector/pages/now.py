"""The start page: what waits for a person or a worker, what is unhealthy, what failed last, and what is running.

Each run appears once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from lastlight_state import View as Moment
from lastlight_state.inspector.page import Ask, Page, View
from lastlight_state.inspector.stories import LATE, Told, questions, told_crons, told_runs
from lastlight_state.workflows.sentences import troubles

page = Page("now", "Now", "", "n")

#: Most items that are shown of each kind, and most live runs that are examined.
FEW, MOST_LIVE = 20, 100
#: How far back failures are searched. Without a limit, a store with no failures would be read to its first run.
RECENT = timedelta(days=7)


@page.look(live=True)
def look(ask: Ask) -> View:
    """Show the state of all runs and crons in one snapshot."""
    now = ask.clock.now()
    with ask.store.view() as moment:
        w = moment.workflows
        asked = questions(moment, FEW)
        live = w.runs.list(statuses=["running", "paused"], limit=MOST_LIVE)
        told = told_runs(moment, live.items, now)
        data = {
            "questions": asked,
            "waiting_for_people": {"gates": w.approvals.count_pending(), "requests": w.human_requests.count_pending()},
            "waiting": w.workers.list_waiting(),
            "unhealthy": _unhealthy(moment),
            "going": [
                one for one in told if one["well"] and one["state"] in ("running", "busy", "offered", "stopping")
            ],
            "resting": [one for one in told if one["well"] and one["waits"] in ("timer", "signal", "operator")],
            "has_more": live.next_page_token is not None,
            "queue": told_runs(moment, w.queue.list(limit=FEW).items, now),
            "failures": told_runs(moment, w.runs.list(statuses=["failed"], since=now - RECENT, limit=FEW).items, now),
            "workers": w.workers.list(limit=FEW),
            "crons": _crons(moment, now),
            "today": w.usage.daily(1)[-1],
        }
    return View("now.html", data, "Now")


def _crons(moment: Moment, now: datetime) -> list[Told]:
    """Return the crons that are overdue, or whose last fire did not end with ``ok``."""
    crons = moment.schedules.crons
    looked = {one.name: one for one in crons.list(enabled=True, due_before=now - LATE, limit=FEW).items}
    looked |= {one.name: one for one in crons.list(enabled=True, limit=MOST_LIVE).items}
    return [one for one in told_crons(moment, looked.values(), now) if not one["well"]][:FEW]


def _unhealthy(moment: Moment) -> dict[str, Any]:
    """Return the unhealthy runs, except those that only lack a worker, which are listed by workflow."""
    found = moment.workflows.health.list_unhealthy(limit=MOST_LIVE)
    items = [
        {**one.model_dump(), "troubles": [each._asdict() for each in troubles(one.state.unhealthy)]}
        for one in found.items
        if one.state.unhealthy != ("no_worker",)
    ]
    return {"items": items, "next_page_token": found.next_page_token, "damaged": found.damaged}
