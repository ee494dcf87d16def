"""Removes settled messages from the host's file, and receipts of messages that the agent has removed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

import sqlalchemy as sa

from lastlight_state.db.statements import Family, bind, constant, number, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.mailbox import models
from lastlight_state.mailbox.folder import INBOX
from lastlight_state.mailbox.kernel import acks, deliveries, messages, numbers, pruning
from lastlight_state.mailbox.kernel.pruning import Pruner, Row, Rule, Step
from lastlight_state.mailbox.kernel.readings import Both, Reading, shown
from lastlight_state.mailbox.reports import PruneReport
from lastlight_state.mailbox.shown import InId, ReceiptTime, SettledRow, ValueRow

_in, _done = models.MESSAGES_IN.c, models.DELIVERED.c

#: Series with a message that is not settled, or whose next one is still to be stored. Indexes find each part.
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
_SETTLED = prepared(
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
    .limit(number(messages.STEP)),
    SettledRow,
)
_RECEIPTS = prepared(
    sa.select(_done.message_out_id, _done.delivered_at)
    .where(_done.message_out_id > bind("after", _done.message_out_id))
    .order_by(_done.message_out_id)
    .limit(number(messages.STEP)),
    ReceiptTime,
)
_REMOVE = Family("id", lambda ids: sa.delete(models.MESSAGES_IN).where(_in.id.in_(ids)))
_REMOVE_RECEIPTS = Family("id", lambda ids: sa.delete(models.DELIVERED).where(_done.message_out_id.in_(ids)))

_STILL_THERE = Reading(
    models.MESSAGES_OUT,
    lambda columns, ids: sa.select(*shown(columns, "id")).where(columns["id"].in_(ids)),
    listed="id",
    row=InId,
)
#: Says that the agent's file is one that numbered messages, not an empty one in its place.
_HIGHEST = Reading(
    models.OUT_META,
    lambda columns: sa.select(*shown(columns, "value")).where(
        columns["key"] == sa.literal_column(f"'{numbers.HIGHEST}'")
    ),
    row=ValueRow,
)


class HostPruner(Pruner):
    """Removes what was settled before a time."""

    def run(self, before: datetime, *, dry_run: bool) -> PruneReport:
        """Remove it, or with ``dry_run`` tell how much it is."""
        found = self.walk(Rule("id", partial(self._settled, before), self._remove), dry_run=dry_run)
        receipts = Rule("message_out_id", partial(_receipts, before), _remove_receipts)
        return PruneReport(
            messages=len(found),
            receipts=len(self.walk(receipts, dry_run=dry_run)),
            size_bytes=sum(row["size"] for row in found),
            dry_run=dry_run,
        )

    def _settled(self, before: datetime, unit: Unit, both: Both, after: str) -> Step:
        seen = unit.sound(_SETTLED, {"after": after})[0]
        kept = _named(both)
        old = [row for row in seen if _is_old(row, before) and kept.isdisjoint((row["id"], row["seq"]))]
        return Step(seen, pruning.sized(self._pair, INBOX, old))

    def _remove(self, unit: Unit, rows: Sequence[Row]) -> None:
        ids = [row["id"] for row in rows]
        pruning.clear_later(unit, self._pair, INBOX, messages.HEADS_BY_ID, ids)
        unit.change(*_REMOVE.of(ids))


def _named(both: Both) -> set[object]:
    """Ids and numbers of messages that the agent works on, and that a message names which is still to be delivered."""
    named: set[object] = {ack["message_id"] for ack in both.rows(acks.PROCESSING)}
    for found in deliveries.unsettled(both):
        named |= {found.head["in_reply_to"], found.head["target_seq"]}
    return named - {None}


def _is_old(row: SettledRow, before: datetime) -> bool:
    """Return whether a message was settled long ago.

    Others do not note when they settle a message: then all times that it has are in the past.
    """
    if row["settled_at"] is not None:
        return pruning.is_before(row["settled_at"], before)
    later = [text for text in (row["process_after"], row["released_at"]) if text is not None]
    return all(pruning.is_before(text, before) for text in (row["timestamp"], *later))


def _receipts(before: datetime, unit: Unit, both: Both, after: str) -> Step:
    """Receipts of messages that are gone. While a message is there, its receipt says that it was sent."""
    if not both.rows(_HIGHEST):
        return Step((), ())
    seen = unit.sound(_RECEIPTS, {"after": after})[0]
    there = {row["id"] for row in both.keyed(_STILL_THERE, [row["message_out_id"] for row in seen])}
    old = [row for row in seen if pruning.is_before(row["delivered_at"], before) and row["message_out_id"] not in there]
    return Step(seen, old)


def _remove_receipts(unit: Unit, rows: Sequence[Row]) -> None:
    unit.change(*_REMOVE_RECEIPTS.of([row["message_out_id"] for row in rows]))
