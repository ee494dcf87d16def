"""``store.outputs`` from coroutines."""

from __future__ import annotations

from lastlight_state.aio.forward import Face, reading, writing
from lastlight_state.lazy import Part
from lastlight_state.outputs import Outputs
from lastlight_state.outputs.cache import Cache
from lastlight_state.outputs.catalog import Catalog
from lastlight_state.outputs.inputs import Inputs
from lastlight_state.outputs.query import Query
from lastlight_state.outputs.results import Results
from lastlight_state.outputs.snapshot import Snapshot


class AsyncInputs(Face[Inputs]):
    """``store.outputs.inputs``"""

    ensure = writing(Inputs.ensure)
    override = writing(Inputs.override)
    get = reading(Inputs.get)
    find = reading(Inputs.find)
    list = reading(Inputs.list)


class AsyncCatalog(Face[Catalog]):
    """``store.outputs.catalog``"""

    define = writing(Catalog.define)
    define_all = writing(Catalog.define_all)
    attach = writing(Catalog.attach)
    get = reading(Catalog.get)
    entry = reading(Catalog.entry)
    list = reading(Catalog.list)
    plan = reading(Catalog.plan)


class AsyncResults(Face[Results]):
    """``store.outputs.results``"""

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
    """``store.outputs.cache``"""

    find = reading(Cache.find)
    ensure = writing(Cache.ensure)
    list = reading(Cache.list)
    clear = writing(Cache.clear)


class AsyncSnapshot(Face[Snapshot]):
    """``store.outputs.snapshot``"""

    load = reading(Snapshot.load)


class AsyncQuery(Face[Query]):
    """``store.outputs.query``"""

    rows = reading(Query.rows)
    explain = reading(Query.explain)


class AsyncOutputs(Face[Outputs]):
    """``store.outputs``"""

    define = writing(Outputs.define)
    #: What runs were given, stored once.
    inputs: Part[AsyncInputs] = Part("lastlight_state.aio.outputs.AsyncInputs")
    #: Output schemas: a model becomes a table.
    catalog: Part[AsyncCatalog] = Part("lastlight_state.aio.outputs.AsyncCatalog")
    #: What tasks produced: one row for each run, node and iteration.
    results: Part[AsyncResults] = Part("lastlight_state.aio.outputs.AsyncResults")
    #: Results that may be used again while their schema is the same.
    cache: Part[AsyncCache] = Part("lastlight_state.aio.outputs.AsyncCache")
    #: The input and all outputs of a run at one moment.
    snapshot: Part[AsyncSnapshot] = Part("lastlight_state.aio.outputs.AsyncSnapshot")
    #: Read-only SQL for people.
    query: Part[AsyncQuery] = Part("lastlight_state.aio.outputs.AsyncQuery")
