"""The logs of runs that have ended, by the time of their last record. A log whose writer lives stays."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from lastlight_state.db.unit import Unit
from lastlight_state.jsonl.lock import LOCK_TIMEOUT
from lastlight_state.maintenance.prune.files.tree import Seen, Size
from lastlight_state.run_log import words
from lastlight_state.run_log.runs.heads import Heads
from lastlight_state.run_log.runs.lists import RunFilter, RunLists
from lastlight_state.run_log.runs.upkeep import Upkeep, size_of
from lastlight_state.run_log.tree import RunTree
from lastlight_state.settings import Settings


class RunLogs:
    """The kind ``run-logs``. The key of a log is its run. No row of the database names one."""

    name: ClassVar[str] = "run-logs"
    record: ClassVar[str] = words.RUN
    keep_days: ClassVar[int] = 30
    keep_n: ClassVar[int] = 100
    buried: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        self._tree = RunTree(settings.run_logs)
        self.root = self._tree.sessions
        heads = Heads(self._tree)
        self._lists = RunLists(self._tree, heads)
        self._upkeep = Upkeep(self._tree, heads, self._lists, LOCK_TIMEOUT)

    def seen(self, cutoff: datetime) -> Seen:
        """All logs that have their end, in the order of their last records."""
        entries, unreadable = self._lists.entries(RunFilter())
        ended = [(entry.last_ts, file.run_id) for file, entry in entries if entry.state == "ended" and entry.last_ts]
        others = [entry for _, entry in entries if entry.state != "ended" or entry.last_ts is None]
        waiting = sum((entry.last_ts or entry.started_at) < cutoff for entry in others)
        return Seen(sorted(ended), {"not_ended": waiting, "unreadable": unreadable})

    def id_of(self, key: str) -> str:
        """The run."""
        return key

    def protected(self, unit: Unit, keys: Sequence[str]) -> dict[str, str]:
        """None: the database knows nothing of these logs."""
        return {}

    def size(self, key: str, cutoff: datetime) -> Size | None:
        """The bytes of the log, as it is or packed."""
        file = self._tree.find(key)
        found = None if file is None else size_of(file)
        return None if found is None else Size(1, found)

    def remove(self, key: str, cutoff: datetime) -> bool:
        """Remove a log that has got no later records."""
        file = self._tree.find(key)
        return file is None or self._upkeep.remove(file, cutoff) is not None
