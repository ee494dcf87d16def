"""The vocabularies of the messaging domain, and the most that one call takes."""

from __future__ import annotations

from typing import Literal

from lastlight_state.db.valid import words

Role = Literal["user", "assistant"]
OnActive = Literal["refuse", "close"]
CloseReason = Literal["closed", "timeout"]
RetireReason = Literal["timeout", "closed", "replaced", "duplicate"]

ROLES = words(Role)
ON_ACTIVE = words(OnActive)
CLOSE_REASONS = words(CloseReason)

TIMEOUT: RetireReason = "timeout"
REPLACED: RetireReason = "replaced"

#: The most messages that one call appends.
BATCH = 500
#: The most UTF-16 units that are kept of a message posted into a thread.
CLIP = 4_000

# Kinds of record, as `NotFound` and `AlreadyExists` name them.
SESSION = "messaging_session"
MESSAGE = "messaging_message"
