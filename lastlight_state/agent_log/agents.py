"""AgentFiles: which sub-agents' logs belong to a session.

Those in its own directory ``subagents``, and those beside its log whose first dated record names the session. What a
file's first record says never changes, so it is read once.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from lastlight_state.agent_log import envelopes, events
from lastlight_state.agent_log.records import SessionFile
from lastlight_state.agent_log.tree import LogTree
from lastlight_state.jsonl import files, forks
from lastlight_state.jsonl.reader import LineReader

_KEPT = 1_000


class AgentFiles:
    """Finds the logs of a session's sub-agents."""

    def __init__(self, tree: LogTree) -> None:
        self._tree = tree
        self._owners: OrderedDict[tuple[Path, int, int], str] = OrderedDict()
        self._lock = threading.Lock()
        forks.renew_after_fork(self)

    def of(self, log: SessionFile) -> Iterator[Path]:
        """The sub-agents' logs of a session, in a fixed order; each name once."""
        seen: set[str] = set()
        for path, is_own in self._tree.agent_files(log):
            if path.name not in seen and (is_own or self._owner(path) == log.id):
                seen.add(path.name)
                yield path

    def after_fork(self) -> None:
        """In a forked child: forget a lock that a thread of the parent may have held."""
        self._lock = threading.Lock()

    def _owner(self, path: Path) -> str | None:
        try:
            descriptor = files.open_to_read(path)
        except OSError:  # vanished, a link, or not ours to read: nobody's
            return None
        try:
            found = os.fstat(descriptor)
            key = (path, found.st_dev, found.st_ino)
            with self._lock:
                owner = self._owners.get(key)
            if owner is None:
                owner = _first_session(descriptor, path)
            if owner is not None:
                self._remember(key, owner)
            return owner
        finally:
            os.close(descriptor)

    def _remember(self, key: tuple[Path, int, int], owner: str) -> None:
        with self._lock:
            self._owners[key] = owner
            self._owners.move_to_end(key)
            while len(self._owners) > _KEPT:
                self._owners.popitem(last=False)


def _first_session(descriptor: int, path: Path) -> str | None:
    """The session that the first dated record names."""
    for line in LineReader(descriptor, path, envelopes.is_record).lines():
        if envelopes.time_of(line.value) is not None:
            return events.text(line.value, "sessionId")
    return None
