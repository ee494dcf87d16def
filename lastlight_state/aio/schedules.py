"""``store.schedules`` from coroutines."""

from __future__ import annotations

from lastlight_state.aio.blocks import block
from lastlight_state.aio.forward import Face, reading, writing
from lastlight_state.lazy import Part
from lastlight_state.schedules import Schedules
from lastlight_state.schedules.crons import Crons
from lastlight_state.schedules.fires import Fires
from lastlight_state.schedules.overrides import Overrides


class AsyncCrons(Face[Crons]):
    """``store.schedules.crons``"""

    put = writing(Crons.put)
    sync = writing(Crons.sync)
    get = reading(Crons.get)
    find = reading(Crons.find)
    list = reading(Crons.list)
    retire = writing(Crons.retire)
    update_run = writing(Crons.update_run)
    take_due = writing(Crons.take_due)
    next_due_at = reading(Crons.next_due_at)
    replan = writing(Crons.replan)


class AsyncOverrides(Face[Overrides]):
    """``store.schedules.overrides``"""

    put = writing(Overrides.put)
    get = reading(Overrides.get)
    find = reading(Overrides.find)
    list = reading(Overrides.list)
    clear = writing(Overrides.clear)
    resolve = reading(Overrides.resolve)


class AsyncFires(Face[Fires]):
    """``store.schedules.fires``"""

    create = writing(Fires.create)
    heartbeat = writing(Fires.heartbeat)
    finish = writing(Fires.finish)
    release = writing(Fires.release)
    take_stale = writing(Fires.take_stale)
    get = reading(Fires.get)
    find = reading(Fires.find)
    list = reading(Fires.list)
    latest = reading(Fires.latest)
    health = reading(Fires.health)
    running = block(Fires.running)


class AsyncSchedules(Face[Schedules]):
    """``store.schedules``"""

    #: Crons: what runs when, and what is due.
    crons: Part[AsyncCrons] = Part("lastlight_state.aio.schedules.AsyncCrons")
    #: What operators changed about single crons.
    overrides: Part[AsyncOverrides] = Part("lastlight_state.aio.schedules.AsyncOverrides")
    #: What ran: one row for each fire of a cron.
    fires: Part[AsyncFires] = Part("lastlight_state.aio.schedules.AsyncFires")
