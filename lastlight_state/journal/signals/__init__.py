"""Signals: messages sent into a run from outside, numbered in the order they arrive. Each can be taken once.

A signal's ``seq`` starts at 0 and has no gaps within its run. A signal that arrives before anybody waits for it stays
stored until a consumer takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any, TypedDict

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.news.watch import Arrivals, TimeLimit, arrivals, refuse_in_transaction
from lastlight_state.db.repository import Context
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, Values
from lastlight_state.db.runs import Waking
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, InvalidValue
from lastlight_state.journal import models
from lastlight_state.journal.arguments import ANY, AnyType, SignalFilter
from lastlight_state.journal.models import SIGNALS
from lastlight_state.journal.records import Signal, SignalSent
from lastlight_state.journal.shared import Key, Numbered, watch_for
from lastlight_state.journal.signals import statements as sql

# Checks of arguments about signals, which become the parameters of statements.

_LIMITS = limits_of(SIGNALS)


class SignalDraft(TypedDict):
    """The row of a signal to store, which has no number yet."""

    run_id: str
    signal_name: str
    correlation_id: str | None
    received_at: datetime
    received_by: str | None
    signal_id: str | None
    payload: str


def signal(
    run_id: str,
    name: Any,
    payload: Any,
    correlation_id: Any,
    at: datetime | None,
    received_by: str | None,
    signal_id: str | None,
    now: datetime,
) -> SignalDraft:
    """Check a new signal, and return its columns."""
    return {
        "run_id": valid.identifier("run_id", run_id, _LIMITS.run_id),
        "signal_name": trimmed_name("signal_name", name),
        "correlation_id": trimmed_correlation("correlation_id", correlation_id),
        "received_at": now if at is None else aware_utc("at", at),
        "received_by": valid.optional("received_by", received_by, _LIMITS.received_by),
        "signal_id": valid.optional("signal_id", signal_id, _LIMITS.signal_id),
        "payload": codec.encode("payload", payload, max_bytes=_LIMITS.payload),
    }


def trimmed_name(where: str, name: Any) -> str:
    """Return the name of a signal without surrounding blanks."""
    return valid.identifier(where, name.strip() if isinstance(name, str) else name, _LIMITS.signal_name)


def trimmed_correlation(where: str, correlation_id: Any) -> str | None:
    """Return a correlation id without surrounding blanks; None if it is blank."""
    found: str | None = valid.optional(
        where,
        (correlation_id.strip() or None) if isinstance(correlation_id, str) else correlation_id,
        _LIMITS.correlation_id,
    )
    return found


def filters(run_id: str, where: SignalFilter | None, after_seq: int | None, page_token: str | None = None) -> Row:
    """Return the checked filters of a list of signals, by name."""
    asked = SignalFilter() if where is None else valid.argument_group("where", where, SignalFilter)
    if after_seq is not None and page_token is not None:
        raise InvalidValue("page_token", "must not be given together with after_seq")
    name = asked.signal_name
    return {
        "run_id": valid.lookup_text("run_id", run_id),
        "signal_name": None if name is None else trimmed_name("where.signal_name", name),
        **correlation("where.correlation_id", asked.correlation_id),
        "received_after": None
        if asked.received_after is None
        else aware_utc("where.received_after", asked.received_after),
        "after_seq": None if after_seq is None else valid.number("after_seq", after_seq, least=-1),
    }


def correlation(where: str, correlation_id: Any) -> Row:
    """Return the filter by a correlation id: none for `ANY`, and ``uncorrelated`` for None or a blank id."""
    if correlation_id is ANY:
        return {}
    found = trimmed_correlation(where, correlation_id)
    return {"uncorrelated": {}} if found is None else {"correlation_id": found}


class Signals(Numbered):
    """``store.journal.signals``: send signals to runs, take them and list them."""

    _stream = sql.STREAM

    def __init__(self, context: Context, waking: Waking) -> None:
        super().__init__(context)
        self._waking = waking

    def send(
        self,
        run_id: str,
        signal_name: str,
        payload: Any = None,
        *,
        correlation_id: str | None = None,
        at: datetime | None = None,
        received_by: str | None = None,
        signal_id: str | None = None,
    ) -> SignalSent:
        """Store a signal for a run; return its number, and whether this call stored it.

        If the run is paused and waits for this name, with this correlation id or with none, the same commit resumes the
        run: any worker may take it.

        A repetition with the same ``signal_id`` finds the first signal and returns ``created=False``. Other content
        under that id raises `AlreadyExists` with the stored ``seq``. With ``at`` and no id, a signal that is equal in
        everything counts as the same. Name and correlation id are trimmed, here and in every filter; a blank
        correlation id becomes None. Raises `NotFound` for an unknown run, `PayloadTooLarge` for a payload of more than
        64 KiB.
        """
        row = signal(run_id, signal_name, payload, correlation_id, at, received_by, signal_id, self._now())
        once = at is not None or signal_id is not None

        def work(unit: Unit) -> SignalSent:
            wake = self._waking(unit, run_id, row["signal_name"], row["correlation_id"], self._now())
            sent = _send_once(unit, row) if once else _send(unit, row)
            if wake is not None and sent.created:
                wake()
            return sent

        return self._append(run_id, self._writing, work, repeatable=once)

    def try_take(
        self,
        run_id: str,
        signal_name: str,
        *,
        consumer: str,
        correlation_id: str | AnyType | None = ANY,
        received_after: datetime | None = None,
        wait: float = 0,
        poll_interval: float = 0.5,
    ) -> Signal | None:
        """Take the oldest pending signal for ``consumer`` in one atomic step. Returns None if there is none.

        ``wait`` is how many seconds to wait for a signal, and ``poll_interval`` the seconds between polls. A waiting
        call holds no connection, and one statement polls for all waiting calls of a store. Raises `BackendBusy` if a
        lock blocks polling until the wait is over.

        ``consumer`` is a stable name of the step that waits, for example its node and iteration. Calling again with the
        same ``consumer``, even after a crash, returns the same signal. A consumer gets one signal of a run: a call for
        another signal name raises `AlreadyExists`. Concurrent consumers get different signals, the oldest first. A
        rollback makes a taken signal available again. Waiting inside a transaction raises `MisuseError`.
        """
        seconds = valid.seconds("wait", wait)
        valid.seconds("poll_interval", poll_interval)
        take = partial(self._try_take, run_id, signal_name, consumer, correlation_id, received_after)
        if not seconds:
            return take()
        refuse_in_transaction(self._scope)
        limit = TimeLimit(seconds)
        taken = limit.look(take)
        with self._arrivals(run_id, limit.seconds_left, poll_interval) as arrived:
            while taken is None and arrived.seconds_left:
                if arrived.wait(arrived.seconds_left):
                    taken = limit.look(take)
        return taken

    def _try_take(
        self,
        run_id: str,
        signal_name: str,
        consumer: str,
        correlation_id: str | AnyType | None,
        received_after: datetime | None,
    ) -> Signal | None:
        given = {
            "run_id": valid.lookup_text("run_id", run_id),
            "signal_name": trimmed_name("signal_name", signal_name),
            **correlation("correlation_id", correlation_id),
            **({} if received_after is None else {"received_after": aware_utc("received_after", received_after)}),
        }
        names = frozenset(given)
        values = {
            **{name: value for name, value in given.items() if name != "uncorrelated"},
            "consumer": valid.identifier("consumer", consumer, _LIMITS.consumed_by),
            "consumed_at": self._now(),
        }

        def look(unit: Unit) -> tuple[Signal | None, bool]:
            taken = unit.row(sql.TAKEN, values)
            return taken, taken is not None or unit.row(sql.oldest(names), values) is not None

        taken, is_there = self._reading(look)
        if taken is not None:
            return _check_taken(taken, values)
        if not is_there:
            return None
        return self._append(run_id, self._writing, lambda unit: self._take(unit, names, values), repeatable=True)

    def find_taken(self, run_id: str, consumer: str) -> Signal | None:
        """Return the signal of the run that this consumer took, or None."""
        values = {"run_id": valid.lookup_text("run_id", run_id), "consumer": valid.lookup_text("consumer", consumer)}
        return self._find(sql.TAKEN, values)

    def get(self, run_id: str, seq: int) -> Signal:
        """Return the signal with this number. Raises `NotFound`."""
        values = {"run_id": valid.lookup_text("run_id", run_id), "seq": valid.number("seq", seq)}
        return self._get_row(sql.GET, values, kind=models.SIGNAL, key=(run_id, seq))

    def find(self, run_id: str, signal_id: str) -> Signal | None:
        """Return the signal with this ``signal_id``, or None."""
        values = {"run_id": valid.lookup_text("run_id", run_id), "signal_id": valid.lookup_text("signal_id", signal_id)}
        return self._find(sql.FIND, values)

    def latest_seq(self, run_id: str) -> int | None:
        """Return the number of the run's last signal, or None for a run without signals."""
        found: int | None = self._value(sql.LATEST, {"run_id": valid.lookup_text("run_id", run_id)})
        return found

    def list(
        self,
        run_id: str,
        *,
        where: SignalFilter | None = None,
        after_seq: int | None = None,
        limit: int = models.PAGE,
        order: models.Order = "oldest_first",
        page_token: str | None = None,
    ) -> Page[Signal]:
        """Return a page of a run's signals, taken or not, in the order they arrived. An unknown run has no signals."""
        listing = sql.LISTS[valid.word("order", order, models.ORDERS)]
        return self._page(listing, filters(run_id, where, after_seq, page_token), limit, page_token)

    def count(self, run_id: str, *, where: SignalFilter | None = None) -> int:
        """Return how many of the run's signals pass these filters."""
        given = filters(run_id, where, None)
        return self._reading(lambda unit: sql.LISTS["oldest_first"].count(unit, given))

    def _arrivals(
        self, run_id: str, seconds: float, poll_interval: float, woken: Callable[[], object] | None = None
    ) -> AbstractContextManager[Arrivals[Key]]:
        return arrivals(watch_for(self._scope), (run_id, self._stream.name), seconds, poll_interval, woken=woken)

    def _take(self, unit: Unit, names: frozenset[str], values: Row) -> Signal | None:
        """Take a signal while the run's counter is locked, so that signals taken by earlier calls are seen."""
        self._stream.lock_counter(unit, values["run_id"])
        taken = unit.row(sql.TAKEN, values)
        if taken is not None:
            return _check_taken(taken, values)
        return unit.row(sql.take(names), values)


def _check_taken(taken: Signal, values: Row) -> Signal:
    """Return the signal that the consumer has, if it is of the name that it asks for."""
    if taken.signal_name != values["signal_name"]:
        problem = f"has taken a signal of another name, {taken.signal_name!r}"
        raise AlreadyExists("consumer", values["consumer"], problem=problem, seq=taken.seq)
    return taken


def _send(unit: Unit, row: SignalDraft) -> SignalSent:
    return SignalSent.of({"created": True, **sql.STREAM.insert_returning(unit, sql.SEND, row)})


def _send_once(unit: Unit, row: SignalDraft) -> SignalSent:
    """Insert a signal unless an equal one is stored.

    Locks before reading, to see what the previous lock holder stored.
    """
    sql.STREAM.lock_counter(unit, row["run_id"])
    if row["signal_id"] is not None:
        stored = unit.row(sql.FIND, row)
        if stored is not None and _compared_values(vars(stored)) != _compared_values(row, given=True):
            problem = "already exists with other content"
            raise AlreadyExists(models.SIGNAL, row["signal_id"], problem=problem, seq=stored.seq)
    else:
        known = unit.rows(sql.REPLAYED[row["correlation_id"] is not None], row)
        equal = (one for one in known if _compared_values(vars(one)) == _compared_values(row, given=True))
        stored = next(equal, None)
    if stored is None:
        return _send(unit, row)
    told = {"seq": stored.seq, "signal_id": stored.signal_id, "received_at": stored.received_at}
    return SignalSent.of({"created": False, **told})


def _compared_values(row: Values, *, given: bool = False) -> Any:
    """Return what two equal signals have in common, apart from their time. ``given``: the payload is text."""
    payload = codec.decode(row["payload"]) if given else row["payload"]
    return row["signal_name"], row["correlation_id"], row["received_by"], codec.canonical(payload)
