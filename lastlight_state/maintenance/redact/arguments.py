"""The policy of a redaction: what callers say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class RedactPolicy:
    """Which messages of conversations are emptied: those that all the given conditions hold for.

    ``older_than`` is the age since a message was created. ``session_id`` names a session whose orders hold the message,
    ``message_ids`` at most 500 messages. One of the three must be given. ``roles`` narrows them.
    """

    older_than: timedelta | None = None
    roles: Sequence[str] | None = None
    session_id: str | None = None
    message_ids: Sequence[str] | None = None
