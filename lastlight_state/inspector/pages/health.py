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
#: How many seconds a page waits for the examination of another one, if there is no earlier one to show.
PATIENCE = 2.0

Examined = tuple[datetime, Report, Stats]
_examined: WeakKeyDictionary[StateStore, Examined] = WeakKeyDictionary()
_examining = Lock()


@page.look()
def shown(ask: Ask) -> View:
    """Show the last examination and a page of receipts; it is at most a minute old, unless another is under way."""
    found, busy = _examination(ask)
    at, report, stats = found or (None, None, None)
    kind, state = ask.text("kind"), ask.text("state")
    receipts = ask.store.receipts.list(kind=kind, state=state, **ask.part)  # type: ignore[arg-type] # it refuses others
    data = {"examined_at": at, "busy": busy, "report": report, "stats": stats, "receipts": receipts}
    return View("health.html", data, "Health", {"kinds": sorted(KINDS), "states": sorted(STATES)})


@page.look("/receipts/{id}")
def receipt(ask: Ask) -> View:
    """Show a receipt with its policy and why it ended."""
    found = ask.store.receipts.get(ask.path["id"])
    return View("receipt.html", {"receipt": found}, f"Receipt of {found.kind}")


def _examination(ask: Ask) -> tuple[Examined | None, bool]:
    """Return the last examination, made anew after a minute, and whether another page is making one.

    One page at a time examines, so that a slow check holds one thread and not all.
    """
    found = _examined.get(ask.store)
    if _is_fresh(ask, found):
        return found, False
    if not _examining.acquire(timeout=0 if found else PATIENCE):
        return _examined.get(ask.store), True
    try:
        found = _examined.get(ask.store)
        if not _is_fresh(ask, found):
            now, maintenance = ask.clock.now(), ask.store.maintenance
            report = maintenance.doctor.examine(time_limit=LIMIT)
            found = _examined[ask.store] = now, report, maintenance.stats.collect(exact=False)
        return found, False
    finally:
        _examining.release()


def _is_fresh(ask: Ask, found: Examined | None) -> bool:
    return found is not None and timedelta(0) <= ask.clock.now() - found[0] < KEPT
