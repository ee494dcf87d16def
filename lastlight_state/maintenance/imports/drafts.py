"""One unit of a source, as every reader gives it to the import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from lastlight_state.conversations.arguments import NewMessage, SessionTree


@dataclass(frozen=True)
class Draft:
    """A session to store: its tree, and the messages that no branch has.

    ``digest`` tells whether the source is as it was at the last import. ``updated_at`` is its last sign of life.
    """

    tree: SessionTree
    digest: str
    updated_at: datetime
    loose: tuple[NewMessage, ...] = ()
    noticed: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Part:
    """A unit that was found: its name in the source, and how to read it. ``read`` is None if it is not to be read."""

    key: str
    read: Callable[[], Draft] | None
