"""``store.maintenance.timeline``: what happened to a run, oldest first.

Each kind of fact is a list of its own, read by an index. A page merges the next facts of all lists, so that its cost
does not grow with the pages before. Facts of one moment are in the order of `FACTS`, then of their keys.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeAlias

from lastlight_state.db import pages, valid
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.unit import Unit
from lastlight_state.db.windows import Placed, Row, parted, window
from lastlight_state.errors import CorruptData
from lastlight_state.maintenance.records import TimelineEntry
from lastlight_state.maintenance.timeline_facts import FACTS
from lastlight_state.workflows.kernel.rows import EXISTS

#: The time, the index in `FACTS`, and the key of a fact: the order of a timeline.
Place: TypeAlias = "tuple[Any, int, Any]"

#: Before every fact.
_START: Place = (datetime.min.replace(tzinfo=UTC), -1, "")


class Timeline(Repository):
    """``store.maintenance.timeline``"""

    def list(self, run_id: str, *, limit: int = 200, page_token: str | None = None) -> Page[TimelineEntry]:
        """A page of what happened to the run, oldest first. Raises `NotFound` for an unknown run."""
        valid.page_limit(limit)
        asked = ["timeline", run_id]
        after = _place(asked, page_token)

        def work(unit: Unit) -> Page[TimelineEntry]:
            found = window(lambda size: _next(unit, run_id, after, size), limit)
            if not found.rows and unit.row(EXISTS, {"run_id": run_id}) is None:
                raise valid.not_found("workflow_run", run_id)
            items, damaged = parted(found.rows, lambda row: FACTS[row["rank"]].entry(row))
            token = None if found.last is None else pages.encode_token(asked, found.last)
            return Page(items=items, next_page_token=token, damaged=damaged)

        return self._viewing(work)


def _next(unit: Unit, run_id: str, after: Place | None, limit: int) -> Placed:
    """The next facts of all lists. One whose place cannot be read stands behind the fact before it in its list."""
    facts: list[tuple[bool, Place, Row]] = []
    for rank, fact in enumerate(FACTS):
        found = fact.listing.placed(unit, {"run_id": run_id}, _after(fact.bounds, rank, after), limit)
        place = after or _START
        for at, row in enumerate(found.rows):
            key = found.key(at)
            if key is not None:
                place = key[0], rank, key[1]
            facts.append((key is not None, place, row if isinstance(row, CorruptData) else {**row, "rank": rank}))
    facts.sort(key=lambda fact: fact[1])
    return Placed([row for *_, row in facts[:limit]], lambda at: [*facts[at][1]] if facts[at][0] else None)


def _after(bounds: tuple[Any, Any], rank: int, after: Place | None) -> list[Any] | None:
    """The key after which a list of facts continues, for a place in the timeline."""
    if after is None:
        return None
    at, last_rank, key = after
    if rank == last_rank:
        return [at, key]
    return [at, bounds[0] if rank > last_rank else bounds[1]]


def _place(asked: list[str], page_token: str | None) -> Place | None:
    found = pages.key(asked, page_token, (str, range(len(FACTS)), str | int))
    if found is None:
        return None
    at, rank, key = found
    moment, checked = FACTS[rank].listing.checked_key([at, key])
    return moment, rank, checked
