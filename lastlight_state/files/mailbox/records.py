"""Records of mailboxes."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from lastlight_state import codec
from lastlight_state.db.rows.records import Record
from lastlight_state.db.rows.statements import Row
from lastlight_state.files.mailbox.arguments import Routing
from lastlight_state.files.mailbox.models import PLACE, instant

T = TypeVar("T")

_TIMES_IN = ("timestamp", "process_after", "settled_at")
_ROUTING = frozenset({"channel_type", "platform_id", "thread_id"})
#: Columns that no record of an inbound message shows.
_WORKING = frozenset({"released_at", "tries_base"})


class MessageInSummary(Record):
    """An inbound message in lists, without its content. ``status`` is the stored word, even an unknown one."""

    id: str
    seq: int | None
    kind: str
    timestamp: datetime | None
    status: str
    process_after: datetime | None
    recurrence: str | None
    series_id: str
    tries: int
    trigger: bool
    on_wake: bool
    routing: Routing
    timezone: str | None
    platform_message_id: str | None
    source_session_id: str | None
    settled_at: datetime | None
    outcome: str | None
    error: str | None

    _computed = frozenset({"routing"})
    _consumed = _ROUTING | _WORKING | {PLACE}

    @classmethod
    def of(cls, values: Any) -> Self:
        for name in _TIMES_IN:
            values[name] = instant(values[name])
        values["series_id"] = values["series_id"] or values["id"]
        values["status"] = values["status"] or ""
        values["tries"] = values["tries"] or 0
        values["trigger"] = values["trigger"] != 0
        values["on_wake"] = bool(values["on_wake"])
        values["routing"] = _pop_routing(values)
        for name in (PLACE, *_WORKING):
            values.pop(name, None)
        return super().of(values)


class MessageIn(MessageInSummary):
    """An inbound message.

    If its content is not JSON, ``content`` is None, ``malformed`` is True and ``raw`` has the text.
    """

    content: Any
    raw: str | None
    malformed: bool

    _computed = frozenset({"routing", "raw", "malformed"})
    _consumed = _ROUTING | _WORKING

    @classmethod
    def of(cls, values: Any) -> Self:
        return super().of(_with_content(values))


class MessageOutSummary(Record):
    """An outbound message in lists, without its content."""

    id: str
    seq: int | None
    in_reply_to: str | None
    timestamp: datetime | None
    deliver_after: datetime | None
    recurrence: str | None
    kind: str
    routing: Routing
    target_seq: int | None

    _computed = frozenset({"routing"})
    _consumed = _ROUTING | {PLACE}

    @classmethod
    def of(cls, values: Any) -> Self:
        values["timestamp"] = instant(values["timestamp"])
        values["deliver_after"] = instant(values["deliver_after"])
        values["routing"] = _pop_routing(values)
        values.pop(PLACE, None)
        return super().of(values)


class MessageOut(MessageOutSummary):
    """An outbound message.

    If its content is not JSON, ``content`` is None, ``malformed`` is True, ``raw`` has the text.
    """

    content: Any
    raw: str | None
    malformed: bool

    _computed = frozenset({"routing", "raw", "malformed"})
    _consumed = _ROUTING

    @classmethod
    def of(cls, values: Any) -> Self:
        return super().of(_with_content(values))


class Delivery(Record):
    """The delivery of an outbound message. ``status`` is ``pending``, ``delivered`` or ``failed``."""

    message_out_id: str
    status: str
    platform_message_id: str | None = None
    delivered_at: datetime | None = None
    error: str | None = None
    attempts: int | None = None

    @classmethod
    def of(cls, values: Any) -> Self:
        values["delivered_at"] = instant(values["delivered_at"])
        return super().of(values)


class DueMessage(Record):
    """An outbound message that this caller must send before its lease expires.

    ``in_doubt`` is True if an earlier attempt ended without a result, so that the message may have been sent.
    ``message.id`` can serve as the key by which a platform detects repetitions. ``problem`` is the reason if the
    message cannot be sent at all.
    """

    message: MessageOut
    token: str
    leased_until: datetime
    attempt: int
    in_doubt: bool
    problem: str | None = None


class MessageRef(Record):
    """A message found by its number. ``delivery`` is the delivery of an outbound message; None for an inbound one."""

    seq: int
    side: str
    id: str
    platform_message_id: str | None
    routing: Routing
    delivery: str | None


class Ensured(Record, Generic[T]):
    """A message, and True if this call stored it."""

    message: T
    created: bool


class Batch(Record):
    """Messages for an agent, in the order of their numbers.

    ``unreadable_times`` are the ids of messages whose ``process_after`` is not a time. They count as due.
    """

    messages: tuple[MessageIn, ...]
    unreadable_times: tuple[str, ...] = ()

    def __iter__(self) -> Any:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)


class Task(MessageIn):
    """The live occurrence of a task, or the last one of a series that has ended."""

    @property
    def prompt(self) -> str | None:
        """Return the prompt for the agent.

        If another program wrote the content as plain text, this is the whole content.
        """
        text = self.raw if self.malformed else self.content
        return text.get("prompt") if isinstance(text, dict) else text if isinstance(text, str) else None

    @property
    def script(self) -> str | None:
        """Return the script that runs before the agent is prompted."""
        return self.content.get("script") if isinstance(self.content, dict) else None


class TaskSummary(MessageInSummary):
    """The live occurrence of a task, without its content."""


class Claim(Record):
    """A message that an agent works on. ``claimed_at`` is None if the file does not record it."""

    message_id: str
    seq: int | None
    status: str
    claimed_at: datetime | None
    claimed_by: str | None
    tries: int


class Destination(Record):
    """A place that the agent may send to by name."""

    name: str
    display_name: str | None
    type: str
    channel_type: str | None
    platform_id: str | None
    agent_group_id: str | None


class StateEntry(Record):
    """A value that the agent has stored, and that survives its restarts."""

    key: str
    value: str
    updated_at: datetime | None

    @classmethod
    def of(cls, values: Any) -> Self:
        values["updated_at"] = instant(values["updated_at"])
        return super().of(values)


class OutboxFile(Record):
    """A file of an outbound message: its name, size and content."""

    name: str
    size: int
    data: bytes


class OutboxFiles(Record):
    """The files of an outbound message that can be read, and the unreadable files with the reasons."""

    files: tuple[OutboxFile, ...]
    skipped: tuple[tuple[str, str], ...]


class MailboxInfo(Record):
    """A session's mailbox as an entry of a list."""

    group: str
    session: str
    medium: str
    inbound_bytes: int | None
    outbound_bytes: int | None
    heartbeat_at: datetime | None
    path: Path


class MailboxStatus(Record):
    """The numbers of pending messages in a mailbox.

    ``unknown_words`` counts rows with an unknown status, delivery or type; `verify` lists these rows.
    """

    pending: int
    due: int
    claimed: int
    paused: int
    failed: int
    undelivered: int
    undeliverable: int
    unknown_words: int


class Finding(Record):
    """A violation of the rules in a pair of files."""

    file: str
    message_id: str | None
    problem: str


class ToolState(Record):
    """The tool that the agent is using."""

    name: str | None
    timeout: timedelta | None
    started_at: datetime | None


def _pop_routing(values: Row) -> Routing:
    return Routing(values.pop("channel_type"), values.pop("platform_id"), values.pop("thread_id"))


def _with_content(values: Row) -> Row:
    text = values["content"]
    try:
        return {**values, "content": codec.decode(text), "raw": None, "malformed": False}
    except ValueError:
        return {**values, "content": None, "raw": text, "malformed": True}
