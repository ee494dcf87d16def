"""Health: what the doctor finds and the commands that mend it, sizes, and what maintenance did."""

from __future__ import annotations

from datetime import datetime, timedelta
from threading import Lock
from weakref import WeakKeyDictionary

from lastlight_state.inspector.page import Ask, Page, View
from lastlight_state.maintenance import Report, Stats
from lastlight_state.receipts.models import KINDS, STATES
from lastlight_state.store import StateStore

page = Page("health", "Health", "/health", "h")

#: How long an examination is shown before there is a new one, and after how many seconds it begins no further check.
KEPT, LIMIT = timedelta(minutes=1), 5.0

Examined = tuple[datetime, Report, Stats]
_examined: WeakKeyDictionary[StateStore, Examined] = WeakKeyDictionary()
_examining = Lock()


@page.look()
def shown(ask: Ask) -> View:
    """Show the last examination, which is at most a minute old, and a page of receipts."""
    at, report, stats = _examination(ask)
    kind, state = ask.text("kind"), ask.text("state")
    receipts = ask.store.receipts.list(kind=kind, state=state, **ask.part)  # type: ignore[arg-type] # it refuses others
    data = {"examined_at": at, "report": report, "stats": stats, "receipts": receipts}
    return View("health.html", data, "Health", {"kinds": sorted(KINDS), "states": sorted(STATES)})


@page.look("/receipts/{id}")
def receipt(ask: Ask) -> View:
    """Show a receipt with its policy and why it ended."""
    found = ask.store.receipts.get(ask.path["id"])
    return View("receipt.html", {"receipt": found}, f"Receipt of {found.kind}")


def _examination(ask: Ask) -> Examined:
    """Return what was found at most a minute ago; one browser waits for what another one began."""
    with _examining:
        now, found = ask.clock.now(), _examined.get(ask.store)
        if found is None or not timedelta(0) <= now - found[0] < KEPT:
            maintenance = ask.store.maintenance
            report = maintenance.doctor.examine(time_limit=LIMIT)
            found = _examined[ask.store] = now, report, maintenance.stats.collect(exact=False)
        return found
