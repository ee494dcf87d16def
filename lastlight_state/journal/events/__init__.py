"""Events: what happened in a run, in order. Stored events never change.

An event's ``seq`` starts at 0 and has no gaps within its run, however many threads and processes append. Numbers follow
the order of commits.
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
from lastlight_state.journal.models import EVENTS
from lastlight_state.journal.records import Appended, Event
from lastlight_state.journal.shared import Ended, Numbered

_LIMITS = limits_of(EVENTS)


class Events(Numbered):
    """``store.journal.events``: append, read and follow the events of runs."""

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
        """Append an event to a run; return its number, and whether this call stored it.

        A repetition with the same ``event_id``, however late, finds the first event and returns ``created=False``.
        Other content under that id raises `AlreadyExists` with the stored ``seq``. With ``at`` and no id, an event of
        equal time, type and payload counts as the same. With neither, the event is always new; then a write of unknown
        outcome is not repeated, but raises `BackendUnavailable`.

        ``node_id`` defaults to the payload's ``nodeId`` or ``node_id``; if it is given too, both must be equal. Raises
        `NotFound` for an unknown run, `PayloadTooLarge` for a payload of more than 64 KiB.
        """
        found = valid.identifier("run_id", run_id, _LIMITS.run_id)
        moment = self._now() if at is None else aware_utc("at", at)
        row = checks.row(found, type, payload, moment, event_id, node_id)
        if at is None and event_id is None:
            return self._append(
                found,
                self._chained,
                lambda unit: statements.append_result(row, sql.STREAM.insert_row(unit, sql.APPEND, row), created=True),
            )
        draft = Draft(row, is_replay=event_id is None)
        return self._append(found, self._writing, lambda unit: statements.append_one(unit, draft), repeatable=True)

    def append_many(self, run_id: str, events: Sequence[NewEvent]) -> builtins.list[Appended]:
        """Append 1 to 1,000 events, all or none, with consecutive numbers in this order.

        Events that are stored already, or that are twice in the batch, keep their first number. An invalid event is
        refused by its position, and then nothing is stored. Otherwise like `append`.
        """
        found, now = valid.identifier("run_id", run_id, _LIMITS.run_id), self._now()
        given = checks.batch(events)
        rows = checks.events(found, given, now)
        if all(one.event_id is None and one.at is None for one in given):
            return self._append(found, self._writing, lambda unit: statements.append_plain(unit, found, rows))
        drafts = [Draft(row, checks.is_replay(one)) for row, one in zip(rows, given, strict=True)]
        repeatable = all(one.event_id is not None or one.at is not None for one in given)
        return self._append(found, self._writing, lambda unit: statements.append(unit, drafts), repeatable=repeatable)

    def ensure_start(self, run_id: str, start_seq: int) -> int:
        """Make ``start_seq`` the number of a run's first event; return the next number of the run.

        For a run with events, a start at or before the next number changes nothing; a later start raises
        `InvalidValue`. A caller that resumes should continue from the returned number.
        """
        found = valid.identifier("run_id", run_id, _LIMITS.run_id)
        start = valid.number("start_seq", start_seq, most=2**53)
        values = {"run_id": found, "next_seq": start}

        def work(unit: Any) -> int:
            following = self._stream.lock_counter(unit, found)
            if start <= following:
                return following
            if unit.value(sql.LATEST, values) is not None or following:
                problem = f"must be at most {following}, the next number, because the run has events; got {start}"
                raise InvalidValue("start_seq", problem, most=following)
            return int(unit.value(self._stream.raise_to, values))

        return self._append(found, self._writing, work, repeatable=True)

    def get(self, run_id: str, seq: int) -> Event:
        """Return the event with this number. Raises `NotFound`."""
        values = {"run_id": valid.lookup_text("run_id", run_id), "seq": valid.number("seq", seq)}
        return self._get_row(sql.GET, values, kind=models.EVENT, key=(run_id, seq))

    def find(self, run_id: str, event_id: str) -> Event | None:
        """Return the event with this ``event_id``, or None."""
        values = {"run_id": valid.lookup_text("run_id", run_id), "event_id": valid.lookup_text("event_id", event_id)}
        return self._find(sql.FIND, values)

    def latest_seq(self, run_id: str) -> int | None:
        """Return the number of the run's last event, or None for a run without events."""
        found: int | None = self._value(sql.LATEST, {"run_id": valid.lookup_text("run_id", run_id)})
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
        """Return a page of a run's events in the order of their numbers, without the event ``after_seq`` itself.

        An unknown run has no events. A filter by rare types walks the run's events. Events whose payload cannot be read
        are listed in ``damaged``; the others are still returned.
        """
        listing = sql.LISTS[valid.word("order", order, models.ORDERS)]
        return self._page(listing, checks.filters(run_id, where, after_seq, page_token), limit, page_token)

    def count(self, run_id: str, *, where: EventFilter | None = None, after_seq: int | None = None) -> int:
        """Return how many events pass these filters: the total over all pages of `list`."""
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

        To resume, pass the last number that was seen: nothing is missed or repeated. The iteration ends after an event
        of ``stop_types``, after ``idle_timeout`` seconds without an event, or when ``stop`` is set. With ``until_end``
        it also ends with the run, after all events that were committed until then. With ``heartbeat`` it yields None
        after that many seconds without an event, so that a stream can show that it is alive. An unknown run has no
        events yet.

        Raises `NotFound` if events after ``after_seq`` were pruned; its key holds the first number that is left. Also
        raises `NotFound` for an unknown run with ``until_end``, and `StoreClosed`.
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
        """Follow 1 to 500 runs, each after its own number. Events of different runs have no order among them.

        With ``until_end`` the iteration ends when all runs have ended. Otherwise like `follow`.
        """
        refuse_in_transaction(self._scope)
        valid.number("cursors", len(cursors), least=1, most=valid.PAGE_LIMIT)
        if heartbeat is not None and not valid.seconds("heartbeat", heartbeat):
            raise InvalidValue("heartbeat", "must be more than 0 seconds")
        idle = None if idle_timeout is None else valid.seconds("idle_timeout", idle_timeout)
        interval = valid.seconds("poll_interval", poll_interval)
        follower = Follower(self._scope, cursors, where, stop_types, self._ended if until_end else None)
        return follower.events(idle, heartbeat, interval, valid.stop(stop))
