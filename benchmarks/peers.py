"""What others cost for the same: a durable append of 1 KB and the last 20, each against the bare driver.

All commit with ``synchronous=FULL``, which the others ship with. Files are in memory where the machine has such a
file system, so that a disk does not hide what the code costs. A library that is not installed is left out.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import orjson

from benchmarks.databases import sqlite_driver
from benchmarks.measure import Result, compare
from benchmarks.runs import TRIGGER
from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.messaging import ConversationKey

_MEMORY = Path("/dev/shm")  # noqa: S108 - a file system, not a file
ITEM = {"role": "user", "content": "The build is green again, and the colour is back. " * 20}
TEXT = orjson.dumps(ITEM).decode()
_INSERT = "INSERT INTO items (stream, text) VALUES ('s', ?)"
_LAST = "SELECT id, text FROM items WHERE stream = 's' ORDER BY id DESC LIMIT 20"
CALLS = 100


class Peer(NamedTuple):
    """The two calls of a library; ``awaited`` where they are coroutines."""

    append: Callable[[], Any]
    last: Callable[[], Any]
    awaited: bool = False


def results() -> Iterator[Result]:
    """Yield both calls of each library that is installed."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        for name, opened in _PEERS.items():
            try:
                with ExitStack() as stack:
                    yield from _compared(name, opened(Path(folder), stack), _driver(Path(folder), name, stack))
            except ImportError as error:
                print(f"{name}: left out ({error})", file=sys.stderr)


def _driver(folder: Path, name: str, stack: ExitStack) -> Any:
    driver = sqlite_driver(str(folder / f"bare-{name}.db"), "FULL")
    stack.callback(driver.close)
    driver.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, stream TEXT NOT NULL, text TEXT NOT NULL)")
    driver.execute("CREATE INDEX items_stream ON items (stream, id)")
    return driver


def _compared(name: str, peer: Peer, driver: Any) -> Iterator[Result]:
    def insert() -> None:
        driver.execute("BEGIN IMMEDIATE")
        driver.execute(_INSERT, (TEXT,))
        driver.execute("COMMIT")

    def select() -> None:
        for _, text in driver.execute(_LAST).fetchall():
            orjson.loads(text)

    loop = asyncio.new_event_loop()
    try:
        for verb, ours, raw in (("append 1 KB", peer.append, insert), ("last 20", peer.last, select)):
            work = _in_loop(loop, ours) if peer.awaited else _repeated(ours)
            found = compare(f"{verb}: {name}", "sqlite", work, _repeated(raw), goal=None, calls=1)
            yield found.divided(CALLS)
    finally:
        loop.close()


def _repeated(call: Callable[[], object]) -> Callable[[], None]:
    def work() -> None:
        for _ in range(CALLS):
            call()

    return work


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], Awaitable[object]]) -> Callable[[], None]:
    async def work() -> None:
        for _ in range(CALLS):
            await call()

    return lambda: loop.run_until_complete(work())


def _store(folder: Path, stack: ExitStack) -> StateStore:
    file = folder / f"{uuid4()}.db"
    return stack.enter_context(StateStore.open(str(file), state_dir=folder, durability="full"))


def _journal(folder: Path, stack: ExitStack) -> Peer:
    store = _store(folder, stack)
    events, run_id = store.journal.events, store.workflows.runs.create("audit", trigger=TRIGGER, phase="start").id
    return Peer(lambda: events.append(run_id, "log", ITEM), lambda: events.list(run_id, limit=20, order="newest_first"))


def _messages(folder: Path, stack: ExitStack) -> Peer:
    messaging = _store(folder, stack).messaging
    session = messaging.sessions.resume(ConversationKey("slack", "C1", "U1", "T1")).session.id
    return Peer(
        lambda: messaging.messages.append(session, role="user", content=TEXT),
        lambda: messaging.messages.history(session, limit=20),
    )


def _awaited_messages(folder: Path, stack: ExitStack) -> Peer:
    store = _store(folder, stack)
    session = store.messaging.sessions.resume(ConversationKey("slack", "C1", "U1", "T1")).session.id
    messages = AsyncStateStore(store).messaging.messages
    return Peer(
        lambda: messages.append(session, role="user", content=TEXT),
        lambda: messages.history(session, limit=20),
        awaited=True,
    )


def _aiosqlite(folder: Path, stack: ExitStack) -> Peer:
    aiosqlite: Any = importlib.import_module("aiosqlite")
    _driver(folder, "aiosqlite-own", stack)
    held: list[Any] = []

    async def connection() -> Any:
        if not held:
            held.append(await aiosqlite.connect(folder / "bare-aiosqlite-own.db", isolation_level=None))
            stack.callback(held[0].stop)
        return held[0]

    async def append() -> None:
        driver = await connection()
        await driver.execute("BEGIN IMMEDIATE")
        await driver.execute(_INSERT, (TEXT,))
        await driver.execute("COMMIT")

    async def last() -> list[object]:
        return [orjson.loads(text) for _, text in await (await connection()).execute_fetchall(_LAST)]

    return Peer(append, last, awaited=True)


def _openai_agents(folder: Path, stack: ExitStack) -> Peer:
    session = importlib.import_module("agents").SQLiteSession("s", folder / "agents.db")
    stack.callback(session.close)
    return Peer(lambda: session.add_items([ITEM]), lambda: session.get_items(20), awaited=True)


def _eventsourcing(folder: Path, stack: ExitStack) -> Peer:
    sqlite: Any = importlib.import_module("eventsourcing.sqlite")
    stored: Any = importlib.import_module("eventsourcing.persistence").StoredEvent
    store = sqlite.SQLiteDatastore(str(folder / "events.db"))
    stack.callback(store.close)
    recorder = sqlite.SQLiteApplicationRecorder(store)
    recorder.create_table()
    origin, versions = uuid4(), count(1)
    return Peer(
        lambda: recorder.insert_events([stored(origin, next(versions), "log", orjson.dumps(ITEM))]),
        lambda: [orjson.loads(event.state) for event in recorder.select_events(origin, desc=True, limit=20)],
    )


def _langgraph(folder: Path, stack: ExitStack) -> Peer:
    saver: Any = importlib.import_module("langgraph.checkpoint.sqlite").SqliteSaver
    base: Any = importlib.import_module("langgraph.checkpoint.base")
    kept = stack.enter_context(saver.from_conn_string(str(folder / "langgraph.db")))
    config: dict[str, Any] = {"configurable": {"thread_id": "s", "checkpoint_ns": ""}}
    steps = count(1)

    def append() -> None:
        checkpoint = {**base.empty_checkpoint(), "channel_values": {"messages": [ITEM]}}
        config.update(kept.put(config, checkpoint, {"source": "loop", "step": next(steps)}, {}))

    return Peer(append, lambda: list(kept.list({"configurable": {"thread_id": "s"}}, limit=20)))


_PEERS: dict[str, Callable[[Path, ExitStack], Peer]] = {
    "lastlight_state, journal": _journal,
    "lastlight_state, chat": _messages,
    "lastlight_state, chat, awaited": _awaited_messages,
    "aiosqlite, awaited": _aiosqlite,
    "OpenAI Agents SQLiteSession, awaited": _openai_agents,
    "eventsourcing recorder": _eventsourcing,
    "LangGraph SqliteSaver, a checkpoint of one message": _langgraph,
}
