"""The outcomes of deliveries, stored in the host's file. Runs in a unit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple, TypedDict

import sqlalchemy as sa

from lastlight_state.clock import iso_text
from lastlight_state.db.rows.statements import Family, bind, constant, number, statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import LostRace
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.folder import INBOX
from lastlight_state.files.mailbox.host import statements as sql
from lastlight_state.files.mailbox.records import Delivery
from lastlight_state.files.mailbox.reports import PruneReport
from lastlight_state.files.mailbox.shared import deliveries, messages, pruning, queries
from lastlight_state.files.mailbox.shared.pair import Pair
from lastlight_state.files.mailbox.shared.pruning import Pruner, Row, Rule, Step
from lastlight_state.files.mailbox.shared.queries import BothFiles, TolerantSelect, labelled_columns

# Deletion of settled messages from the host's file, and of receipts whose messages the agent has removed.

_in, _done = models.MESSAGES_IN.c, models.DELIVERED.c

#: Series with an unsettled message, or whose next message is still to be stored. Indexes serve each part.
_GOING_ON = sa.union_all(
    *(
        sa.select(_in.series_id).where(_in.series_id.is_not(None), condition)
        for condition in (
            _in.recurrence.is_not(None),
            sa.and_(_in.status == constant("pending"), _in.series_id != _in.id),
            _in.status == constant("paused"),
        )
    )
)
_SETTLED = statement_of(
    sa.select(
        _in.id, _in.seq, _in.timestamp, _in.process_after, _in.released_at, _in.settled_at, pruning.content_size(_in)
    )
    .where(
        _in.id > bind("after", _in.id),
        _in.status.in_([constant("completed"), constant("failed")]),
        _in.recurrence.is_(None),
        _in.series_id.not_in(_GOING_ON),
    )
    .order_by(_in.id)
    .limit(number(messages.STEP))
)
_RECEIPTS = statement_of(
    sa.select(_done.message_out_id, _done.delivered_at)
    .where(_done.message_out_id > bind("after", _done.message_out_id))
    .order_by(_done.message_out_id)
    .limit(number(messages.STEP))
)
_REMOVE = Family("id", lambda ids: sa.delete(models.MESSAGES_IN).where(_in.id.in_(ids)))
_REMOVE_RECEIPTS = Family("id", lambda ids: sa.delete(models.DELIVERED).where(_done.message_out_id.in_(ids)))

_STILL_THERE: TolerantSelect[tuple[str]] = TolerantSelect(
    models.MESSAGES_OUT,
    lambda columns, ids: sa.select(*labelled_columns(columns, "id")).where(columns["id"].in_(ids)),
    listed="id",
    row=tuple,
)
#: Says that the agent's file is one that numbered messages, not an empty one in its place.
_HIGHEST: TolerantSelect[tuple[str]] = TolerantSelect(
    models.OUT_META,
    lambda columns: sa.select(*labelled_columns(columns, "value")).where(
        columns["key"] == sa.literal_column(f"'{pruning.HIGHEST}'")
    ),
    row=tuple,
)


class HostPruner(Pruner):
    """Deletes messages and receipts that were settled before a time."""

    def run(self, before: datetime, *, dry_run: bool) -> PruneReport:
        """Delete the messages and receipts. With ``dry_run``, only count them."""
        found = self.walk(Rule("id", partial(self._settled_step, before), self._remove), dry_run=dry_run)
        receipts = Rule("message_out_id", partial(_receipts, before), _remove_receipts)
        return PruneReport(
            messages=len(found),
            receipts=len(self.walk(receipts, dry_run=dry_run)),
            size_bytes=sum(row["size"] for row in found),
            dry_run=dry_run,
        )

    def _settled_step(self, before: datetime, unit: Unit, both: BothFiles, after: str) -> Step:
        seen = unit.readable_rows(_SETTLED, {"after": after})[0]
        kept = _ids_in_use(both)
        old = [row for row in seen if _is_old(row, before) and kept.isdisjoint((row["id"], row["seq"]))]
        return Step(seen, pruning.with_sizes(self._pair, INBOX, old))

    def _remove(self, unit: Unit, rows: Sequence[Row]) -> None:
        ids = [row["id"] for row in rows]
        pruning.clear_later(unit, self._pair, INBOX, messages.HEADS_BY_ID, ids)
        unit.change(*_REMOVE.of(ids))


def _ids_in_use(both: BothFiles) -> set[object]:
    """Return ids and numbers of messages that the agent works on, or that an undelivered message names."""
    named: set[object] = {ack.message_id for ack in both.rows(messages.PROCESSING)}
    for found in deliveries.unsettled_messages(both):
        named |= {found.head.in_reply_to, found.head.target_seq}
    return named - {None}


def _is_old(row: Row, before: datetime) -> bool:
    """Return whether a message was settled long ago.

    Other programs do not record when a message was settled. Then all times of the message must be long ago.
    """
    if row["settled_at"] is not None:
        return pruning.is_before(row["settled_at"], before)
    later = [text for text in (row["process_after"], row["released_at"]) if text is not None]
    return all(pruning.is_before(text, before) for text in (row["timestamp"], *later))


def _receipts(before: datetime, unit: Unit, both: BothFiles, after: str) -> Step:
    """Return old receipts whose messages no longer exist.

    While a message exists, its receipt proves that it was sent.
    """
    if not both.rows(_HIGHEST):
        return Step((), ())
    seen = unit.readable_rows(_RECEIPTS, {"after": after})[0]
    there = {message_id for (message_id,) in both.rows_by_key(_STILL_THERE, [row["message_out_id"] for row in seen])}
    old = [row for row in seen if pruning.is_before(row["delivered_at"], before) and row["message_out_id"] not in there]
    return Step(seen, old)


def _remove_receipts(unit: Unit, rows: Sequence[Row]) -> None:
    unit.change(*_REMOVE_RECEIPTS.of([row["message_out_id"] for row in rows]))


class ReceiptDraft(TypedDict):
    """The receipt of a message, without the number of attempts."""

    message_out_id: str
    platform_message_id: str | None
    status: str
    delivered_at: str
    error: str | None


class Failure(NamedTuple):
    """The arguments of a report that a delivery failed."""

    id: str
    error: str
    permanent: bool
    token: str | None
    at: datetime


def delivery_receipt(message_id: str, platform_message_id: str | None, now: datetime) -> ReceiptDraft:
    """Return the receipt of a message that was sent."""
    return {
        "message_out_id": message_id,
        "platform_message_id": platform_message_id,
        "status": "delivered",
        "delivered_at": models.plain_text(now),
        "error": None,
    }


def failure_receipt(message_id: str, error: str, now: datetime) -> ReceiptDraft:
    """Return the receipt of a message that cannot be sent."""
    return {**delivery_receipt(message_id, None, now), "status": "failed", "error": error}


def store(unit: Unit, row: ReceiptDraft) -> Delivery:
    """Store the receipt unless the message has one. Ends the lease. Returns the receipt that is stored."""
    found = unit.row(sql.ATTEMPT, {"id": row["message_out_id"]})
    attempts = None if found is None else found.attempts
    made = unit.row(sql.PUT_DELIVERED, {**row, "attempts": attempts})
    unit.change(sql.DROP_ATTEMPT, {"id": row["message_out_id"]})
    if made is not None:
        return made
    there = unit.row(sql.DELIVERED, {"id": row["message_out_id"]})
    assert there is not None  # noqa: S101 - under the lock, a row that conflicts is there
    return there


def fail(unit: Unit, failure: Failure) -> Delivery:
    """Count the attempt: the message is due again after a delay, or has failed. The receipt, if there is one."""
    there = unit.row(sql.DELIVERED, {"id": failure.id})
    if there is not None:
        return there
    found = unit.row(sql.ATTEMPT, {"id": failure.id})
    if failure.token is not None and found is not None and found.lease_token not in (None, failure.token):
        raise LostRace(f"message {failure.id!r} was taken by another caller", status="leased")
    attempts = max(1, 1 if found is None else found.attempts)
    if failure.permanent or attempts >= models.MOST_ATTEMPTS:
        return store(unit, failure_receipt(failure.id, failure.error, failure.at))
    now = iso_text(failure.at)
    unit.change(
        sql.PUT_ATTEMPT,
        {
            "message_out_id": failure.id,
            "attempts": attempts,
            "lease_token": None,
            "leased_until": None,
            "next_attempt_at": iso_text(failure.at + models.FIRST_DELAY * 2 ** (attempts - 1)),
            "first_attempt_at": now if found is None else found.first_attempt_at,
            "last_attempt_at": now,
            "last_error": failure.error,
        },
    )
    return Delivery(message_out_id=failure.id, status="pending", error=failure.error, attempts=attempts)


def requeue(unit: Unit, pair: Pair, message_id: str, seq: int | None) -> bool:
    """Delete the record of a message's failure. Returns True if there was one."""
    if unit.row(sql.DROP_FAILED, {"id": message_id}) is None:
        return False
    if seq is not None and queries.number(unit, pair.declared, "settled_seq") >= seq:
        queries.put(unit, pair.declared, "settled_seq", str(seq - 1))
    return True
