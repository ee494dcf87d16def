"""What came of deliveries, in the host's file. Works of a unit."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, TypedDict

from lastlight_state.clock import iso_text
from lastlight_state.db.unit import Unit
from lastlight_state.errors import LostRace
from lastlight_state.mailbox import times, words
from lastlight_state.mailbox.host import statements as sql
from lastlight_state.mailbox.kernel import meta
from lastlight_state.mailbox.kernel.pair import Pair
from lastlight_state.mailbox.records import Delivery


class ReceiptDraft(TypedDict):
    """The receipt of a message, but for how often it was tried."""

    message_out_id: str
    platform_message_id: str | None
    status: str
    delivered_at: str
    error: str | None


class Failure(NamedTuple):
    """A delivery that did not succeed."""

    id: str
    error: str
    permanent: bool
    token: str | None
    at: datetime


def delivered(message_id: str, platform_message_id: str | None, now: datetime) -> ReceiptDraft:
    """Return the receipt of a message that was sent."""
    return {
        "message_out_id": message_id,
        "platform_message_id": platform_message_id,
        "status": "delivered",
        "delivered_at": times.plain_text(now),
        "error": None,
    }


def failed(message_id: str, error: str, now: datetime) -> ReceiptDraft:
    """Return the receipt of a message that cannot be sent."""
    return {**delivered(message_id, None, now), "status": "failed", "error": error}


def store(unit: Unit, row: ReceiptDraft) -> Delivery:
    """Store the receipt unless there is one; the one that counts. Its lease ends."""
    found = unit.row(sql.ATTEMPT, {"id": row["message_out_id"]})
    attempts = None if found is None else found["attempts"]
    made = unit.find(Delivery.of, sql.PUT_DELIVERED, {**row, "attempts": attempts})
    unit.change(sql.DROP_ATTEMPT, {"id": row["message_out_id"]})
    if made is not None:
        return made
    there = unit.find(Delivery.of, sql.DELIVERED, {"id": row["message_out_id"]})
    assert there is not None  # noqa: S101 - under the lock, a row that conflicts is there
    return there


def fail(unit: Unit, failure: Failure) -> Delivery:
    """Count the attempt: the message is due again after a delay, or has failed. The receipt, if there is one."""
    there = unit.find(Delivery.of, sql.DELIVERED, {"id": failure.id})
    if there is not None:
        return there
    found = unit.row(sql.ATTEMPT, {"id": failure.id})
    if failure.token is not None and found is not None and found["lease_token"] not in (None, failure.token):
        raise LostRace(f"message {failure.id!r} was taken by another caller", status="leased")
    attempts = max(1, 1 if found is None else found["attempts"])
    if failure.permanent or attempts >= words.MOST_ATTEMPTS:
        return store(unit, failed(failure.id, failure.error, failure.at))
    now = iso_text(failure.at)
    unit.change(
        sql.PUT_ATTEMPT,
        {
            "message_out_id": failure.id,
            "attempts": attempts,
            "lease_token": None,
            "leased_until": None,
            "next_attempt_at": iso_text(failure.at + words.FIRST_DELAY * 2 ** (attempts - 1)),
            "first_attempt_at": now if found is None else found["first_attempt_at"],
            "last_attempt_at": now,
            "last_error": failure.error,
        },
    )
    return Delivery(message_out_id=failure.id, status="pending", error=failure.error, attempts=attempts)


def requeue(unit: Unit, pair: Pair, message_id: str, seq: int | None) -> bool:
    """Forget that a message failed; whether it had."""
    if unit.row(sql.DROP_FAILED, {"id": message_id}) is None:
        return False
    if seq is not None and meta.number(unit, pair.declared, "settled_seq") >= seq:
        meta.put(unit, pair.declared, "settled_seq", str(seq - 1))
    return True
