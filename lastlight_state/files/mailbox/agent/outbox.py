"""Messages that the agent sends and the host delivers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypedDict

import sqlalchemy as sa

from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Family, bind, number, statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, NotFound
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.agent import state as sql
from lastlight_state.files.mailbox.arguments import AT_ONCE, Attachment, Deliver, Routing
from lastlight_state.files.mailbox.folder import OUTBOX, attachments
from lastlight_state.files.mailbox.models import DESTINATION, MESSAGE
from lastlight_state.files.mailbox.projections import RoutingColumns
from lastlight_state.files.mailbox.records import Delivery, Destination, MessageOut, MessageOutSummary, MessageRef
from lastlight_state.files.mailbox.reports import PruneReport
from lastlight_state.files.mailbox.shared import deliveries, messages, pruning, queries
from lastlight_state.files.mailbox.shared.pair import MailboxPart
from lastlight_state.files.mailbox.shared.pruning import Pruner, Row, Rule, Step
from lastlight_state.files.mailbox.shared.queries import BothFiles, TolerantSelect, labelled_columns
from lastlight_state.ids import new_id

# Deletion of delivered messages from the agent's file.

_out = models.MESSAGES_OUT.c

_SENT = statement_of(
    sa.select(_out.id, _out.seq, pruning.content_size(_out))
    .where(_out.id > bind("after", _out.id))
    .order_by(_out.id)
    .limit(number(messages.STEP))
)
_REMOVE = Family("id", lambda ids: sa.delete(models.MESSAGES_OUT).where(_out.id.in_(ids)))


class AgentPruner(Pruner):
    """Deletes messages that were delivered before a time.

    Failed messages stay, because the host may queue them again.
    """

    def run(self, before: datetime, *, dry_run: bool) -> PruneReport:
        """Delete the messages. With ``dry_run``, only count them."""
        found = self.walk(Rule("id", partial(self._delivered_step, before), self._remove), dry_run=dry_run)
        return PruneReport(messages=len(found), size_bytes=sum(row["size"] for row in found), dry_run=dry_run)

    def _delivered_step(self, before: datetime, unit: Unit, both: BothFiles, after: str) -> Step:
        seen = unit.readable_rows(_SENT, {"after": after})[0]
        receipts = both.rows_by_key(messages.DELIVERED_BY_ID, [row["id"] for row in seen])
        done = {receipt.message_out_id for receipt in receipts if _is_old(receipt, before)}
        targets = {found.head.target_seq for found in deliveries.unsettled_messages(both)} - {None}
        old = [row for row in seen if row["id"] in done and row["seq"] not in targets]
        return Step(seen, pruning.with_sizes(self._pair, OUTBOX, old))

    def _remove(self, unit: Unit, rows: Sequence[Row]) -> None:
        ids = [row["id"] for row in rows]
        pruning.clear_later(unit, self._pair, OUTBOX, messages.OUT_BY_ID, ids)
        unit.change(*_REMOVE.of(ids))


def _is_old(receipt: Delivery, before: datetime) -> bool:
    return receipt.status == "delivered" and receipt.delivered_at is not None and receipt.delivered_at < before


# The places for the agent's messages. Each call reads the host's present settings.

_DEFAULT: TolerantSelect[tuple[int, str | None, str | None, str | None]] = TolerantSelect(
    models.SESSION_ROUTING, lambda columns: sa.select(*labelled_columns(columns)), row=tuple
)
_ALL = TolerantSelect(
    models.DESTINATIONS,
    lambda columns: sa.select(*labelled_columns(columns)).order_by(columns["name"]),
    row=Destination,
)


class AgentRouting(MailboxPart):
    """The destinations of the agent's messages: ``agent.routing``."""

    def find_default(self) -> Routing | None:
        """Return the destination of messages that name none, or None if there is no default."""
        row = self._look(lambda look: look.row(_DEFAULT))
        found = None if row is None else Routing(*row[1:])
        return None if found == Routing() else found

    def resolve(self, to: str) -> Destination:
        """Return the destination of this name. Raises `NotFound`; the host may remove a destination at any time."""
        name = valid.lookup_text("to", to)
        rows = self._look(lambda look: look.rows_by_key(messages.DESTINATION_BY_NAME, [name]))
        if not rows:
            raise NotFound(DESTINATION, name)
        return rows[0]

    def list_destinations(self) -> list[Destination]:
        """Return all places that the agent may send to, by name."""
        return self._look(lambda look: look.rows(_ALL))


class DeliverColumns(TypedDict):
    """The columns for a message's time of delivery."""

    deliver_after: str | None
    recurrence: str | None


class OutPart(DeliverColumns, RoutingColumns):
    """The row of a message to store, without its content and number."""

    id: str
    kind: str
    in_reply_to: str | None
    timestamp: str
    target_seq: int | None


class OutDraft(OutPart):
    """The row of a message to store, with its content but without its number."""

    content: str


class AgentOutbox(MailboxPart):
    """The agent's outbox: ``agent.outbox``."""

    def send(
        self,
        message_id: str | None = None,
        *,
        kind: str,
        content: Any,
        routing: Routing | str | None = None,
        in_reply_to: str | None = None,
        deliver: Deliver = AT_ONCE,
        files: Sequence[Attachment] = (),
    ) -> MessageOut:
        """Store a message for the host to deliver. The agent refers to the message by its number ``seq``.

        ``routing`` is a place or the name of a destination. The default is the session's default place. ``files`` are
        stored below ``outbox/<id>/`` and named in the content, which must then be an object. Raises `NotFound` for an
        unknown destination, `AlreadyExists` for a taken id; then nothing is stored.
        """
        row: OutPart = {
            "id": f"msg-{new_id()}" if message_id is None else queries.message_id(message_id),
            "kind": queries.kind(kind),
            "in_reply_to": valid.optional("in_reply_to", in_reply_to, models.ID_BYTES),
            "timestamp": models.plain_text(self._now()),
            **_deliver(deliver),
            **queries.routing(self._resolve_routing(routing)),
            "target_seq": None,
        }
        if not files:
            return self._store_row({**row, "content": queries.content(content, self._settings)})
        given = [attachments.check_attachment(file) for file in valid.several("files", files)]
        attachments.refuse_large(given, self._settings.limits)
        folder = attachments.folder(self._pair.place.path, OUTBOX, row["id"], strict=True)
        names = [name for name, _ in attachments.names([file.name for file in given])]
        text = queries.content(attachments.with_files(content, names), self._settings)
        with attachments.stage_files(folder, list(zip(names, given, strict=True))) as staged:
            return self._store_row({**row, "content": text}, staged)

    def edit(self, seq: int, *, text: str) -> MessageOut:
        """Send a new text for the message with this number. The host delivers it after that message.

        If that message could not be delivered, the new text is not delivered either. Raises `NotFound` for an unknown
        number.
        """
        return self._about(seq, {"operation": "edit", "text": valid.content("text", text, models.CONTENT_TEXT_BYTES)})

    def react(self, seq: int, *, emoji: str) -> MessageOut:
        """Send a reaction to the message with this number, like `edit`. Raises `NotFound` for an unknown number."""
        return self._about(seq, {"operation": "reaction", "emoji": valid.identifier("emoji", emoji)})

    def resolve_seq(self, seq: int) -> MessageRef:
        """Return the message with this number, from either side. Raises `NotFound`."""
        number = messages.check_seq(seq)
        return self._view_both(lambda both: messages.resolve(number, self._pair.place.group, both))

    def get(self, message_id: str) -> MessageOut:
        """Return the message with this id. Raises `NotFound`."""
        found = self.find(message_id)
        if found is None:
            raise valid.not_found(MESSAGE, message_id)
        return found

    def find(self, message_id: str) -> MessageOut | None:
        """Return the message with this id, or None."""
        asked = valid.lookup_text("id", message_id)
        rows = self._reading(lambda unit: messages.OUT_BY_ID.rows_by_key(unit, [asked]))
        return rows[0] if rows else None

    def list(self, *, limit: int = 50, page_token: str | None = None) -> Page[MessageOutSummary]:
        """Return a page of the messages, the newest first, without their content."""
        return self._page(sql.LIST, None, limit, page_token)

    def delivery(self, message_id: str) -> Delivery:
        """Return the state of a message's delivery. It is ``pending`` until the host reports an outcome.

        Raises `NotFound` for an unknown message.
        """
        asked = self.get(message_id).id
        rows = self._look(lambda look: look.rows_by_key(messages.DELIVERED_BY_ID, [asked]))
        return rows[0] if rows else Delivery(message_out_id=asked, status="pending")

    def prune(self, *, settled_before: datetime, dry_run: bool = True) -> PruneReport:
        """Delete messages that were delivered before a time, with their files.

        With ``dry_run``, which is the default, nothing is deleted. Failed messages stay, and so do messages to which an
        undelivered message refers. An interrupted call can be repeated. Raises `NotFound`, and `CorruptData` if the
        host's file cannot be read.
        """
        before = aware_utc("settled_before", settled_before)
        return AgentPruner(self._pair).run(before, dry_run=valid.flag("dry_run", dry_run))

    def _resolve_routing(self, routing: Routing | str | None) -> Routing | None:
        found = AgentRouting(self._pair)
        if routing is None:
            return found.find_default()
        if not isinstance(routing, str):
            return valid.argument_group("routing", routing, Routing)
        to = found.resolve(routing)
        if to.type == "agent":
            return Routing("agent", to.agent_group_id)
        return Routing(to.channel_type, to.platform_id)

    def _about(self, seq: int, content: dict[str, Any]) -> MessageOut:
        """Store a message that refers to another message and has the same destination. Returns the new message."""
        target = self.resolve_seq(seq)
        content["messageId"] = target.platform_message_id or target.id
        return self._store_row(
            {
                "id": f"msg-{new_id()}",
                "kind": "chat",
                "in_reply_to": None,
                "timestamp": models.plain_text(self._now()),
                "deliver_after": None,
                "recurrence": None,
                **queries.routing(target.routing),
                "target_seq": target.seq,
                "content": queries.content(content, self._settings),
            }
        )

    def _store_row(self, row: OutDraft, staged: attachments.Staged | None = None) -> MessageOut:
        stored = self._writing(lambda unit: self._insert(unit, row, staged))
        self._metrics.count("mailbox_sent")
        return stored

    def _insert(self, unit: Unit, row: OutDraft, staged: attachments.Staged | None) -> MessageOut:
        stored = unit.row(sql.INSERT, {**row, "seq": pruning.next_number(unit, self._pair)})
        if stored is None:
            raise AlreadyExists(MESSAGE, row["id"])
        if staged is not None:
            staged.place(self._pair.undo)
        return stored


def _deliver(deliver: Deliver) -> DeliverColumns:
    given = valid.argument_group("deliver", deliver, Deliver)
    after = None if given.after is None else models.plain_text(aware_utc("deliver.after", given.after))
    return {"deliver_after": after, "recurrence": valid.optional("deliver.recurrence", given.recurrence)}
