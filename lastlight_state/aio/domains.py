"""The async forms of ``store.outputs``, ``messaging``, ``schedules``, ``checkpoints`` and ``receipts``."""

from __future__ import annotations

from lastlight_state.aio.blocks import block
from lastlight_state.aio.forward import Face, forward_read, forward_write
from lastlight_state.checkpoints import Checkpoints
from lastlight_state.lazy import Part
from lastlight_state.messaging import Messaging
from lastlight_state.messaging.messages import Messages
from lastlight_state.messaging.sessions import Sessions
from lastlight_state.outputs import Outputs
from lastlight_state.outputs.cache import Cache
from lastlight_state.outputs.catalog import Catalog
from lastlight_state.outputs.inputs import Inputs
from lastlight_state.outputs.query import Query
from lastlight_state.outputs.results import Results
from lastlight_state.outputs.snapshot import Snapshot
from lastlight_state.receipts import Receipts
from lastlight_state.schedules import Schedules
from lastlight_state.schedules.crons import Crons
from lastlight_state.schedules.fires import Fires
from lastlight_state.schedules.overrides import Overrides

# ``store.messaging``, async


class AsyncSessions(Face[Sessions]):
    """The async form of ``store.messaging.sessions``."""

    resume = forward_write(Sessions.resume)
    create = forward_write(Sessions.create)
    get = forward_read(Sessions.get)
    find = forward_read(Sessions.find)
    find_active = forward_read(Sessions.find_active)
    find_by_agent_session = forward_read(Sessions.find_by_agent_session)
    list = forward_read(Sessions.list)
    touch = forward_write(Sessions.touch)
    ensure_agent_session = forward_write(Sessions.ensure_agent_session)
    update = forward_write(Sessions.update)
    close = forward_write(Sessions.close)
    close_idle = forward_write(Sessions.close_idle)


class AsyncMessages(Face[Messages]):
    """The async form of ``store.messaging.messages``."""

    append = forward_write(Messages.append)
    append_many = forward_write(Messages.append_many)
    try_append_to_thread = forward_write(Messages.try_append_to_thread)
    history = forward_read(Messages.history)
    since = forward_read(Messages.since)
    list = forward_read(Messages.list)
    get = forward_read(Messages.get)
    find_by_platform_id = forward_read(Messages.find_by_platform_id)


class AsyncMessaging(Face[Messaging]):
    """The async form of ``store.messaging``."""

    #: Chat sessions, at most one active per user and place.
    sessions: Part[AsyncSessions] = Part("lastlight_state.aio.domains.AsyncSessions")
    #: Messages of chat sessions, in the order they were stored.
    messages: Part[AsyncMessages] = Part("lastlight_state.aio.domains.AsyncMessages")


# ``store.schedules``, async


class AsyncCrons(Face[Crons]):
    """The async form of ``store.schedules.crons``."""

    put = forward_write(Crons.put)
    sync = forward_write(Crons.sync)
    get = forward_read(Crons.get)
    find = forward_read(Crons.find)
    list = forward_read(Crons.list)
    retire = forward_write(Crons.retire)
    update_run = forward_write(Crons.update_run)
    take_due = forward_write(Crons.take_due)
    next_due_at = forward_read(Crons.next_due_at)
    replan = forward_write(Crons.replan)


class AsyncOverrides(Face[Overrides]):
    """The async form of ``store.schedules.overrides``."""

    put = forward_write(Overrides.put)
    get = forward_read(Overrides.get)
    find = forward_read(Overrides.find)
    list = forward_read(Overrides.list)
    clear = forward_write(Overrides.clear)
    resolve = forward_read(Overrides.resolve)


class AsyncFires(Face[Fires]):
    """The async form of ``store.schedules.fires``."""

    create = forward_write(Fires.create)
    heartbeat = forward_write(Fires.heartbeat)
    finish = forward_write(Fires.finish)
    release = forward_write(Fires.release)
    take_stale = forward_write(Fires.take_stale)
    get = forward_read(Fires.get)
    find = forward_read(Fires.find)
    list = forward_read(Fires.list)
    latest = forward_read(Fires.latest)
    health = forward_read(Fires.health)
    daily = forward_read(Fires.daily)
    running = block(Fires.running)


class AsyncSchedules(Face[Schedules]):
    """The async form of ``store.schedules``."""

    #: Crons: which target runs when, and which crons are due.
    crons: Part[AsyncCrons] = Part("lastlight_state.aio.domains.AsyncCrons")
    #: Operators' changes to single crons.
    overrides: Part[AsyncOverrides] = Part("lastlight_state.aio.domains.AsyncOverrides")
    #: Fires: one row for each time a cron ran.
    fires: Part[AsyncFires] = Part("lastlight_state.aio.domains.AsyncFires")


# ``store.checkpoints``, async


class AsyncCheckpoints(Face[Checkpoints]):
    """The async form of ``store.checkpoints``."""

    put = forward_write(Checkpoints.put)
    put_writes = forward_write(Checkpoints.put_writes)
    get = forward_read(Checkpoints.get)
    find = forward_read(Checkpoints.find)
    list = forward_read(Checkpoints.list)
    history = forward_read(Checkpoints.history)
    channel_histories = forward_read(Checkpoints.channel_histories)
    copy = forward_write(Checkpoints.copy)
    delete = forward_write(Checkpoints.delete)
    delete_runs = forward_write(Checkpoints.delete_runs)
    keep_latest = forward_write(Checkpoints.keep_latest)
    thread = forward_read(Checkpoints.thread)
    thread_of = forward_read(Checkpoints.thread_of)
    threads = forward_read(Checkpoints.threads)


# ``store.receipts``, async


class AsyncReceipts(Face[Receipts]):
    """The async form of ``store.receipts``."""

    get = forward_read(Receipts.get)
    find = forward_read(Receipts.find)
    list = forward_read(Receipts.list)
    begin = forward_write(Receipts.begin)
    resume = forward_write(Receipts.resume)
    step = forward_write(Receipts.step)
    finish = forward_write(Receipts.finish)


class AsyncInputs(Face[Inputs]):
    """The async form of ``store.outputs.inputs``."""

    ensure = forward_write(Inputs.ensure)
    override = forward_write(Inputs.override)
    get = forward_read(Inputs.get)
    find = forward_read(Inputs.find)
    list = forward_read(Inputs.list)


class AsyncCatalog(Face[Catalog]):
    """The async form of ``store.outputs.catalog``."""

    define = forward_write(Catalog.define)
    define_all = forward_write(Catalog.define_all)
    attach = forward_write(Catalog.attach)
    get = forward_read(Catalog.get)
    entry = forward_read(Catalog.entry)
    list = forward_read(Catalog.list)
    plan = forward_read(Catalog.plan)


class AsyncResults(Face[Results]):
    """The async form of ``store.outputs.results``."""

    put = forward_write(Results.put)
    get = forward_read(Results.get)
    find = forward_read(Results.find)
    find_latest = forward_read(Results.find_latest)
    list = forward_read(Results.list)
    load = forward_read(Results.load)
    count = forward_read(Results.count)
    withdraw = forward_write(Results.withdraw)
    history = forward_read(Results.history)


class AsyncCache(Face[Cache]):
    """The async form of ``store.outputs.cache``."""

    find = forward_read(Cache.find)
    ensure = forward_write(Cache.ensure)
    list = forward_read(Cache.list)
    clear = forward_write(Cache.clear)


class AsyncSnapshot(Face[Snapshot]):
    """The async form of ``store.outputs.snapshot``."""

    load = forward_read(Snapshot.load)


class AsyncQuery(Face[Query]):
    """The async form of ``store.outputs.query``."""

    rows = forward_read(Query.rows)
    explain = forward_read(Query.explain)


class AsyncOutputs(Face[Outputs]):
    """The async form of ``store.outputs``."""

    define = forward_write(Outputs.define)
    #: The inputs of runs, each stored once.
    inputs: Part[AsyncInputs] = Part("lastlight_state.aio.domains.AsyncInputs")
    #: Output schemas: a model becomes a table.
    catalog: Part[AsyncCatalog] = Part("lastlight_state.aio.domains.AsyncCatalog")
    #: Results of tasks: one row per run, node and iteration.
    results: Part[AsyncResults] = Part("lastlight_state.aio.domains.AsyncResults")
    #: Cached results, reusable while their schema is unchanged.
    cache: Part[AsyncCache] = Part("lastlight_state.aio.domains.AsyncCache")
    #: The input and all outputs of a run, read at one moment.
    snapshot: Part[AsyncSnapshot] = Part("lastlight_state.aio.domains.AsyncSnapshot")
    #: Read-only SQL for people.
    query: Part[AsyncQuery] = Part("lastlight_state.aio.domains.AsyncQuery")
