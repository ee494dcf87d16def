"""AgentFiles: the logs of a session's sub-agents. Recent: a small cache for them.

They are the files in the session's directory ``subagents``, and those beside its log whose first dated record names the
session. The first record of a file never changes, so it is read once.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

from lastlight_state.agent_log import events
from lastlight_state.agent_log.records import LOG_LINES, SessionFile
from lastlight_state.agent_log.tree import LogTree
from lastlight_state.jsonl import files, forks, places
from lastlight_state.jsonl.cursor import Mark, mark_at
from lastlight_state.jsonl.reader import LineReader

_FIRST_BYTES = 64  # to recognise a file by


class AgentFiles:
    """Finds the logs of a session's sub-agents."""

    def __init__(self, tree: LogTree) -> None:
        self._tree = tree
        self._owners: Recent[Path, tuple[Mark, str]] = Recent()

    def of(self, log: SessionFile) -> Iterator[Path]:
        """The sub-agents' logs of a session, in a fixed order; each name once."""
        seen: set[str] = set()
        for path, is_own in self._tree.agent_files(log):
            if path.name not in seen and (is_own or self._owner(path) == log.id):
                seen.add(path.name)
                yield path

    def _owner(self, path: Path) -> str | None:
        try:
            descriptor = files.open_to_read(path, base=places.ROOT)
        except OSError:  # vanished, a link, or unreadable: belongs to no session
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
    """The session id of the first dated record."""
    for line in LineReader(descriptor, path, LOG_LINES).lines():
        if line.timestamp is not None:
            return events.text(line.value, "sessionId")
    return None


K = TypeVar("K")
V = TypeVar("V")

MOST = 1_000


class Recent(Generic[K, V]):
    """At most `MOST` values by key; the least recently used is forgotten first. Thread-safe, also after a fork."""

    def __init__(self) -> None:
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()
        forks.renew_after_fork(self)

    def find(self, key: K) -> V | None:
        """The value of a key, or None."""
        with self._lock:
            return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        """Keep a value as the most recently used."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > MOST:
                self._values.popitem(last=False)

    def after_fork(self) -> None:
        """In a forked child: replace the lock, which a thread of the parent may have held."""
        self._lock = threading.Lock()
