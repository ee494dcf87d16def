"""The logs of agents' sessions with their folders, by the last change of any file. Folders without a log are logs, too.

A log stays while an execution that names it is unfinished or its run lives, while its chat session is active, and while
its conversation runs, waits to run or is held.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sa

from lastlight_state.agent_log import paths, removal
from lastlight_state.agent_log.tree import LogTree
from lastlight_state.clock import of_file
from lastlight_state.conversations.kernel.references import PROTECTIONS
from lastlight_state.conversations.tables import SESSIONS as TALKS
from lastlight_state.db.keyed import family, rows
from lastlight_state.db.statements import Family, among
from lastlight_state.db.unit import Unit
from lastlight_state.errors import BackendBusy, UnsafePath
from lastlight_state.jsonl import places
from lastlight_state.maintenance.prune.files.tree import Seen, Size
from lastlight_state.maintenance.prune.places import Place
from lastlight_state.messaging.tables import SESSIONS, is_active
from lastlight_state.settings import Settings
from lastlight_state.workflows.tables import EXECUTIONS, RUNS
from lastlight_state.workflows.words import LIVE

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

    def seen(self, cutoff: datetime) -> Seen:
        """Return all logs, in the order of their last change."""
        return Seen(sorted(self._logs()), {})

    def id_of(self, key: str) -> str:
        """Return the session."""
        return key.partition("/")[2]

    def protected(self, unit: Unit, keys: Sequence[str]) -> dict[str, str]:
        """Return those whose session somebody needs."""
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
            found = removal.judged(self._path(key), partial(_is_old, cutoff))
            return None if found is None else Size(len(found), sum(found.values()))
        return None

    def remove(self, key: str, cutoff: datetime) -> bool:
        """Remove a log with its folder."""
        with suppress(UnsafePath, BackendBusy):
            return removal.remove(self._path(key), partial(_is_old, cutoff), lock_timeout=_WAIT)
        return False

    def _path(self, key: str) -> Path:
        slug, _, session_id = key.partition("/")
        return self._tree.projects / slug / (session_id + paths.LOG_SUFFIX)

    def _logs(self) -> Iterator[Place]:
        """Return each log, and each folder without its log. A project directory that is a link has another name."""
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
            if places.component_problem(entry.name + paths.LOG_SUFFIX):
                continue
            inner = [Path(entry.path, name) for name in (paths.RAW, paths.SUBAGENTS)]
            if entry.is_dir(follow_symlinks=False) and any(path.is_dir() for path in inner):
                found[entry.name] = of_file(entry.stat(follow_symlinks=False).st_mtime_ns)
    return found


def _is_old(cutoff: datetime, _name: str, file: int) -> bool:
    return os.fstat(file).st_mtime < cutoff.timestamp()
