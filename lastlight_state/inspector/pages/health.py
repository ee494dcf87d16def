"""Health: the doctor's findings with commands to mend them, backlog, workers, sizes, and maintenance receipts."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from lastlight_state.inspector.page import MOST_ROWS, Ask, Page, View
from lastlight_state.inspector.stories import LATE, questions
from lastlight_state.maintenance import Report, Stats
from lastlight_state.receipts.models import KINDS, STATES
from lastlight_state.store import StateStore
from lastlight_state.workflows import RunFilter

page = Page("health", "Health", "/health", "h")

#: How long an examination is shown before it is repeated, and the seconds after which it begins no further check.
KEPT, LIMIT = timedelta(minutes=1), 5.0
#: Most seconds that a page waits for another page's examination, if there is no earlier one to show.
PATIENCE = 2.0

Examined = tuple[datetime, Report, Stats]
_examined: WeakKeyDictionary[StateStore, Examined] = WeakKeyDictionary()
_examining_lock = Lock()


@page.look()
def health_page(ask: Ask) -> View:
    """Show the last examination and a page of receipts.

    The examination is at most a minute old, unless a new one is still running.
    """
    found, busy = _examination(ask)
    at, report, stats = found or (None, None, None)
    kind, state = ask.text("kind"), ask.text("state")
    receipts = ask.store.receipts.list(kind=kind, state=state, **ask.part)  # type: ignore[arg-type] # it refuses others
    data = {
        "examined_at": at,
        "busy": busy,
        "report": report,
        "severities": Counter(one.severity for one in report.findings) if report else {},
        "stats": stats,
        "receipts": receipts,
        **_backlog(ask),
    }
    return View("health.html", data, "Health", {"kinds": sorted(KINDS), "states": sorted(STATES)})


@page.look("/receipts/{id}")
def receipt(ask: Ask) -> View:
    """Show a receipt with its policy and the reason for its end."""
    found = ask.store.receipts.get(ask.path["id"])
    return View("receipt.html", {"receipt": found}, f"Receipt of {found.kind}")


def _backlog(ask: Ask) -> dict[str, Any]:
    """Return how much work waits, for whom and how long, and the workers that were seen."""
    now = ask.clock.now()
    with ask.store.view() as moment:
        w = moment.workflows
        oldest = questions(moment, 1)
        lacking = w.workers.list_waiting()
        workers = w.workers.list(limit=MOST_ROWS).items
        late = moment.schedules.crons.list(enabled=True, due_before=now - LATE, limit=MOST_ROWS).items
        queue = w.queue.list(limit=1).items
        return {
            "backlog": {
                "questions": w.approvals.count_pending() + w.human_requests.count_pending(),
                "asked_at": oldest[0]["asked_at"] if oldest else None,
                "without_worker": sum(one.runs for one in lacking),
                "free_since": lacking[0].since if lacking else None,
                "queued": w.lookups.count(RunFilter(statuses=["queued"])),
                "queued_at": queue[0].started_at if queue else None,
                "late_crons": len(late),
                "due_at": min((one.next_run_at for one in late if one.next_run_at), default=None),
            },
            "workers": {"seen": len(workers), "gone": sum(one.is_gone for one in workers)},
        }


def _examination(ask: Ask) -> tuple[Examined | None, bool]:
    """Return the last examination, at most a minute old, and True if another page is running a new one.

    Only one page at a time runs an examination, so that a slow check blocks a single thread.
    """
    found = _examined.get(ask.store)
    if _is_fresh(ask, found):
        return found, False
    if not _examining_lock.acquire(timeout=0 if found else PATIENCE):
        return _examined.get(ask.store), True
    try:
        found = _examined.get(ask.store)
        if not _is_fresh(ask, found):
            now, maintenance = ask.clock.now(), ask.store.maintenance
            report = maintenance.doctor.examine(time_limit=LIMIT)
            found = _examined[ask.store] = now, report, maintenance.stats.collect(exact=False)
        return found, False
    finally:
        _examining_lock.release()


def _is_fresh(ask: Ask, found: Examined | None) -> bool:
    return found is not None and timedelta(0) <= ask.clock.now() - found[0] < KEPT
