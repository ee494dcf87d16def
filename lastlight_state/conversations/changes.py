"""The feed of a session: a numbered entry for each change, for programs that show a conversation while it runs.

Numbers begin at 1, have no gaps and follow the order of commits. So a reader that continues after the last number that
it has seen misses nothing. The feed does not contain message bodies.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial

import sqlalchemy as sa

from lastlight_state.clock import aware_utc
from lastlight_state.conversations import words
from lastlight_state.conversations.lifecycle_records import Change
from lastlight_state.conversations.records import SessionSummary
from lastlight_state.conversations.shared.feeds import COLUMNS, GONE, TOPIC, watch_for
from lastlight_state.conversations.shared.sessions import SUMMARY
from lastlight_state.conversations.tables import CHANGES, SESSIONS
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.lists.pages import iterate, pages_of
from lastlight_state.db.news.watch import Arrivals, TimeLimit, arrivals, refuse_in_transaction
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import bind, number, statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict

# The statements of feeds.

_c = CHANGES.c
_OF = _c.session_id == bind("session_id", _c.session_id)

LIST = Listing(
    "session_changes",
    COLUMNS,
    row=Change,
    order=(_c.seq,),
    filters={"session_id": _OF, "after_seq": _c.seq > bind("after_seq", _c.seq)},
    descending=False,
)
#: Lists sessions updated since a time, in the order of their last updates.
UPDATED = Listing(
    "sessions_updated",
    SUMMARY,
    row=SessionSummary,
    order=(SESSIONS.c.updated_at, SESSIONS.c.id),
    filters={"since": SESSIONS.c.updated_at >= bind("since", SESSIONS.c.updated_at)},
    descending=False,
)
HEAD = statement_of(sa.select(SESSIONS.c.change_seq).where(SESSIONS.c.id == bind("session_id", SESSIONS.c.id)))
LOWEST = statement_of(sa.select(sa.func.min(_c.seq)).where(_OF))
_LAST = sa.select(_c.seq).where(_OF).order_by(_c.seq.desc()).limit(number(1)).scalar_subquery()
#: Raises a session's entry counter to the greatest stored number, if the counter is behind it.
SETTLE = statement_of(
    sa.update(SESSIONS)
    .where(SESSIONS.c.id == bind("session_id", SESSIONS.c.id), SESSIONS.c.change_seq < _LAST)
    .values(change_seq=_LAST)
)
TRIM = statement_of(sa.delete(CHANGES).where(_OF, _c.seq < bind("below", _c.seq)))


#: The longest expected delay between the time of an update and the moment when its commit is visible.
OVERLAP = timedelta(seconds=60)
#: Most seconds that a follower waits before it checks its ``stop`` event.
_SLICE = 0.5


class Changes(Repository):
    """``store.conversations.changes``"""

    def after(self, session_id: str, seq: int = 0, *, limit: int = 50, page_token: str | None = None) -> Page[Change]:
        """Return a page of a session's feed entries after number ``seq``, in order.

        Raises `NotFound`. Raises `Conflict` ``feed_trimmed`` if entries after ``seq`` were removed; its ``lowest`` is
        the lowest number left. Then read the session again, and continue from its ``change_seq``.
        """
        valid.page_limit(limit)
        given = {"session_id": valid.lookup_text("session_id", session_id), "after_seq": valid.number("seq", seq)}
        last = LIST.key_of(given, page_token)
        following = (seq if last is None else last[0]) + 1

        def read(unit: Unit) -> Page[Change]:
            found = LIST.page(unit, limit=limit, page_token=page_token, given=given)
            if not found.damaged and (not found.items or found.items[0].seq != following):
                self._refuse_trimmed(unit, session_id, following)
            return found

        return self._viewing(read)

    def head(self, session_id: str) -> int:
        """Return the number of the last entry in a session's feed. Raises `NotFound`."""
        return self._reading(lambda unit: _head(unit, valid.lookup_text("session_id", session_id)))

    def wait(
        self, session_id: str, seq: int = 0, *, timeout: float, poll_interval: float = 0.5, limit: int = 50
    ) -> Page[Change]:
        """Wait for feed entries after number ``seq``, and return a page of them as `after` does.

        The page is empty if ``timeout`` seconds pass without an entry. The feed is polled every ``poll_interval``
        seconds, by one statement for all waiting callers of a store. No connection is held between polls. Raises
        `MisuseError` inside a transaction, and `BackendBusy` if a lock blocks every poll until the timeout.
        """
        seconds, interval = valid.seconds("timeout", timeout), valid.seconds("poll_interval", poll_interval)
        refuse_in_transaction(self._scope)
        limited, look = TimeLimit(seconds), partial(self.after, session_id, seq, limit=limit)
        found = limited.look(look)
        if found.items or found.damaged or not limited.seconds_left:
            return found
        with self._arrivals(session_id, seq, limited.seconds_left, interval) as arrived:
            arrived.wait(arrived.seconds_left)
        return limited.look(look)

    def follow(
        self,
        session_id: str,
        seq: int = 0,
        *,
        idle_timeout: float | None = None,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> Iterator[Change]:
        """Yield each feed entry after number ``seq`` once, in order: stored entries, then new ones as they commit.

        Ends after ``idle_timeout`` seconds without an entry, or when ``stop`` is set. Raises the errors of `after`, and
        `NotFound` if the session is removed in the meantime.
        """
        refuse_in_transaction(self._scope)
        found, first = valid.lookup_text("session_id", session_id), valid.number("seq", seq)
        idle = None if idle_timeout is None else valid.seconds("idle_timeout", idle_timeout)
        interval = valid.seconds("poll_interval", poll_interval)
        return self._follow_session(found, first, idle, interval, valid.stop(stop))

    def subscribe(self, callback: Callable[[Change], object]) -> Callable[[], None]:
        """Call ``callback`` with each change that this store commits, after the commit. Returns a function that
        unsubscribes.

        The callback runs in the thread that committed. An exception in it is logged and counted, and affects neither
        the commit nor other callbacks. Changes of several threads may arrive out of the order of their numbers.
        """
        return self._listeners.subscribe(TOPIC, callback)

    def updated_sessions(
        self, since: datetime, *, limit: int = 50, page_token: str | None = None
    ) -> Page[SessionSummary]:
        """Return a page of the sessions updated at or after a minute before ``since``, in the order of their updates.

        The extra minute covers commits that arrive late. So a session may be returned twice; its ``change_seq`` shows
        whether it changed.
        """
        given = {"since": _overlap_start(aware_utc("since", since))}
        return self._page(UPDATED, given, limit, page_token)

    def follow_all(
        self,
        since: datetime,
        *,
        idle_timeout: float | None = None,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> Iterator[SessionSummary]:
        """Yield sessions that changed since ``since``, then sessions as they change.

        A session is yielded again whenever its ``change_seq`` has grown. Polls `updated_sessions` every
        ``poll_interval`` seconds. Ends after ``idle_timeout`` seconds without a change, or when ``stop`` is set. Misses
        a session that is stored with an ``updated_at`` more than a minute ago, as an import may store it.
        """
        refuse_in_transaction(self._scope)
        idle = None if idle_timeout is None else valid.seconds("idle_timeout", idle_timeout)
        interval, first = valid.seconds("poll_interval", poll_interval), aware_utc("since", since)
        return self._all_followed(first, idle, interval, valid.stop(stop))

    def trim(self, session_id: str, *, below: int) -> int:
        """Delete the entries of a session's feed that have numbers below ``below``. Return how many were deleted.

        A reader that requests deleted entries gets the `Conflict` of `after`.
        """
        this = {"session_id": valid.lookup_text("session_id", session_id)}
        values = {**this, "below": valid.number("below", below)}

        def trim(unit: Unit) -> int:
            unit.change(SETTLE, this)  # a deleted entry no longer blocks the reuse of its number
            return unit.change(TRIM, values)

        return self._once(trim, repeatable=True)

    def _arrivals(
        self,
        session_id: str,
        seq: int,
        seconds: float,
        interval: float,
        woken: Callable[[], object] | None = None,
    ) -> AbstractContextManager[Arrivals[str]]:
        return arrivals(watch_for(self._scope), session_id, seconds, interval, known=seq, woken=woken)

    def _follow_session(
        self, session_id: str, seq: int, idle: float | None, interval: float, stop: threading.Event
    ) -> Iterator[Change]:
        watch, heard = watch_for(self._scope), time.monotonic()
        with watch.waiting_for([session_id], interval):
            known = {session_id: seq}
            head = max(seq, self.head(session_id))
            while not stop.is_set():
                if head > known[session_id]:
                    for change in self._stored_changes(session_id, known[session_id]):
                        yield change
                        head, heard = max(head, change.seq), time.monotonic()
                    known[session_id] = head
                if idle is not None and time.monotonic() - heard >= idle:
                    return
                left = _SLICE if idle is None else min(_SLICE, heard + idle - time.monotonic())
                head = watch.wait_for_growth(known, max(left, 0.0)).get(session_id, head)
                if head == GONE:
                    raise valid.not_found(words.SESSION, session_id)

    def _all_followed(
        self, since: datetime, idle: float | None, interval: float, stop: threading.Event
    ) -> Iterator[SessionSummary]:
        heard, known = time.monotonic(), dict[str, tuple[int, datetime]]()
        while not stop.is_set():
            began = self._now()
            for session in iterate(self.updated_sessions, since, limit=valid.PAGE_LIMIT):
                seen, _ = known.get(session.id, (-1, None))
                known[session.id] = session.change_seq, session.updated_at
                if session.change_seq > seen:
                    yield session
                    heard = time.monotonic()
            newest = max((at for _, at in known.values()), default=since)
            since = max(since, min(began, newest), began - OVERLAP)  # moves on even if nothing changes
            known = {key: (seq, at) for key, (seq, at) in known.items() if at >= _overlap_start(since)}
            if idle is not None and time.monotonic() - heard >= idle:
                return
            stop.wait(interval if idle is None else min(interval, max(0.0, heard + idle - time.monotonic())))

    def _stored_changes(self, session_id: str, seq: int) -> Iterator[Change]:
        for page in pages_of(self.after, session_id, seq, limit=valid.PAGE_LIMIT):
            yield from page.items

    @staticmethod
    def _refuse_trimmed(unit: Unit, session_id: str, following: int) -> None:
        head = _head(unit, session_id)
        if head >= following:
            lowest = unit.value(LOWEST, {"session_id": session_id}) or head + 1
            problem = f"entries after {following - 1} were removed; {lowest} is the lowest that is left"
            raise Conflict(f"feed of session {session_id!r:.80}: {problem}", code=words.FEED_TRIMMED, lowest=lowest)


def _overlap_start(since: datetime) -> datetime:
    """Return ``since`` less `OVERLAP`, but no time before year 1. Thus commits that arrive late are read, too."""
    return max(since, datetime.min.replace(tzinfo=UTC) + OVERLAP) - OVERLAP


def _head(unit: Unit, session_id: str) -> int:
    head: int | None = unit.value(HEAD, {"session_id": session_id})
    if head is None:
        raise valid.not_found(words.SESSION, session_id)
    return head
