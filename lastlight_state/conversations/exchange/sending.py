"""Sending: a message is stored once, and stands at the end of the inbox of each of its owners.

The row of an inbox is locked until the commit, so positions have no gaps and are in the order of the commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from lastlight_state.conversations import checks, words
from lastlight_state.conversations.arguments import NewMessage
from lastlight_state.conversations.exchange import statements as sql
from lastlight_state.conversations.exchange.records import Sent
from lastlight_state.conversations.kernel import storing
from lastlight_state.conversations.kernel.classes import KnownClasses
from lastlight_state.conversations.rows import ExchangeDeliveryRow
from lastlight_state.conversations.shown import MessageDraft
from lastlight_state.conversations.tables import DELIVERIES
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.listed import as_list
from lastlight_state.db.unit import Unit
from lastlight_state.errors import InvalidValue

_MOST = limits_of(DELIVERIES)


def owners(where: str, given: Any) -> list[str]:
    """The owners of inboxes: one, or several, each once and in the order in which inboxes are locked."""
    named = [given] if isinstance(given, str) else checks.batch(where, given, words.BATCH)
    if not named:
        raise InvalidValue(where, "expected at least one owner")
    return ordered(valid.identifier(where, one, _MOST.owner) for one in named)


def ordered(names: Any) -> list[str]:
    """Names in the order in which the database has them, each once."""
    return sorted(set(names), key=str.encode)


def letter(
    message: NewMessage, now: datetime, *, recipient: str | None = None, channel: str | None = None
) -> MessageDraft:
    """Return the parameters of a message, with its only owner or with the channel that it is sent on."""
    body = storing.draft("message", message, now)
    if body["recipient"] not in (None, recipient):
        raise InvalidValue("message.recipient", "must be None, or the only owner that it is sent to")
    if channel is not None and body["channel"] not in (None, channel):
        raise InvalidValue("message.channel", "must be None, or the channel that it is published on")
    return {**body, "recipient": recipient, "channel": channel if channel is not None else body["channel"]}


def stored(unit: Unit, known: KnownClasses, body: MessageDraft) -> MessageDraft:
    """Store the message unless it is there; its parameters, with the sender and channel that are stored.

    Raises `AlreadyExists` for another one; recipients are not compared.
    """
    there = storing.ensure(unit, known, body, but=("recipient",))
    return {**body, "sender": there.sender, "channel": there.channel}


def delivered(unit: Unit, body: MessageDraft, to: Sequence[str], now: datetime) -> Sent:
    """Put a stored message into these inboxes, but for those that have it."""
    values = {"owners": as_list([{"id": owner} for owner in to]), "message_id": body["id"], "at": now}
    placed = {row["owner"]: row["ord"] for row in (unit.rows(sql.PLACE, values) if to else ())}
    rows = [delivery(owner, placed[owner], body, now) for owner in to if owner in placed]
    if len(rows) == 1:
        unit.change(sql.DELIVER, rows[0])
    elif rows:
        unit.insert(DELIVERIES, sql.DELIVER, rows)
    skipped = tuple(owner for owner in to if owner not in placed)
    return Sent.of({"message_id": body["id"], "delivered": tuple(row["owner"] for row in rows), "skipped": skipped})


def members(unit: Unit, channel: str, *, but: str | None) -> list[str]:
    """The members of a channel, without the sender."""
    return ordered(row["member"] for row in unit.rows(sql.CURRENT, {"channel": channel}) if row["member"] != but)


def delivery(owner: str, position: int, body: MessageDraft, now: datetime) -> ExchangeDeliveryRow:
    """Return the parameters of an open delivery."""
    return {
        "owner": owner,
        "ord": position,
        "message_id": body["id"],
        "sender": body["sender"],
        "channel": body["channel"],
        "delivered_at": now,
        "taken_by": None,
        "taken_until": None,
        "takes": 0,
        "acked_at": None,
        "acked_by": None,
    }
