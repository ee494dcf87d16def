"""Finding due outbound messages and leasing them.

Runs in a unit on the host's file, and also reads the agent's file.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from lastlight_state.clock import iso_text
from lastlight_state.db.units.unit import Unit
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.host import receipts, statements as sql
from lastlight_state.files.mailbox.models import instant
from lastlight_state.files.mailbox.projections import Waiting
from lastlight_state.files.mailbox.records import DueMessage, MessageOut
from lastlight_state.files.mailbox.shared import deliveries, messages, queries
from lastlight_state.files.mailbox.shared.deliveries import UnsettledMessage
from lastlight_state.files.mailbox.shared.idle import Horizon
from lastlight_state.files.mailbox.shared.pair import Pair
from lastlight_state.files.mailbox.shared.queries import BothFiles


class LeaseRequest(NamedTuple):
    """The arguments of a request for leases."""

    now: datetime
    limit: int
    until: datetime
    token: str


class _Target(NamedTuple):
    """The delivery status of the message that another message refers to, and its id on the platform."""

    state: Literal["none", "waiting", "failed", "known"]
    platform_id: str | None = None


def is_any_due(both: BothFiles, now: datetime, horizon: Horizon) -> bool:
    """True if `take` would return a message. ``horizon`` records the times at which the result may change."""
    for found in deliveries.unsettled_messages(both):
        if _is_due(found, now) and _target(found.head, both).state != "waiting":
            return True
        before = found.attempt
        horizon.meet(found.head.deliver_after, now)
        if before is not None:
            horizon.meet(before.leased_until, now)
            horizon.meet(before.next_attempt_at, now)
    return False


def take(unit: Unit, pair: Pair, both: BothFiles, wish: LeaseRequest) -> list[DueMessage]:
    """Lease due messages. A message fails instead if its target has failed or its content cannot be read."""
    taken: list[DueMessage] = []
    settled, contiguous = deliveries.settled_seq(both), True
    before = settled
    for step in deliveries.steps(both, settled):
        for found in step:
            if not isinstance(found, UnsettledMessage):
                settled = found if contiguous and found is not None else settled
                continue
            contiguous = found.head.seq is None  # these come before all others
            if len(taken) < wish.limit and _is_due(found, wish.now):
                taken += _take_message(unit, pair, both, found, wish)
        if len(taken) >= wish.limit:
            break
    if settled > before:
        queries.put(unit, pair.declared, "settled_seq", str(settled))
    return taken


def _is_due(found: UnsettledMessage, now: datetime) -> bool:
    if not models.is_due(found.head.deliver_after, now):
        return False
    before = found.attempt
    return before is None or not (_is_ahead(before.leased_until, now) or _is_ahead(before.next_attempt_at, now))


def _is_ahead(text: str | None, now: datetime) -> bool:
    """True if the time until which a lease or delay lasts is still ahead.

    A time further ahead than the longest possible lease does not count: it was stored before the clock was set back.
    """
    moment = instant(text)
    return moment is not None and timedelta(0) < moment - now <= models.LONGEST_LEASE


def _target(head: Waiting, both: BothFiles, group: str = "") -> _Target:
    if head.target_seq is None:
        return _Target("none")
    found = messages.find(head.target_seq, group, both)
    if found is None:
        return _Target("failed")
    if found.delivery == "pending":
        return _Target("waiting")
    if found.delivery in (None, "delivered"):
        return _Target("known", found.platform_message_id or found.id)
    return _Target("failed")


def _take_message(
    unit: Unit, pair: Pair, both: BothFiles, found: UnsettledMessage, wish: LeaseRequest
) -> list[DueMessage]:
    head = found.head
    target = _target(head, both, pair.place.group)
    if target.state == "waiting":
        return []
    if target.state == "failed":
        _fail(unit, head.id, "target_failed", wish.now)
        return []
    rows = both.rows_by_key(messages.OUT_BY_ID, [head.id])
    if not rows:
        _fail(unit, head.id, "the message cannot be read", wish.now)
        return []
    message = rows[0]
    if target.state == "known" and isinstance(message.content, dict):
        message = message.model_copy(update={"content": {**message.content, "messageId": target.platform_id}})
    attempt = _lease(unit, found, wish)
    return [
        DueMessage(
            message=message,
            token=wish.token,
            leased_until=wish.until,
            attempt=attempt,
            in_doubt=found.attempt is not None and found.attempt.lease_token is not None,
            problem=_problem(message),
        )
    ]


def _fail(unit: Unit, message_id: str, error: str, now: datetime) -> None:
    receipts.store(unit, receipts.failure_receipt(message_id, error, now))


def _lease(unit: Unit, found: UnsettledMessage, wish: LeaseRequest) -> int:
    now, before = iso_text(wish.now), found.attempt
    attempts = 1 if before is None else int(before.attempts or 0) + 1
    unit.change(
        sql.PUT_ATTEMPT,
        {
            "message_out_id": found.head.id,
            "attempts": attempts,
            "lease_token": wish.token,
            "leased_until": iso_text(wish.until),
            "next_attempt_at": None,
            "first_attempt_at": (before.first_attempt_at if before else None) or now,
            "last_attempt_at": now,
            "last_error": before.last_error if before else None,
        },
    )
    return attempts


def _problem(message: MessageOut) -> str | None:
    """Return why a message can never be sent, or None if the message can be sent."""
    if message.malformed:
        return "the content is not JSON"
    nowhere = message.routing.channel_type is None or message.routing.platform_id is None
    return "there is no place to send it to" if nowhere and message.kind != "system" else None
