"""Finding logs in their directories without reading their contents."""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from lastlight_state.clock import of_file
from lastlight_state.errors import NotFound, UnsafePath
from lastlight_state.files.agent_log import events, paths
from lastlight_state.files.agent_log.records import LOG_LINES, SessionFile
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.cursor import Mark, mark_at
from lastlight_state.files.jsonl.reader import LineReader
from lastlight_state.locks import Lock

PROJECTS = "projects"


def open_log(log: SessionFile) -> int:
    """Open a log and return its descriptor. Raises `NotFound` if the log has vanished, `BackendUnavailable`."""
    try:
        return files.open_to_read(log.path, base=files.ROOT)
    except FileNotFoundError:
        raise NotFound("agent_session", log.id) from None
    except OSError as error:
        raise files.failure(error, log.path) from error


class FoundLog(NamedTuple):
    """A log file with the key by which lists are sorted: latest change first, then slug and id.

    Times in milliseconds.
    """

    age: int  # negative time of the last change
    slug: str
    session_id: str
    bytes: int

    @property
    def changed_at(self) -> datetime:
        """Return the time of the last change."""
        return of_file(-self.age * 1_000_000)

    def in_directory(self, directory: Path) -> SessionFile:
        """Return the log file as a record for callers."""
        return SessionFile.of(
            {
                "id": self.session_id,
                "slug": self.slug,
                "scope": paths.scope_of(self.slug),
                "bytes": self.bytes,
                "modified_at": self.changed_at,
                "path": directory / (self.session_id + paths.LOG_SUFFIX),
                "safe": paths.is_safe_id(self.session_id),
            }
        )


class LogTree:
    """The logs below a directory ``agent-sessions``. Directories that are links out of the tree are not entered.

    The path of the directory itself may contain links. They are resolved once, when this object is created.
    """

    def __init__(self, root: Path) -> None:
        self.projects = files.real(root) / PROJECTS

    def path_to_write(self, slug: str, session_id: str) -> Path:
        """Return the path of a log to write, creating nothing. Raises `UnsafePath`, `ReservedName`."""
        return self.directory_to_write(slug) / (paths.checked_session_id(session_id) + paths.LOG_SUFFIX)

    def directory_to_write(self, slug: str) -> Path:
        """Return the path of a project directory to write into, creating nothing. Raises `UnsafePath`."""
        directory = self._directory(paths.checked_slug(slug))
        if directory is None:
            raise UnsafePath("slug", f"{slug!r} leads out of {self.projects}")
        return directory

    def find(self, session_id: str, slug: str) -> FoundLog | None:
        """Return the log of this id in one project directory."""
        directory = self._directory(slug)
        if directory is None:
            return None
        return _find_log(slug, session_id, (directory / (session_id + paths.LOG_SUFFIX)).lstat)

    def file_of(self, found: FoundLog) -> SessionFile:
        """Return the record of a log file that was found."""
        return found.in_directory(self._directory(found.slug) or self.projects / found.slug)

    def slugs(self) -> tuple[list[str], int]:
        """Return the project directories, and how many entries are links out of the tree, plain files or bad names."""
        try:
            entries = sorted(os.listdir(self.projects))  # noqa: PTH208 - names are needed, not paths
        except FileNotFoundError:
            return [], 0
        except OSError as error:
            raise files.failure(error, self.projects) from error
        found = [name for name in entries if not files.component_problem(name) and self._is_ours(name)]
        return found, len(entries) - len(found)

    def logs(self, slug: str) -> tuple[list[FoundLog], int]:
        """Return the main logs of a project directory, and the number of unreadable entries."""
        found: list[FoundLog] = []
        seen = 0
        try:
            with os.scandir(self.projects / slug) as entries:
                for entry in entries:
                    session_id = paths.session_of(entry.name)
                    if session_id is None:
                        continue
                    seen += 1
                    log = _find_log(slug, session_id, partial(entry.stat, follow_symlinks=False))
                    if log is not None:
                        found.append(log)
        except OSError:
            return found, seen - len(found) + 1
        return found, seen - len(found)

    def agent_files(self, log: SessionFile) -> Iterator[tuple[Path, bool]]:
        """Yield files that may be sub-agents' logs, each with True if it is in the session's own directory."""
        own = log.path.with_suffix("") / paths.SUBAGENTS
        for directory, is_own in ((own, True), (log.path.parent, False)):
            try:
                names = sorted(os.listdir(directory))  # noqa: PTH208 - names are needed, not paths
            except OSError:
                continue
            for name in names:
                if name.startswith(paths.AGENT_PREFIX) and name.endswith(paths.LOG_SUFFIX):
                    yield directory / name, is_own

    def _is_ours(self, name: str) -> bool:
        directory = self._directory(name)
        return directory is not None and os.path.isdir(directory)  # noqa: PTH112 - never raises

    def _directory(self, slug: str) -> Path | None:
        """Return the real path of a project directory; None for a link out of the tree."""
        directory = Path(os.path.realpath(self.projects / slug))
        return directory if directory.parent == self.projects else None


def _find_log(slug: str, session_id: str, look: Callable[[], os.stat_result]) -> FoundLog | None:
    """Return the log file, or None if it is not a regular file, has vanished, or has a name that is not text."""
    if files.component_problem(session_id):
        return None
    try:
        seen = look()
    except OSError:
        return None
    if not stat.S_ISREG(seen.st_mode):
        return None
    return FoundLog(-(seen.st_mtime_ns // 1_000_000), slug, session_id, seen.st_size)


# AgentFiles: the logs of a session's sub-agents. Recent: a small cache for them.
#
# They are the files in the session's directory ``subagents``, and those beside its log whose first dated record names
# the session. The first record of a file never changes, so it is read once.

_FIRST_BYTES = 64  # which identify a file


class AgentFiles:
    """Finds the logs of a session's sub-agents."""

    def __init__(self, tree: LogTree) -> None:
        self._tree = tree
        self._owners: Recent[Path, tuple[Mark, str]] = Recent()

    def of(self, log: SessionFile) -> Iterator[Path]:
        """Yield the sub-agents' logs of a session, in a fixed order; each name once."""
        seen: set[str] = set()
        for path, is_own in self._tree.agent_files(log):
            if path.name not in seen and (is_own or self._owner(path) == log.id):
                seen.add(path.name)
                yield path

    def _owner(self, path: Path) -> str | None:
        try:
            descriptor = files.open_to_read(path, base=files.ROOT)
        except OSError:  # vanished, a link, or unreadable: counts for no session
            return None
        try:
            known = self._owners.find(path)
            if known and known[0].holds(descriptor, path):
                return known[1]
            owner = _first_session(descriptor, path)
            if owner is not None:
                self._owners.put(path, (mark_at(descriptor, path, _FIRST_BYTES), owner))
            return owner
        finally:
            os.close(descriptor)


def _first_session(descriptor: int, path: Path) -> str | None:
    """Return the session id in the first record that has a time."""
    for line in LineReader(descriptor, path, LOG_LINES).lines():
        if line.timestamp is not None:
            return events.text(line.value, "sessionId")
    return None


K = TypeVar("K")
V = TypeVar("V")

MOST = 1_000


class Recent(Generic[K, V]):
    """A cache of at most `MOST` values by key. It drops the least recently used value.

    Thread-safe, also after a fork.
    """

    def __init__(self) -> None:
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()
        files.renew_after_fork(self)

    def find(self, key: K) -> V | None:
        """Return the cached value of a key, or None."""
        with self._lock:
            return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        """Cache a value as the most recently used."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > MOST:
                self._values.popitem(last=False)

    def after_fork(self) -> None:
        """Replace the lock in a forked child, because a thread of the parent may have held it."""
        self._lock = Lock()
