"""What owns threads, files or connections and is dropped without an end: nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.busy import busy
from support.conversations.talk import begun
from support.garbage import collect, collect_and_freeze
from support.run_log.logs import id_of, run_log, start
from support.workflows.steps import started

from lastlight_state import AsyncStateStore, Settings, StateStore
from lastlight_state.errors import BackendBusy, UnsavedEvents
from lastlight_state.files.agent_log import AgentLog, Slug
from lastlight_state.files.jsonl.writer import LineWriter
from lastlight_state.files.mailbox import Mailboxes
from lastlight_state.ids import new_id
from lastlight_state.testing import Database
from lastlight_state.worker import Worker

#: How many of each kind are dropped.
MANY = 6
#: Within so many seconds their threads end.
SOON = 5.0

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def few_objects() -> None:
    """Let the many collections of a test look at what the test makes, and at nothing before."""
    collect_and_freeze()


def descriptors() -> int:
    """Return how many files and sockets this process has open."""
    return len(os.listdir("/dev/fd"))  # noqa: PTH208 - names, not paths


@contextmanager
def nothing_left(*, spared: int = 0) -> Iterator[None]:
    """Fail where threads or descriptors are left that were not there before.

    ``spared`` is how many descriptors may be kept for later: by SQLite, because the process has the file open, and by a
    pool. It is less than `MANY`.
    """
    collect()
    threads, files = set(threading.enumerate()), descriptors() + spared
    yield
    end = time.monotonic() + SOON
    while True:
        collect()
        left = [thread.name for thread in threading.enumerate() if thread not in threads]
        if (not left and descriptors() <= files) or time.monotonic() > end:
            break
        time.sleep(0.01)
    assert (left, max(0, descriptors() - files)) == ([], 0)


def pool(database: Database) -> int:
    """Return how many connections a store may open besides and keep, on Postgres."""
    return Settings().pool_size if database.name == "postgresql" else 0


def journal_writer(store: StateStore, run_id: str) -> Any:
    """A writer with an event that it may not have stored yet."""
    writer = store.journal.writer()
    writer.append(run_id, "a")
    return writer


def first_of(follower: Iterator[Any]) -> Iterator[Any]:
    """A follower that has given something."""
    next(follower)
    return follower


def entered(block: Any) -> Any:
    """A block that is entered, and never left."""
    block.__enter__()
    return block


def event_follower(store: StateStore, run_id: str) -> Any:
    store.journal.events.append(run_id, "a")
    return first_of(store.journal.events.follow(run_id, heartbeat=0.05))


def change_follower(store: StateStore, run_id: str) -> Any:
    return first_of(store.conversations.changes.follow(begun(store, "hi", branch_id=new_id()).session_id))


def ended_worker(store: StateStore, _: str) -> Any:
    """A worker that looked once for what it may run."""
    worker = Worker(store, owner="w")
    worker.workflow("nothing")(lambda _: None)
    threading.Timer(0.05, worker.stop).start()
    worker.run()
    for thread in threading.enumerate():
        if thread.name == "lastlight-worker":  # its last look may need a further connection, which the store keeps
            thread.join(SOON)
    return worker


#: What a store gives, by name.
OF_STORE: dict[str, Callable[[StateStore, str], Any]] = {
    "a journal writer": journal_writer,
    "a follower of events": event_follower,
    "a follower of changes": change_follower,
    "a follower of the timeline": lambda store, run_id: first_of(store.maintenance.timeline.follow(run_id)),
    "a block of a driven run": lambda store, _: entered(
        store.driving(store.workflows.claims.take(started(store).id, owner="w"))
    ),
    "a wait for work": lambda store, _: store.workflows.queue.wait(cap=0, timeout=0.05),
    "a worker": ended_worker,
    "a transaction": lambda store, _: entered(store.transaction()),
    "a view": lambda store, _: entered(store.view()),
}


@pytest.mark.parametrize("make", OF_STORE.values(), ids=OF_STORE.keys())
def test_what_a_store_gave_leaves_nothing_when_it_is_dropped(
    database: Database, make: Callable[[StateStore, str], Any]
) -> None:
    """house H-76: one after the other, while the store goes on."""
    store = database.open()
    run_id = started(store).id
    make(store, run_id)  # connections that stay open, and what loads at its first use
    store.workflows.runs.list()
    with nothing_left(spared=pool(database)):
        for _ in range(MANY):
            make(store, run_id)
            collect()
    assert store.workflows.runs.get(run_id).id == run_id


@pytest.mark.parametrize("make", OF_STORE.values(), ids=OF_STORE.keys())
@pytest.mark.parametrize("closed", [True, False])
def test_what_a_dropped_store_gave_leaves_nothing(
    database: Database, make: Callable[[StateStore, str], Any], *, closed: bool
) -> None:
    """house H-76: the store was closed before, or is dropped with it."""
    with database.open() as before:  # and closed: SQLite keeps descriptors while the process has the file open
        run_id = started(before).id
        make(before, run_id)
    with nothing_left():
        for _ in range(MANY // 3):
            store = StateStore.open(database.url)
            kept = make(store, run_id)
            if closed and make not in (OF_STORE["a transaction"], OF_STORE["a view"]):
                store.close()
            del kept, store
            collect()


@pytest.mark.parametrize("closed", [True, False])
def test_a_journal_writer_that_is_dropped_under_a_held_lock_ends_with_it(database: Database, *, closed: bool) -> None:
    """house H-76, journal W-1: its events are stored if its store is still open."""
    store = database.open(settings=Settings(busy_timeout=0.05, lock_timeout=0.05, retry_seconds=0.1, queue_timeout=1.0))
    run_id = started(store).id
    store.workflows.runs.list()
    with nothing_left(spared=2 + pool(database)), busy(database) as holder:
        for _ in range(MANY // 3):
            journal_writer(store, run_id)
        collect()
        if closed:
            with suppress(UnsavedEvents, BackendBusy):
                store.close()
        holder.execute("ROLLBACK")
    if not closed:
        end = time.monotonic() + SOON
        while store.journal.events.count(run_id) < MANY // 3 and time.monotonic() < end:
            time.sleep(0.05)
        assert store.journal.events.count(run_id) == MANY // 3


async def _awaited_writer(store: AsyncStateStore, run_id: str) -> Any:
    writer = store.journal.writer()
    await writer.append(run_id, "a")
    return writer


async def _awaited_follower(store: AsyncStateStore, run_id: str) -> Any:
    await store.journal.events.append(run_id, "a")
    follower = store.journal.events.follow(run_id)
    await anext(follower)
    return follower


async def _awaited_transaction(store: AsyncStateStore, run_id: str) -> Any:
    block = store.transaction()
    tx = await block.__aenter__()
    await tx.workflows.runs.get(run_id)
    return block


@pytest.mark.parametrize("make", [_awaited_writer, _awaited_follower, _awaited_transaction])
def test_what_an_async_store_gave_leaves_nothing_when_its_loop_ends(database: Database, make: Any) -> None:
    """house H-76: and the store with it, which nobody closed."""
    with database.open() as before:
        run_id = started(before).id

    async def drop() -> None:
        store = await AsyncStateStore.open(database.url)
        await make(store, run_id)

    asyncio.run(drop())
    with nothing_left():
        for _ in range(MANY // 3):
            asyncio.run(drop())
            collect()


def test_what_is_about_files_leaves_nothing_when_it_is_dropped(tmp_path: Path) -> None:
    """house H-76: writers of lines, of sessions and runs, and both sides of a mailbox."""
    boxes = Mailboxes(tmp_path / "boxes")
    boxes.create("g", "s")
    with nothing_left():
        for number in range(MANY):
            LineWriter(tmp_path / "a.jsonl").append([b"{}\n"])
            AgentLog(tmp_path / "agents").writer.open(
                place=Slug("p"), session_id=f"s-{number}", prompt="go"
            ).__enter__()
            start(run_log(tmp_path / "runs"), id_of(number))
            boxes.host("g", "s").outbox.list_waiting()
            boxes.agent("g", "s").inbox.peek()
            collect()
