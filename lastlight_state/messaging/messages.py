"""Messages of chat sessions: appended, counted, read back in the order of their ids, never changed.

A message and the session's counter and last activity are written together. Appends of one session are serialised by
its row, so a smaller id was committed earlier; ``timestamp`` is what the clock said and decides nothing. What was said
is stored verbatim.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from lastlight_state.db import pages, valid
from lastlight_state.db.chains import Chain
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.unit import Unit
from lastlight_state.errors import LostRace, NotFound
from lastlight_state.messaging import deliveries, message_checks, message_statements as sql, session_checks, words
from lastlight_state.messaging.arguments import MessageDraft, ThreadPlace
from lastlight_state.messaging.delivery_statements import LOCK_HERE
from lastlight_state.messaging.records import Appended, MessagingMessage, MessagingMessageSummary
from lastlight_state.messaging.session_checks import known
from lastlight_state.messaging.session_races import settled


class Messages(Repository):
    """``store.messaging.messages``"""

    def append(
        self,
        session_id: str,
        *,
        role: words.Role,
        content: str,
        platform_message_id: str | None = None,
        timestamp: datetime | None = None,
    ) -> Appended:
        """Store one message and count it, whether the session is active, idle or neither; an idle one is fresh again.

        With a ``platform_message_id`` that this session has stored under the same role, the stored message comes back
        with ``created=False``, whatever the content. Pass one where the platform gives it: only then is a write of
        unknown outcome repeated, else it is `BackendUnavailable` with that outcome. Raises `NotFound`, and
        `PayloadTooLarge` for content past 1 MiB.
        """
        now = self._now()
        most = self._settings.limits.message_content
        row = message_checks.message(role, content, platform_message_id, timestamp, now=now, max_bytes=most)
        found = known("session_id", session_id)
        if row["platform_message_id"] is not None:
            return self._writing(lambda unit: deliveries.append(unit, found, [row], now), repeatable=True)[0]
        values = {**row, "session_id": found, "at": now}
        appended = self._chained(lambda unit: _append(unit, sql.APPEND, values, row))
        if appended is None:
            raise NotFound(words.SESSION, session_id)
        return appended

    def append_many(self, session_id: str, drafts: Sequence[MessageDraft]) -> builtins.list[Appended]:
        """Append 1 to 500 messages in this order, all or none; redelivered ones come back with ``created=False``.

        Any bad draft is refused by its position, and then nothing is stored. Otherwise as `append`.
        """
        now = self._now()
        rows = message_checks.drafts(drafts, now, self._settings.limits.message_content)
        found = known("session_id", session_id)
        repeatable = all(row["platform_message_id"] is not None for row in rows)
        return self._writing(lambda unit: deliveries.append(unit, found, rows, now), repeatable=repeatable)

    def try_append_to_thread(
        self, place: ThreadPlace, draft: MessageDraft, *, clip: int | None = words.CLIP
    ) -> Appended | None:
        """Append what the service posted into a thread to its newest active session, idle or not; None without one.

        Content is stripped (blank is None), and past ``clip`` UTF-16 units only its tail is kept, behind a line that
        says so; ``clip=None`` keeps all. Failures raise: a connector that must not fail decides that itself.
        """
        now = self._now()
        where = session_checks.place("place", place)
        row = message_checks.posted(draft, now, self._settings.limits.message_content, clip)
        if row is None:
            return None
        return settled(lambda: self._append_here(where, row, now))

    def history(
        self, session_id: str, *, limit: int = 50, before: int | None = None
    ) -> builtins.list[MessagingMessage]:
        """The newest ``limit`` messages (1 to 500), oldest first; with ``before``, of those whose id is smaller.

        An unknown session has no messages.
        """
        values = {
            "session_id": known("session_id", session_id),
            "limit": valid.page_limit(limit),
            "before": sql.GREATEST_ID if before is None else valid.number("before", before),
        }
        newest_first = self._reading(lambda unit: unit.all(MessagingMessage, sql.BEFORE, values))
        return newest_first[::-1]

    def since(self, session_id: str, *, after: int, limit: int = 200) -> builtins.list[MessagingMessage]:
        """Messages with an id above ``after`` (0 is the start), oldest first: a live tail without gap or repeat."""
        values = {
            "session_id": known("session_id", session_id),
            "after": valid.number("after", after),
            "limit": valid.page_limit(limit),
        }
        return self._reading(lambda unit: unit.all(MessagingMessage, sql.SINCE, values))

    def list(self, session_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[MessagingMessageSummary]:
        """A page of messages, newest first, with the first 280 characters of each."""
        found = known("session_id", session_id)
        valid.page_limit(limit)
        asked = ["messaging_messages", found]
        before = message_checks.position(pages.decode_token(asked, page_token))
        values = {"session_id": found, "before": before, "limit": limit + 1}
        rows = self._reading(lambda unit: unit.all(MessagingMessageSummary, sql.SUMMARIES_BEFORE, values))
        items = tuple(rows[:limit])
        return Page(
            items=items, next_page_token=pages.encode_token(asked, [items[-1].id]) if len(rows) > limit else None
        )

    def get(self, message_id: int) -> MessagingMessage:
        """The message. Raises `NotFound`."""
        values = {"message_id": valid.number("message_id", message_id)}
        found = self._reading(lambda unit: unit.find(MessagingMessage, sql.GET, values))
        if found is None:
            raise NotFound(words.MESSAGE, message_id)
        return found

    def find_by_platform_id(self, platform: str, channel_id: str, platform_message_id: str) -> MessagingMessage | None:
        """The newest message with this platform id in the sessions of that platform and channel, or None."""
        values = {
            "platform": known("platform", platform),
            "channel_id": known("channel_id", channel_id),
            "platform_message_id": known("platform_message_id", platform_message_id),
        }
        return self._reading(lambda unit: unit.find(MessagingMessage, sql.FIND_PLATFORM_ID, values))

    def _append_here(self, where: dict[str, Any], row: dict[str, Any], now: datetime) -> Appended | None:
        """Find and append in one unit. Raises `LostRace` when the session found was retired before it was held."""
        if row["platform_message_id"] is None:
            values = {**where, **row, "at": now}
            made = self._chained(lambda unit: _append(unit, sql.APPEND_HERE, values, row))
        else:
            made = self._writing(lambda unit: _deliver_here(unit, where, row, now), repeatable=True)
        if made is None and self._reading(lambda unit: unit.row(sql.IS_SOMEBODY_HERE, where)):
            raise LostRace("the newest session of the place was retired while it was looked up")
        return made


def _append(unit: Unit, chain: Chain, values: dict[str, Any], row: dict[str, Any]) -> Appended | None:
    made = unit.chain(chain, values)
    if made is None:
        return None
    message = MessagingMessage.of({"id": made["new_id"], "session_id": made["id"], **row})
    return deliveries.appended(message, created=True)


def _deliver_here(unit: Unit, where: dict[str, Any], row: dict[str, Any], now: datetime) -> Appended | None:
    held: str | None = unit.value(LOCK_HERE, where)
    return None if held is None else deliveries.append_locked(unit, held, [row], now)[0]
