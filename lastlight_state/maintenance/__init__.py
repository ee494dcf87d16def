"""Work over many domains: looking at the whole of what is stored."""

from __future__ import annotations

from functools import cached_property

from lastlight_state.agent_log import AgentLog
from lastlight_state.db.repository import Context
from lastlight_state.maintenance.agent_sessions import AgentSession, AgentSessionPage, AgentSessions, SessionExecution
from lastlight_state.maintenance.chat_records import ChatMessages, ChatThread
from lastlight_state.maintenance.chats import Chats
from lastlight_state.maintenance.records import (
    LineFiles,
    MessageCounts,
    SchemaFacts,
    Stats,
    StatusCount,
    TableStats,
    TimelineEntry,
)
from lastlight_state.maintenance.repair import Repair
from lastlight_state.maintenance.repair_records import DamagedPart, LineFileScan, Repaired
from lastlight_state.maintenance.stats import Statistics
from lastlight_state.maintenance.timeline import Timeline

__all__ = [
    "AgentSession",
    "AgentSessionPage",
    "AgentSessions",
    "ChatMessages",
    "ChatThread",
    "Chats",
    "DamagedPart",
    "LineFileScan",
    "LineFiles",
    "Maintenance",
    "MessageCounts",
    "Repair",
    "Repaired",
    "SchemaFacts",
    "SessionExecution",
    "Stats",
    "StatusCount",
    "TableStats",
    "TimelineEntry",
]


class Maintenance:
    """``store.maintenance``"""

    def __init__(self, context: Context) -> None:
        self._context = context

    @cached_property
    def stats(self) -> Statistics:
        """How much of everything there is."""
        return Statistics(self._context)

    @cached_property
    def timeline(self) -> Timeline:
        """What happened to a run, whoever did it."""
        return Timeline(self._context)

    @cached_property
    def agent_sessions(self) -> AgentSessions:
        """The agent's log files, with what the database knows of their sessions."""
        return AgentSessions(self._context, self._logs.sessions)

    @cached_property
    def chats(self) -> Chats:
        """Conversations, over turns, logs and messages."""
        return Chats(self._context, self._logs)

    @cached_property
    def repair(self) -> Repair:
        """Damaged line files: scanned, sealed, copied clean, replaced."""
        return Repair(self._logs.root, self._context.clock)

    @cached_property
    def _logs(self) -> AgentLog:
        return AgentLog(self._context.settings.agent_sessions, clock=self._context.clock)
