"""Removes the agents' logs that belong to archived and removed records, unless a stored row still names the log.

A log is removed completely, with its folder. Each of its files must be in a bundle byte for byte, and must be unchanged
since the cutoff: a later change means that the log is still written, even if its records have ended. The bundles are
read again before the removal.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from lastlight_state.conversations.tables import SESSIONS
from lastlight_state.db.lists.filters import family, rows
from lastlight_state.db.rows.statements import Family
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import UnsafePath
from lastlight_state.files.agent_log import paths, raw, repair
from lastlight_state.files.agent_log.tree import PROJECTS
from lastlight_state.files.jsonl import files
from lastlight_state.maintenance.backup.restoring import LINES
from lastlight_state.maintenance.bundles import row_lines
from lastlight_state.maintenance.bundles.archive import open_bundle
from lastlight_state.maintenance.prune.arguments import LINE_BYTES, LINE_FILES
from lastlight_state.maintenance.shared import run_tables
from lastlight_state.settings import Settings
from lastlight_state.workflows.tables import EXECUTIONS

_BELOW = f"{LINES[0]}/{PROJECTS}/"
_NEWLINE = b"\n"


class Log(NamedTuple):
    """A log of an agent's session, identified by the project directory and the session."""

    slug: str
    session_id: str

    @classmethod
    def at(cls, name: str) -> Log:
        """Return the log that a file belongs to; ``name`` is its path below the directory of projects."""
        slug, file, *_ = name.split("/")
        return cls(slug, file.removesuffix(paths.LOG_SUFFIX))

    def path(self, settings: Settings) -> Path:
        """Return the path of the log's file."""
        return _projects(settings) / self.slug / (self.session_id + paths.LOG_SUFFIX)


class ArchivedLogs:
    """The logs that some bundles contain.

    ``sizes`` has the size of each file, by its path below the directory of projects.
    """

    def __init__(self, digests: dict[str, set[str]], sizes: dict[str, int]) -> None:
        self._digests = digests
        self._sizes = sizes
        self._logs = {Log.at(name) for name in sizes}

    @classmethod
    def of(cls, folder: Path, names: Iterable[str]) -> ArchivedLogs:
        """Return the logs in the bundles with these names. Raises `NotFound`, and `Conflict` ``damaged_bundle``."""
        digests: dict[str, set[str]] = {}
        sizes: dict[str, int] = {}
        for bundle in names:
            with open_bundle(folder / bundle) as found:
                for part in found.logs:
                    name = part.name.removeprefix(_BELOW)
                    digests.setdefault(name, set()).add(part.sha256)
                    sizes[name] = part.size_bytes
        return cls(digests, sizes)

    def free(self, unit: Unit) -> set[Log]:
        """Return the logs that no stored row names."""
        used = run_tables.naming_counts(unit, {log.session_id for log in self._logs})
        return {log for log in self._logs if log.session_id not in used}

    def remove(self, free: Collection[Log], settings: Settings, cutoff: datetime) -> Counter[str]:
        """Remove these logs. Returns counts of their files that no longer exist, even if an earlier call removed them.

        Raises `BackendBusy` if another process holds a log's lock too long, `BackendUnavailable`, `UnsafePath`.
        """
        for log in sorted(free):
            with suppress(UnsafePath):  # a link is in the way: its target is not ours to remove
                repair.remove(log.path(settings), partial(self._may_go, log, cutoff))
        projects = _projects(settings)
        gone = [
            size for name, size in self._sizes.items() if Log.at(name) in free and not os.path.lexists(projects / name)
        ]
        return _count_sizes(gone)

    def _may_go(self, log: Log, cutoff: datetime, name: str, file: int) -> bool:
        if not _is_old(file, cutoff):
            return False
        path = Path(log.slug, name)
        return _is_unfinished(name) or raw.digest_of(file, path) in self._digests.get(str(path), ())


#: Counts how often records name each agent session, by kind of record.
NAMED_BY: Mapping[str, Family[tuple[str, int]]] = {
    "runs": family(
        lambda keys: (
            sa.select(EXECUTIONS.c.session_id.label("key"), sa.func.count().label("rows"))
            .where(EXECUTIONS.c.workflow_run_id.in_(keys), EXECUTIONS.c.session_id.is_not(None))
            .group_by(EXECUTIONS.c.session_id)
        ),
        tuple,
    ),
    "sessions": family(
        lambda keys: (
            sa.select(SESSIONS.c.agent_session_id.label("key"), sa.func.count().label("rows"))
            .where(SESSIONS.c.id.in_(keys), SESSIONS.c.agent_session_id.is_not(None))
            .group_by(SESSIONS.c.agent_session_id)
        ),
        tuple,
    ),
}


def named_by(unit: Unit, kind: str, keys: Sequence[str]) -> Counter[str]:
    """Return how many times these records name each agent session."""
    found: Counter[str] = Counter()
    for session_id, count in rows(unit, NAMED_BY[kind], keys):
        found[session_id] += count
    return found


def removable_counts(unit: Unit, named: Counter[str], settings: Settings, cutoff: datetime) -> Counter[str]:
    """Return counts of the log files that would be removed together with these records.

    ``named`` is how many times the records name each log. A log that other rows name, too, stays.
    """
    in_all = run_tables.naming_counts(unit, named)
    free = [session_id for session_id, often in named.items() if in_all[session_id] == often]
    return _count_sizes([size for log in _there(settings, free) for size in _removable_sizes(log, settings, cutoff)])


def _there(settings: Settings, session_ids: Iterable[str]) -> list[Log]:
    return sorted({Log.at(name.removeprefix(_BELOW)) for name, _ in row_lines.log_files(settings, session_ids)})


def _removable_sizes(log: Log, settings: Settings, cutoff: datetime) -> Iterator[int]:
    """Yield the sizes of a log's files that would be removed, without temporary files."""
    with suppress(UnsafePath):
        judged = repair.removable_files(log.path(settings), partial(_would_go, cutoff)) or {}
        yield from (size for name, size in judged.items() if not _is_unfinished(name))


def _would_go(cutoff: datetime, name: str, file: int) -> bool:
    """True if a file would be removed: it is older than the cutoff, and temporary or unchanged in a bundle."""
    return _is_old(file, cutoff) and (_is_unfinished(name) or (_has_a_place(name) and _is_whole(name, file)))


def _is_old(file: int, cutoff: datetime) -> bool:
    return os.fstat(file).st_mtime < cutoff.timestamp()


def _is_unfinished(name: str) -> bool:
    """True if the file is a temporary file or lock of a dead writer. Bundles do not contain such files."""
    return name.endswith(row_lines.UNFINISHED)


def _has_a_place(name: str) -> bool:
    """True if a bundle can contain a file with this path."""
    _, *inner = name.split("/")
    return not inner or (len(inner) == 2 and inner[0] in (paths.RAW, paths.SUBAGENTS))


def _is_whole(name: str, file: int) -> bool:
    """True if a bundle would contain the whole file: it is not empty, and a log ends with a complete line."""
    size = os.fstat(file).st_size
    return size > 0 and (not name.endswith(paths.LOG_SUFFIX) or os.pread(file, 1, size - 1) == _NEWLINE)


def _count_sizes(sizes: Collection[int]) -> Counter[str]:
    return +Counter({LINE_FILES: len(sizes), LINE_BYTES: sum(sizes)})


def _projects(settings: Settings) -> Path:
    return files.real(settings.agent_sessions) / PROJECTS
