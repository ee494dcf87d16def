"""What waits for a person: pending gates and requests, in one list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from lastlight_state.cli.screen import Column
from lastlight_state.cli.views.kind import Store
from lastlight_state.db.lists import pages
from lastlight_state.db.rows.records import Page

if TYPE_CHECKING:
    from lastlight_state.workflows import PendingApproval, PendingRequest

Waiting: TypeAlias = "PendingApproval | PendingRequest"


def name_of(one: Waiting) -> str:
    """Return the gate's name, or for a request its node id."""
    return str(one.gate if hasattr(one, "gate") else one.node_id)


def text_of(one: Waiting) -> str:
    """Return the text for the person: a gate's summary, or a request's prompt."""
    return str(one.summary if hasattr(one, "summary") else one.prompt)


#: Columns for a gate's name or a request's kind, and for the text that the person reads.
WHAT: Column[Waiting] = Column("WHAT", lambda one: one.gate if hasattr(one, "gate") else one.kind)
TEXT: Column[Waiting] = Column("TEXT", text_of, below=True)

#: In a page token: this list has ended. None means that it has not begun.
_END = ""


def pending_items(store: Store, limit: int, run_id: str | None = None) -> list[Waiting]:
    """Return the pending gates and requests, oldest first, at most ``limit`` of each."""
    pages = (read(limit=limit, order="oldest") for read in _lists(store, run_id))
    return sorted((one for page in pages for one in page), key=lambda one: (one.asked_at, one.id))


def page(store: Store, limit: int, page_token: str | None, run_id: str | None = None) -> Page[Waiting]:
    """Return a page of the pending gates and requests, newest first.

    Both lists are read up to ``limit`` items. If only some items of a list fit on the page, exactly those are read
    again, to get the cursor after them.
    """
    lists, places = _lists(store, run_id), _places(page_token)
    parts = [_part(*one, limit) for one in zip(lists, places, strict=True)]
    found = [(one.asked_at, one.id, at) for at, (items, _) in enumerate(parts) for one in items]
    fits = Counter(at for *_, at in sorted(found, reverse=True)[:limit])
    for at, (items, _) in enumerate(parts):
        if fits[at] < len(items):
            parts[at] = _part(lists[at], places[at], fits[at])
    after = [place for _, place in parts]
    return Page(
        items=tuple(
            sorted((one for items, _ in parts for one in items), key=lambda one: (one.asked_at, one.id), reverse=True)
        ),
        next_page_token=None if after == [_END, _END] else pages.pack(after),
        damaged=tuple(row for items, _ in parts for row in items.damaged),
    )


def _lists(store: Store, run_id: str | None) -> list[Callable[..., Page[Any]]]:
    both = (store.workflows.approvals.list_pending, store.workflows.human_requests.list_pending)
    return [partial(one, run_id=run_id) for one in both]


def _places(page_token: str | None) -> list[str | None]:
    """Return the cursors of both lists. Raises `InvalidValue` for a token that another list returned."""
    match None if page_token is None else pages.unpack("page_token", page_token):
        case None:
            return [None, None]
        case [str() | None as gates, str() | None as requests]:
            return [gates, requests]
        case _:
            raise pages.token_error("page_token")


def _part(read: Callable[..., Page[Any]], place: str | None, limit: int) -> tuple[Page[Any], str | None]:
    """Return up to ``limit`` items of a list from a cursor on, and the cursor after them."""
    if place == _END or not limit:
        return Page(items=()), place
    found = read(limit=limit, page_token=place)
    return found, found.next_page_token or _END
