"""The agent's side of a mailbox."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

from lastlight_state.clock import SYSTEM_CLOCK, Clock
from lastlight_state.files.mailbox.agent import state
from lastlight_state.files.mailbox.folder import Place, creation
from lastlight_state.files.mailbox.reports import StartReport
from lastlight_state.files.mailbox.shared.pair import Mailbox, Pair
from lastlight_state.lazy import Part
from lastlight_state.settings import Settings

if TYPE_CHECKING:
    from lastlight_state.files.mailbox.agent.inbox import AgentInbox
    from lastlight_state.files.mailbox.agent.outbox import AgentOutbox, AgentRouting
    from lastlight_state.files.mailbox.agent.state import AgentState


class AgentMailbox(Mailbox):
    """A session's mailbox as the agent uses it. The agent writes ``outbound.db`` and reads ``inbound.db``."""

    #: Messages to work on.
    inbox: Part[AgentInbox] = Part("lastlight_state.files.mailbox.agent.inbox.AgentInbox")
    #: Messages that the agent sends.
    outbox: Part[AgentOutbox] = Part("lastlight_state.files.mailbox.agent.outbox.AgentOutbox")
    #: The places that messages go to.
    routing: Part[AgentRouting] = Part("lastlight_state.files.mailbox.agent.outbox.AgentRouting")
    #: Values that the agent keeps over restarts.
    state: Part[AgentState] = Part("lastlight_state.files.mailbox.agent.state.AgentState")

    @classmethod
    def open(
        cls,
        folder: Path | str,
        *,
        instance: str | None = None,
        strict: bool = False,
        settings: Settings | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Self:
        """Return the mailbox in this folder, without a store. Raises `NotFound`, `UnsafePath` and `CorruptData`.

        ``instance`` is the number that `start` returned to the agent's main process: a helper process that passes this
        number can write until that agent is replaced. Without it, writes are not fenced. With ``strict``, the first
        finding of `verify` raises `CorruptData`, too.
        """
        mailbox = cls(state.bind_instance(Pair.open_side("agent", Place.of(Path(folder)), settings, clock), instance))
        return mailbox._strict() if strict else mailbox

    @property
    def instance(self) -> str | None:
        """Return the agent instance for which this object writes."""
        return self._pair.instance

    def start(self) -> StartReport:
        """Begin a new agent instance. Call it once in the agent's main process, before it polls.

        Frees the claims of an earlier instance that died; completed and failed acknowledgements stay. If the earlier
        instance is still alive, its writes raise `ClaimLost` from now on. The next poll also returns messages that have
        ``on_wake``.
        """
        return state.start(self._pair)

    def beat(self) -> bool:
        """Set the time of the heartbeat file, to show that the agent is alive. Returns False if that failed.

        Never raises.
        """
        return creation.beat(self._pair.place.path, self._pair.clock.now())

    def tool_started(self, name: str, timeout: timedelta | None = None) -> None:
        """Record which tool the agent is using, and how long the agent may show no activity meanwhile."""
        state.tool_started(self._pair, name, timeout)

    def tool_finished(self) -> None:
        """Record that the agent is using no tool."""
        state.tool_finished(self._pair)
