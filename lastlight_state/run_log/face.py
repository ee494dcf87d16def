"""`RunLog`: the face ``store.run_log``."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from lastlight_state.clock import SYSTEM_CLOCK, Clock, KeptClock
from lastlight_state.jsonl.lock import LOCK_TIMEOUT
from lastlight_state.jsonl.writer import SyncWord
from lastlight_state.run_log.checks import Checks
from lastlight_state.run_log.replay import Replay
from lastlight_state.run_log.runs import Runs, Writing
from lastlight_state.run_log.runs.heads import Heads
from lastlight_state.run_log.runs.lists import RunLists
from lastlight_state.run_log.states import States
from lastlight_state.run_log.states.reconstruction import Reconstruction
from lastlight_state.run_log.tree import RunTree


class RunLog:
    """``store.run_log``: runs and session states below ``<root>/sessions``. Creates nothing by itself.

    It needs no database: a process without one, such as an agent in a container, uses `open`. ``sync`` says when lines
    are flushed to disk, ``lock_timeout`` how many seconds a call waits for another one's append or save.
    """

    def __init__(
        self,
        root: Path,
        *,
        clock: Clock = SYSTEM_CLOCK,
        sync: SyncWord = "end",
        lock_timeout: float = LOCK_TIMEOUT,
    ) -> None:
        kept = clock if clock is SYSTEM_CLOCK else KeptClock(clock)
        tree = RunTree(root)
        self.root = tree.root
        heads = Heads(tree)
        lists = RunLists(tree, heads)
        self.runs = Runs(tree, heads, lists, Writing(kept, sync, lock_timeout))
        self.replay = Replay(tree, lists)
        self.checks = Checks(tree)
        self.states = States(tree, kept, lock_timeout, Reconstruction(tree, lists))

    @classmethod
    def open(
        cls,
        root: Path | str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        sync: SyncWord = "end",
        lock_timeout: float = LOCK_TIMEOUT,
    ) -> Self:
        """The run log below this directory, without a store."""
        return cls(Path(root).absolute(), clock=clock, sync=sync, lock_timeout=lock_timeout)
