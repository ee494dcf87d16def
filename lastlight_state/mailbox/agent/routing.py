"""Where the agent's messages go. Each call reads what the host says at that moment."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.errors import NotFound
from lastlight_state.mailbox import models
from lastlight_state.mailbox.arguments import Routing
from lastlight_state.mailbox.kernel import messages
from lastlight_state.mailbox.kernel.pair import Room
from lastlight_state.mailbox.kernel.readings import Reading, shown
from lastlight_state.mailbox.records import Destination
from lastlight_state.mailbox.rows import DestinationsRow, SessionRoutingRow
from lastlight_state.mailbox.words import DESTINATION

_DEFAULT = Reading(models.SESSION_ROUTING, lambda columns: sa.select(*shown(columns)), row=SessionRoutingRow)
_ALL = Reading(
    models.DESTINATIONS, lambda columns: sa.select(*shown(columns)).order_by(columns["name"]), row=DestinationsRow
)


class AgentRouting(Room):
    """``agent.routing``"""

    def find_default(self) -> Routing | None:
        """Where messages go that say nothing, or None."""
        row = self._look(lambda look: look.row(_DEFAULT))
        found = None if row is None else Routing(row["channel_type"], row["platform_id"], row["thread_id"])
        return None if found == Routing() else found

    def resolve(self, to: str) -> Destination:
        """The destination of this name, which the host may remove at any time. Raises `NotFound`."""
        name = valid.sought("to", to)
        rows = self._look(lambda look: look.keyed(messages.DESTINATION_BY_NAME, [name]))
        if not rows:
            raise NotFound(DESTINATION, name)
        return Destination.of(rows[0])

    def list_destinations(self) -> list[Destination]:
        """All places that the agent may send to, by name."""
        return [Destination.of(row) for row in self._look(lambda look: look.rows(_ALL))]
