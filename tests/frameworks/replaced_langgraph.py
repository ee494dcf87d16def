"""A plugin of pytest that puts our saver and store in the place of LangGraph's, for LangGraph's own tests.

Whatever their tests open, a file, a database of Postgres or memory, is a scope of one database here. So ours answers
for the shipped savers and stores of each kind, and tests of other kinds are left out.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from secrets import token_hex  # nothing that their tests replace
from threading import Lock
from types import CodeType, FunctionType
from typing import Any, Self

import langgraph.checkpoint.memory
import langgraph.checkpoint.postgres.aio
import langgraph.checkpoint.sqlite.aio
import langgraph.store.memory
import langgraph.store.postgres
import langgraph.store.sqlite
import langgraph.store.sqlite.aio
import psycopg
import psycopg_pool
import pytest

from lastlight_state.aio import AsyncStateStore
from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.integrations.langgraph import LangGraphSaver
from lastlight_state.integrations.langgraph_store import LangGraphStore
from lastlight_state.settings import Settings
from lastlight_state.store import StateStore


class TickingClock:
    """The machine's clock in whole milliseconds, which gives each of them once and waits for the next.

    A test of the suites wants the second of two puts to be later, and ours can be in one millisecond.
    """

    def __init__(self) -> None:
        self._last = SYSTEM_CLOCK.now()
        self._lock = Lock()

    def now(self) -> datetime:
        """Return the present, later than the last answer."""
        with self._lock:
            while (moment := SYSTEM_CLOCK.now()) <= self._last:
                pass
            self._last = moment
            return moment


#: A test of the suites makes thousands of calls at once, which wait for their turn; its own time limit ends it.
_PATIENT = Settings(pool_timeout=240, queue_timeout=240)
STORE = AsyncStateStore(StateStore.open(os.environ["FRAMEWORKS_DATABASE"], settings=_PATIENT, clock=TickingClock()))
#: The fixtures that give a saver or a store, with those of their parameters that are ours here.
PARAMETERS = {
    "sync_checkpointer": {"sqlite", "sqlite_aes"},
    "async_checkpointer": {"sqlite_aio"},
    "sync_store": {"in_memory"},
    "async_store": {"in_memory"},
    "cache": {"memory"},  # not ours, and needed once
    "saver_name": {"base", "pool", "pipe", "aio_base", "aio_pool", "aio_pipe"},  # not the shallow one
}
#: What tests make ready by statements of their own, and nothing of ours needs.
UNNEEDED = (
    "CREATE DATABASE",
    "CREATE EXTENSION",
    "DELETE FROM",
    "DROP DATABASE",
    "DROP TABLE IF EXISTS store_migrations",
)


def scope_of(place: Any) -> str:
    """Return the scope that stands for a path, a URL or a connection; a new one for anything else."""
    named = getattr(place, "place", place)
    known = isinstance(named, str | Path) and str(named) != ":memory:"
    return str(uuid.uuid5(uuid.NAMESPACE_URL, str(named))) if known else token_hex()


class Connection:
    """A connection of Postgres by the name of its database, which tests make and drop."""

    def __init__(self, place: str, **_: Any) -> None:
        self.place = place.partition("?")[0]

    @classmethod
    def connect(cls, place: str, **_: Any) -> Self:
        """Return a connection."""
        return cls(place)

    def execute(self, statement: str, *_: Any) -> None:
        """Make or drop a database, or empty its tables: there is nothing to do."""
        if not statement.startswith(UNNEEDED):
            raise NotImplementedError(statement)

    @contextmanager
    def pipeline(self) -> Iterator[Self]:
        """Return what stands for a pipeline."""
        yield self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class AsyncConnection(Connection):
    """The same from coroutines."""

    @classmethod
    async def connect(cls, place: str, **_: Any) -> Self:  # type: ignore[override]
        """Return a connection."""
        return cls(place)

    async def execute(self, statement: str, *_: Any) -> None:  # type: ignore[override]
        """Make or drop a database, or empty its tables."""
        super().execute(statement)

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[Self]:  # type: ignore[override]
        """Return what stands for a pipeline."""
        yield self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class Saver(LangGraphSaver):
    """Our saver, made as the shipped ones are made."""

    MIGRATIONS = ()

    def __init__(self, conn: Any = None, pipe: Any = None, serde: Any = None, **_: Any) -> None:
        super().__init__(STORE, serde=serde, scope=scope_of(conn))

    @classmethod
    @contextmanager
    def from_conn_string(cls, place: str, **_: Any) -> Iterator[Self]:  # type: ignore[override]
        """Return a saver of a place."""
        yield cls(place)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class AsyncSaver(Saver):
    """The same from coroutines."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, place: str, **_: Any) -> AsyncIterator[Self]:  # type: ignore[override]
        """Return a saver of a place."""
        yield cls(place)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class Store(LangGraphStore):
    """Our store, made as the shipped ones are made."""

    MIGRATIONS = ()

    def __init__(self, conn: Any = None, *, index: Any = None, ttl: Any = None, **_: Any) -> None:
        super().__init__(STORE, index=index, ttl=ttl, scope=scope_of(conn))

    def _cursor(self) -> Connection:
        return AsyncConnection("") if isinstance(self, AsyncStore) else Connection("")

    @classmethod
    @contextmanager
    def from_conn_string(  # type: ignore[override]
        cls, place: str, *, index: Any = None, ttl: Any = None, **_: Any
    ) -> Iterator[Self]:
        """Return a store of a place."""
        yield cls(place, index=index, ttl=ttl)


class AsyncStore(Store):
    """The same from coroutines."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(  # type: ignore[override]
        cls, place: str, *, index: Any = None, ttl: Any = None, **_: Any
    ) -> AsyncIterator[Self]:
        """Return a store of a place."""
        yield cls(place, index=index, ttl=ttl)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class InMemorySaver(Saver):
    """Our saver in the place of one that some tests ask for snapshots."""


REPLACED: dict[Any, Any] = {
    langgraph.checkpoint.memory.InMemorySaver: InMemorySaver,
    langgraph.checkpoint.sqlite.SqliteSaver: Saver,
    langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver: AsyncSaver,
    langgraph.checkpoint.postgres.PostgresSaver: Saver,
    langgraph.checkpoint.postgres.aio.AsyncPostgresSaver: AsyncSaver,
    langgraph.store.memory.InMemoryStore: Store,
    langgraph.store.sqlite.SqliteStore: Store,
    langgraph.store.sqlite.aio.AsyncSqliteStore: AsyncStore,
    langgraph.store.postgres.PostgresStore: Store,
    langgraph.store.postgres.AsyncPostgresStore: AsyncStore,
    psycopg.Connection: Connection,
    psycopg.AsyncConnection: AsyncConnection,
    psycopg_pool.ConnectionPool: Connection,
    psycopg_pool.AsyncConnectionPool: AsyncConnection,
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that use a saver or a store, and give them ours."""
    kept = [one for one in items if isinstance(one, pytest.Function) and uses_ours(one)]
    config.hook.pytest_deselected(items=[one for one in items if one not in kept])
    items[:] = kept
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == "tests":
            for each, value in [*vars(module).items()]:
                if isinstance(value, type) and value in REPLACED:
                    setattr(module, each, REPLACED[value])


def uses_ours(item: pytest.Function) -> bool:
    """True if a test has a saver or store of a kind that is ours here, or makes one by itself."""
    given = getattr(item, "callspec", None)
    named = {} if given is None else {name: given.params.get(name) for name in PARAMETERS if name in given.params}
    if any(value not in PARAMETERS[name] for name, value in named.items()):
        return False
    fixtures = [defined[-1].func for defined in item._fixtureinfo.name2fixturedefs.values()]
    return any(makes_one(function, set()) for function in [item.function, *fixtures])


def makes_one(function: Any, seen: set[Any]) -> bool:
    """True if a function of a test names a class that is replaced, or calls one of theirs that does."""
    if not isinstance(function, FunctionType) or function in seen:
        return False
    seen.add(function)
    for name in names_in(function.__code__):
        value = function.__globals__.get(name)
        if isinstance(value, type) and value in REPLACED:
            return True
        is_theirs = str(getattr(value, "__module__", "")).startswith("tests.")
        if is_theirs and makes_one(getattr(value, "__wrapped__", value), seen):
            return True
    return False


def names_in(code: CodeType) -> set[str]:
    """Return the names that code uses, that of the functions in it too."""
    inner = (names_in(one) for one in code.co_consts if isinstance(one, CodeType))
    return {*code.co_names}.union(*inner)
