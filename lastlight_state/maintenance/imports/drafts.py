"""A session of a source, as the readers of sessions give it to the import."""

from __future__ import annotations

from collections import Counter
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
