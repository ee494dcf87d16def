"""The agent's side of a mailbox."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

from lastlight_state.clock import SYSTEM_CLOCK, Clock
from lastlight_state.files.mailbox.agent import state
from lastlight_state.files.mailbox.folder import Place, creation
from lastlight_state.files.mailbox.kernel.pair import Mailbox, Pair
from lastlight_state.files.mailbox.reports import StartReport
from lastlight_state.lazy import Part
from lastlight_state.settings import Settings

if TYPE_CHECKING:
    from lastlight_state.files.mailbox.agent.inbox import AgentInbox
    from lastlight_state.files.mailbox.agent.outbox import AgentOutbox, AgentRouting
    from lastlight_state.files.mailbox.agent.state import AgentState


class AgentMailbox(Mailbox):
    """A session's mailbox as its agent has it. It writes ``outbound.db`` and reads ``inbound.db``."""

    #: Messages to work on.
    inbox: Part[AgentInbox] = Part("lastlight_state.files.mailbox.agent.inbox.AgentInbox")
    #: Messages that the agent sends.
    outbox: Part[AgentOutbox] = Part("lastlight_state.files.mailbox.agent.outbox.AgentOutbox")
    #: Where messages go.
    routing: Part[AgentRouting] = Part("lastlight_state.files.mailbox.agent.outbox.AgentRouting")
    #: What the agent keeps over restarts.
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

        ``instance`` is what `start` gave to the agent's main process: a helper process that joins with it writes as
        long as that agent has not been replaced. Without it writes are not fenced. With ``strict``, `CorruptData` also
        names the first thing that `verify` finds.
        """
        mailbox = cls(state.joined(Pair.opened("agent", Place.of(Path(folder)), settings, clock), instance))
        return mailbox._strict() if strict else mailbox

    @property
    def instance(self) -> str | None:
        """Return the life of the agent that this object writes for."""
        return self._pair.instance

    def start(self) -> StartReport:
        """Begin the agent's life: once in its main process, before it polls.

        Frees what a dead predecessor had claimed; completed and failed acknowledgements stay. A predecessor that is
        still alive can write no more: its writes are `ClaimLost`. The next poll also gives messages with ``on_wake``.
        """
        return state.start(self._pair)

    def beat(self) -> bool:
        """Say that the agent is alive, by the time of a file; whether that was possible. Never raises."""
        return creation.beat(self._pair.place.path, self._pair.clock.now())

    def tool_started(self, name: str, timeout: timedelta | None = None) -> None:
        """Note the tool in use, and for how long it may be silent."""
        state.tool_started(self._pair, name, timeout)

    def tool_finished(self) -> None:
        """Note that no tool is in use."""
        state.tool_finished(self._pair)
