"""A worker is seen while it works, drives what it says that it drives, and takes itself off at its end."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest
from support.preloaded import Program

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.errors import BackendUnavailable
from lastlight_state.testing import Database
from lastlight_state.worker import AsyncJob, AsyncWorker, Job, Worker, common
from lastlight_state.workflows import Provenance, RunOptions, Trigger, WorkerStatus
from lastlight_state.workflows.workers import Workers

SECONDS = 30


@pytest.fixture
def store(database: Database) -> Iterator[StateStore]:
    """A store on each backend, with the time of the machine."""
    with StateStore.open(database.url) as opened:
        yield opened


def offered(store: StateStore, status: Any = "running", **options: Any) -> str:
    """Return a run for a worker."""
    made = RunOptions(status=status, offered=status == "running", **options)
    return store.workflows.runs.create("review", trigger=Trigger("t"), phase="p", options=made).id


def until(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class AtWork:
    """A worker of threads or of tasks whose jobs wait for ``go``."""

    def __init__(self, database: Database, kind: str, **settings: Any) -> None:
        self.go = threading.Event()
        self._ready: list[Any] = []
        self.worker: AsyncWorker | None = None
        work = self._threads if kind == "threads" else lambda **given: asyncio.run(self._tasks(**given))
        self._thread = threading.Thread(target=work, kwargs={"url": database.url, **settings})

    def _threads(self, url: str, **settings: Any) -> None:
        with StateStore.open(url) as store:
            worker = Worker(store, **settings)
            worker.workflow("review")(self._wait)
            worker.workflow("build")(self._wait)
            self._ready.append(worker.stop)
            worker.run()

    def _wait(self, job: Job) -> None:
        assert self.go.wait(SECONDS)

    async def _tasks(self, url: str, **settings: Any) -> None:
        async with await AsyncStateStore.open(url) as store:
            worker = self.worker = AsyncWorker(store, **settings)
            loop = asyncio.get_running_loop()

            async def wait(_: AsyncJob) -> None:
                await asyncio.to_thread(self.go.wait, SECONDS)

            worker.workflow("review")(wait)
            worker.workflow("build")(wait)
            self._ready.append(lambda: loop.call_soon_threadsafe(worker.stop))
            await worker.run()

    def __enter__(self) -> Self:
        self._thread.start()
        until(lambda: self._ready)
        return self

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self._ready[0]()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


def seen(store: StateStore) -> tuple[WorkerStatus, ...]:
    """Return the workers that were seen."""
    return store.workflows.workers.list().items


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_a_worker_is_seen_while_it_works_and_not_after(database: Database, store: StateStore, kind: str) -> None:
    """workflows W-217."""
    with AtWork(database, kind, slots=2) as work:
        run_id = offered(store)
        until(lambda: [worker.run_ids for worker in seen(store)] == [(run_id,)])
        [worker] = seen(store)
        assert (worker.pid, worker.slots, worker.workflow_names) == (os.getpid(), 2, ("build", "review"))
        assert (worker.app_versions, worker.is_gone) == (None, False)
        claim = store.workflows.claims.find(run_id)
        assert claim is not None
        assert claim.owner == worker.name
        work.go.set()
        until(lambda: store.workflows.runs.get(run_id).status == "succeeded")
    assert seen(store) == ()


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_a_worker_says_that_it_is_there_with_its_looks_and_not_with_each(
    database: Database, store: StateStore, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """workflows W-217: twenty runs cost no write beside the first, and idle looks renew it."""
    said: list[float] = []
    announce = Workers.announce

    def counting(self: Workers, *given: Any, **named: Any) -> None:
        said.append(time.monotonic())
        announce(self, *given, **named)

    monkeypatch.setattr(Workers, "announce", counting)
    with AtWork(database, kind) as work:
        work.go.set()
        runs = [offered(store) for _ in range(20)]
        until(lambda: all(store.workflows.runs.get(run_id).status == "succeeded" for run_id in runs))
        assert len(said) == 1
    monkeypatch.setattr(common, "SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(common, "SEEN_SECONDS", 0.05)
    with AtWork(database, kind):
        until(lambda: len(said) > 3)


@pytest.mark.logs("lists of workers do not show that this one is there")
@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_a_worker_that_cannot_be_listed_works_all_the_same(
    database: Database, store: StateStore, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """workflows W-217."""

    def refusing(*_: object, **__: object) -> None:
        raise BackendUnavailable("permission denied for table workflow_workers")

    monkeypatch.setattr(Workers, "announce", refusing)
    monkeypatch.setattr(Workers, "remove", refusing)
    with AtWork(database, kind) as work:
        work.go.set()
        run_id = offered(store)
        until(lambda: store.workflows.runs.get(run_id).status == "succeeded")


def test_a_full_worker_of_tasks_rests_until_a_job_ends(
    database: Database, store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """workflows W-187: the wait for work that has ended wakes it once, and not again and again."""
    looks: list[int] = []
    look = common.Registry._look

    async def counting(self: Any) -> float:
        looks.append(len(self._jobs))
        return await look(self)

    monkeypatch.setattr(common.Registry, "_look", counting)
    with AtWork(database, "tasks") as work:
        until(lambda: work.worker is not None and work.worker._waiting is not None)
        run_id = offered(store)
        until(lambda: store.workflows.claims.find(run_id))
        before = len(looks)
        for _ in range(20):
            assert store.workflows.runs.get(run_id).status == "running"
        assert len(looks) <= before + 2


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_a_worker_leaves_runs_of_other_versions_alone(database: Database, store: StateStore, kind: str) -> None:
    """workflows W-218: offered and queued ones, and drives those without a version."""
    runs = {
        (version, status): offered(store, status=status, provenance=Provenance(app_version=version))
        for version in ("1", "2", None)
        for status in ("running", "queued")
    }
    with AtWork(database, kind, slots=6, app_versions={"1"}) as work:
        until(lambda: seen(store))
        assert seen(store)[0].app_versions == ("1",)
        work.go.set()
        mine = [run_id for (version, _), run_id in runs.items() if version != "2"]
        until(lambda: all(store.workflows.runs.get(run_id).status == "succeeded" for run_id in mine))
    left = {status: store.workflows.runs.get(runs["2", status]) for status in ("running", "queued")}
    assert {status: (run.status, run.claim_epoch) for status, run in left.items()} == {
        "running": ("running", 0),
        "queued": ("queued", 0),
    }


PROGRAM = """
from lastlight_state import StateStore
from lastlight_state.worker import Worker

with StateStore.open() as store:
    worker = Worker(store, owner="doomed")
    worker.workflow("review")(lambda job: __import__("time").sleep(60))
    worker.run()
"""


def test_a_killed_worker_stays_on_the_list_until_it_counts_as_gone(database: Database, store: StateStore) -> None:
    """workflows W-217: its row says since when."""
    run_id = offered(store)
    with Program([sys.executable, "-c", PROGRAM], env={**os.environ, "LASTLIGHT_STATE_URL": database.url}) as process:
        try:
            until(lambda: [worker.run_ids for worker in seen(store)] == [(run_id,)])
        finally:
            process.kill()
    [worker] = seen(store)
    assert (worker.name, worker.pid, worker.is_gone) == ("doomed", process.pid, False)
    later = worker.expires_at - worker.seen_at
    assert later.total_seconds() == 90
