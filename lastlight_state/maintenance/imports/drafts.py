"""A session of a source, as the readers of sessions give it to the import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lastlight_state.conversations.arguments import NewMessage, Reason, SessionTree


@dataclass(frozen=True)
class Change:
    """A change of status: to what, when, and why. ``started_at`` is when what has the status began, if it is told.

    ``texts`` are values of the reason that were refused, by field, for a lenient import to keep. ``id`` is the name of
    the change in the source, if it has one.
    """

    status: str
    at: datetime
    why: Reason
    started_at: datetime | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True)
class Pool:
    """The order of all messages of a session as its source has it, and the ids that it names as first and last."""

    ids: tuple[str, ...]
    first: str | None = None
    last: str | None = None


@dataclass(frozen=True)
class Draft:
    """A session to store: its tree, and the messages that no branch has.

    ``digest`` tells whether the source is as it was at the last import. ``updated_at`` is its last sign of life.
    ``history`` has the statuses of the session, the oldest first, and ``branch_statuses`` those of its branches.
    ``pool`` is the order of all messages, None where the source keeps none. A source that keeps one has one row for a
    message, whichever sessions have it. ``begun`` says when orders were made, by their ids.
    """

    tree: SessionTree
    digest: str
    updated_at: datetime
    loose: tuple[NewMessage, ...] = ()
    noticed: Counter[str] = field(default_factory=Counter)
    history: tuple[Change, ...] = ()
    branch_statuses: Mapping[str, Change] = field(default_factory=dict)
    pool: Pool | None = None
    begun: Mapping[str, Any] = field(default_factory=dict)
