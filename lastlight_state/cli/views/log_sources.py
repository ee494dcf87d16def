"""Where the records of an id come from: the sessions of a run or execution as the database has them, or one log."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from lastlight_state.agent_log import AgentLog
from lastlight_state.cli import ids
from lastlight_state.cli.call import Call
from lastlight_state.cli.opening import look, settings_of
from lastlight_state.db.iterating import pages_of
from lastlight_state.errors import NotFound, UnsafePath
from lastlight_state.jsonl.follow import Stop
from lastlight_state.store import StateStore
from lastlight_state.workflows import ExecutionSummary
from lastlight_state.workflows.words import TERMINAL

POLL_SECONDS = 0.5


class Source(ABC):
    """The sessions whose logs are printed, in order."""

    def __init__(self, log: AgentLog) -> None:
        self.log = log

    @abstractmethod
    def sessions(self, *, wait: bool) -> Iterator[str]:
        """Return their ids; with ``wait`` also those that begin later, until none will."""

    @abstractmethod
    def until(self, session_id: str) -> Stop:
        """Return what says when nothing more will come into a session's log."""


def source_of(call: Call, key: str, *, pause: Callable[[float], object] = time.sleep) -> Source:
    """Return the source of a session with this id if it has a log, else of a run or an execution. Raises `NotFound`.

    ``pause`` is called with the seconds to wait between two looks.
    """
    log = AgentLog(settings_of(call).agent_sessions)
    if _has_log(log, key):
        return _Session(log, key, pause)
    source = _Database(call, log, key, pause)
    source.look()
    return source


class _Session(Source):
    """One log, which may grow as long as it likes."""

    def __init__(self, log: AgentLog, session_id: str, pause: Callable[[float], object]) -> None:
        super().__init__(log)
        self._session_id = session_id
        self._pause = pause

    def sessions(self, *, wait: bool) -> Iterator[str]:
        yield self._session_id

    def until(self, session_id: str) -> Stop:
        return _Never(self._pause)


class _Database(Source):
    """The sessions of a run's executions, or of one execution, in the order in which they began."""

    def __init__(self, call: Call, log: AgentLog, key: str, pause: Callable[[float], object]) -> None:
        super().__init__(log)
        self._call = call
        self._key = key
        self.pause = pause
        self.known: list[str] = []
        self.ended = False

    def look(self) -> None:
        """Ask the database again. Raises `NotFound` for an id that it does not know."""
        self.known, self.ended = look(self._call, self._found)

    def sessions(self, *, wait: bool) -> Iterator[str]:
        given = 0
        while True:
            while given < len(self.known):
                given += 1
                yield self.known[given - 1]
            if not wait or self.ended:
                return
            self.pause(POLL_SECONDS)
            self.look()

    def until(self, session_id: str) -> Stop:
        return _UntilOver(self, session_id)

    def _found(self, store: StateStore) -> tuple[list[str], bool]:
        try:
            kind, self._key = ids.resolve(store, self._key, ("run", "execution"))
        except NotFound:
            raise NotFound("run, execution or session", self._key) from None
        if kind == "execution":
            execution = store.workflows.executions.get(self._key)
            return _session_ids([execution]), execution.outcome != "running"
        ended = store.workflows.runs.get(self._key).status in TERMINAL
        return _session_ids(_all_of(store, self._key)), ended


class _Never:
    """Stops never."""

    def __init__(self, pause: Callable[[float], object]) -> None:
        self._pause = pause

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float) -> None:
        self._pause(timeout)


class _UntilOver:
    """Stops when another session has begun or all has ended, after one more look at the log."""

    def __init__(self, source: _Database, session_id: str) -> None:
        self._source = source
        self._session_id = session_id
        self._over = self._is_over()
        self._looked_since = False

    def is_set(self) -> bool:
        return self._over and self._looked_since

    def wait(self, timeout: float) -> None:
        if self._over:
            self._looked_since = True
            return
        self._source.pause(timeout)
        self._source.look()
        self._over = self._is_over()

    def _is_over(self) -> bool:
        return self._source.ended or self._source.known[-1:] != [self._session_id]


def _has_log(log: AgentLog, key: str) -> bool:
    try:
        return log.sessions.find(key) is not None
    except UnsafePath:  # no name of a log, but it may be that of a run
        return False


def _all_of(store: StateStore, run_id: str) -> list[ExecutionSummary]:
    """Return all executions of a run, oldest first."""
    pages = pages_of(store.workflows.executions.list, run_id=run_id, limit=500)
    return [execution for page in pages for execution in page.items][::-1]


def _session_ids(executions: list[ExecutionSummary]) -> list[str]:
    return list(dict.fromkeys(found.session_id for found in executions if found.session_id is not None))
