"""``store.maintenance.chats``: the chat reader. Threads come from turns in the database, messages from the agent's log.

Without a log, the messages are those that messaging stored. Log, turns and messaging are pruned separately; whatever of
a thread is left is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lastlight_state.agent_log import AgentLog, SessionFile
from lastlight_state.agent_log.paths import CHAT_SLUG
from lastlight_state.db import opaque, valid
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Context, Repository
from lastlight_state.errors import InvalidValue, NotFound, UnsafePath
from lastlight_state.maintenance import chat_threads
from lastlight_state.maintenance.chat_records import ChatMessages, ChatSource, ChatThread
from lastlight_state.messaging.messages import Messages
from lastlight_state.workflows.usage import Rollups
from lastlight_state.workflows.usage.records import ThreadUsage
from lastlight_state.workflows.usage.statements import TURNS

KIND = "chat_thread"


class Chats(Repository):
    """``store.maintenance.chats``"""

    def __init__(self, context: Context, log: AgentLog) -> None:
        super().__init__(context)
        self._log = log
        self._messages = Messages(context)
        self._usage = Rollups(context)

    def list(self, *, limit: int = 50, page_token: str | None = None) -> Page[ChatThread]:
        """A page of threads, newest activity first. ``limit``: 1 to 500. No log is read.

        A thread that gets a new turn while paging moves to the front, so none appears twice.
        """
        page = self._usage.list_threads(limit=limit, page_token=page_token)
        return Page(items=self._joined(page.items), next_page_token=page.next_page_token, damaged=page.damaged)

    def get(self, trigger_id: str) -> ChatThread:
        """The thread. Raises `NotFound`."""
        statement, values = TURNS.of([valid.sought("trigger_id", trigger_id)])
        turns = self._find(ThreadUsage, statement, values)
        found = self._joined([turns]) if turns else ()
        if not found:
            raise NotFound(KIND, trigger_id)
        return found[0]

    def messages(self, trigger_id: str, *, after: str | None = None, limit: int = 200) -> ChatMessages:
        """A page of the thread's messages after the cursor ``after``, oldest first. ``limit``: 1 to 500.

        From the thread's log in the chat directory, without messages of sub-agents; without a log, from the database.
        A cursor stays with the source that it was made for. Raises `NotFound`, `InvalidValue` for a damaged cursor.
        """
        valid.page_limit(limit)
        source, place = _place_of(after)
        thread = self.get(trigger_id)
        log = self._log_of(thread) if source in (None, "log") else None
        if log is not None:
            return self._from_log(log, place, limit)
        if source == "log":
            raise NotFound("agent_session", thread.agent_session_id)
        return self._from_database(trigger_id, place or 0, limit)

    def log_path(self, trigger_id: str) -> Path | None:
        """The thread's log in the chat directory, or None. Raises `NotFound` for an unknown thread."""
        log = self._log_of(self.get(trigger_id))
        return log.path if log else None

    def _joined(self, threads: Sequence[ThreadUsage]) -> tuple[ChatThread, ...]:
        """These threads as records, with one more statement for all of them."""
        if not threads:
            return ()
        known = self._reading(lambda unit: chat_threads.known(unit, [thread.trigger_id for thread in threads]))
        return tuple(ChatThread.joined(one, known[one.trigger_id]) for one in threads if one.trigger_id in known)

    def _log_of(self, thread: ChatThread) -> SessionFile | None:
        if thread.agent_session_id is None:
            return None
        try:
            return self._log.sessions.find(thread.agent_session_id, slug=CHAT_SLUG)
        except UnsafePath:  # an id of a foreign row that cannot name a log
            return None

    def _from_log(self, log: SessionFile, after: Any, limit: int) -> ChatMessages:
        page = self._log.reader.messages(log.id, slug=CHAT_SLUG, after=after, limit=limit)
        cursor = opaque.pack(["log", page.cursor])
        return ChatMessages(source="log", messages=page.messages, cursor=cursor, at_end=page.at_end, reset=page.reset)

    def _from_database(self, trigger_id: str, after: int, limit: int) -> ChatMessages:
        found = self._messages.since(trigger_id, after=after, limit=limit)
        if not found and not after:
            return ChatMessages(source="none", messages=(), cursor=None, at_end=True)
        cursor = opaque.pack(["database", found[-1].id if found else after])
        return ChatMessages(source="database", messages=tuple(found), cursor=cursor, at_end=len(found) < limit)


def _place_of(after: str | None) -> tuple[ChatSource | None, Any]:
    """The source of a cursor, and its place there."""
    if after is None:
        return None, None
    match opaque.unpack("after", after):
        case ["log", str(cursor)]:
            return "log", cursor
        case ["database", int(message_id)] if message_id > 0 and not isinstance(message_id, bool):
            return "database", message_id
    raise InvalidValue("after", "damaged, or not a cursor")
