"""Messages from the host for the agent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any, TypeAlias, TypedDict

from lastlight_state import cron
from lastlight_state.clock import aware_utc, iso_text
from lastlight_state.db import valid
from lastlight_state.db.rows.records import Page
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, LostRace
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.arguments import NOW, Attachment, NewMessage, Origin, Routing, When
from lastlight_state.files.mailbox.folder import INBOX, attachments
from lastlight_state.files.mailbox.host import series, statements as sql
from lastlight_state.files.mailbox.host.receipts import HostPruner
from lastlight_state.files.mailbox.models import MESSAGE
from lastlight_state.files.mailbox.projections import RoutingColumns
from lastlight_state.files.mailbox.records import Ensured, MessageIn, MessageInSummary, MessageRef
from lastlight_state.files.mailbox.reports import PruneReport
from lastlight_state.files.mailbox.shared import messages, pruning, queries
from lastlight_state.files.mailbox.shared.messages import Poll
from lastlight_state.files.mailbox.shared.pair import MailboxPart
from lastlight_state.ids import new_id

_ORIGIN = Origin()
#: The builtin type: inside the class, ``list`` is a method.
_Messages: TypeAlias = list[MessageIn]


class OriginColumns(TypedDict):
    """The columns for a message's origin."""

    timestamp: str
    platform_message_id: str | None
    source_session_id: str | None


class WhenColumns(TypedDict):
    """The columns for the time at which a message is worked on."""

    process_after: str | None
    recurrence: str | None
    timezone: str | None
    trigger: int
    on_wake: int


class InDraft(RoutingColumns, OriginColumns, WhenColumns):
    """The row of a message to store, without its number."""

    id: str
    kind: str
    status: str | None
    series_id: str | None
    tries: int | None
    content: str
    released_at: str | None
    settled_at: str | None
    outcome: str | None
    error: str | None
    tries_base: int | None


class HostInbox(MailboxPart):
    """The host's inbox: ``host.inbox``."""

    def send(
        self,
        message_id: str | None = None,
        *,
        kind: str,
        content: Any,
        routing: Routing | None = None,
        when: When = NOW,
        origin: Origin | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> MessageIn:
        """Store a message for the agent.

        The files of ``attachments``, and those that the content has as base64 in ``attachments[].data``, are stored
        below ``inbox/<id>/``; the stored content names them. Raises `AlreadyExists` for a taken id; then nothing is
        stored, and no file is left.
        """
        return self.send_many([NewMessage(kind, content, message_id, routing, when, origin, attachments)])[0]

    def ensure(
        self,
        message_id: str,
        *,
        kind: str,
        content: Any,
        routing: Routing | None = None,
        when: When = NOW,
        origin: Origin | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> Ensured[MessageIn]:
        """Store a message unless it is stored already, for platforms that deliver a message more than once.

        Raises `AlreadyExists`, which carries the ``stored`` message, if its kind, routing or content differs.
        """
        given = NewMessage(kind, content, queries.message_id(message_id), routing, when, origin, attachments)
        found = self.find(message_id)
        if found is None:
            try:
                return Ensured(message=self.send_many([given])[0], created=True)
            except AlreadyExists:
                found = self.get(message_id)
        wanted = _Draft(given, self)
        if not wanted.equals(found):
            raise AlreadyExists(MESSAGE, message_id, problem="exists with another content", stored=found)
        return Ensured(message=found, created=False)

    def send_many(self, messages: Sequence[NewMessage]) -> _Messages:
        """Store up to 500 messages, in this order, all or none. Raises as `send`."""
        given = [
            valid.argument_group("message", message, NewMessage) for message in valid.several("messages", messages)
        ]
        valid.at_most("messages", given, models.MOST_SENT)
        drafts = [_Draft(message, self) for message in given]
        if not drafts:
            return []
        with ExitStack() as stack:
            for draft in drafts:
                draft.stage(stack)
            stored = self._writing(lambda unit: self._store_drafts(unit, drafts))
        self._metrics.count("mailbox_sent", len(stored))
        return stored

    def get(self, message_id: str) -> MessageIn:
        """Return the message. Raises `NotFound`."""
        return self._get_row(sql.GET, {"id": valid.lookup_text("id", message_id)}, kind=MESSAGE, key=message_id)

    def find(self, message_id: str) -> MessageIn | None:
        """Return the message, or None."""
        return self._find(sql.GET, {"id": valid.lookup_text("id", message_id)})

    def list(
        self,
        *,
        status: str | None = None,
        kind: str | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[MessageInSummary]:
        """Return a page of the messages, the newest first, without their content."""
        given = {
            "status": None if status is None else valid.word("status", status, models.STATUSES),
            "kind": None if kind is None else valid.lookup_text("kind", kind),
        }
        return self._page(sql.LIST, given, limit, page_token)

    def count_due(self, *, skip_kinds: Collection[str] = ("system",)) -> int:
        """Return the number of messages of these kinds that are due, not acknowledged and would wake an agent."""
        poll = Poll(self._now(), models.MOST_POLLED, queries.kinds("skip_kinds", skip_kinds))
        return self._view_both(lambda both: sum(1 for _ in messages.open_to(poll, both, messages.triggers(both))))

    def fail(self, message_id: str, *, error: str) -> MessageIn:
        """Set the status of a message that has no final status to failed.

        Raises `LostRace` with its ``status`` if that is final, and `NotFound`.
        """
        text, now = queries.error_text(error), self._now()
        return self._writing(lambda unit: self._fail_message(unit, message_id, text, now))

    def retry(self, message_id: str) -> MessageIn:
        """Make a failed message due again, with a full number of tries.

        Raises `LostRace` with its ``status``, `NotFound`.
        """
        values = {"id": valid.lookup_text("id", message_id), "released_at": iso_text(self._now())}
        changed = self._change_row(sql.RETRY, values)
        if changed is None:
            raise _lost_race(self.get(message_id))
        return changed

    def find_return_path(self, *, in_reply_to: str | None, peer_group: str) -> str | None:
        """Return the session for an answer to another agent: of the answered message, else of the newest message."""
        asked = {"peer": valid.lookup_text("peer_group", peer_group)}
        if in_reply_to is not None:
            found = self.find(in_reply_to)
            if found is not None and found.source_session_id is not None:
                return found.source_session_id
        path: str | None = self._value(sql.RETURN_PATH, asked)
        return path

    def resolve_seq(self, seq: int) -> MessageRef:
        """Return the message with this number, from either side. Raises `NotFound`."""
        number = messages.check_seq(seq)
        return self._view_both(lambda both: messages.resolve(number, self._pair.place.group, both))

    def prune(self, *, settled_before: datetime, dry_run: bool = True) -> PruneReport:
        """Delete messages settled before a time, with their files, and receipts whose messages no longer exist.

        With ``dry_run``, which is the default, nothing is deleted. A series that goes on is kept whole, and so is a
        message to which an undelivered message refers. An interrupted call can be repeated. Raises `NotFound`, and
        `CorruptData` if the agent's file cannot be read.
        """
        before = aware_utc("settled_before", settled_before)
        return HostPruner(self._pair).run(before, dry_run=valid.flag("dry_run", dry_run))

    def _store_drafts(self, unit: Unit, drafts: Sequence[_Draft]) -> _Messages:
        seqs = pruning.next_numbers(unit, self._pair, len(drafts))
        return [draft.store(unit, seq) for draft, seq in zip(drafts, seqs, strict=True)]

    def _fail_message(self, unit: Unit, message_id: str, error: str, now: Any) -> MessageIn:
        found = unit.row(sql.GET_ROW, {"id": valid.lookup_text("id", message_id)})
        if found is None:
            raise valid.not_found(MESSAGE, message_id)
        values = {"id": message_id, "tries": found["tries"], "status": "failed", "settled_at": iso_text(now)}
        settled = unit.row(sql.SETTLE, {**values, "outcome": "failed", "error": error})
        if settled is None:
            raise _lost_race(MessageIn.of(found))
        series.follow(unit, self._pair, settled, now, paused=found["status"] == "paused")
        return unit.row(sql.GET, {"id": message_id}) or MessageIn.of(found)


class _Draft:
    """A message to store: its row, and its files."""

    def __init__(self, message: NewMessage, room: HostInbox) -> None:
        pair, settings = room._pair, room._settings
        self._pair = pair
        self.id = f"msg-{new_id()}" if message.id is None else queries.message_id(message.id)
        embedded = attachments.embedded_files(message.content)
        given = [attachments.check_attachment(file) for file in valid.several("attachments", message.attachments)]
        self._files = [*(file for _, file in embedded), *given]
        attachments.refuse_large(self._files, settings.limits)
        self._folder = attachments.folder(pair.place.path, INBOX, self.id)
        self._names = attachments.names([file.name for file in self._files])
        where = f"{INBOX}/{self._folder.name}"
        content = attachments.describe_files(message.content, [at for at, _ in embedded], given, self._names, where)
        self._staged: attachments.Staged | None = None
        self.row: InDraft = {
            **series.new_row(),
            "id": self.id,
            "series_id": self.id,
            "kind": queries.kind(message.kind),
            **queries.routing(message.routing),
            **_origin(message.origin, room),
            **_when(message.when),
            "content": queries.content(content, settings),
        }

    def equals(self, found: MessageIn) -> bool:
        """True if the stored message has the same values."""
        same = MessageIn.of({**self.row, "seq": None})
        return (same.kind, same.routing, same.content) == (found.kind, found.routing, found.content)

    def stage(self, stack: ExitStack) -> None:
        """Write the message's files to disk under temporary names, and sync them."""
        if self._files:
            wanted = [(name, file) for (name, _), file in zip(self._names, self._files, strict=True)]
            self._staged = stack.enter_context(attachments.stage_files(self._folder, wanted))

    def store(self, unit: Unit, seq: int) -> MessageIn:
        """Store the message under a new number. Raises `AlreadyExists`."""
        stored = unit.row(sql.INSERT, {**self.row, "seq": seq})
        if stored is None:
            raise AlreadyExists(MESSAGE, self.id)
        if self._staged is not None:
            self._staged.place(self._pair.undo)
        return stored


def _origin(origin: Origin | None, room: HostInbox) -> OriginColumns:
    given = _ORIGIN if origin is None else valid.argument_group("origin", origin, Origin)
    stamp = queries.time_text("origin.timestamp", given.timestamp)
    return {
        "timestamp": iso_text(room._now()) if stamp is None else stamp,
        "platform_message_id": valid.optional("origin.platform_message_id", given.platform_message_id, models.ID_BYTES),
        "source_session_id": valid.optional("origin.source_session_id", given.source_session_id, models.ID_BYTES),
    }


def _when(when: When) -> WhenColumns:
    given = valid.argument_group("when", when, When)
    zone = given.timezone
    recurrence = given.recurrence
    if recurrence is not None:
        recurrence = cron.validate(recurrence, "UTC" if zone is None else zone)
    elif zone is not None:
        cron.validate("@daily", zone)
    return {
        "process_after": queries.time_text("when.process_after", given.process_after),
        "recurrence": recurrence,
        "timezone": zone,
        "trigger": int(valid.flag("when.trigger", given.trigger)),
        "on_wake": int(valid.flag("when.on_wake", given.on_wake)),
    }


def _lost_race(found: MessageIn) -> LostRace:
    return LostRace(f"message {found.id!r} is {found.status}", status=found.status)
