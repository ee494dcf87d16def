"""Checks a log, ends its torn last line, and deletes it with its folder.

Copies and replacements of damaged files are made by maintenance.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from lastlight_state.db.gate import guard_arguments
from lastlight_state.files.agent_log import raw
from lastlight_state.files.agent_log.raw import references_of
from lastlight_state.files.agent_log.records import LOG_LINES, LogCheck, LogIssue, LogLine, SessionFile
from lastlight_state.files.agent_log.summaries import Sessions
from lastlight_state.files.agent_log.tree import open_log
from lastlight_state.files.jsonl import files, repair
from lastlight_state.files.jsonl.reader import MAIN, LineReader

# Deletion of a log with the folder beside it, under the lock of appends.
#
# Both are deleted together or not at all: every file is checked before the first one is deleted. A writer that waits
# for the lock then sees that its path names another file, and begins a new one, so that no appended line is lost. Links
# are not followed.

#: A function that decides whether a file may be deleted, by its path below the project directory and a descriptor.
MayGo: TypeAlias = Callable[[str, int], bool]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def removable_files(log: Path, may_go: MayGo) -> dict[str, int] | None:
    """Return the files that `remove` would delete now, with their sizes in bytes. Waits for no lock.

    Returns None if one of the files must stay. A missing log has no files, but its folder may. Raises
    `BackendUnavailable`, `UnsafePath`.
    """
    with _directory(log) as held:
        return {} if held is None else _removable_files(held, log, may_go)


def remove(log: Path, may_go: MayGo, *, lock_timeout: float = files.LOCK_TIMEOUT) -> bool:
    """Delete the log and its folder, if all of their files may be deleted. Returns True if everything was deleted.

    Returns False also for a log that is being replaced at this moment, and on a file system without locks. Files that
    appear in the folder meanwhile stay. May be repeated after a kill. Raises `BackendBusy` if a writer holds the lock
    for too long, `BackendUnavailable`, `UnsafePath`.
    """
    with _directory(log) as held:
        if held is None:
            return True
        with _lock_log(log, held, lock_timeout) as is_ours:
            found = _removable_files(held, log, may_go) if is_ours else None
            if found is None:
                return False
            _remove_folder(held, _folder_of(log), found)
            with suppress(FileNotFoundError):
                os.unlink(log.name, dir_fd=held)
            files.sync(held)
            return True


@contextmanager
def _directory(log: Path) -> Iterator[int | None]:
    """Open the log's directory for the block, or yield None if it does not exist.

    OSErrors become this library's errors.
    """
    try:
        with ExitStack() as stack:
            held: int | None = None
            with suppress(FileNotFoundError):
                held = stack.enter_context(files.open_directory(log.parent, base=files.ROOT))[0]
            yield held
    except OSError as error:
        raise files.failure(error, log) from error


@contextmanager
def _lock_log(log: Path, held: int, timeout: float) -> Iterator[bool]:
    """Lock the log against appends. Yields True if the path still leads to the locked file, or if there is no file."""
    try:
        descriptor = os.open(log.name, _READ, dir_fd=held)
    except FileNotFoundError:
        yield True
        return
    try:
        yield files.acquire(descriptor, log, timeout) and _names(held, log.name, descriptor)
    finally:
        os.close(descriptor)


def _names(held: int, name: str, descriptor: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(name, dir_fd=held, follow_symlinks=False), os.fstat(descriptor))
    return False


def _removable_files(held: int, log: Path, may_go: MayGo) -> dict[str, int] | None:
    found: dict[str, int] = {}
    for name, inside, at in _files(held, log):
        size = _size_if(name, inside, at, may_go)
        if size is None:
            return None
        found[name] = size
    return found


def _files(held: int, log: Path) -> Iterator[tuple[str, str, int]]:
    """Yield each entry of a log that is not a directory: its path, its name, and its directory's descriptor."""
    folder = _folder_of(log)
    if _mode(held, log.name) is not None:
        yield log.name, log.name, held
    mode = _mode(held, folder)
    if mode is not None and not stat.S_ISDIR(mode):
        yield folder, folder, held
    elif mode is not None:
        for path, folders, names, at in os.fwalk(folder, onerror=_raise, dir_fd=held):
            links = (name for name in folders if stat.S_ISLNK(_mode(at, name) or 0))
            yield from ((f"{path}/{name}", name, at) for name in (*links, *names))


def _size_if(path: str, name: str, at: int, may_go: MayGo) -> int | None:
    """Return the size of a regular file that may be deleted, or None for an entry that must stay."""
    if not stat.S_ISREG(_mode(at, name) or 0):
        return None
    descriptor = os.open(name, _READ, dir_fd=at)
    try:
        return os.fstat(descriptor).st_size if may_go(path, descriptor) else None
    finally:
        os.close(descriptor)


def _remove_folder(held: int, folder: str, found: dict[str, int]) -> None:
    """Delete these files, and then the directories that became empty."""
    with suppress(FileNotFoundError):
        for path, folders, names, at in os.fwalk(folder, topdown=False, onerror=_raise, dir_fd=held):
            for name in names:
                if f"{path}/{name}" in found:
                    os.unlink(name, dir_fd=at)
            for name in folders:
                with suppress(OSError):  # a new file has appeared in it
                    os.rmdir(name, dir_fd=at)
    with suppress(OSError):
        os.rmdir(folder, dir_fd=held)


def _folder_of(log: Path) -> str:
    return log.with_suffix("").name


def _mode(at: int, name: str) -> int | None:
    """Return the mode of the entry with this name; None if there is none."""
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
    return None


def _raise(error: OSError) -> None:
    raise error


MOST_NAMED = 1_000


class LogRepair:
    """Checks and repairs of logs: ``store.agent_log.repair``."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    @guard_arguments
    def check(self, session_id: str, *, slug: str | None = None) -> LogCheck:
        """Check a session's main log. Reads all of it, and writes nothing. Raises `NotFound`.

        A torn last line does not count as an issue, because it may still be written.
        """
        log = self._sessions.get(session_id, slug=slug)
        before = _stored_digests(log)
        descriptor = open_log(log)
        try:
            reader = LineReader(descriptor, log.path, LOG_LINES)
            seen = _LineCounts()
            for line in reader.records():
                seen.add(line)
        finally:
            os.close(descriptor)
        return LogCheck(
            lines=seen.sound + reader.issue_count + reader.torn_tail,
            records=seen.sound + seen.recovered,
            recovered=seen.recovered,
            issues=tuple(LogIssue.at(issue, MAIN) for issue in reader.issues),
            issue_count=reader.issue_count,
            torn_tail=reader.torn_tail,
            missing_raw=_sorted_sample(seen.referred - _stored_digests(log)),
            unreferenced_raw=_sorted_sample(before - seen.referred),
            repeated_results=_sorted_sample(call for call, times in seen.results.items() if times > 1),
        )

    @guard_arguments
    def seal(self, session_id: str, *, slug: str | None = None) -> bool:
        """End a torn last line with a newline, under the lock of its writers.

        Returns True if there was one. Idempotent.

        Nothing else in the file changes. Raises `NotFound`, `BackendBusy`, `BackendUnavailable`.
        """
        return repair.seal(self._sessions.get(session_id, slug=slug).path)


class _LineCounts:
    """Counts of a log's lines by their condition."""

    def __init__(self) -> None:
        self.sound = 0
        self.recovered = 0
        self.results: Counter[str] = Counter()
        self.referred: set[str] = set()

    def add(self, line: LogLine) -> None:
        """Count one line of the log."""
        if line.recovered:
            self.recovered += 1
        else:
            self.sound += 1
        self.referred.update(references_of(line.value))
        self.results.update(_results_of(line))


def _stored_digests(log: SessionFile) -> set[str]:
    """Return the hashes of the stored untruncated results. Each is stored before the line that refers to it."""
    directory = raw.directory_of(log.path)
    try:
        return set(raw.stored_sizes(directory))
    except OSError as error:
        raise files.failure(error, directory) from error


def _sorted_sample(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(found)[:MOST_NAMED])


def _results_of(line: LogLine) -> list[str]:
    """Return the ids of the tool calls whose results are in the line."""
    message = line.value.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    calls = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
    return [call for call in calls if isinstance(call, str)]
