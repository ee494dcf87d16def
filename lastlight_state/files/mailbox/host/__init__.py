"""The host's side of a mailbox."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from lastlight_state.clock import SYSTEM_CLOCK, Clock
from lastlight_state.files.mailbox.folder import Place
from lastlight_state.files.mailbox.shared.pair import Mailbox, Pair
from lastlight_state.lazy import Part
from lastlight_state.settings import Settings

if TYPE_CHECKING:
    from lastlight_state.files.mailbox.host.inbox import HostInbox
    from lastlight_state.files.mailbox.host.outbox import HostOutbox
    from lastlight_state.files.mailbox.host.routing import HostRouting
    from lastlight_state.files.mailbox.host.sweep import HostSweep
    from lastlight_state.files.mailbox.host.tasks import HostTasks


class HostMailbox(Mailbox):
    """A session's mailbox as the host uses it. The host writes ``inbound.db`` and reads ``outbound.db``."""

    #: Messages for the agent.
    inbox: Part[HostInbox] = Part("lastlight_state.files.mailbox.host.inbox.HostInbox")
    #: Scheduled and recurring work for the agent.
    tasks: Part[HostTasks] = Part("lastlight_state.files.mailbox.host.tasks.HostTasks")
    #: Messages from the agent, and their delivery.
    outbox: Part[HostOutbox] = Part("lastlight_state.files.mailbox.host.outbox.HostOutbox")
    #: The agent's acknowledgements, and whether it is stuck.
    sweep: Part[HostSweep] = Part("lastlight_state.files.mailbox.host.sweep.HostSweep")
    #: The places to which the agent may send.
    routing: Part[HostRouting] = Part("lastlight_state.files.mailbox.host.routing.HostRouting")

    @classmethod
    def open(
        cls,
        folder: Path | str,
        *,
        strict: bool = False,
        settings: Settings | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Self:
        """Return the mailbox in this folder, without a store. Raises `NotFound`, `UnsafePath` and `CorruptData`.

        With ``strict``, the first finding of `verify` raises `CorruptData`, too.
        """
        mailbox = cls(Pair.open_side("host", Place.of(Path(folder)), settings, clock))
        return mailbox._strict() if strict else mailbox
