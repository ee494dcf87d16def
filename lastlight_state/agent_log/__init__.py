"""The agent's event logs: one append-only file of lines for each agent session, beside the database.

The database knows what runs and what to do next; a log keeps every event that the agent emitted, in order. They are
joined by ``session_id`` alone. Logs are files: they take no part in transactions.
"""

from __future__ import annotations

from pathlib import Path

from lastlight_state.agent_log.agents import AgentFiles
from lastlight_state.agent_log.arguments import CommandRecord, Outcome, SessionTypes, Tokens, TranslationOptions
from lastlight_state.agent_log.paths import Cwd, Place, Slug, slug_for_cwd
from lastlight_state.agent_log.raw import Raw
from lastlight_state.agent_log.reader import Reader
from lastlight_state.agent_log.records import (
    AgentSessionSummary,
    Hit,
    LogCheck,
    LogIssue,
    LogLine,
    LogMessage,
    LogPage,
    MessagePage,
    RawCheck,
    RawFile,
    RunResult,
    SessionFile,
    SessionPage,
)
from lastlight_state.agent_log.repair import Repair
from lastlight_state.agent_log.session_writer import Files, SessionWriter
from lastlight_state.agent_log.sessions import Sessions
from lastlight_state.agent_log.summaries import Summaries
from lastlight_state.agent_log.tree import LogTree
from lastlight_state.agent_log.writer import Writer
from lastlight_state.clock import SYSTEM_CLOCK, Clock
from lastlight_state.jsonl.follow import Reset
from lastlight_state.jsonl.lock import LOCK_TIMEOUT
from lastlight_state.jsonl.writer import SyncWord

__all__ = [
    "AgentLog",
    "AgentSessionSummary",
    "CommandRecord",
    "Cwd",
    "Hit",
    "LogCheck",
    "LogIssue",
    "LogLine",
    "LogMessage",
    "LogPage",
    "MessagePage",
    "Outcome",
    "Place",
    "Raw",
    "RawCheck",
    "RawFile",
    "Reader",
    "Repair",
    "Reset",
    "RunResult",
    "SessionFile",
    "SessionPage",
    "SessionWriter",
    "Sessions",
    "Slug",
    "Tokens",
    "TranslationOptions",
    "Writer",
    "slug_for_cwd",
]


class AgentLog:
    """``store.agent_log``: the logs below a directory ``agent-sessions``. Creates nothing by itself.

    ``sync`` says when lines reach the disk, ``session_types`` how sessions are named after their first prompts, and a
    writer waits ``lock_timeout`` seconds for another one.
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
        tree = LogTree(root)
        agents = AgentFiles(tree)
        self.root = root
        self.writer = Writer(Files(tree, clock, sync, lock_timeout))
        self.sessions = Sessions(tree, Summaries(agents, session_types))
        self.reader = Reader(self.sessions, agents)
        self.raw = Raw(self.sessions)
        self.repair = Repair(self.sessions)
