"""What runs and waits now, what is not well, and what failed last."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from lastlight_state import View as Moment
from lastlight_state.inspector.page import Ask, Page, View
from lastlight_state.workflows import RunFilter
from lastlight_state.workflows.words import RunStatus

page = Page("now", "Now", "", "n")

#: How many of each kind are shown, and how far runs are counted.
FEW, MOST_COUNTED = 20, 10_000
#: What is left of a lease that ends soon: a holder with the usual lease renews it before.
SOON = timedelta(seconds=10)
#: How far back failures are looked for: without an end, a store without any would be read to its first run.
RECENT = timedelta(days=7)
LIVE: tuple[RunStatus, ...] = ("running", "queued", "paused")


@page.look(live=True)
def look(ask: Ask) -> View:
    """Show the state of everything at one moment."""
    with ask.store.view() as moment:
        data = {
            "counts": _counts(moment),
            "live": moment.workflows.runs.list(statuses=["running", "paused"], limit=FEW),
            "queue": moment.workflows.queue.list(limit=FEW),
            "waiting": moment.workflows.workers.list_waiting(),
            "workers": moment.workflows.workers.list(limit=FEW),
            "unhealthy": moment.workflows.health.list_unhealthy(limit=FEW),
            "claimable": moment.workflows.claims.list_claimable(limit=FEW),
            "ending": moment.workflows.claims.list_ending(within=SOON, limit=FEW),
            "overdue_crons": moment.schedules.crons.list(enabled=True, due_before=ask.clock.now(), limit=FEW),
            "failures": moment.workflows.runs.list(statuses=["failed"], since=ask.clock.now() - RECENT, limit=FEW),
        }
    return View("now.html", data, "Now")


def _counts(moment: Moment) -> dict[str, Any]:
    w = moment.workflows
    counts = {status: w.lookups.count(RunFilter(statuses=[status]), at_most=MOST_COUNTED) for status in LIVE}
    questions = {"gates": w.approvals.count_pending(), "requests": w.human_requests.count_pending()}
    return {"runs": counts, "waiting_for_people": questions}
