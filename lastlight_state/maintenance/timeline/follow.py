"""Follows a run: yields stored entries, then new ones as they are committed, each once and in order.

Five lists of a run are numbered in the order of its commits: its transitions, its inputs, the signals it received, its
events and its phases. A reader who has seen a number has seen all lower numbers of that list, so a cursor is five
numbers. New entries of different lists that are read together are ordered by time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import sqlalchemy as sa

from lastlight_state.backends.sql.json import member_of
from lastlight_state.db import valid
from lastlight_state.db.news.watch import Watch, watch_of
from lastlight_state.db.rows.statements import Row, Statement, constant, statement_of
from lastlight_state.db.rows.writes import as_list, elements_table
from lastlight_state.db.schema.indexes import AmongFew
from lastlight_state.db.units.scope import Scope
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import CorruptData, InvalidValue, NotFound
from lastlight_state.journal import models as journal_words
from lastlight_state.journal.events.statements import STREAM as EVENT_NUMBERS
from lastlight_state.journal.models import EVENTS, SEQUENCES, SIGNALS
from lastlight_state.journal.signals.statements import STREAM as SIGNAL_NUMBERS
from lastlight_state.maintenance.timeline.facts import (
    FACTS,
    NUMBER_KEYS,
    Fact,
    detailed_text,
    event_text,
    numbered_listing,
    received_text,
)
from lastlight_state.maintenance.timeline.phases import Phases, phase_text
from lastlight_state.maintenance.timeline.records import FollowedEntry
from lastlight_state.outputs.models import INPUTS
from lastlight_state.workflows.tables import RUNS, TRANSITIONS
from lastlight_state.workflows.words import TERMINAL

_log = logging.getLogger("lastlight_state.maintenance")

#: The longest wait in seconds before a follower checks if it is to stop.
SLICE = 0.5
#: The most rows of one list that a follower holds.
PAGE = 200
_NEVER = datetime.min.replace(tzinfo=UTC)
_SIGNALS, _EVENTS, _PHASES = 2, 3, 4
#: The first number of each list. Events may begin at any number.
_FIRST = (1, 0, 0, 0, 1)

#: The lists that a follower reads, numbered in the order of commits, so that no entry comes in before an entry that was
#: already yielded. Their transitions include notes about questions, with details.
FOLLOWED = (
    Fact(
        "transition",
        numbered_listing(
            "followed_transitions",
            TRANSITIONS,
            ("at", "seq"),
            (
                TRANSITIONS.c.from_status,
                TRANSITIONS.c.to_status,
                TRANSITIONS.c.reason,
                TRANSITIONS.c.actor,
                TRANSITIONS.c.detail,
            ),
        ),
        NUMBER_KEYS,
        detailed_text,
        actor="actor",
        at="at",
    ),
    next(fact for fact in FACTS if fact.source == "input"),
    Fact(
        "signal",
        numbered_listing(
            "followed_signals", SIGNALS, ("received_at", "seq"), (SIGNALS.c.signal_name, SIGNALS.c.received_by)
        ),
        NUMBER_KEYS,
        received_text,
        actor="received_by",
        at="received_at",
    ),
    Fact(
        "event",
        numbered_listing("followed_events", EVENTS, ("occurred_at", "seq"), (EVENTS.c.type, EVENTS.c.node_id)),
        NUMBER_KEYS,
        event_text,
        at="occurred_at",
    ),
    Fact("phase", Phases(), NUMBER_KEYS, phase_text, at="at"),
)

_wanted = elements_table("runs")
_streams = sa.select(sa.func.sum(SEQUENCES.c.next_seq)).where(
    SEQUENCES.c.run_id == RUNS.c.id,
    SEQUENCES.c.stream.in_([constant(stream.name) for stream in (EVENT_NUMBERS, SIGNAL_NUMBERS)]),
)
_inputs = sa.select(sa.func.count()).select_from(INPUTS).where(INPUTS.c.run_id == RUNS.c.id)


#: Counts the entries of these runs so far, in all lists, by run.
TOLD: Statement[tuple[str, int]] = statement_of(
    sa.select(
        RUNS.c.id,
        sa.cast(
            RUNS.c.transition_seq
            + RUNS.c.phase_count
            + sa.func.coalesce(_streams.scalar_subquery(), 0)
            + sa.func.coalesce(_inputs.scalar_subquery(), 0),
            RUNS.c.transition_seq.type,
        ).label("told"),
    ).where(AmongFew(RUNS.c.id, sa.select(member_of(_wanted.c.value, "run_id")))),
    tuple,
)
STATUS = statement_of(sa.select(RUNS.c.status).where(RUNS.c.id == sa.bindparam("run_id")))


class _Place(NamedTuple):
    """A row and its place in the merged order of all lists. ``row`` is None if it cannot be read."""

    at: datetime
    rank: int
    number: int
    row: Row | None


def _order(place: _Place) -> tuple[datetime, bool, int, int]:
    """Return the sort key of a row. At equal times phases come first, because a phase ends before its run goes on."""
    return place.at, place.rank != _PHASES, place.rank, place.number


class Follower:
    """A reader of a run's entries, which starts after a cursor."""

    def __init__(self, scope: Scope, run_id: str, after: str | None, *, until_end: bool) -> None:
        self._scope = scope
        self._watch = _watch_for(scope)
        self._run_id = run_id
        self._next = _numbers(after)
        self._at = [_NEVER] * len(FOLLOWED)
        self._until_end = until_end

    def entries(
        self, idle_timeout: float | None, poll_interval: float, stop: threading.Event
    ) -> Iterator[FollowedEntry]:
        """Yield each entry once, until the idle timeout, the run's end if ``until_end``, or the ``stop`` event."""
        heard = time.monotonic()
        with self._watch.waiting_for([self._run_id], poll_interval):
            known = dict(self._watch.look([self._run_id]))
            if not known:
                raise valid.not_found("workflow_run", self._run_id)
            is_new = True
            while not stop.is_set():
                while is_new and not stop.is_set():
                    told, is_all, has_ended = self._scope.view(self._read)
                    for place in told:
                        entry = self._entry(place)
                        if entry is not None:
                            yield entry
                            heard = time.monotonic()
                    is_new = not is_all
                    if is_all and has_ended and self._until_end:
                        return
                silent = time.monotonic() - heard
                if idle_timeout is not None and silent >= idle_timeout:
                    return
                grown = self._watch.wait_for_growth(
                    known, SLICE if idle_timeout is None else min(SLICE, idle_timeout - silent)
                )
                known.update(grown)
                is_new = bool(grown)

    def _read(self, unit: Unit) -> tuple[list[_Place], bool, bool]:
        """Return the next entries in order, True if these are all, and True if the run has ended.

        Does not change the follower's position.
        """
        found: list[_Place] = []
        horizon = None
        for rank in range(len(FOLLOWED)):
            rows, is_cut = self._rows(unit, rank)
            if is_cut and rows:  # later entries of other lists wait for the next page
                horizon = rows[-1].at if horizon is None else min(horizon, rows[-1].at)
            found += rows
        told = sorted((each for each in found if horizon is None or each.at <= horizon), key=_order)
        status = unit.value(STATUS, {"run_id": self._run_id})
        return told, horizon is None, status in TERMINAL or status is None

    def _rows(self, unit: Unit, rank: int) -> tuple[list[_Place], bool]:
        """Return the next rows of a list, with times that never decrease, and True if there may be more rows."""
        listing = FOLLOWED[rank].listing
        placed = listing.rows_after(unit, {"run_id": self._run_id}, [self._next[rank] - 1], PAGE)
        at, rows = self._at[rank], list[_Place]()
        for index, row in enumerate(placed.rows):
            key = placed.key(index)
            if isinstance(row, CorruptData):
                _log.error("a follower passed over what cannot be read: %s", row)
            else:
                at = max(at, row[FOLLOWED[rank].at or ""] or at)
            if key is not None:
                rows.append(_Place(at, rank, key[0], None if isinstance(row, CorruptData) else row))
        if rows and rank in (_SIGNALS, _EVENTS):
            self._refuse_pruned(rank, rows[0].number)
        return rows, len(placed.rows) == PAGE

    def _refuse_pruned(self, rank: int, first: int) -> None:
        """Raise `NotFound`, with the first number still stored, if rows after the cursor were pruned."""
        if first > self._next[rank] > 0:
            kind = journal_words.EVENT if rank == _EVENTS else "signal"
            raise NotFound(kind, (self._run_id, first), reason=f"those from {self._next[rank]} were pruned")

    def _entry(self, place: _Place) -> FollowedEntry | None:
        """Move the position past this row. Returns the row's entry, or None if the row cannot be read."""
        at, rank, number, row = place
        self._at[rank], self._next[rank] = at, number + 1
        if row is None:
            return None
        entry = FOLLOWED[rank].entry(row, at)
        return FollowedEntry.of({**vars(entry), "cursor": ".".join(map(str, self._next))})


def _numbers(after: str | None) -> list[int]:
    """Parse a cursor, and return the next number of each list.

    Raises `InvalidValue` for a text that is not a cursor.
    """
    if after is None:
        return list(_FIRST)
    parts = valid.content("after", after, 200).split(".")
    if len(parts) != len(FOLLOWED) or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise InvalidValue("after", "must be the cursor of an entry that follow gave")
    return [int(part) for part in parts]


def _watch_for(scope: Scope) -> Watch[str]:
    """Return the watch that the store's followers share, over the number of entries of runs."""

    def read(runs: Collection[str]) -> dict[str, int]:
        wanted: Sequence[dict[str, str]] = [{"run_id": run_id} for run_id in sorted(runs)]
        return dict(scope.read(lambda unit: unit.rows(TOLD, {"runs": as_list(wanted)})))

    return watch_of(scope, "stories", read)
