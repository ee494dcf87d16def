"""The vocabularies of the messaging domain, and the limits of what callers may store in it."""

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

# Bytes of UTF-8.
PLATFORM = 64
PLATFORM_ID = 256
SESSION_ID = 200
TITLE = 512
METADATA = 16 * 1024

METADATA_DEPTH = 16
#: The most messages that one call appends.
BATCH = 500
#: The most UTF-16 units that are kept of a message posted into a thread.
CLIP = 4_000

# Kinds of record, as `NotFound` and `AlreadyExists` name them.
SESSION = "messaging_session"
MESSAGE = "messaging_message"
