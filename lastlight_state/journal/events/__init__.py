"""Events: what happened in a run, in order, never changed.

An event's ``seq`` starts at 0 and has no gaps within its run, in whatever number of threads and processes it is
appended. It is the order of the commits.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, overload

from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.news.watch import refuse_in_transaction
from lastlight_state.db.repository import Context
from lastlight_state.db.rows.records import Page
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import InvalidValue
from lastlight_state.journal import models
from lastlight_state.journal.arguments import EventFilter, NewEvent
from lastlight_state.journal.events import checks, statements, statements as sql
from lastlight_state.journal.events.follow import Follower
from lastlight_state.journal.events.statements import Draft
from lastlight_state.journal.kernel import Ended, Numbered
from lastlight_state.journal.models import EVENTS
from lastlight_state.journal.records import Appended, Event

_MOST = limits_of(EVENTS)


class Events(Numbered):
    """``store.journal.events``"""

    _stream = sql.STREAM

    def __init__(self, context: Context, ended: Ended | None = None) -> None:
        super().__init__(context)
        self._ended = ended

    def append(
        self,
        run_id: str,
        type: str,  # noqa: A002 - the column's name
        payload: dict[str, Any] | None = None,
        *,
        at: datetime | None = None,
        event_id: str | None = None,
        node_id: str | None = None,
    ) -> Appended:
        """Append an event: its number, and whether this call stored it.

        With an ``event_id`` a repetition, however late, finds the first with ``created=False``; other content under
        that id is `AlreadyExists` with the stored ``seq``. With ``at`` and no id an event of equal time, type and
        payload counts as the same. Without either it is always new, and then a write of unknown outcome is not
        repeated, but `BackendUnavailable`. ``node_id`` is what the payload says under ``nodeId`` or ``node_id`` unless
        given; where both are there they must be equal. Raises `NotFound` for an unknown run, `PayloadTooLarge` past 64
        KiB.
        """
        found = valid.identifier("run_id", run_id, _MOST.run_id)
        moment = self._now() if at is None else aware_utc("at", at)
        row = checks.row(found, type, payload, moment, event_id, node_id)
        if at is None and event_id is None:
            return self._append(
                found,
                self._chained,
                lambda unit: statements.appended(row, sql.STREAM.one(unit, sql.APPEND, row), created=True),
            )
        draft = Draft(row, is_replay=event_id is None)
        return self._append(found, self._writing, lambda unit: statements.append_one(unit, draft), repeatable=True)

    def append_many(self, run_id: str, events: Sequence[NewEvent]) -> builtins.list[Appended]:
        """Append 1 to 1,000 events, all or none, with consecutive numbers in this order.

        Those that are there already, or twice in the batch, keep their first number. A bad event is refused by its
        position, and then nothing is stored. Otherwise as `append`.
        """
        found, now = valid.identifier("run_id", run_id, _MOST.run_id), self._now()
        given = checks.batch(events)
        rows = checks.events(found, given, now)
        if all(one.event_id is None and one.at is None for one in given):
            return self._append(found, self._writing, lambda unit: statements.append_plain(unit, found, rows))
        drafts = [Draft(row, checks.is_replay(one)) for row, one in zip(rows, given, strict=True)]
        repeatable = all(one.event_id is not None or one.at is not None for one in given)
        return self._append(found, self._writing, lambda unit: statements.append(unit, drafts), repeatable=repeatable)

    def ensure_start(self, run_id: str, start_seq: int) -> int:
        """Let the first event of a run have the number ``start_seq``, and return the number that comes next.

        For a run with events, a start at or before the next number changes nothing, and one behind it is
        `InvalidValue`. What is returned is what a resuming caller should believe.
        """
        found = valid.identifier("run_id", run_id, _MOST.run_id)
        start = valid.number("start_seq", start_seq, most=2**53)
        values = {"run_id": found, "next_seq": start}

        def work(unit: Any) -> int:
            following = self._stream.locked(unit, found)
            if start <= following:
                return following
            if unit.value(sql.LATEST, values) is not None or following:
                problem = f"must be at most {following}, the next number, because the run has events; got {start}"
                raise InvalidValue("start_seq", problem, most=following)
            return int(unit.value(self._stream.raise_to, values))

        return self._append(found, self._writing, work, repeatable=True)

    def get(self, run_id: str, seq: int) -> Event:
        """Return the event of this number. Raises `NotFound`."""
        values = {"run_id": valid.sought("run_id", run_id), "seq": valid.number("seq", seq)}
        return self._one_as(Event.of, sql.GET, values, kind=models.EVENT, key=(run_id, seq))

    def find(self, run_id: str, event_id: str) -> Event | None:
        """Return the event with this key, or None."""
        values = {"run_id": valid.sought("run_id", run_id), "event_id": valid.sought("event_id", event_id)}
        return self._find_as(Event.of, sql.FIND, values)

    def latest_seq(self, run_id: str) -> int | None:
        """Return the greatest number that is stored, or None for a run without events."""
        found: int | None = self._value(sql.LATEST, {"run_id": valid.sought("run_id", run_id)})
        return found

    def list(
        self,
        run_id: str,
        *,
        where: EventFilter | None = None,
        after_seq: int | None = None,
        limit: int = models.PAGE,
        order: models.Order = "oldest_first",
        page_token: str | None = None,
    ) -> Page[Event]:
        """Return a page of a run's events in the order of their numbers. ``after_seq`` itself is not included.

        An unknown run has none. Rare types are found by walking the run's events. An event whose payload cannot be
        read is in ``damaged``, and hides no other.
        """
        listing = sql.LISTS[valid.word("order", order, models.ORDERS)]
        return self._page_as(listing, Event.of, checks.filters(run_id, where, after_seq, page_token), limit, page_token)

    def count(self, run_id: str, *, where: EventFilter | None = None, after_seq: int | None = None) -> int:
        """Return how many events pass these filters: as many as all pages of `list` have together."""
        given = checks.filters(run_id, where, after_seq)
        return self._reading(lambda unit: sql.LISTS["oldest_first"].count(unit, given))

    @overload
    def follow(
        self,
        run_id: str,
        *,
        after_seq: int | None = None,
        where: EventFilter | None = None,
        stop_types: Collection[str] = (),
        until_end: bool = False,
        idle_timeout: float | None = None,
        heartbeat: None = None,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> Iterator[Event]: ...
    @overload
    def follow(
        self,
        run_id: str,
        *,
        after_seq: int | None = None,
        where: EventFilter | None = None,
        stop_types: Collection[str] = (),
        until_end: bool = False,
        idle_timeout: float | None = None,
        heartbeat: float,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> Iterator[Event | None]: ...
    def follow(
        self,
        run_id: str,
        *,
        after_seq: int | None = None,
        where: EventFilter | None = None,
        stop_types: Collection[str] = (),
        until_end: bool = False,
        idle_timeout: float | None = None,
        heartbeat: float | None = None,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> Iterator[Any]:
        """Yield each event after ``after_seq`` once and in order: the stored ones, then new ones as they are committed.

        Going on after the last number that was seen misses nothing and repeats nothing. Ends after an event of
        ``stop_types``, after ``idle_timeout`` seconds without an event, or when ``stop`` is set. With ``until_end`` it
        also ends with the run, once all events that were committed until then were given. ``heartbeat`` seconds without
        an event give a None, so that a stream can say that it is still there. An unknown run has no events yet.

        Raises `NotFound` where events after ``after_seq`` were pruned, with the first number left in its key, and with
        ``until_end`` for an unknown run; `StoreClosed`.
        """
        return self.follow_many(
            {run_id: after_seq},
            where=where,
            stop_types=stop_types,
            until_end=until_end,
            idle_timeout=idle_timeout,
            heartbeat=heartbeat,
            poll_interval=poll_interval,
            stop=stop,
        )

    @overload
    def follow_many(
        self,
        cursors: Mapping[str, int | None],
        *,
        where: EventFilter | None = None,
        stop_types: Collection[str] = (),
        until_end: bool = False,
        idle_timeout: float | None = None,
        heartbeat: None = None,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> Iterator[Event]: ...
    @overload
    def follow_many(
        self,
        cursors: Mapping[str, int | None],
        *,
        where: EventFilter | None = None,
        stop_types: Collection[str] = (),
        until_end: bool = False,
        idle_timeout: float | None = None,
        heartbeat: float,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> Iterator[Event | None]: ...
    def follow_many(
        self,
        cursors: Mapping[str, int | None],
        *,
        where: EventFilter | None = None,
        stop_types: Collection[str] = (),
        until_end: bool = False,
        idle_timeout: float | None = None,
        heartbeat: float | None = None,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> Iterator[Any]:
        """Follow 1 to 500 runs, each after its own number. Between runs there is no order.

        With ``until_end`` it ends when all of them have ended. Otherwise as `follow`.
        """
        refuse_in_transaction(self._scope)
        valid.number("cursors", len(cursors), least=1, most=valid.PAGE_LIMIT)
        if heartbeat is not None and not valid.seconds("heartbeat", heartbeat):
            raise InvalidValue("heartbeat", "must be more than 0 seconds")
        idle = None if idle_timeout is None else valid.seconds("idle_timeout", idle_timeout)
        interval = valid.seconds("poll_interval", poll_interval)
        follower = Follower(self._scope, cursors, where, stop_types, self._ended if until_end else None)
        return follower.events(idle, heartbeat, interval, valid.stop(stop))
