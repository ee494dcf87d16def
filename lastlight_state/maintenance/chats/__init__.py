"""``store.maintenance.chats``: chat threads, with turns from the database and messages from the agent's log.

If there is no log, the messages come from ``store.messaging``. Log, turns and messaging are pruned separately; the
remaining parts of a thread are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.lists import pages
from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.rows.records import Page, Record
from lastlight_state.db.rows.statements import Family, constant, number
from lastlight_state.db.schema.columns import Text
from lastlight_state.db.schema.indexes import Leading, through
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue, NotFound, UnsafePath
from lastlight_state.files.agent_log import AgentLog, LogMessage, SessionFile, Tokens
from lastlight_state.files.agent_log.paths import CHAT_SLUG
from lastlight_state.maintenance.chats.agent_sessions import qualified_repo
from lastlight_state.messaging import MessagingMessage
from lastlight_state.messaging.messages import Messages
from lastlight_state.messaging.models import MESSAGES, SESSIONS
from lastlight_state.workflows.tables import EXECUTIONS
from lastlight_state.workflows.usage import Rollups
from lastlight_state.workflows.usage.records import ThreadUsage
from lastlight_state.workflows.usage.statements import TURNS

# The session, place and last message of chat threads, from their newest turns and from messaging.
#
# One statement for all threads of a page. Turns are counted by `usage.list_threads` of workflows.

#: How many characters of the last message a thread shows.
PREVIEW = 4_000

_e = EXECUTIONS.c
_TURN = EXECUTIONS.alias("turn")
_PREVIEW = (
    sa.select(sa.func.substr(MESSAGES.c.content, number(1), number(PREVIEW)))
    .where(Leading(MESSAGES.c.session_id, SESSIONS.c.id), MESSAGES.c.role == constant("assistant"))
    .order_by(MESSAGES.c.session_id.desc(), MESSAGES.c.id.desc())
    .limit(number(1))
    .scalar_subquery()
)


def _newest_turn(shown: sa.ColumnElement[Any], trigger: sa.ColumnElement[Any], *conditions: Any) -> Any:
    """Return a column's value in the newest turn of a thread among the turns that meet the conditions."""
    return (
        through(sa.select(shown), _TURN, "ix_executions_chat")
        .where(Leading(_TURN.c.trigger_id, trigger), _TURN.c.skill == constant("chat"), *conditions)
        .order_by(_TURN.c.trigger_id.desc(), _TURN.c.started_at.desc(), _TURN.c.id.desc())
        .limit(number(1))
        .scalar_subquery()
    )


def _thread_facts(triggers: Sequence[sa.BindParameter[Any]]) -> Any:
    asked = sa.values(sa.column("trigger_id", Text), name="asked").data([(sa.cast(one, Text),) for one in triggers])
    given = asked.cte("given")
    log = _newest_turn(_TURN.c.session_id, given.c.trigger_id, _TURN.c.session_id.is_not(None))
    return (
        sa.select(
            given.c.trigger_id,
            _e.owner,
            _e.repo,
            log.label("session_id"),
            SESSIONS.c.platform,
            SESSIONS.c.agent_session_id,
            _PREVIEW.label("preview"),
        )
        .select_from(given)
        .join(EXECUTIONS, _e.id == _newest_turn(_TURN.c.id, given.c.trigger_id))
        .outerjoin(SESSIONS, SESSIONS.c.id == given.c.trigger_id)
    )


class ThreadFacts(NamedTuple):
    """The facts about a thread that its turns do not have."""

    trigger_id: str
    owner: str | None
    repo: str | None
    session_id: str | None
    platform: str | None
    agent_session_id: str | None
    preview: str | None


KNOWN = Family("trigger", _thread_facts, ThreadFacts)


def known_threads(unit: Unit, triggers: Sequence[str]) -> dict[str, ThreadFacts]:
    """Return the columns of `KNOWN` by trigger, for at most 500 triggers. A trigger without turns is absent."""
    statement, values = KNOWN.of(triggers)
    return {row.trigger_id: row for row in unit.rows(statement, values)}


# Records of chat threads and their messages.

ChatSource: TypeAlias = Literal["log", "database", "none"]


class ChatThread(Record):
    """A conversation: the chat turns of one trigger. The trigger is also the id of the messaging session.

    ``first_activity_at`` and ``last_activity_at`` are the starts of turns. ``cost_usd`` is exact to a micro-dollar.
    ``repo`` is ``owner/repo`` of the newest turn, or None unless both parts are known. ``last_assistant_preview`` is
    the assistant's newest message, at most 4,000 characters. This preview and ``platform`` are None if the messaging
    session no longer exists.
    """

    trigger_id: str
    agent_session_id: str | None
    platform: str | None
    repo: str | None
    first_activity_at: datetime
    last_activity_at: datetime
    turn_count: int
    cost_usd: Decimal
    tokens: Tokens
    last_assistant_preview: str | None

    @classmethod
    def join_facts(cls, turns: ThreadUsage, known: ThreadFacts) -> ChatThread:
        """Return a thread made from its turns and the columns of `KNOWN`."""
        return cls(
            trigger_id=turns.trigger_id,
            agent_session_id=known.agent_session_id or known.session_id,
            platform=known.platform,
            repo=qualified_repo(known.owner, known.repo),
            first_activity_at=turns.first_at,
            last_activity_at=turns.last_at,
            turn_count=turns.executions,
            cost_usd=turns.cost_usd,
            tokens=Tokens(
                turns.input_tokens,
                turns.output_tokens,
                turns.cache_read_input_tokens,
                turns.cache_creation_input_tokens,
            ),
            last_assistant_preview=known.preview,
        )


class ChatMessages(Record):
    """A page of a thread's messages, oldest first, and their source.

    ``log`` messages include tool calls and results; ``database`` messages are those of the chat platform. Pass
    ``cursor`` to read on. ``at_end`` is True if there were no more messages when the page was read. ``reset`` is True
    if the log was replaced since the cursor was made, so that the page begins at the start of the log.
    """

    source: ChatSource
    messages: tuple[LogMessage, ...] | tuple[MessagingMessage, ...]
    cursor: str | None
    at_end: bool
    reset: bool = False


KIND = "chat_thread"


class Chats(Repository):
    """Lists chat threads and reads their messages: ``store.maintenance.chats``."""

    def __init__(self, context: Context, log: AgentLog) -> None:
        super().__init__(context)
        self._log = log
        self._messages = Messages(context)
        self._usage = Rollups(context)

    def list(self, *, limit: int = 50, page_token: str | None = None) -> Page[ChatThread]:
        """Return a page of threads, newest activity first. ``limit``: 1 to 500. Reads no log.

        A thread that gets a new turn during paging moves to the front, so that no thread appears twice.
        """
        page = self._usage.list_threads(limit=limit, page_token=page_token)
        return Page(items=self._read_threads(page.items), next_page_token=page.next_page_token, damaged=page.damaged)

    def get(self, trigger_id: str) -> ChatThread:
        """Return the thread. Raises `NotFound`."""
        statement, values = TURNS.of([valid.lookup_text("trigger_id", trigger_id)])
        turns = self._find(statement, values)
        found = self._read_threads([turns]) if turns else ()
        if not found:
            raise NotFound(KIND, trigger_id)
        return found[0]

    def messages(self, trigger_id: str, *, after: str | None = None, limit: int = 200) -> ChatMessages:
        """Return a page of the thread's messages after the cursor ``after``, oldest first. ``limit``: 1 to 500.

        The messages come from the thread's log in the chat directory, without messages of sub-agents. Without a log,
        they come from the database. A cursor is only valid for the source that it was made for. Raises `NotFound`, and
        `InvalidValue` for a damaged cursor.
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
        """Return the thread's log in the chat directory, or None. Raises `NotFound` for an unknown thread."""
        log = self._log_of(self.get(trigger_id))
        return log.path if log else None

    def _read_threads(self, threads: Sequence[ThreadUsage]) -> tuple[ChatThread, ...]:
        """Return records of these threads. One more statement reads the other columns of all of them."""
        if not threads:
            return ()
        known = self._reading(lambda unit: known_threads(unit, [thread.trigger_id for thread in threads]))
        return tuple(ChatThread.join_facts(one, known[one.trigger_id]) for one in threads if one.trigger_id in known)

    def _log_of(self, thread: ChatThread) -> SessionFile | None:
        if thread.agent_session_id is None:
            return None
        try:
            return self._log.sessions.find(thread.agent_session_id, slug=CHAT_SLUG)
        except UnsafePath:  # an id of a foreign row that cannot name a log
            return None

    def _from_log(self, log: SessionFile, after: Any, limit: int) -> ChatMessages:
        page = self._log.reader.messages(log.id, slug=CHAT_SLUG, after=after, limit=limit)
        cursor = pages.pack(["log", page.cursor])
        return ChatMessages(source="log", messages=page.messages, cursor=cursor, at_end=page.at_end, reset=page.reset)

    def _from_database(self, trigger_id: str, after: int, limit: int) -> ChatMessages:
        found = self._messages.since(trigger_id, after=after, limit=limit)
        if not found and not after:
            return ChatMessages(source="none", messages=(), cursor=None, at_end=True)
        cursor = pages.pack(["database", found[-1].id if found else after])
        return ChatMessages(source="database", messages=tuple(found), cursor=cursor, at_end=len(found) < limit)


def _place_of(after: str | None) -> tuple[ChatSource | None, Any]:
    """Return the source of a cursor, and the position in that source."""
    if after is None:
        return None, None
    match pages.unpack("after", after):
        case ["log", str(cursor)]:
            return "log", cursor
        case ["database", int(message_id)] if message_id > 0 and not isinstance(message_id, bool):
            return "database", message_id
    raise InvalidValue("after", "expected a cursor of an earlier call: this one is damaged, or not a cursor")
