"""Writers, a fleet with claims and a follower on a cluster whose leaders fall, and what of their work stays."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count, pairwise
from typing import Any

from lastlight_state import Settings, StateStore
from lastlight_state.errors import AlreadyExists, BackendBusy, BackendUnavailable, ClaimLost, Conflict, LostRace
from lastlight_state.ids import new_id
from lastlight_state.workflows import RunOptions, Trigger

WRITERS, WORKERS = 4, 3
_TRIGGER = Trigger("t", type="cli")
#: What is short here is what a call waits for on a server that says nothing.
_SETTINGS = Settings(statement_timeout=2, lock_timeout=1, pool_timeout=5, pool_size=1)
_AWAY = (BackendUnavailable, BackendBusy)
_LEASE = timedelta(seconds=20)
_PAUSE_SECONDS = 0.01
_DRAIN_SECONDS = 120


@dataclass
class Counts:
    """What was asked and what became of it."""

    calls: int
    acknowledged: int
    #: Calls that returned, and of which nothing is there.
    lost: int
    #: Writes of one call that are there more than once, and runs that were done more than once.
    doubled: int
    #: Numbers of a run's events that are missing between others.
    gaps: int
    #: What the follower was told, and numbers that it was not told in their order.
    followed: int
    skipped: int
    #: Errors by their class and reason.
    errors: dict[str, int]
    #: The longest time without an answer to any writer, in all and by what had happened to the leader.
    longest_stop: float
    stops: dict[str, list[float]]


@dataclass
class Load:
    """Runs until it is told to end."""

    url: str
    calls: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    stamps: list[float] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    fed: threading.Event = field(default_factory=threading.Event)
    appended: list[set[str]] = field(default_factory=lambda: [set() for _ in range(WRITERS)])
    created: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    seen: list[int] = field(default_factory=list)
    faults: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Work in the block. When it ends, what is queued is finished first."""
        with ExitStack() as opened:

            def store() -> StateStore:
                return opened.enter_context(StateStore.open(self.url, settings=_SETTINGS, migrate=False))

            first = store()
            loaded = first.workflows.queue, first.workflows.claims, first.journal.events  # by one thread, before others
            assert all(loaded)
            self.runs = [first.workflows.runs.create("w", trigger=_TRIGGER, phase="p").id for _ in range(WRITERS)]
            works: list[Callable[[], None]] = [self._feeder(first), self._follower(store(), self.runs[0])]
            works += [self._writer(store(), place) for place in range(WRITERS)]
            workers = [self._worker(store(), f"worker-{number}") for number in range(WORKERS)]
            threads = [threading.Thread(target=work) for work in (*works, *workers)]
            for thread in threads:
                thread.start()
            try:
                yield
            finally:
                self.over.set()
                for thread in threads[: len(works)]:
                    thread.join()
                self._drained(first)
                self.fed.set()
                for thread in threads[len(works) :]:
                    thread.join()

    def counted(self) -> Counts:
        """Return what is there of it, on the leader."""
        lost = doubled = gaps = 0
        with StateStore.open(self.url, migrate=False) as store:
            for run_id, keys in zip(self.runs, self.appended, strict=True):
                rows = _rows(
                    store, "SELECT seq, coalesce(event_id, '') FROM run_events WHERE run_id = %s ORDER BY seq", run_id
                )
                stored = Counter(key for _, key in rows if key)
                lost += len(keys - stored.keys())
                doubled += sum(times - 1 for times in stored.values())
                gaps += sum(after - before - 1 for (before, _), (after, _) in pairwise(rows))
            status: dict[str, str] = dict(
                _rows(store, "SELECT id, status FROM workflow_runs WHERE workflow_name = %s", "fleet")
            )
            done: dict[str, int] = dict(
                _rows(store, "SELECT run_id, count(*) FROM run_events WHERE type = %s GROUP BY 1", "done")
            )
        lost += len(self.created - status.keys())
        lost += sum(status.get(run_id) != "succeeded" for run_id in self.finished)
        doubled += sum(times - 1 for times in done.values())
        stops = self._stops()
        return Counts(
            calls=sum(self.calls[name] for name in ("append", "create", "finish")),
            acknowledged=sum(map(len, (*self.appended, self.created, self.finished))),
            lost=lost,
            doubled=doubled,
            gaps=gaps,
            followed=len(self.seen),
            skipped=sum(after - before != 1 for before, after in pairwise(self.seen)),
            errors=dict(self.errors),
            longest_stop=max(stop for kind in stops.values() for stop in kind),
            stops=stops,
        )

    def _stops(self) -> dict[str, list[float]]:
        """Return the longest time without an answer after each fault, by its kind."""
        stamps = sorted(self.stamps)
        ends = [*(at for _, at in self.faults[1:]), stamps[-1]]
        stops: dict[str, list[float]] = {}
        for (kind, at), end in zip(self.faults, ends, strict=True):
            last = max((stamp for stamp in stamps if stamp <= at), default=at)
            within = [last, *(stamp for stamp in stamps if at < stamp <= end), end]
            stops.setdefault(kind, []).append(round(max(after - before for before, after in pairwise(within)), 1))
        return stops

    def _writer(self, store: StateStore, place: int) -> Callable[[], None]:
        def append(number: int) -> None:
            store.journal.events.append(self.runs[place], "e", {"n": number}, event_id=str(number))

        def work() -> None:
            for number in count():
                while not self._tried("append", partial(append, number)):
                    if self.over.is_set():
                        return
                self.appended[place].add(str(number))
                self.stamps.append(time.monotonic())
                if self.over.wait(_PAUSE_SECONDS):
                    return

        return work

    def _feeder(self, store: StateStore) -> Callable[[], None]:
        def create(run_id: str) -> None:
            with suppress(AlreadyExists):  # by a call of which nobody told what became
                options = RunOptions(id=run_id, status="queued")
                store.workflows.runs.create("fleet", trigger=_TRIGGER, phase="p", options=options)

        def work() -> None:
            while not self.over.wait(0.1):
                run_id = new_id()
                while not self._tried("create", partial(create, run_id)):
                    if self.over.is_set():
                        return
                self.created.add(run_id)

        return work

    def _worker(self, store: StateStore, owner: str) -> Callable[[], None]:
        def one() -> None:
            claims = store.workflows.queue.admit_next(owner=owner, workflow_names=["fleet"], cap=WORKERS, lease=_LEASE)
            claims = claims or store.workflows.claims.take_next(owner=owner, workflow_names=["fleet"], lease=_LEASE)
            for claim in claims:
                self.calls["finish"] += 1
                with store.transaction(claim=claim) as tx:
                    tx.journal.events.append(claim.run_id, "done", {"by": owner})
                    tx.workflows.runs.finish(claim.run_id, "succeeded")
                self.finished.add(claim.run_id)

        def work() -> None:
            while not self.fed.is_set():
                self._tried("work", one)
                self.fed.wait(_PAUSE_SECONDS)

        return work

    def _follower(self, store: StateStore, run_id: str) -> Callable[[], None]:
        def follow() -> None:
            after = self.seen[-1] if self.seen else None
            events = store.journal.events.follow(
                run_id, after_seq=after, idle_timeout=1, poll_interval=0.1, stop=self.over
            )
            for event in events:
                self.seen.append(event.seq)

        def work() -> None:
            while not self.over.is_set():
                self._tried("follow", follow)

        return work

    def _tried(self, name: str, call: Callable[[], object]) -> bool:
        self.calls[name] += 1
        try:
            call()
        except (*_AWAY, ClaimLost, LostRace, Conflict) as error:
            reason = getattr(error, "outcome", None) or error.code
            self.errors[f"{name}: {type(error).__name__} {reason}"] += 1
            time.sleep(5 * _PAUSE_SECONDS)
            return False
        return True

    def _drained(self, store: StateStore) -> None:
        end = time.monotonic() + _DRAIN_SECONDS
        while time.monotonic() < end:
            with suppress(*_AWAY):
                sql = "SELECT count(*) FROM workflow_runs WHERE workflow_name = %s AND status <> 'succeeded'"
                if _rows(store, sql, "fleet") == [(0,)]:
                    return
            time.sleep(0.2)


def _rows(store: StateStore, sql: str, value: str) -> list[Any]:
    with store.view() as view:
        return [tuple(row) for row in view.connection.exec_driver_sql(sql, (value,)).all()]
