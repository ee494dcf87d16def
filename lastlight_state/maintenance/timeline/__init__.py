"""``store.maintenance.timeline``: the facts about a run, oldest first.

Each kind of fact is a separate list, which is read by an index. A page merges the next facts of all lists, so that its
cost does not grow with the number of earlier pages. Facts with equal times are in the order of `FACTS`, then of their
keys.

A list with numbers is in the order of the numbers. If a clock was set back, a fact is shown at the time of the fact
before it, so that neither numbers nor times run backwards.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

from lastlight_state.db import valid
from lastlight_state.db.lists import pages
from lastlight_state.db.lists.pages import KeyedRows, Row, map_page, window
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import CorruptData
from lastlight_state.maintenance.timeline.facts import FACTS, NO_NUMBER, NUMBERED
from lastlight_state.maintenance.timeline.follow import Follower
from lastlight_state.maintenance.timeline.records import FollowedEntry, TimelineEntry
from lastlight_state.workflows.shared.run_rows import EXISTS

#: The sort key of a timeline: the time, the index in `FACTS`, and the key of a fact.
Place: TypeAlias = "tuple[Any, int, Any]"

#: The place before every fact.
_START: Place = (datetime.min.replace(tzinfo=UTC), -1, "")


class TimelinePosition(NamedTuple):
    """The position in a timeline: the place of its last fact, and the last number of each list that has numbers."""

    place: Place = _START
    numbers: tuple[int, ...] = (NO_NUMBER,) * len(NUMBERED)


class _Placed(NamedTuple):
    """A row, its place in the timeline, and True if the place was read from the row itself."""

    place: Place
    row: Row
    is_own: bool


class Timeline(Repository):
    """Lists and follows the facts about a run: ``store.maintenance.timeline``."""

    def list(self, run_id: str, *, limit: int = 200, page_token: str | None = None) -> Page[TimelineEntry]:
        """Return a page of facts about the run, oldest first. Raises `NotFound` for an unknown run."""
        valid.page_limit(limit)
        asked = ["timeline", run_id]
        told = _position_of(asked, page_token)

        def work(unit: Unit) -> Page[TimelineEntry]:
            found = window(lambda size: _next(unit, run_id, told, size), limit)
            if not found.rows and unit.row(EXISTS, {"run_id": run_id}) is None:
                raise valid.not_found("workflow_run", run_id)
            return map_page(found.page(asked), lambda row: FACTS[row["rank"]].entry(row, row["told_at"]))

        return self._viewing(work)

    def follow(
        self,
        run_id: str,
        *,
        after: str | None = None,
        until_end: bool = False,
        idle_timeout: float | None = None,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> Iterator[FollowedEntry]:
        """Yield the entries of the run, each once and in order: stored entries, then new ones as they are committed.

        Yields every change of the run's status by anyone, with the reason of its failure or what it waits for. Also
        yields the phases that ended, with errors of failed ones, and events, inputs, received signals and what happened
        to questions. Only `list` has starts of executions and signals that were taken. To continue, pass the ``cursor``
        of the last entry seen as ``after``: nothing is missed or repeated.

        With ``until_end`` the iteration ends after the last entry of a run that has ended. It also ends after
        ``idle_timeout`` seconds without an entry, and when ``stop`` is set. Raises `NotFound` for an unknown run, and
        if entries after the cursor were pruned; `StoreClosed`.
        """
        ends = valid.flag("until_end", until_end)
        timeout = None if idle_timeout is None else valid.seconds("idle_timeout", idle_timeout)
        interval = valid.seconds("poll_interval", poll_interval)
        follower = Follower(self._scope, valid.lookup_text("run_id", run_id), after, until_end=ends)
        return follower.entries(timeout, interval, valid.stop(stop))


def _next(unit: Unit, run_id: str, told: TimelinePosition, limit: int) -> KeyedRows:
    """Return the next facts of all lists, merged.

    A fact whose place cannot be read comes after the previous fact of its list.
    """
    facts: list[_Placed] = []
    for rank, fact in enumerate(FACTS):
        found = fact.listing.rows_after(unit, {"run_id": run_id}, _after(rank, told), limit)
        place = told.place
        for index, row in enumerate(found.rows):
            key = found.key(index)
            if key is not None:
                place = (*key[:-1], rank, key[-1]) if fact.at is None else (_later(place, row, fact.at), rank, key[0])
            told_row = row if isinstance(row, CorruptData) else {**row, "rank": rank, "told_at": place[0]}
            facts.append(_Placed(place, told_row, key is not None))
    facts.sort(key=lambda fact: fact.place)

    def key_at(index: int) -> list[Any] | None:
        last = facts[index]
        return [*last.place, *_numbers(told, facts[: index + 1])] if last.is_own else None

    return KeyedRows([fact.row for fact in facts[:limit]], key_at)


def _later(before: Place, row: Row, column: str) -> datetime:
    """Return the time of a numbered fact in the timeline: its recorded time, but not before the previous fact."""
    latest: datetime = before[0]
    return latest if isinstance(row, CorruptData) else max(latest, row[column])


def _numbers(told: TimelinePosition, facts: list[_Placed]) -> list[int]:
    """Return, for each numbered list, the number of its last fact after these facts."""
    last = dict(zip(NUMBERED, told.numbers, strict=True))
    last.update({fact.place[1]: fact.place[2] for fact in facts if fact.place[1] in last})
    return [last[rank] for rank in NUMBERED]


def _after(rank: int, told: TimelinePosition) -> list[Any] | None:
    """Return the key after which a list of facts must be read next."""
    if told.place == _START:
        return None
    if rank in NUMBERED:
        return [told.numbers[NUMBERED.index(rank)]]
    at, last_rank, key = told.place
    if rank == last_rank:
        return [at, key]
    before, behind = FACTS[rank].bounds
    return [at, before if rank > last_rank else behind]


def _position_of(asked: list[str], page_token: str | None) -> TimelinePosition:
    found = pages.key(asked, page_token, (datetime, range(len(FACTS)), str | int, *(int for _ in NUMBERED)))
    if found is None:
        return TimelinePosition()
    at, rank, key, *numbers = found
    [checked] = pages.check_key([key], [type(FACTS[rank].bounds[0])])
    return TimelinePosition((at, rank, checked), tuple(numbers))
