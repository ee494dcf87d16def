"""Prunes log files, which are outside the database: logs of agents, and logs of runs."""

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
from lastlight_state.conversations.shared.references import PROTECTIONS
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

# A directory of logs that can be pruned: each log is a file, or a file with a folder.


class Size(NamedTuple):
    """The size of a log: the number of its files, and their total bytes."""

    files: int
    bytes: int


class LogsByAge(NamedTuple):
    """The logs found in a tree: their places by age, the oldest first, and the number of logs that stay, by reason."""

    logs: Sequence[Place]
    staying: Mapping[str, int]


class Tree(Protocol):
    """A kind of log files. The key of a log is unique; the id of a log is its name in a policy."""

    #: The kind in a policy, and the name of a log in `NotFound`.
    name: ClassVar[str]
    record: ClassVar[str]
    keep_days: ClassVar[int]
    keep_n: ClassVar[int]
    #: Whether a tombstone records a pruned log. Rows may still name the log.
    buried: ClassVar[bool]

    #: The directory of the logs.
    root: Path

    def __init__(self, settings: Settings) -> None:
        """Create the tree for these settings. Touches no file."""

    def logs_by_age(self, cutoff: datetime) -> LogsByAge:
        """Return the logs that may be pruned when old enough, and counts of equally old logs that must stay."""

    def id_of(self, key: str) -> str:
        """Return the log's name in a policy."""

    def protected_logs(self, unit: Unit, keys: Sequence[str]) -> Mapping[str, str]:
        """Return the logs among these that must stay, each with the reason."""

    def size(self, key: str, cutoff: datetime) -> Size | None:
        """Return the size of the files to remove with a log.

        None if the log has changed since the cutoff and must stay.
        """

    def remove(self, key: str, cutoff: datetime) -> bool:
        """Remove a log that is old enough. Returns True if it was removed; a log in use stays."""


# The logs of agents' sessions with their folders, by the last change of any file. A folder without a log counts as a
# log. A log stays while an execution that names it is unfinished or its run is live, while its chat session is active,
# and while its conversation runs, waits to run or is held.

#: How long a removal waits for a lock, in seconds. An old log has no appends.
_WAIT = 1.0
_unfinished = sa.and_(EXECUTIONS.c.finished_at.is_(None), EXECUTIONS.c.success.is_(None))


def _use_family(column: sa.Column[Any], source: Any, **reasons: sa.ColumnElement[bool]) -> Family:
    """Return a `Family` of statements that find, for each reason, whether rows with the session's id need its log."""
    columns = (condition.label(reason) for reason, condition in reasons.items())
    found = sa.select(column.label("key"), *columns).select_from(source)
    return family(lambda keys: found.where(column.in_(keys)))


USING = (
    _use_family(
        EXECUTIONS.c.session_id,
        EXECUTIONS.outerjoin(RUNS, RUNS.c.id == EXECUTIONS.c.workflow_run_id),
        unfinished_execution=_unfinished,
        live_run=among(RUNS.c.status, LIVE),
    ),
    _use_family(SESSIONS.c.agent_session_id, SESSIONS, active_chat=is_active()),
    _use_family(TALKS.c.agent_session_id, TALKS, **PROTECTIONS),
)


class AgentLogs:
    """The kind ``agent-logs``. The key of a log has its project directory and its session."""

    name: ClassVar[str] = "agent-logs"
    record: ClassVar[str] = "agent_session"
    keep_days: ClassVar[int] = 30
    keep_n: ClassVar[int] = 100
    buried: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:
        self.root = settings.agent_sessions
        self._tree = LogTree(settings.agent_sessions)

    def logs_by_age(self, cutoff: datetime) -> LogsByAge:
        """Return the logs that may be pruned when they are old enough. The counts of logs that must stay are empty."""
        return LogsByAge(sorted(self._logs()), {})

    def id_of(self, key: str) -> str:
        """Return the session's id, which the key contains."""
        return key.partition("/")[2]

    def protected_logs(self, unit: Unit, keys: Sequence[str]) -> dict[str, str]:
        """Return the logs that are in use, each with the first reason."""
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
        """Return the size of a log with its folder. None unless all files are old enough and none is a link."""
        with suppress(UnsafePath):
            found = repair.removable_files(self._path(key), partial(_is_old, cutoff))
            return None if found is None else Size(len(found), sum(found.values()))
        return None

    def remove(self, key: str, cutoff: datetime) -> bool:
        """Remove a log with its folder. Returns True if it was removed."""
        with suppress(UnsafePath, BackendBusy):
            return repair.remove(self._path(key), partial(_is_old, cutoff), lock_timeout=_WAIT)
        return False

    def _path(self, key: str) -> Path:
        slug, _, session_id = key.partition("/")
        return self._tree.projects / slug / (session_id + paths.LOG_SUFFIX)

    def _logs(self) -> Iterator[Place]:
        """Yield each log, and each log's folder whose log is missing.

        A project directory that is a link is skipped, because the directory is found under its own name.
        """
        for slug in self._tree.slugs()[0]:
            directory = self._tree.projects / slug
            if not directory.is_symlink():
                there = {log.session_id: log.changed_at for log in self._tree.logs(slug)[0]}
                for session_id, changed in {**_folders(directory), **there}.items():
                    yield changed, f"{slug}/{session_id}"


def _folders(directory: Path) -> dict[str, datetime]:
    """Return the folders that are named like a log, each with the time of the folder's own last change."""
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


# The logs of ended runs, by the time of their last record. A log with a living writer stays.


class RunLogs:
    """The kind ``run-logs``. The key of a log is its run. No database row refers to these logs."""

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

    def logs_by_age(self, cutoff: datetime) -> LogsByAge:
        """Return the logs of ended runs, and counts of equally old logs that must stay."""
        entries, unreadable = self._lists.entries(RunFilter())
        ended = [(entry.last_ts, file.run_id) for file, entry in entries if entry.state == "ended" and entry.last_ts]
        others = [entry for _, entry in entries if entry.state != "ended" or entry.last_ts is None]
        waiting = sum((entry.last_ts or entry.started_at) < cutoff for entry in others)
        return LogsByAge(sorted(ended), {"not_ended": waiting, "unreadable": unreadable})

    def id_of(self, key: str) -> str:
        """Return the run's id, which is the key."""
        return key

    def protected_logs(self, unit: Unit, keys: Sequence[str]) -> dict[str, str]:
        """Return an empty dict, because no database row refers to these logs."""
        return {}

    def size(self, key: str, cutoff: datetime) -> Size | None:
        """Return the size of the log in bytes, packed or not, or None if the log is missing."""
        file = self._tree.find(key)
        found = None if file is None else size_of(file)
        return None if found is None else Size(1, found)

    def remove(self, key: str, cutoff: datetime) -> bool:
        """Remove a log, unless it has newer records. Returns True if it was removed."""
        file = self._tree.find(key)
        return file is None or self._upkeep.remove(file, cutoff) is not None


FILES: Mapping[str, type[Tree]] = {tree.name: tree for tree in (AgentLogs, RunLogs)}
