"""``store.maintenance`` from coroutines."""

from __future__ import annotations

from functools import cached_property

from lastlight_state.aio.forward import Face, reading, writing
from lastlight_state.maintenance import AgentSessions, Chats, Maintenance, Repair
from lastlight_state.maintenance.stats import Statistics
from lastlight_state.maintenance.timeline import Timeline


class AsyncStatistics(Face[Statistics]):
    """``store.maintenance.stats``"""

    collect = reading(Statistics.collect)


class AsyncTimeline(Face[Timeline]):
    """``store.maintenance.timeline``"""

    list = reading(Timeline.list)


class AsyncAgentSessions(Face[AgentSessions]):
    """``store.maintenance.agent_sessions``"""

    list = reading(AgentSessions.list)
    repo_for_session = reading(AgentSessions.repo_for_session)


class AsyncChats(Face[Chats]):
    """``store.maintenance.chats``"""

    list = reading(Chats.list)
    get = reading(Chats.get)
    messages = reading(Chats.messages)
    log_path = reading(Chats.log_path)


class AsyncRepair(Face[Repair]):
    """``store.maintenance.repair``"""

    scan = reading(Repair.scan)
    seal = writing(Repair.seal)
    salvage = writing(Repair.salvage)


class AsyncMaintenance(Face[Maintenance]):
    """``store.maintenance``"""

    @cached_property
    def stats(self) -> AsyncStatistics:
        """How much of everything there is."""
        return AsyncStatistics(self._target.stats, self._runner)

    @cached_property
    def timeline(self) -> AsyncTimeline:
        """What happened to a run, whoever did it."""
        return AsyncTimeline(self._target.timeline, self._runner)

    @cached_property
    def agent_sessions(self) -> AsyncAgentSessions:
        """The agent's log files, with what the database knows of their sessions."""
        return AsyncAgentSessions(self._target.agent_sessions, self._runner)

    @cached_property
    def chats(self) -> AsyncChats:
        """Conversations, over turns, logs and messages."""
        return AsyncChats(self._target.chats, self._runner)

    @cached_property
    def repair(self) -> AsyncRepair:
        """Damaged line files: scanned, sealed, copied clean, replaced."""
        return AsyncRepair(self._target.repair, self._runner)
