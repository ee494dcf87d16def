"""All pages of a list, one item after the other."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from lastlight_state.db.records import Page

T = TypeVar("T")
P = ParamSpec("P")

_log = logging.getLogger("lastlight_state.db")


def iterate(listing: Callable[P, Page[T]], /, *args: P.args, **given: P.kwargs) -> Iterator[T]:
    """The items of all pages of a list: ``iterate(store.workflows.runs.list, statuses=["running"])``.

    Takes the list's method and its arguments. Each page is read when the items before it are used up; its size is
    ``limit``. Rows that come or go meanwhile may or may not be among them; none comes twice unless its place in the
    order changed. Rows that cannot be read are logged and passed over.
    """
    read: Callable[..., Page[T]] = listing
    asked: dict[str, Any] = dict(given)
    while True:
        page = read(*args, **asked)
        yield from _sound(page)
        if page.next_page_token is None:
            return
        asked["page_token"] = page.next_page_token


async def aiterate(listing: Callable[P, Awaitable[Page[T]]], /, *args: P.args, **given: P.kwargs) -> AsyncIterator[T]:
    """The items of all pages of a list of an `AsyncStateStore`, as `iterate` gives them."""
    read: Callable[..., Awaitable[Page[T]]] = listing
    asked: dict[str, Any] = dict(given)
    while True:
        page = await read(*args, **asked)
        for item in _sound(page):
            yield item
        if page.next_page_token is None:
            return
        asked["page_token"] = page.next_page_token


def _sound(page: Page[T]) -> tuple[T, ...]:
    for row in page.damaged:
        _log.error("passed over a row that cannot be read: %s", row.problem)
    return page.items
