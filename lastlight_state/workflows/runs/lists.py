"""Pages of run summaries, in the two orders of all runs, and of other lists of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lastlight_state.db import pages
from lastlight_state.db.listing import Listing
from lastlight_state.db.records import Page
from lastlight_state.db.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.workflows.indexes import RUN_SUMMARY
from lastlight_state.workflows.money import dollars_of
from lastlight_state.workflows.records import NO_TOTALS, RunSummary, Totals
from lastlight_state.workflows.runs import statements as sql
from lastlight_state.workflows.words import TERMINAL

_RANKS = (("running",), ("paused",), ("queued",), TERMINAL)


def page(
    unit: Unit, listing: Listing, given: Mapping[str, Any], limit: int, page_token: str | None
) -> Page[RunSummary]:
    """A page of a list of runs, with their totals. The list may show more than a summary does, such as its order."""
    found = listing.page(unit, _columns, limit=limit, page_token=page_token, given=given)
    return _page(unit, found.items, found.next_page_token)


def newest(unit: Unit, given: Mapping[str, Any], limit: int, page_token: str | None) -> Page[RunSummary]:
    """Newest first."""
    found = sql.LIST.page(unit, _as_it_is, limit=limit, page_token=page_token, given=given)
    return _page(unit, found.items, found.next_page_token)


def active_first(unit: Unit, given: Mapping[str, Any], limit: int, page_token: str | None) -> Page[RunSummary]:
    """Running, paused, queued, then the rest, newest first in each: index ranges read one after the other, no sort."""
    chosen = {name: value for name, value in given.items() if value is not None}
    asked = ["runs", "active_first", chosen]
    rank, key = _position(asked, page_token)
    found: list[tuple[int, dict[str, Any]]] = []
    while rank < len(_RANKS) and len(found) <= limit:
        statuses = [status for status in _RANKS[rank] if status in chosen.get("statuses", _RANKS[rank])]
        rows = sql.LIST.rows(unit, {**chosen, "statuses": statuses}, key, limit + 1)
        found += [(rank, row) for row in rows]
        rank, key = rank + 1, None
    token = None
    if len(found) > limit:
        last_rank, last = found[limit - 1]
        token = pages.encode_token(asked, [last_rank, *sql.LIST.key(last)])
    return _page(unit, [row for _, row in found[:limit]], token)


ORDERS = {"newest": newest, "active_first": active_first}


def _position(asked: Any, page_token: str | None) -> tuple[int, list[Any] | None]:
    position = pages.decode_token(asked, page_token)
    if position is None:
        return 0, None
    if not position or position[0] not in range(len(_RANKS)):
        raise InvalidValue("page_token", "damaged, or made by something else")
    return position[0], sql.LIST.checked_key(position[1:])


def _columns(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in RUN_SUMMARY}


def _as_it_is(row: dict[str, Any]) -> dict[str, Any]:
    return row


def _page(unit: Unit, rows: Sequence[dict[str, Any]], token: str | None) -> Page[RunSummary]:
    return Page.of({"items": summaries(unit, rows), "next_page_token": token})


def summaries(unit: Unit, rows: Sequence[dict[str, Any]]) -> tuple[RunSummary, ...]:
    """The runs of at most 500 rows, with their totals from one more statement."""
    if not rows:
        return ()
    statement, values = sql.TOTALS.of([row["id"] for row in rows])
    totals = {found["workflow_run_id"]: _totals(found) for found in unit.rows(statement, values)}
    for row in rows:
        row["totals"] = totals.get(row["id"], NO_TOTALS)
    return tuple(map(RunSummary.of, rows))


def _totals(found: dict[str, Any]) -> Totals:
    del found["workflow_run_id"]
    found["cost_usd"] = dollars_of(int(found.pop("cost_micros")))
    return Totals.of(found)
