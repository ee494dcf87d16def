"""``ls``: pages of records of one kind. Never writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import click

from lastlight_state.cli import ages
from lastlight_state.cli.answers import Answer
from lastlight_state.cli.call import Call, command
from lastlight_state.cli.opening import look
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.views.kind import Filters, Kind
from lastlight_state.cli.views.kinds import KINDS
from lastlight_state.clock import SYSTEM_CLOCK, aware_utc
from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.errors import InvalidValue

DEFAULT = "runs"


@command("ls")
@click.argument("kind", metavar="[KIND]", default=DEFAULT)
@click.option("--limit", metavar="N", default=50, help="The number of records on a page, 1 to 500.")
@click.option("--status", metavar="WORD", multiple=True, help="Only these; may be given several times.")
@click.option("--since", metavar="TIME", help="Started since: 2026-02-03T12:00Z, or 24h ago as 24h.")
@click.option("--run", "run_id", metavar="ID", help="Only those of this run.")
@click.option("--page-token", metavar="TOKEN", help="Go on where the page before ended.")
def run(
    call: Call,
    kind: str,
    limit: int,
    status: Sequence[str],
    since: str | None,
    run_id: str | None,
    page_token: str | None,
) -> Answer:
    """List records, newest first, a page at a time.

    KIND is runs, which is the default, executions, approvals, messaging, sessions, crons, receipts, outputs, cache,
    sandboxes or scores, or with --run one of events, signals, frames, tool-calls and inputs.
    """
    chosen = KINDS[valid.word("KIND", kind, KINDS)]
    filters = Filters(_words(status), _moment(since), valid.page_limit(limit), page_token, run_id)
    page = look(call, lambda store: chosen.page(store, filters))
    data = {"items": page.items, "next_page_token": page.next_page_token, "damaged": page.damaged}
    return Answer(data, lambda screen: _lines(chosen, page, screen))


def _lines(kind: Kind, page: Page[Any], screen: Screen) -> Iterator[Any]:
    if not page.items:
        yield kind.empty
    else:
        yield from screen.table(kind.columns, page.items)
    for row in page.damaged:
        yield f"cannot be read: {row.problem}"
    if page.next_page_token is not None:
        yield f"more: --page-token {page.next_page_token}"


def _words(given: Sequence[str] | None) -> list[str] | None:
    """Statuses as repeated flags or in one, with commas between."""
    return [word.strip() for words in given for word in words.split(",")] if given else None


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    ago = ages.age(text)
    if ago is not None:
        return SYSTEM_CLOCK.now() - ago
    try:
        return aware_utc("--since", datetime.fromisoformat(text))
    except ValueError:
        raise InvalidValue(
            "--since", f"{text!r:.80} is not a time", permitted=("2026-02-03T12:00Z", "24h", "7d")
        ) from None
