"""``store.journal`` from coroutines."""

from __future__ import annotations

from lastlight_state.aio.forward import Face, reading, writing
from lastlight_state.journal import Journal
from lastlight_state.journal.events import Events
from lastlight_state.journal.signals import Signals
from lastlight_state.lazy import Part


class AsyncEvents(Face[Events]):
    """``store.journal.events``"""

    append = writing(Events.append)
    append_many = writing(Events.append_many)
    ensure_start = writing(Events.ensure_start)
    get = reading(Events.get)
    find = reading(Events.find)
    latest_seq = reading(Events.latest_seq)
    list = reading(Events.list)
    count = reading(Events.count)


class AsyncSignals(Face[Signals]):
    """``store.journal.signals``"""

    send = writing(Signals.send)
    try_take = writing(Signals.try_take)
    find_taken = reading(Signals.find_taken)
    get = reading(Signals.get)
    find = reading(Signals.find)
    latest_seq = reading(Signals.latest_seq)
    list = reading(Signals.list)
    count = reading(Signals.count)


class AsyncJournal(Face[Journal]):
    """``store.journal``"""

    #: What happened in runs, numbered without gaps.
    events: Part[AsyncEvents] = Part("lastlight_state.aio.journal.AsyncEvents")
    #: Messages sent into runs from outside, each taken once.
    signals: Part[AsyncSignals] = Part("lastlight_state.aio.journal.AsyncSignals")
