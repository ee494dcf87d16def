"""Lists of records, a page at a time: their flags, and pages as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from lastlight_state.cli.answers import Answer
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.views.kind import Kind
from lastlight_state.db.records import Page

LIMIT = click.option("--limit", metavar="N", default=50, help="The number of records on a page, 1 to 500.")
STATUS = click.option("--status", metavar="WORD", multiple=True, help="Only these; may be given several times.")
PAGE_TOKEN = click.option("--page-token", metavar="TOKEN", help="Go on where the page before ended.")


def words(given: Sequence[str]) -> list[str] | None:
    """Statuses as repeated flags or in one, with commas between."""
    return [word.strip() for words in given for word in words.split(",")] if given else None


def answer(kind: Kind, page: Page[Any]) -> Answer:
    """A page of a kind."""
    data = {"items": page.items, "next_page_token": page.next_page_token, "damaged": page.damaged}
    return Answer(data, lambda screen: _lines(kind, page, screen))


def _lines(kind: Kind, page: Page[Any], screen: Screen) -> Iterator[Any]:
    if not page.items:
        yield kind.empty
    else:
        yield from screen.table(kind.columns, page.items)
    for row in page.damaged:
        yield f"cannot be read: {row.problem}"
    if page.next_page_token is not None:
        yield f"more: --page-token {page.next_page_token}"
