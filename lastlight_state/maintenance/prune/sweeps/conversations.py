"""The first deliveries of inboxes, and the first entries of feeds."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from lastlight_state.conversations.kernel.references import HOLDERS, POINTING, PROTECTIONS, REFERRED, OwnerOf
from lastlight_state.conversations.kernel.threads import removed_unused
from lastlight_state.conversations.tables import CHANGES, DELIVERIES, INBOXES, MESSAGES, SESSIONS
from lastlight_state.conversations.words import SESSION
from lastlight_state.db.keyed import family, rows
from lastlight_state.db.statements import bind
from lastlight_state.db.unit import Unit
from lastlight_state.maintenance.counters.counted import CHANGES_COUNTER, INBOX_COUNTER
from lastlight_state.maintenance.prune.sweeps.heads import Freed, Heads

_d, _c = DELIVERIES.c, CHANGES.c


class DeliveryOf(OwnerOf):
    """A delivery of a message."""

    ord: int


_DELIVERED = family(
    lambda keys: sa.select(_d.message_id.label("key"), _d.owner, _d.ord).where(_d.message_id.in_(keys)), DeliveryOf
)


def _unused(unit: Unit, messages: set[str], limits: Mapping[str, int]) -> int:
    """Return how many of these messages nothing refers to once the deliveries before these positions are gone."""
    staying = {row["key"] for row in rows(unit, HOLDERS, messages)}
    staying.update(row["key"] for row in rows(unit, POINTING, messages))
    for one in rows(unit, _DELIVERED, messages - staying):
        if one["ord"] >= limits.get(one["owner"], 0):
            staying.add(one["key"])
    return len(messages - staying)


EXCHANGE = Heads(
    name="exchange",
    record="inbox",
    key=INBOXES.c.owner,
    owner=_d.owner,
    number=_d.ord,
    counter=INBOX_COUNTER,
    age=_d.acked_at,
    waits=sa.and_(_d.acked_at.is_(None), _d.delivered_at < bind("cutoff", _d.delivered_at)),
    freed=Freed(
        str(MESSAGES.name), _d.message_id, _unused, lambda unit, messages: removed_unused(unit, messages, REFERRED)
    ),
)
CHANGES_SWEEP = Heads(
    name="changes",
    record=SESSION,
    key=SESSIONS.c.id,
    owner=_c.session_id,
    number=_c.seq,
    counter=CHANGES_COUNTER,
    age=_c.at,
    protections=PROTECTIONS,
    locks=True,
)
