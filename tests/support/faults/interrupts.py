"""Exceptions from outside: raised at the n-th instruction of the library, or by a signal at a random moment."""

from __future__ import annotations

import asyncio
import gc
import linecache
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from dis import opmap
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any

from support.tracing import traced

import lastlight_state
from lastlight_state import AsyncStateStore, Settings, StateStore, locks
from lastlight_state.testing import Database
from lastlight_state.workflows import PhaseEntry, RunOptions, Trigger, WorkflowRun

OURS = str(Path(lastlight_state.__file__).parent)
#: Far more than a call takes that waits for nothing. What is still held is met first, as an error of these settings.
AT_ONCE = 60.0
SHORT = Settings(queue_timeout=10.0, busy_timeout=10.0, pool_timeout=10.0, lock_timeout=10.0, retry_seconds=0.0)

#: `sys.monitoring`, which is there from Python 3.12 on.
MONITORING: Any = getattr(sys, "monitoring", None)
#: For `raised_at`: the work is done whole. Do each work once so, before its opcodes are counted.
NEVER = sys.maxsize
#: The tool of `sys.monitoring` that these tests are.
TOOL = 4
#: An opcode of Python 3.14 that no ``with`` statement covers. Only monitoring meets it: no signal is raised there.
NOT_TAKEN = opmap.get("NOT_TAKEN", -1)

#: Seconds after which an event loop that waits has lost a callback.
LOST = 5.0

#: How the lines end that take a lock for a few instructions.
LOCKS = ("_lock:", "_guard:", "_mutex:")

Work = Callable[[StateStore, str], object]


class Interrupted(Exception):
    """What a handler of the caller's raised."""


class AbandonedLoop(Exception):
    """Stands for the error of a work whose event loop was cut off by the signal."""


def raised_at(number: int, work: Callable[[], object], *, every: str = "line", more: int = 0) -> BaseException | None:
    """Do the work with an exception raised at that line (or opcode) of the library; None where it has fewer.

    ``more`` raises a second one, so many lines after the first.
    """
    left = [number, more] if more else [number]

    def met(frame: FrameType) -> None:
        if left and not _is_lock(frame):
            left[0] -= 1
            if left[0] == 0:
                del left[0]
                raise Interrupted

    with opcodes(met) if every == "opcode" else lines(met):
        try:
            work()
        except Interrupted as error:
            return error
    return None if left else Interrupted()  # which was raised while a generator was closed: Python drops that


@contextmanager
def lines(met: Callable[[FrameType], None]) -> Iterator[None]:
    """Call ``met`` at each line of the library that this thread runs in the block."""

    def seen(frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            try:
                met(frame)
            except Interrupted:
                sys.settrace(seen)  # which an exception of a trace function has ended
                raise
        return seen

    with traced(seen):
        yield


@contextmanager
def opcodes(met: Callable[[FrameType], None]) -> Iterator[None]:
    """Call ``met`` at each opcode of the library that this thread runs in the block."""
    if MONITORING is None:

        def seen(frame: FrameType, event: str, argument: object) -> Any:
            if not frame.f_code.co_filename.startswith(OURS):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if event == "opcode":
                met(frame)
            return seen

        with traced(seen):
            yield
        return
    with _armed(met):
        yield


#: The functions whose opcodes are watched, which costs nothing while nobody is armed.
_watched: set[CodeType] = set()
_armings: dict[int, Callable[[FrameType], None]] = {}


@contextmanager
def _armed(met: Callable[[FrameType], None]) -> Iterator[None]:
    """Call ``met`` at each opcode by `sys.monitoring`: a trace function is not told of all of them since Python 3.12.

    A function is watched from its second call on.
    """
    monitoring, thread = MONITORING, threading.get_ident()

    def instruction(code: CodeType, offset: int) -> None:
        arming = _armings.get(threading.get_ident())
        if arming is not None and code.co_code[offset] != NOT_TAKEN:
            arming(sys._getframe(1))

    def called(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code not in _watched and code.co_filename.startswith(OURS):
            _watched.add(code)
            monitoring.set_local_events(TOOL, code, monitoring.events.INSTRUCTION)

    if monitoring.get_tool(TOOL) is None:
        monitoring.use_tool_id(TOOL, "opcodes")
        monitoring.register_callback(TOOL, monitoring.events.INSTRUCTION, instruction)
    _armings[thread] = met
    try:
        with traced(called):
            yield
    finally:
        del _armings[thread]


@contextmanager
def cut_off_after(called: str, within: str) -> Iterator[None]:
    """Raise `Interrupted` in the library's function ``within``, as soon as a call of ``called`` there has succeeded."""

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_return":
            name, caller = getattr(argument, "__name__", ""), frame
        elif event == "return" and frame.f_back is not None:
            name, caller = frame.f_code.co_name, frame.f_back
        else:
            return
        if name == called and caller.f_code.co_name == within and caller.f_code.co_filename.startswith(OURS):
            sys.setprofile(before)
            raise Interrupted

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        yield
    finally:
        sys.setprofile(before)


def _is_lock(frame: FrameType) -> bool:
    """True if it stands at ``with some_lock:``, where CPython looks for no signal between the lock and the block.

    On 3.14, where it does, `lastlight_state.locks` stands there, which has a test of its own.
    """
    code = frame.f_code
    if code.co_filename == locks.__file__:
        return True
    return linecache.getline(code.co_filename, frame.f_lineno or 0).strip().endswith(LOCKS)


class Alarm:
    """A signal that raises, once each time it is set.

    An event loop drops a callback of its own in which a signal's handler raises, and may then wait for ever, whatever
    is awaited. Such a loop is ended by more signals, `LOST` seconds apart.
    """

    def __init__(self) -> None:
        self._armed = False
        self._rung = 0
        #: Works that were ended because their event loop had lost a callback.
        self.lost = 0
        self.kinds: list[type[BaseException]] = [KeyboardInterrupt, Interrupted]

    def during(self, seconds: float, work: Callable[[], object]) -> BaseException | None:
        """Do the work, and raise after that time if it is not done by then.

        Where `asyncio` itself was cut off, nobody goes on with its task. That is only given up by a collection.
        """
        self._rung = 0
        try:
            try:
                self._armed = True
                signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6), LOST)
                work()
            finally:
                self._armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException as error:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            if not _is_of_a_signal(error):
                raise
            self.lost += self._rung > 1
            if not _is_of_asyncio(error):
                return error
            asyncio._set_running_loop(None)
        else:
            return None
        # What may still hold the loop and its task: asyncio's handler of SIGINT, its policy, the frames of the error.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        asyncio.set_event_loop(None)
        gc.collect()
        return AbandonedLoop()

    def ring(self, number: int, frame: FrameType | None) -> None:
        """The handler."""
        if self._armed and not _in_a_tests_own(frame):
            self._rung += 1
            raise random.choice(self.kinds) if self._rung == 1 else KeyboardInterrupt


def _is_of_asyncio(error: BaseException) -> bool:
    """Return whether the error came through the functions of `asyncio`, which may themselves be cut off."""
    return any(frame.f_globals.get("__name__", "").startswith("asyncio.") for frame, _ in walk_tb(error.__traceback__))


def _in_a_tests_own(frame: FrameType | None) -> bool:
    """Whether it falls into `Alarm.during` itself, which is not what is attacked."""
    return frame is not None and frame.f_code is Alarm.during.__code__


def _is_of_a_signal(error: BaseException | None) -> bool:
    """Whether it is what the handler raised, or came of that: `threading.Thread.start` can make a KeyError of it."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt | Interrupted):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def alarm() -> Iterator[Alarm]:
    """Signals that raise in the main thread."""
    made = Alarm()
    before = signal.signal(signal.SIGALRM, made.ring)
    try:
        yield made
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def pair(on: Any, name: str) -> None:
    """Two runs of one name."""
    for _ in range(2):
        on.workflows.runs.create(name, trigger=Trigger("t"), phase="p")


def alone(store: StateStore, name: str) -> WorkflowRun:
    return store.workflows.runs.create(name, trigger=Trigger("t"), phase="p")


def statement(store: StateStore, name: str) -> object:
    return store.workflows.overrides.put(name, enabled=False, reason="r", by="b")


def reading(store: StateStore, name: str) -> object:
    return store.workflows.runs.list(limit=3)


def transaction(store: StateStore, name: str) -> None:
    with store.transaction() as tx:
        pair(tx, name)


def view(store: StateStore, name: str) -> None:
    with store.view() as seen:
        seen.workflows.runs.list(limit=3)
        seen.workflows.runs.list(limit=2)


def run(store: StateStore, name: str) -> None:
    store.run(lambda tx: pair(tx, name))


def chained(store: StateStore, name: str) -> None:
    store.workflows.runs.append_phase("shared", PhaseEntry(name, True))


def awaited(store: StateStore, name: str) -> None:
    async def work() -> None:
        async with AsyncStateStore(store).transaction() as tx:
            await tx.workflows.runs.create(name, trigger=Trigger("t"), phase="p")
            await tx.workflows.runs.create(name, trigger=Trigger("t"), phase="p")

    asyncio.run(work())


def awaited_call(store: StateStore, name: str) -> None:
    async def work() -> None:
        face = AsyncStateStore(store)
        await face.workflows.runs.create(name, trigger=Trigger("t"), phase="p")
        await face.workflows.runs.list(limit=2)

    asyncio.run(work())


WORKS: dict[str, Work] = {
    "alone": alone,
    "statement": statement,
    "reading": reading,
    "transaction": transaction,
    "view": view,
    "run": run,
    "chained": chained,
}


def drive(store: StateStore, name: str) -> None:
    claims = store.workflows.claims
    with claims.driving(claims.take(alone(store, name).id, owner=name, lease=timedelta(hours=1))):
        pass


def follow(store: StateStore, name: str) -> None:
    for _ in store.journal.events.follow("shared", idle_timeout=0, poll_interval=3600):
        pass


#: What has a thread of its own while it lasts, and how that is named.
THREADED: dict[str, tuple[Work, str]] = {"driving": (drive, "lastlight-run"), "following": (follow, "lastlight-watch")}
AWAITED: dict[str, Work] = {"transaction": awaited, "calls": awaited_call}


class Watched:
    """A store that is attacked, and what is true of it whenever an attack is over."""

    def __init__(self, database: Database) -> None:
        self.store = database.open(settings=SHORT)
        self._raw = database.raw()
        self._used = 0
        self._problem: list[BaseException] = []
        self.store.workflows.runs.create("s", trigger=Trigger("t"), phase="p", options=RunOptions(id="shared"))

    def works(self) -> None:
        """The store is used, in this thread and in another one, at once."""
        begun = time.monotonic()
        self._use()
        other = threading.Thread(target=self._use_noting)
        other.start()
        other.join()
        assert not self._problem, self._problem
        assert time.monotonic() - begun < AT_ONCE

    def nothing_half_done(self, *pairs: str) -> None:
        """Of each pair both runs are stored, or none."""
        for name in pairs:
            [(found,)] = self._raw.execute(
                f"SELECT count(*) FROM workflow_runs WHERE workflow_name = '{name}'"
            ).fetchall()
            assert found in (0, 2), (name, found)

    def _use_noting(self) -> None:
        try:
            self._use()
        except BaseException as error:  # noqa: BLE001
            self._problem.append(error)

    def _use(self) -> None:
        self._used += 1
        name = f"used {self._used}"
        with self.store.transaction() as tx:
            made = tx.workflows.runs.create(name, trigger=Trigger("t"), phase="p")
        self.store.workflows.runs.append_phase(made.id, PhaseEntry("build", True))
        assert self.store.workflows.runs.get(made.id).phase_count == 1
        with self.store.view() as seen:
            assert seen.workflows.runs.get(made.id).workflow_name == name
