"""What an exception says, as text that every database can store."""

from __future__ import annotations

import re

#: Characters of an exception's message that are kept.
MESSAGE_CHARS = 4_000
#: The end of a text that was longer.
CUT = " …[cut]"

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


def message_of(error: BaseException) -> str:
    """What the exception says, at most 4,000 characters of it."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a job's exception may be unable to say anything
        text = "(an exception without a text)"
    return storable(text, MESSAGE_CHARS)


def storable(text: str, most: int) -> str:
    """The text, clipped and marked as such, without lone surrogates and control characters.

    Databases refuse some of these, and JSON spells the others in six bytes each.
    """
    kept = text if len(text) <= most else text[: most - len(CUT)] + CUT
    whole = kept.encode("utf-8", "replace").decode()
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", whole)
