"""Removes delivered messages from the agent's file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

import sqlalchemy as sa

from lastlight_state.db.statements import Family, bind, number, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.mailbox import models
from lastlight_state.mailbox.folder import OUTBOX
from lastlight_state.mailbox.kernel import deliveries, messages, pruning
from lastlight_state.mailbox.kernel.pruning import Pruner, Row, Rule, Step
from lastlight_state.mailbox.kernel.readings import Both
from lastlight_state.mailbox.reports import PruneReport
from lastlight_state.mailbox.rows import DeliveredRow
from lastlight_state.mailbox.shown import SizedRow

_out = models.MESSAGES_OUT.c

_SENT = prepared(
    sa.select(_out.id, _out.seq, pruning.content_size(_out))
    .where(_out.id > bind("after", _out.id))
    .order_by(_out.id)
    .limit(number(messages.STEP)),
    SizedRow,
)
_REMOVE = Family("id", lambda ids: sa.delete(models.MESSAGES_OUT).where(_out.id.in_(ids)))


class AgentPruner(Pruner):
    """Removes what was delivered before a time. What has failed stays, because the host may queue it again."""

    def run(self, before: datetime, *, dry_run: bool) -> PruneReport:
        """Remove it, or with ``dry_run`` tell how much it is."""
        found = self.walk(Rule("id", partial(self._delivered, before), self._remove), dry_run=dry_run)
        return PruneReport(messages=len(found), size_bytes=sum(row["size"] for row in found), dry_run=dry_run)

    def _delivered(self, before: datetime, unit: Unit, both: Both, after: str) -> Step:
        seen = unit.sound(_SENT, {"after": after})[0]
        receipts = both.keyed(messages.DELIVERED_BY_ID, [row["id"] for row in seen])
        done = {row["message_out_id"] for row in receipts if _is_old(row, before)}
        targets = {found.head["target_seq"] for found in deliveries.unsettled(both)} - {None}
        old = [row for row in seen if row["id"] in done and row["seq"] not in targets]
        return Step(seen, pruning.sized(self._pair, OUTBOX, old))

    def _remove(self, unit: Unit, rows: Sequence[Row]) -> None:
        ids = [row["id"] for row in rows]
        pruning.clear_later(unit, self._pair, OUTBOX, messages.OUT_BY_ID, ids)
        unit.change(*_REMOVE.of(ids))


def _is_old(receipt: DeliveredRow, before: datetime) -> bool:
    return receipt["status"] == "delivered" and pruning.is_before(receipt["delivered_at"], before)
