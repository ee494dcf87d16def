"""Messages from the agent, and their delivery.

The host never changes the messages. It stores leases, attempts and receipts as rows in its own file, so that the state
of a delivery survives the death of a process. A message may be sent more than once, but it is never marked delivered
without having been sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from lastlight_state.backends import waiting
from lastlight_state.db import valid
from lastlight_state.db.news.watch import TimeLimit
from lastlight_state.db.rows.records import Page
from lastlight_state.errors import AlreadyAnswered, LostRace
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.folder import OUTBOX, attachments
from lastlight_state.files.mailbox.host import leases, receipts, statements as sql
from lastlight_state.files.mailbox.models import MESSAGE, ONE_MINUTE, ONE_SECOND
from lastlight_state.files.mailbox.records import (
    Delivery,
    DueMessage,
    MessageOut,
    MessageOutSummary,
    MessageRef,
    OutboxFiles,
)
from lastlight_state.files.mailbox.reports import DrainReport
from lastlight_state.files.mailbox.shared import deliveries, messages, queries
from lastlight_state.files.mailbox.shared.idle import Horizon
from lastlight_state.files.mailbox.shared.pair import MailboxPart
from lastlight_state.ids import new_id

_log = logging.getLogger("lastlight_state.files.mailbox")

_MOST_TAKEN = 100


class Undeliverable(Exception):
    """An adapter raises this for a message that can never be sent. The error's text is the reason."""


class HostOutbox(MailboxPart):
    """The host's outbox: ``host.outbox``."""

    def take_due(self, *, limit: int = 20, lease: timedelta = ONE_MINUTE) -> list[DueMessage]:
        """Lease messages to send, in the order in which they were written.

        No other caller gets these messages during the lease.

        A message whose lease has expired is returned again, with ``in_doubt=True``, because it may have been sent.
        """
        most = valid.number("limit", limit, least=1, most=_MOST_TAKEN)
        length = valid.duration("lease", lease, least=ONE_SECOND, most=models.LONGEST_LEASE)
        now = self._now()
        if not self._is_any_due(now):
            return []
        wish = leases.LeaseRequest(now, most, now + length, new_id())
        taken = self._writing(lambda unit: self._beside(unit, lambda both: leases.take(unit, self._pair, both, wish)))
        self._metrics.count("mailbox_taken", len(taken))
        self._metrics.count("mailbox_in_doubt", sum(message.in_doubt for message in taken))
        return taken

    def mark_delivered(
        self,
        message_id: str,
        *,
        platform_message_id: str | None = None,
        token: str | None = None,
    ) -> Delivery:
        """Record that a message was sent, with the platform's id. Repeating it returns the stored receipt.

        Raises `AlreadyAnswered` with the receipt if the message has failed, and `NotFound`. The record counts even if
        the lease of its ``token`` has expired, because the message was sent.
        """
        message = self.get(message_id)
        row = receipts.delivery_receipt(
            message_id, valid.optional("platform_message_id", platform_message_id, 4096), self._now()
        )
        found = self._writing(lambda unit: receipts.store(unit, row))
        if found.status != "delivered":
            raise AlreadyAnswered(MESSAGE, message_id, winner=found)
        attachments.clear(attachments.folder(self._pair.place.path, OUTBOX, message.id))
        return found

    def mark_failed(
        self,
        message_id: str,
        *,
        error: str,
        permanent: bool = False,
        token: str | None = None,
    ) -> Delivery:
        """Record that a message could not be sent. It is due again later, and fails finally after three attempts.

        With ``permanent``, and after the third failure, ``status`` becomes ``failed``. Raises `AlreadyAnswered` with
        the receipt if the message was delivered, `LostRace` if another caller took it after the lease of ``token``, and
        `NotFound`.
        """
        self.get(message_id)
        failure = receipts.Failure(
            message_id, queries.error_text(error), valid.flag("permanent", permanent), token, self._now()
        )
        found = self._writing(lambda unit: receipts.fail(unit, failure))
        if found.status == "delivered":
            raise AlreadyAnswered(MESSAGE, message_id, winner=found)
        self._metrics.count("mailbox_retried", found.status == "pending")
        return found

    def drain(
        self, adapter: Callable[[DueMessage], str | None], *, limit: int = 100, lease: timedelta = ONE_MINUTE
    ) -> DrainReport:
        """Send all due messages through the adapter, one after the other.

        If the message was sent, the adapter returns the platform's id or None. The adapter raises `Undeliverable` if
        the message can never be sent, and any other exception if the message should be retried. The adapter is called
        outside of any transaction. A message without a destination, or with content that is not JSON, fails without a
        call. ``lease`` is how long one sending may take before other callers may send the message.
        """
        valid.callback("adapter", adapter)
        counts = {"delivered": 0, "retried": 0, "failed": 0}
        for _ in range(valid.number("limit", limit, least=1)):
            due = self.take_due(limit=1, lease=lease)
            if not due:
                break
            counts[self._send_due(due[0], adapter)] += 1
        return DrainReport(**counts)

    def requeue(self, message_id: str) -> None:
        """Make a failed message due again, with a full number of attempts.

        The same is done for a message whose receipt has an unknown word. Raises `LostRace` for other messages,
        `NotFound`.
        """
        message = self.get(message_id)
        if not self._writing(lambda unit: receipts.requeue(unit, self._pair, message.id, message.seq)):
            raise LostRace(f"message {message_id!r} has not failed", status=self._status(message_id))

    def list_failed(self, *, limit: int = 50, page_token: str | None = None) -> Page[Delivery]:
        """Return a page of the messages that could not be delivered, the latest first."""
        return self._page(sql.LIST_FAILED, None, limit, page_token)

    def list_waiting(self, *, limit: int = 50, page_token: str | None = None) -> Page[MessageOutSummary]:
        """Return a page of the messages that are neither delivered nor failed, in the order they were written."""
        most = valid.page_limit(limit)
        return self._view_both(lambda both: deliveries.page(both, most, page_token))

    def get(self, message_id: str) -> MessageOut:
        """Return the message with this id. Raises `NotFound`."""
        found = self.find(message_id)
        if found is None:
            raise valid.not_found(MESSAGE, message_id)
        return found

    def find(self, message_id: str) -> MessageOut | None:
        """Return the message with this id, or None."""
        asked = valid.lookup_text("id", message_id)
        rows = self._look(lambda look: look.rows_by_key(messages.OUT_BY_ID, [asked]))
        return rows[0] if rows else None

    def files(self, message_id: str) -> OutboxFiles:
        """Return the files that the message's content lists. Unreadable files are skipped, with the reason."""
        message = self.get(message_id)
        listed = message.content.get("files") if isinstance(message.content, dict) else None
        target = attachments.folder(self._pair.place.path, OUTBOX, message.id)
        if not isinstance(listed, list) or not listed:
            return OutboxFiles(files=(), skipped=())
        if target.name != message.id:
            return OutboxFiles(files=(), skipped=((message.id, "the id is not a safe name"),))
        return attachments.stored_files(target, listed, self._settings.limits)

    def resolve_seq(self, seq: int) -> MessageRef:
        """Return the message with this number, from either side. Raises `NotFound`."""
        number = messages.check_seq(seq)
        return self._view_both(lambda both: messages.resolve(number, self._pair.place.group, both))

    def wait(self, timeout: timedelta, *, interval: timedelta = ONE_SECOND) -> bool:
        """Wait up to ``timeout`` until a message is due. Returns True if one is."""
        limit = TimeLimit(valid.duration("timeout", timeout, most=models.LONGEST_WAIT).total_seconds())
        pause = valid.duration("interval", interval, least=timedelta(milliseconds=1)).total_seconds()
        while not limit.look(lambda: self._is_any_due(self._now())):
            left = limit.seconds_left
            if not left:
                return False
            waiting.pause(min(pause, left))
        return True

    def _is_any_due(self, now: datetime) -> bool:
        look = self._pair.look("due", now)
        if look.answer is not None:
            return False
        horizon = Horizon()
        found = self._view_both(lambda both: leases.is_any_due(both, now, horizon))
        if not found:
            look.keep("nothing", horizon.until)
        return found

    def _send_due(self, due: DueMessage, adapter: Callable[[DueMessage], str | None]) -> str:
        """Return the name of the counter that a drain increments for this message."""
        if due.problem is not None:
            return self._report_failure(due, due.problem, permanent=True)
        try:
            platform_id = adapter(due)
        except Undeliverable as error:
            return self._report_failure(due, str(error) or "undeliverable", permanent=True)
        except Exception as error:  # noqa: BLE001 - whatever an adapter raises
            _log.warning("message %s could not be delivered", due.message.id, exc_info=True)
            return self._report_failure(due, f"{type(error).__name__}: {error}", permanent=False)
        try:
            self.mark_delivered(due.message.id, platform_message_id=platform_id, token=due.token)
        except AlreadyAnswered:
            _log.warning("message %s was sent after it had been given up", due.message.id)
        return "delivered"

    def _report_failure(self, due: DueMessage, error: str, *, permanent: bool) -> str:
        text = error.encode(errors="replace").replace(b"\0", b"?")[: models.ERROR_BYTES].decode(errors="ignore")
        try:
            found = self.mark_failed(due.message.id, error=text, permanent=permanent, token=due.token)
        except AlreadyAnswered:
            return "delivered"
        except LostRace:
            return "retried"
        return "failed" if found.status == "failed" else "retried"

    def _status(self, message_id: str) -> str:
        found = self._find(sql.DELIVERED, {"id": message_id})
        return "pending" if found is None else found.status
