"""All pages of a list, one item after the other.

A list whose order is not that of its keys can lead back to a page that was read before. Such a walk would never end, so
it stops with an error.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from lastlight_state.db.records import Page
from lastlight_state.errors import Conflict

T = TypeVar("T")
P = ParamSpec("P")

_log = logging.getLogger("lastlight_state.db")


def iterate(listing: Callable[P, Page[T]], /, *args: P.args, **given: P.kwargs) -> Iterator[T]:
    """The items of all pages of a list: ``iterate(store.workflows.runs.list, statuses=["running"])``.

    Takes the list's method and its arguments. Each page is read when the items before it are used up; its size is
    ``limit``. Rows that come or go meanwhile may or may not be among them; none comes twice unless its place in the
    order changed. Rows that cannot be read are logged and passed over. Raises `Conflict` ``walk_repeats`` when the list
    leads back to a page that was read before.
    """
    for page in pages_of(listing, *args, **given):
        yield from _sound(page)


def pages_of(listing: Callable[P, Page[T]], /, *args: P.args, **given: P.kwargs) -> Iterator[Page[T]]:
    """Give the pages of a list, as `iterate` gives their items."""
    read: Callable[..., Page[T]] = listing
    asked: dict[str, Any] = dict(given)
    walk = _Walk()
    while True:
        page = read(*args, **asked)
        yield page
        if page.next_page_token is None:
            return
        asked["page_token"] = walk.further(page.next_page_token)


async def aiterate(listing: Callable[P, Awaitable[Page[T]]], /, *args: P.args, **given: P.kwargs) -> AsyncIterator[T]:
    """The items of all pages of a list of an `AsyncStateStore`, as `iterate` gives them."""
    read: Callable[..., Awaitable[Page[T]]] = listing
    asked: dict[str, Any] = dict(given)
    walk = _Walk()
    while True:
        page = await read(*args, **asked)
        for item in _sound(page):
            yield item
        if page.next_page_token is None:
            return
        asked["page_token"] = walk.further(page.next_page_token)


class _Walk:
    """Notices that page tokens repeat, in whatever distance, and remembers one token for that.

    The remembered token is replaced after 1, 2, 4, 8 … pages, so that it comes to lie in every circle.
    """

    def __init__(self) -> None:
        self._remembered: str | None = None
        self._pages, self._until = 0, 1

    def further(self, token: str) -> str:
        """Return the token of the next page. Raises `Conflict` when it is the remembered one."""
        if token == self._remembered:
            raise Conflict(
                "the list leads back to a page that was read before: the order of its rows is not that of their keys; "
                "`lastlight-state doctor --deep` names values that are not in the form of their column",
                code="walk_repeats",
                page_token=token,
            )
        self._pages += 1
        if self._pages == self._until:
            self._remembered, self._until = token, 2 * self._until
        return token


def _sound(page: Page[T]) -> tuple[T, ...]:
    for row in page.damaged:
        _log.error("passed over a row that cannot be read: %s", row.problem)
    return page.items
