"""Messages of chat sessions: they are appended, counted, and read in the order of their ids. A message never changes.

A message is stored together with the session's count and last activity. Appends to one session lock its row, so a
message with a smaller id was committed earlier; nothing is ordered by ``timestamp``. Content is stored unchanged.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import datetime

from lastlight_state.db import valid
from lastlight_state.db.lists import pages
from lastlight_state.db.lists.pages import keyed_rows, window
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, Statement, Values
from lastlight_state.db.rows.writes import Chain, inserted_row
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import LostRace, NotFound
from lastlight_state.messaging import (
    deliveries,
    message_statements,
    message_statements as sql,
    models,
    session_statements,
)
from lastlight_state.messaging.deliveries import LOCK_HERE
from lastlight_state.messaging.message_statements import Draft
from lastlight_state.messaging.records import (
    Appended,
    MessageDraft,
    MessagingMessage,
    MessagingMessageSummary,
    ThreadPlace,
)
from lastlight_state.messaging.session_statements import Place, retry_lost_race

#: The cursor of a page: the id of its last message.
_KEY = (range(2**63),)


class Messages(Repository):
    """``store.messaging.messages``"""

    def append(
        self,
        session_id: str,
        *,
        role: models.Role,
        content: str,
        platform_message_id: str | None = None,
        timestamp: datetime | None = None,
    ) -> Appended:
        """Store one message and count it. The session may be active, idle or ended; its last activity becomes now.

        If this session already has a message with the same role and ``platform_message_id``, that message is returned
        with ``created=False``, whatever its content. Pass the id if the platform has one. Only then is the write
        retried if the connection is lost during the commit; without an id this raises `BackendUnavailable`. Raises
        `NotFound`, and `PayloadTooLarge` for content past 1 MiB.
        """
        now = self._now()
        most = self._settings.limits.message_content
        row = message_statements.message(role, content, platform_message_id, timestamp, now=now, max_bytes=most)
        found = valid.lookup_text("session_id", session_id)
        repeatable = row["platform_message_id"] is not None
        if repeatable or self._backend.one_writer:
            return self._writing(lambda unit: deliveries.append_one(unit, found, row, now), repeatable=repeatable)
        values = {**row, "session_id": found, "at": now}
        appended = self._chained(lambda unit: _append(unit, sql.APPEND, values))
        if appended is None:
            raise NotFound(models.SESSION, session_id)
        return appended

    def append_many(self, session_id: str, drafts: Sequence[MessageDraft]) -> builtins.list[Appended]:
        """Append 1 to 500 messages in order, all or none. Messages that were stored before have ``created=False``.

        Raises `InvalidValue` with the position of a bad draft; then nothing is stored. Otherwise it behaves as `append`
        does.
        """
        now = self._now()
        rows = message_statements.drafts(drafts, now, self._settings.limits.message_content)
        found = valid.lookup_text("session_id", session_id)
        repeatable = all(row["platform_message_id"] is not None for row in rows)
        return self._writing(lambda unit: deliveries.append(unit, found, rows, now), repeatable=repeatable)

    def try_append_to_thread(
        self, place: ThreadPlace, draft: MessageDraft, *, clip: int | None = models.CLIP
    ) -> Appended | None:
        """Append a message that a service posted into a thread to the thread's newest active session.

        Returns None if the thread has no active session; the session may be idle. White space around the content is
        removed; blank content stores nothing and returns None. Content longer than ``clip`` UTF-16 units is cut to its
        end, after a line that says so; ``clip=None`` keeps all. Other failures raise.
        """
        now = self._now()
        where = session_statements.place("place", place)
        row = message_statements.clipped_draft(draft, now, self._settings.limits.message_content, clip)
        if row is None:
            return None
        return retry_lost_race(lambda: self._append_here(where, row, now))

    def history(
        self, session_id: str, *, limit: int = 50, before: int | None = None
    ) -> builtins.list[MessagingMessage]:
        """Return the newest ``limit`` messages (1 to 500) of a session, oldest first.

        ``before`` selects only messages with a smaller id. An unknown session has no messages. Messages that cannot be
        read are logged and left out; `list` reports them.
        """
        values = {
            "session_id": valid.lookup_text("session_id", session_id),
            "before": sql.GREATEST_ID if before is None else valid.number("before", before),
        }
        return self._sound(sql.BEFORE, values, limit)[::-1]

    def since(self, session_id: str, *, after: int, limit: int = 200) -> builtins.list[MessagingMessage]:
        """Return a session's messages with an id above ``after`` (0 is the start), oldest first.

        Polling with the id of the last message misses no message.
        """
        values = {
            "session_id": valid.lookup_text("session_id", session_id),
            "after": valid.number("after", after),
        }
        return self._sound(sql.SINCE, values, limit)

    def list(self, session_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[MessagingMessageSummary]:
        """Return a page of a session's messages, newest first, with the first 280 characters of each."""
        found = valid.lookup_text("session_id", session_id)
        valid.page_limit(limit)
        asked = ["messaging_messages", found]
        [before] = pages.key(asked, page_token, _KEY) or [sql.GREATEST_ID]
        values = {"session_id": found, "before": before}

        def read(unit: Unit) -> Page[MessagingMessageSummary]:
            shown = window(
                lambda size: keyed_rows(unit.rows_or_errors(sql.SUMMARIES_BEFORE, {**values, "limit": size}), ["id"]),
                limit,
            )
            return shown.page(asked)

        return self._reading(read)

    def get(self, message_id: int) -> MessagingMessage:
        """Return the message with this id. Raises `NotFound`."""
        values = {"message_id": valid.number("message_id", message_id)}
        return self._get_row(sql.GET, values, kind=models.MESSAGE, key=message_id)

    def find_by_platform_id(self, platform: str, channel_id: str, platform_message_id: str) -> MessagingMessage | None:
        """Return the newest message with this platform id in the sessions of that platform and channel, or None."""
        values = {
            "platform": valid.lookup_text("platform", platform),
            "channel_id": valid.lookup_text("channel_id", channel_id),
            "platform_message_id": valid.lookup_text("platform_message_id", platform_message_id),
        }
        return self._find(sql.FIND_PLATFORM_ID, values)

    def _sound(
        self, statement: Statement[MessagingMessage], values: Values, limit: int
    ) -> builtins.list[MessagingMessage]:
        """Return the first ``limit`` readable messages of a statement. Unreadable ones are logged and counted."""
        valid.page_limit(limit)
        return self._reading(lambda unit: unit.first_readable_rows(statement, values, limit))

    def _append_here(self, where: Place, row: Draft, now: datetime) -> Appended | None:
        """Append to the newest active session of a channel or thread, in one transaction. Return None if there is none.

        Raises `LostRace` if the session was retired before it was locked.
        """
        if row["platform_message_id"] is None:
            values = {**where, **row, "at": now}
            made = self._chained(lambda unit: _append(unit, sql.APPEND_HERE, values))
        else:
            made = self._writing(lambda unit: _deliver_here(unit, where, row, now), repeatable=True)
        if made is None and self._value(sql.IS_SOMEBODY_HERE, where):
            raise LostRace("the newest session of the place was retired while it was looked up")
        return made


def _append(unit: Unit, chain: Chain, values: Row) -> Appended | None:
    made = unit.chain(chain, values)
    if made is None:
        return None
    return deliveries.append_result(MessagingMessage.of(inserted_row(made)), created=True)


def _deliver_here(unit: Unit, where: Place, row: Draft, now: datetime) -> Appended | None:
    held: str | None = unit.value(LOCK_HERE, where)
    return None if held is None else deliveries.append_locked(unit, held, [row], now)[0]
