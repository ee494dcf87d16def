"""The object ``store.agent_log``."""

from __future__ import annotations

from pathlib import Path

from lastlight_state.clock import SYSTEM_CLOCK, Clock, checked_clock
from lastlight_state.files.agent_log.arguments import SessionTypes
from lastlight_state.files.agent_log.raw import Raw
from lastlight_state.files.agent_log.reader import Reader
from lastlight_state.files.agent_log.repair import LogRepair
from lastlight_state.files.agent_log.summaries import Sessions, Summaries
from lastlight_state.files.agent_log.tree import AgentFiles, LogTree
from lastlight_state.files.agent_log.writer import Writer
from lastlight_state.files.agent_log.writer.session import Files
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.files import LOCK_TIMEOUT
from lastlight_state.files.jsonl.writer import SyncWord


class AgentLog:
    """The logs below a directory ``agent-sessions``: ``store.agent_log``. Creates nothing by itself.

    ``sync`` sets when lines are synced to disk, ``session_types`` how a session's type follows from its first prompt,
    and ``lock_timeout`` how many seconds a writer waits for another writer's lock.
    """

    def __init__(
        self,
        root: Path,
        *,
        clock: Clock = SYSTEM_CLOCK,
        sync: SyncWord = "end",
        session_types: SessionTypes = (),
        lock_timeout: float = LOCK_TIMEOUT,
    ) -> None:
        root = files.real(root)
        tree = LogTree(root)
        agents = AgentFiles(tree)
        clock = checked_clock(clock)
        self.root = root
        self.writer = Writer(Files(tree, clock, sync, lock_timeout))
        self.sessions = Sessions(tree, Summaries(agents, session_types))
        self.reader = Reader(self.sessions, agents)
        self.raw = Raw(self.sessions)
        self.repair = LogRepair(self.sessions)
