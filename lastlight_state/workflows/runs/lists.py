"""Pages of run summaries: all runs, newest first or active first, and other lists of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from lastlight_state.db import valid
from lastlight_state.db.lists import pages
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.lists.pages import KeyedRows, window
from lastlight_state.db.rows.records import Page, with_values
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import CorruptData
from lastlight_state.workflows.records import RunSummary, Totals
from lastlight_state.workflows.runs import statements as sql
from lastlight_state.workflows.shared.executions import sums_of
from lastlight_state.workflows.words import TERMINAL

#: The groups of runs, in their order. Where no statuses are asked for, the last one has those of unknown words, too.
_RANKS = (("running",), ("paused",), ("queued",), TERMINAL)


def page_of_runs(
    listing: Listing[RunSummary], given: Mapping[str, Any], limit: int, page_token: str | None
) -> Callable[[Unit], Page[RunSummary]]:
    """Return a function that reads one page of a list of runs with their totals.

    Checks the limit.
    """
    valid.page_limit(limit)

    def work(unit: Unit) -> Page[RunSummary]:
        return _with_totals(unit, listing.page(unit, limit=limit, page_token=page_token, given=given))

    return work


def newest(unit: Unit, given: Mapping[str, Any], limit: int, page_token: str | None) -> Page[RunSummary]:
    """Return a page of all runs, newest first."""
    return _with_totals(unit, sql.listing_of(given).page(unit, limit=limit, page_token=page_token, given=given))


def active_first(unit: Unit, given: Mapping[str, Any], limit: int, page_token: str | None) -> Page[RunSummary]:
    """Return a page of all runs: running, paused, queued, then all others; newest first in each group."""
    chosen = {name: value for name, value in given.items() if value is not None}
    asked = ["runs", "active_first", chosen]
    rank, key = _position(asked, page_token)
    return _with_totals(unit, window(lambda size: _ranked_rows(unit, chosen, rank, key, size), limit).page(asked))


def _ranked_rows(
    unit: Unit, chosen: Mapping[str, Any], rank: int, key: list[Any] | None, limit: int
) -> KeyedRows[RunSummary]:
    """Return the next runs after this key in the group of this rank, then those of the groups that follow.

    Each group is a range of an index. The groups are read one after the other; nothing is sorted.
    """
    rows: list[RunSummary | CorruptData] = []
    places: list[tuple[int, int, KeyedRows[RunSummary]]] = []
    while rank < len(_RANKS) and len(rows) < limit:
        if rank == len(_RANKS) - 1 and "statuses" not in chosen:
            found = sql.OTHERS_LIST.rows_after(unit, chosen, key, limit - len(rows))
        else:
            statuses = [status for status in _RANKS[rank] if status in chosen.get("statuses", _RANKS[rank])]
            asked = {**chosen, "statuses": statuses}
            found = sql.listing_of(asked).rows_after(unit, asked, key, limit - len(rows))
        rows += found.rows
        places += [(rank, at, found) for at in range(len(found.rows))]
        rank, key = rank + 1, None

    def key_of(at: int) -> list[Any] | None:
        group, place, found = places[at]
        key = found.key(place)
        return None if key is None else [group, *key]

    return KeyedRows(rows, key_of)


ORDERS = {"newest": newest, "active_first": active_first}


def _position(asked: Any, page_token: str | None) -> tuple[int, list[Any] | None]:
    position = pages.key(asked, page_token, (range(len(_RANKS)), datetime, str))
    return (0, None) if position is None else (position[0], position[1:])


def _with_totals(unit: Unit, page: Page[RunSummary]) -> Page[RunSummary]:
    return with_values(page, items=summaries(unit, page.items))


def summaries(unit: Unit, runs: Sequence[RunSummary]) -> tuple[RunSummary, ...]:
    """Return at most 500 summaries with their totals, which take one more statement."""
    if not runs:
        return ()
    statement, values = sql.TOTALS.of([run.id for run in runs])
    totals = {found["workflow_run_id"]: Totals.of(sums_of(found)) for found in unit.rows(statement, values)}
    return tuple(with_values(run, totals=totals[run.id]) if run.id in totals else run for run in runs)
