"""Mailboxes: folders with counts, and per mailbox the waiting messages, claims, and deliveries."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from lastlight_state.errors import NotFound, StateError
from lastlight_state.files.mailbox import Claim, HostMailbox, MailboxInfo, StalePolicy
from lastlight_state.inspector.page import Ask, Page, View

page = Page("mailboxes", "Mailboxes", "/mailboxes", "m")

#: Mailboxes on a page: the default and the maximum. Reading each means opening two files.
MAILBOXES, MOST_MAILBOXES = 20, 100
#: The ages from which a claim, or an agent without a heartbeat, counts as stale.
STALE = StalePolicy()
STATUSES = ("pending", "paused", "completed", "failed")


@page.look(live=True, takes="group limit page_token")
def mailbox_list(ask: Ask) -> View:
    """Show a page of mailboxes with their counts. An unreadable mailbox is shown with its error."""
    limit = ask.number("limit", MAILBOXES, most=MOST_MAILBOXES)
    found = ask.store.mailbox.list(group=ask.text("group"), limit=limit, page_token=ask.text("page_token"))
    rows = [_row(ask, info) for info in found.items]
    data = {"mailboxes": {"items": rows, "next_page_token": found.next_page_token, "damaged": found.damaged}}
    return View("mailboxes.html", data, "Mailboxes")


@page.look("/{group}/{session}", live=True, takes="status kind limit page_token waiting failed tasks")
def mailbox_page(ask: Ask) -> View:
    """Show a mailbox: messages of both sides, claims, tasks, deliveries, and permitted destinations."""
    host, limit = _host(ask), ask.part["limit"]
    status, kind = ask.text("status"), ask.text("kind")
    data = {
        "group": host.group,
        "session": host.session,
        "status": host.status(),
        **_claims(ask, host),
        "inbox": host.inbox.list(status=status, kind=kind, limit=limit, page_token=ask.text("page_token")),
        "waiting": host.outbox.list_waiting(limit=limit, page_token=ask.text("waiting")),
        "undelivered": host.outbox.list_failed(limit=limit, page_token=ask.text("failed")),
        "tasks": host.tasks.list(limit=limit, page_token=ask.text("tasks")),
        "destinations": host.routing.list_destinations(),
        "default": host.routing.find_default(),
    }
    return View("mailbox.html", data, f"Mailbox {host.group}/{host.session}", {"statuses": STATUSES})


@page.look("/{group}/{session}/messages/{id}")
def message(ask: Ask) -> View:
    """Show a message of either side with its content and its outcome."""
    host, key = _host(ask), ask.path["id"]
    found: Any = host.inbox.find(key) or host.outbox.find(key)
    if found is None:
        raise NotFound("message", key)
    known = None if found.seq is None else host.outbox.resolve_seq(found.seq)
    data = {"group": host.group, "session": host.session, "message": found, "reference": known}
    return View("letter.html", data, f"Message {key}")


def _host(ask: Ask) -> HostMailbox:
    return ask.store.mailbox.host(ask.path["group"], ask.path["session"])


def _row(ask: Ask, info: MailboxInfo) -> dict[str, Any]:
    row = {**dict(info), "path": str(info.path), "numbers": None, "stale": None, "problem": None}
    try:
        host = ask.store.mailbox.host(info.group, info.session)
        row["numbers"] = host.status()
        row["stale"] = _claims(ask, host)["stale"]
    except StateError as error:  # a file is damaged or was removed: the rest is still shown
        row["problem"] = f"{error.code}: {error}"
    return row


def _claims(ask: Ask, host: HostMailbox) -> dict[str, Any]:
    """Return the agent's claims, and why it seems stuck, assuming that it has run since its oldest claim."""
    claims = host.sweep.claims()
    times = [claim.claimed_at for claim in claims if claim.claimed_at is not None]
    found = host.sweep.assess(agent_started_at=min(times), policy=STALE) if times else None
    stale = found.evidence if found is not None and found.action == "stop" else None
    held = [{**dict(claim), "age_ms": _age(ask, claim)} for claim in claims]
    return {"claims": held, "stale": stale}


def _age(ask: Ask, claim: Claim) -> int | None:
    return None if claim.claimed_at is None else (ask.clock.now() - claim.claimed_at) // timedelta(milliseconds=1)
