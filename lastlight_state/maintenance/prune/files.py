"""What can be pruned beside the database: log files of agents, and of runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import sqlalchemy as sa

from lastlight_state.clock import of_file
from lastlight_state.conversations.kernel.references import PROTECTIONS
from lastlight_state.conversations.tables import SESSIONS as TALKS
from lastlight_state.db.lists.filters import family, rows
from lastlight_state.db.rows.statements import Family, among
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import BackendBusy, UnsafePath
from lastlight_state.files.agent_log import paths, repair
from lastlight_state.files.agent_log.tree import LogTree
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.files import LOCK_TIMEOUT
from lastlight_state.files.run_log import paths as run_log_paths
from lastlight_state.files.run_log.runs.heads import Heads
from lastlight_state.files.run_log.runs.lists import RunFilter, RunLists
from lastlight_state.files.run_log.runs.upkeep import Upkeep, size_of
from lastlight_state.files.run_log.tree import RunTree
from lastlight_state.maintenance.prune.arguments import Place
from lastlight_state.messaging.models import SESSIONS, is_active
from lastlight_state.settings import Settings
from lastlight_state.workflows.tables import EXECUTIONS, RUNS
from lastlight_state.workflows.words import LIVE

# A directory of logs that can be pruned: each is one file, or one with a folder.


class Size(NamedTuple):
    """The number of a log's files, and their bytes."""

    files: int
    bytes: int


class LogsByAge(NamedTuple):
    """A look at a tree: the place of each log in the order of age, the oldest first, and what stays by the reason."""

    logs: Sequence[Place]
    staying: Mapping[str, int]


class Tree(Protocol):
    """One kind. The key of a log tells it from all others; its id is how a policy names it."""

    #: The kind of the policy, and what `NotFound` calls a log.
    name: ClassVar[str]
    record: ClassVar[str]
    keep_days: ClassVar[int]
    keep_n: ClassVar[int]
    #: Whether a tombstone says of a log that it was pruned. Rows may go on naming it.
    buried: ClassVar[bool]

    #: Where the logs are.
    root: Path

    def __init__(self, settings: Settings) -> None:
        """Note the tree of these settings. Touches no file."""

    def seen(self, cutoff: datetime) -> LogsByAge:
        """Return all logs that may be pruned once old enough, and the number of those as old that stay in any case."""

    def id_of(self, key: str) -> str:
        """Return the id of a log."""

    def protected(self, unit: Unit, keys: Sequence[str]) -> Mapping[str, str]:
        """Return nothing: the database knows nothing of these logs."""

    def size(self, key: str, cutoff: datetime) -> Size | None:
        """Return what would be removed with a log. None for a log that must stay: it is not as old as it seems."""

    def remove(self, key: str, cutoff: datetime) -> bool:
        """Remove a log that is as old. Returns whether it is gone; one that somebody uses at this moment stays."""


# The logs of agents' sessions with their folders, by the last change of any file. Folders without a log are logs, too.
#
# A log stays while an execution that names it is unfinished or its run lives, while its chat session is active, and
# while its conversation runs, waits to run or is held.

#: How long a removal waits for an append, in seconds. A log that is old has none.
_WAIT = 1.0
_unfinished = sa.and_(EXECUTIONS.c.finished_at.is_(None), EXECUTIONS.c.success.is_(None))


def _using(column: sa.Column[Any], source: Any, **reasons: sa.ColumnElement[bool]) -> Family:
    """Return whether the rows that name a session need its log, by the reason."""
    columns = (condition.label(reason) for reason, condition in reasons.items())
    found = sa.select(column.label("key"), *columns).select_from(source)
    return family(lambda keys: found.where(column.in_(keys)))


USING = (
    _using(
        EXECUTIONS.c.session_id,
        EXECUTIONS.outerjoin(RUNS, RUNS.c.id == EXECUTIONS.c.workflow_run_id),
        unfinished_execution=_unfinished,
        live_run=among(RUNS.c.status, LIVE),
    ),
    _using(SESSIONS.c.agent_session_id, SESSIONS, active_chat=is_active()),
    _using(TALKS.c.agent_session_id, TALKS, **PROTECTIONS),
)


class AgentLogs:
    """The kind ``agent-logs``. The key of a log is its project directory and its session."""

    name: ClassVar[str] = "agent-logs"
    record: ClassVar[str] = "agent_session"
    keep_days: ClassVar[int] = 30
    keep_n: ClassVar[int] = 100
    buried: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:
        self.root = settings.agent_sessions
        self._tree = LogTree(settings.agent_sessions)

    def seen(self, cutoff: datetime) -> LogsByAge:
        """Return all logs that may be pruned once old enough, and the number of those as old that stay in any case."""
        return LogsByAge(sorted(self._logs()), {})

    def id_of(self, key: str) -> str:
        """Return the session."""
        return key.partition("/")[2]

    def protected(self, unit: Unit, keys: Sequence[str]) -> dict[str, str]:
        """Return nothing: the database knows nothing of these logs."""
        sessions = {self.id_of(key) for key in keys}
        found: dict[str, str] = {}
        for using in USING:
            for row in rows(unit, using, sessions):
                session_id = row.pop("key")
                reason = next((reason for reason, holds in row.items() if holds), None)
                if reason is not None:
                    found.setdefault(session_id, reason)
        return {key: found[self.id_of(key)] for key in keys if self.id_of(key) in found}

    def size(self, key: str, cutoff: datetime) -> Size | None:
        """Return the files of a log, if all of them are as old, and none is a link."""
        with suppress(UnsafePath):
            found = repair.judged(self._path(key), partial(_is_old, cutoff))
            return None if found is None else Size(len(found), sum(found.values()))
        return None

    def remove(self, key: str, cutoff: datetime) -> bool:
        """Remove a log with its folder."""
        with suppress(UnsafePath, BackendBusy):
            return repair.remove(self._path(key), partial(_is_old, cutoff), lock_timeout=_WAIT)
        return False

    def _path(self, key: str) -> Path:
        slug, _, session_id = key.partition("/")
        return self._tree.projects / slug / (session_id + paths.LOG_SUFFIX)

    def _logs(self) -> Iterator[Place]:
        """Yield each log, and each folder without its log. A project directory that is a link has another name."""
        for slug in self._tree.slugs()[0]:
            directory = self._tree.projects / slug
            if not directory.is_symlink():
                there = {log.session_id: log.changed_at for log in self._tree.logs(slug)[0]}
                for session_id, changed in {**_folders(directory), **there}.items():
                    yield changed, f"{slug}/{session_id}"


def _folders(directory: Path) -> dict[str, datetime]:
    """Return the folders of what can be the name of a log, and when one of their names changed last."""
    found: dict[str, datetime] = {}
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if files.component_problem(entry.name + paths.LOG_SUFFIX):
                continue
            inner = [Path(entry.path, name) for name in (paths.RAW, paths.SUBAGENTS)]
            if entry.is_dir(follow_symlinks=False) and any(path.is_dir() for path in inner):
                found[entry.name] = of_file(entry.stat(follow_symlinks=False).st_mtime_ns)
    return found


def _is_old(cutoff: datetime, _name: str, file: int) -> bool:
    return os.fstat(file).st_mtime < cutoff.timestamp()


# The logs of runs that have ended, by the time of their last record. A log whose writer lives stays.


class RunLogs:
    """The kind ``run-logs``. The key of a log is its run. No row of the database names one."""

    name: ClassVar[str] = "run-logs"
    record: ClassVar[str] = run_log_paths.RUN
    keep_days: ClassVar[int] = 30
    keep_n: ClassVar[int] = 100
    buried: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        self._tree = RunTree(settings.run_logs)
        self.root = self._tree.sessions
        heads = Heads(self._tree)
        self._lists = RunLists(self._tree, heads)
        self._upkeep = Upkeep(self._tree, heads, self._lists, LOCK_TIMEOUT)

    def seen(self, cutoff: datetime) -> LogsByAge:
        """Return all logs that may be pruned once old enough, and the number of those as old that stay in any case."""
        entries, unreadable = self._lists.entries(RunFilter())
        ended = [(entry.last_ts, file.run_id) for file, entry in entries if entry.state == "ended" and entry.last_ts]
        others = [entry for _, entry in entries if entry.state != "ended" or entry.last_ts is None]
        waiting = sum((entry.last_ts or entry.started_at) < cutoff for entry in others)
        return LogsByAge(sorted(ended), {"not_ended": waiting, "unreadable": unreadable})

    def id_of(self, key: str) -> str:
        """Return the run."""
        return key

    def protected(self, unit: Unit, keys: Sequence[str]) -> dict[str, str]:
        """Return nothing: the database knows nothing of these logs."""
        return {}

    def size(self, key: str, cutoff: datetime) -> Size | None:
        """Return the bytes of the log, as it is or packed."""
        file = self._tree.find(key)
        found = None if file is None else size_of(file)
        return None if found is None else Size(1, found)

    def remove(self, key: str, cutoff: datetime) -> bool:
        """Remove a log that has got no later records."""
        file = self._tree.find(key)
        return file is None or self._upkeep.remove(file, cutoff) is not None


FILES: Mapping[str, type[Tree]] = {tree.name: tree for tree in (AgentLogs, RunLogs)}
