"""The destinations to which the agent may send, from the host's configuration. The host writes them on every wake."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from lastlight_state.db import valid
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue, PayloadTooLarge
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.arguments import NewDestination, Routing
from lastlight_state.files.mailbox.host import statements as sql
from lastlight_state.files.mailbox.projections import RoutingColumns
from lastlight_state.files.mailbox.records import Destination
from lastlight_state.files.mailbox.shared import queries
from lastlight_state.files.mailbox.shared.pair import MailboxPart

_NEEDED = {"channel": ("channel_type", "platform_id"), "agent": ("agent_group_id",)}


class HostRouting(MailboxPart):
    """The agent's destinations: ``host.routing``."""

    def replace_destinations(self, entries: Sequence[NewDestination]) -> bool:
        """Make these the only destinations, in one transaction. Returns True if anything changed.

        Raises `InvalidValue` for two destinations with the same name, and for a destination without a field that its
        type needs. Then nothing changes.
        """
        rows = [_row(entry) for entry in valid.several("entries", entries)]
        most = self._settings.limits.destinations
        if len(rows) > most:
            raise PayloadTooLarge("entries", limit=most, actual=len(rows), unit="destinations")
        rows.sort(key=lambda row: str(row["name"]))
        for one, following in pairwise(rows):
            if one["name"] == following["name"]:
                raise InvalidValue("entries", f"two destinations are named {one['name']!r}")
        return self._writing(lambda unit: _replace_rows(unit, rows))

    def list_destinations(self) -> list[Destination]:
        """Return all destinations, by name."""
        return self._list_rows(sql.ALL_DESTINATIONS)

    def put_default(self, routing: Routing | None) -> None:
        """Set the default destination, for messages that name none. With None, such messages have no destination."""
        values = queries.routing(routing)
        self._writing(lambda unit: unit.change(sql.PUT_DEFAULT, values), repeatable=True)

    def find_default(self) -> Routing | None:
        """Return where messages go that say nothing, or None."""
        row = self._find(sql.GET_DEFAULT)
        found = None if row is None else Routing(*row)
        return None if found == Routing() else found

    def allows(self, routing: Routing) -> bool:
        """True if the agent may send there: to the default channel and place, or to one of its own destinations."""
        asked = queries.routing(routing)
        return self._viewing(lambda unit: _allows(unit, asked))


def _allows(unit: Unit, asked: RoutingColumns) -> bool:
    default = unit.row(sql.GET_DEFAULT)
    place = asked["channel_type"], asked["platform_id"]
    if place[1] is not None and default is not None and place == default[:2]:
        return True
    values = {"channel_type": asked["channel_type"], "platform_id": asked["platform_id"]}
    return unit.row(sql.IS_DESTINATION, values) is not None


def _replace_rows(unit: Unit, rows: Sequence[Row]) -> bool:
    if [vars(destination) for destination in unit.rows(sql.ALL_DESTINATIONS)] == rows:
        return False
    unit.change(sql.CLEAR_DESTINATIONS)
    for row in rows:
        unit.change(sql.INSERT_DESTINATION, row)
    return True


def _row(entry: Any) -> Row:
    given = valid.argument_group("entry", entry, NewDestination)
    name = valid.identifier("name", given.name, models.ROUTING_BYTES)
    kind = valid.word("type", given.type, models.DESTINATION_TYPES)
    return {
        "name": name,
        "display_name": given.display_name or name,
        "type": kind,
        "channel_type": _field(kind, "channel_type", given.channel_type),
        "platform_id": _field(kind, "platform_id", given.platform_id),
        "agent_group_id": _field(kind, "agent_group_id", given.agent_group_id),
    }


def _field(kind: str, field: str, given: Any) -> str | None:
    value: str | None = valid.optional(field, given, models.ROUTING_BYTES)
    if value is None and field in _NEEDED[kind]:
        raise InvalidValue(field, f"must be given for a destination of the type {kind}")
    return value
