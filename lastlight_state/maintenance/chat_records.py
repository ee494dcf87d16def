"""Records of chat threads and their messages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from lastlight_state.agent_log import LogMessage, Tokens
from lastlight_state.db.records import Record
from lastlight_state.maintenance.session_executions import qualified_repo
from lastlight_state.messaging import MessagingMessage
from lastlight_state.workflows.usage.records import ThreadUsage

ChatSource: TypeAlias = Literal["log", "database", "none"]


class ChatThread(Record):
    """A conversation: the chat turns of one trigger, which is the id of its messaging session.

    ``first_activity_at`` and ``last_activity_at`` are the starts of turns. ``cost_usd`` is exact to a micro-dollar.
    ``repo`` is ``owner/repo`` of the newest turn, or None unless both parts are known. ``last_assistant_preview`` is
    the assistant's newest message, at most 4,000 characters. It and ``platform`` are None if messaging has no such
    session any more.
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
    def joined(cls, turns: ThreadUsage, known: Mapping[str, Any]) -> ChatThread:
        """From the turns of a thread, and the columns of `chat_threads.KNOWN`."""
        return cls(
            trigger_id=turns.trigger_id,
            agent_session_id=known["agent_session_id"] or known["session_id"],
            platform=known["platform"],
            repo=qualified_repo(known["owner"], known["repo"]),
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
            last_assistant_preview=known["preview"],
        )


class ChatMessages(Record):
    """A page of a thread's messages, oldest first, and where they come from.

    ``log`` messages include tool calls and results; ``database`` messages are those of the chat platform. Pass
    ``cursor`` to read on. ``at_end`` says that there was nothing more when the page was read. ``reset`` says that the
    log was replaced since the cursor was made, so that the page begins at its start.
    """

    source: ChatSource
    messages: tuple[LogMessage, ...] | tuple[MessagingMessage, ...]
    cursor: str | None
    at_end: bool
    reset: bool = False
