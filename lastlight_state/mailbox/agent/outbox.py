"""Messages that the agent sends: the host delivers them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict

from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists
from lastlight_state.ids import new_id
from lastlight_state.mailbox import times, words
from lastlight_state.mailbox.agent import statements as sql
from lastlight_state.mailbox.agent.pruning import AgentPruner
from lastlight_state.mailbox.agent.routing import AgentRouting
from lastlight_state.mailbox.arguments import AT_ONCE, Attachment, Deliver, Routing
from lastlight_state.mailbox.folder import OUTBOX, attachments, wishes
from lastlight_state.mailbox.kernel import checks, messages, numbers, references
from lastlight_state.mailbox.kernel.pair import Room
from lastlight_state.mailbox.records import Delivery, MessageOut, MessageOutSummary, MessageRef
from lastlight_state.mailbox.reports import PruneReport
from lastlight_state.mailbox.shown import RoutingColumns
from lastlight_state.mailbox.words import MESSAGE


class DeliverColumns(TypedDict):
    """When a message is to be delivered, as columns."""

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
    """The row of a message to store, which has no number yet."""

    content: str


class AgentOutbox(Room):
    """``agent.outbox``"""

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
        """Store a message for the host to deliver; its ``seq`` is the number that the agent knows it by.

        ``routing`` is a place, the name of a destination, or nothing: then the session's default. ``files`` are kept
        below ``outbox/<id>/`` and named in the content, which must be an object then. Raises `NotFound` for an unknown
        destination, `AlreadyExists` for an id that is taken; then nothing is stored.
        """
        row: OutPart = {
            "id": f"msg-{new_id()}" if message_id is None else checks.message_id(message_id),
            "kind": checks.kind(kind),
            "in_reply_to": valid.optional("in_reply_to", in_reply_to, words.ID_BYTES),
            "timestamp": times.plain_text(self._now()),
            **_deliver(deliver),
            **checks.routing(self._resolved(routing)),
            "target_seq": None,
        }
        if not files:
            return self._stored({**row, "content": checks.content(content, self._settings)})
        given = [wishes.checked(file) for file in valid.several("files", files)]
        wishes.refuse_large(given, self._settings.limits)
        folder = attachments.folder(self._pair.place.path, OUTBOX, row["id"], strict=True)
        names = [name for name, _ in wishes.names([file.name for file in given])]
        text = checks.content(wishes.with_files(content, names), self._settings)
        with attachments.staged(folder, list(zip(names, given, strict=True))) as staged:
            return self._stored({**row, "content": text}, staged)

    def edit(self, seq: int, *, text: str) -> MessageOut:
        """Send the new text of the message with this number. The host delivers it after that message.

        Raises `NotFound` for an unknown number.
        """
        return self._about(seq, {"operation": "edit", "text": valid.content("text", text, words.CONTENT_TEXT_BYTES)})

    def react(self, seq: int, *, emoji: str) -> MessageOut:
        """Send a reaction to the message with this number. Raises `NotFound` for an unknown number."""
        return self._about(seq, {"operation": "reaction", "emoji": valid.identifier("emoji", emoji)})

    def resolve_seq(self, seq: int) -> MessageRef:
        """The message with this number, of either side. Raises `NotFound`."""
        number = references.checked(seq)
        return self._both(lambda both: references.resolve(number, self._pair.place.group, both))

    def get(self, message_id: str) -> MessageOut:
        """The message. Raises `NotFound`."""
        found = self.find(message_id)
        if found is None:
            raise valid.not_found(MESSAGE, message_id)
        return found

    def find(self, message_id: str) -> MessageOut | None:
        """The message, or None."""
        asked = valid.sought("id", message_id)
        rows = self._reading(lambda unit: messages.OUT_BY_ID.keyed(unit, [asked]))
        return MessageOut.of(rows[0]) if rows else None

    def list(self, *, limit: int = 50, page_token: str | None = None) -> Page[MessageOutSummary]:
        """A page of the messages, the newest first, without their content."""
        return self._page(sql.LIST, MessageOutSummary.of, None, limit, page_token)

    def delivery(self, message_id: str) -> Delivery:
        """What came of a message: ``pending`` until the host says. Raises `NotFound` for an unknown message."""
        asked = self.get(message_id).id
        rows = self._look(lambda look: look.keyed(messages.DELIVERED_BY_ID, [asked]))
        return Delivery.of(rows[0]) if rows else Delivery(message_out_id=asked, status="pending")

    def prune(self, *, settled_before: datetime, dry_run: bool = True) -> PruneReport:
        """Remove messages that were delivered before a time, with their files.

        With ``dry_run``, which is the default, nothing is removed. What an undelivered message is about is kept, and
        what has failed. May be repeated after it was killed. Raises `NotFound`, `CorruptData` where the host's file
        cannot be read.
        """
        before = aware_utc("settled_before", settled_before)
        return AgentPruner(self._pair).run(before, dry_run=valid.flag("dry_run", dry_run))

    def _resolved(self, routing: Routing | str | None) -> Routing | None:
        found = AgentRouting(self._pair)
        if routing is None:
            return found.find_default()
        if not isinstance(routing, str):
            return valid.group("routing", routing, Routing)
        to = found.resolve(routing)
        if to.type == "agent":
            return Routing("agent", to.agent_group_id)
        return Routing(to.channel_type, to.platform_id)

    def _about(self, seq: int, content: dict[str, Any]) -> MessageOut:
        """A message about another one, which goes where that one went."""
        target = self.resolve_seq(seq)
        content["messageId"] = target.platform_message_id or target.id
        return self._stored(
            {
                "id": f"msg-{new_id()}",
                "kind": "chat",
                "in_reply_to": None,
                "timestamp": times.plain_text(self._now()),
                "deliver_after": None,
                "recurrence": None,
                **checks.routing(target.routing),
                "target_seq": target.seq,
                "content": checks.content(content, self._settings),
            }
        )

    def _stored(self, row: OutDraft, staged: attachments.Staged | None = None) -> MessageOut:
        stored = self._writing(lambda unit: self._insert(unit, row, staged))
        self._metrics.count("mailbox_sent")
        return stored

    def _insert(self, unit: Unit, row: OutDraft, staged: attachments.Staged | None) -> MessageOut:
        stored = unit.row(sql.INSERT, {**row, "seq": numbers.next_number(unit, self._pair)})
        if stored is None:
            raise AlreadyExists(MESSAGE, row["id"])
        if staged is not None:
            staged.place(self._pair.undo)
        return MessageOut.of(stored)


def _deliver(deliver: Deliver) -> DeliverColumns:
    given = valid.group("deliver", deliver, Deliver)
    after = None if given.after is None else times.plain_text(aware_utc("deliver.after", given.after))
    return {"deliver_after": after, "recurrence": valid.optional("deliver.recurrence", given.recurrence)}
