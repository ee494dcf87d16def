"""Removes acknowledgements of messages that the host has settled or removed, so that they follow the live work."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.db.statements import Family, constant, number, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.mailbox import models, words
from lastlight_state.mailbox.kernel import acks, messages
from lastlight_state.mailbox.kernel.pair import Pair
from lastlight_state.mailbox.rows import AcksRow
from lastlight_state.mailbox.shown import HeadRow

#: The most that one call removes.
_MOST = 200

_ack = models.ACKS.c
_SETTLED = prepared(sa.select(*_ack).where(_ack.status != constant("processing")).limit(number(_MOST)), AcksRow)
_DELETE = Family("id", lambda ids: sa.delete(models.ACKS).where(_ack.message_id.in_(ids)))


def tidy(unit: Unit, pair: Pair) -> int:
    """Remove at most 200; how many were. Nothing is removed while the host's file cannot be read."""
    found = unit.sound(_SETTLED)[0]
    if not found:
        return 0
    ids = [ack["message_id"] for ack in found]
    heads = pair.other.look_if_sound(lambda look: look.keyed(messages.HEADS_BY_ID, ids), None)
    if heads is None:
        return 0
    live = {head["id"]: head for head in heads if head["status"] in words.LIVE}
    gone = [ack["message_id"] for ack in found if not _is_needed(ack, live.get(ack["message_id"]))]
    if gone:
        unit.change(*_DELETE.of(gone))
    return len(gone)


def _is_needed(ack: AcksRow, head: HeadRow | None) -> bool:
    return head is not None and acks.is_of(ack, head)
