"""The async forms of ``store.outputs``, ``messaging``, ``schedules``, ``checkpoints`` and ``receipts``."""

from __future__ import annotations

from lastlight_state.aio.blocks import block
from lastlight_state.aio.forward import Face, reading, writing
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

    resume = writing(Sessions.resume)
    create = writing(Sessions.create)
    get = reading(Sessions.get)
    find = reading(Sessions.find)
    find_active = reading(Sessions.find_active)
    find_by_agent_session = reading(Sessions.find_by_agent_session)
    list = reading(Sessions.list)
    touch = writing(Sessions.touch)
    ensure_agent_session = writing(Sessions.ensure_agent_session)
    update = writing(Sessions.update)
    close = writing(Sessions.close)
    close_idle = writing(Sessions.close_idle)


class AsyncMessages(Face[Messages]):
    """The async form of ``store.messaging.messages``."""

    append = writing(Messages.append)
    append_many = writing(Messages.append_many)
    try_append_to_thread = writing(Messages.try_append_to_thread)
    history = reading(Messages.history)
    since = reading(Messages.since)
    list = reading(Messages.list)
    get = reading(Messages.get)
    find_by_platform_id = reading(Messages.find_by_platform_id)


class AsyncMessaging(Face[Messaging]):
    """The async form of ``store.messaging``."""

    #: Chat sessions, at most one active per user and place.
    sessions: Part[AsyncSessions] = Part("lastlight_state.aio.domains.AsyncSessions")
    #: Messages of chat sessions, in the order they were stored.
    messages: Part[AsyncMessages] = Part("lastlight_state.aio.domains.AsyncMessages")


# ``store.schedules``, async


class AsyncCrons(Face[Crons]):
    """The async form of ``store.schedules.crons``."""

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
    """The async form of ``store.schedules.overrides``."""

    put = writing(Overrides.put)
    get = reading(Overrides.get)
    find = reading(Overrides.find)
    list = reading(Overrides.list)
    clear = writing(Overrides.clear)
    resolve = reading(Overrides.resolve)


class AsyncFires(Face[Fires]):
    """The async form of ``store.schedules.fires``."""

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
    daily = reading(Fires.daily)
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

    put = writing(Checkpoints.put)
    put_writes = writing(Checkpoints.put_writes)
    get = reading(Checkpoints.get)
    find = reading(Checkpoints.find)
    list = reading(Checkpoints.list)
    history = reading(Checkpoints.history)
    channel_histories = reading(Checkpoints.channel_histories)
    copy = writing(Checkpoints.copy)
    delete = writing(Checkpoints.delete)
    delete_runs = writing(Checkpoints.delete_runs)
    keep_latest = writing(Checkpoints.keep_latest)
    thread = reading(Checkpoints.thread)
    thread_of = reading(Checkpoints.thread_of)
    threads = reading(Checkpoints.threads)


# ``store.receipts``, async


class AsyncReceipts(Face[Receipts]):
    """The async form of ``store.receipts``."""

    get = reading(Receipts.get)
    find = reading(Receipts.find)
    list = reading(Receipts.list)
    begin = writing(Receipts.begin)
    resume = writing(Receipts.resume)
    step = writing(Receipts.step)
    finish = writing(Receipts.finish)


class AsyncInputs(Face[Inputs]):
    """The async form of ``store.outputs.inputs``."""

    ensure = writing(Inputs.ensure)
    override = writing(Inputs.override)
    get = reading(Inputs.get)
    find = reading(Inputs.find)
    list = reading(Inputs.list)


class AsyncCatalog(Face[Catalog]):
    """The async form of ``store.outputs.catalog``."""

    define = writing(Catalog.define)
    define_all = writing(Catalog.define_all)
    attach = writing(Catalog.attach)
    get = reading(Catalog.get)
    entry = reading(Catalog.entry)
    list = reading(Catalog.list)
    plan = reading(Catalog.plan)


class AsyncResults(Face[Results]):
    """The async form of ``store.outputs.results``."""

    put = writing(Results.put)
    get = reading(Results.get)
    find = reading(Results.find)
    find_latest = reading(Results.find_latest)
    list = reading(Results.list)
    load = reading(Results.load)
    count = reading(Results.count)
    withdraw = writing(Results.withdraw)
    history = reading(Results.history)


class AsyncCache(Face[Cache]):
    """The async form of ``store.outputs.cache``."""

    find = reading(Cache.find)
    ensure = writing(Cache.ensure)
    list = reading(Cache.list)
    clear = writing(Cache.clear)


class AsyncSnapshot(Face[Snapshot]):
    """The async form of ``store.outputs.snapshot``."""

    load = reading(Snapshot.load)


class AsyncQuery(Face[Query]):
    """The async form of ``store.outputs.query``."""

    rows = reading(Query.rows)
    explain = reading(Query.explain)


class AsyncOutputs(Face[Outputs]):
    """The async form of ``store.outputs``."""

    define = writing(Outputs.define)
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
