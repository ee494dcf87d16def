"""Groups of arguments of mailbox calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lastlight_state.db.repository import UNSET, UnsetType


@dataclass(frozen=True)
class Routing:
    """The place that a message came from or goes to."""

    channel_type: str | None = None
    platform_id: str | None = None
    thread_id: str | None = None


@dataclass(frozen=True)
class When:
    """The time at which an inbound message is worked on.

    ``recurrence`` is a cron pattern, read in the IANA zone ``timezone``. With ``trigger=False`` the message is context,
    and wakes no agent. With ``on_wake=True`` it is delivered only on an agent's first poll.
    """

    process_after: datetime | None = None
    recurrence: str | None = None
    timezone: str | None = None
    trigger: bool = True
    on_wake: bool = False


@dataclass(frozen=True)
class WhenChange:
    """Changes to the time of a task. None clears a field, and a field that is not given keeps its value."""

    process_after: datetime | UnsetType | None = UNSET
    recurrence: str | UnsetType | None = UNSET
    timezone: str | UnsetType | None = UNSET


@dataclass(frozen=True)
class Origin:
    """The origin of an inbound message, as far as known: time, the platform's message id, the session that sent it."""

    timestamp: datetime | None = None
    platform_message_id: str | None = None
    source_session_id: str | None = None


@dataclass(frozen=True)
class Deliver:
    """The time at which an outbound message is sent. ``recurrence`` is stored, but no host acts on it."""

    after: datetime | None = None
    recurrence: str | None = None


@dataclass(frozen=True)
class Attachment:
    """A file of a message: the desired name, and the content as bytes or as a path."""

    name: str
    data: bytes | Path
    mime: str | None = None


@dataclass(frozen=True)
class NewMessage:
    """A message for `HostInbox.send_many`."""

    kind: str
    content: Any
    id: str | None = None
    routing: Routing | None = None
    when: When = When()
    origin: Origin | None = None
    attachments: Sequence[Attachment] = ()


@dataclass(frozen=True)
class NewDestination:
    """A place that the agent may send to by name: a channel, or another agent's group."""

    name: str
    type: str
    display_name: str | None = None
    channel_type: str | None = None
    platform_id: str | None = None
    agent_group_id: str | None = None


@dataclass(frozen=True)
class StalePolicy:
    """The limits for treating an agent as stuck, and for the number of context messages that wait for it.

    A tool in ``timed_tools`` may show no activity for as long as it declared. ``max_context=None`` keeps all context
    messages.
    """

    silent_after: timedelta = timedelta(minutes=30)
    claim_after: timedelta = timedelta(seconds=60)
    timed_tools: frozenset[str] = frozenset({"Bash"})
    max_context: int | None = 500


NOW = When()
AT_ONCE = Deliver()
UNCHANGED = WhenChange()
DEFAULT_POLICY = StalePolicy()
