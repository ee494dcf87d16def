"""Keys made of several parts, and ranges of keys. This is the only module that joins texts from callers to keys.

Two different tuples of parts never give the same key. Ordinary ids stay readable in a key:
``adk/session/support/ana/ticket-17``.
"""

from __future__ import annotations

_ESCAPE = "%"
#: The last character, and those before and behind the surrogates, which no text contains.
_LAST, _BEFORE_SURROGATES, _BEHIND_SURROGATES = "\U0010ffff", "\ud7ff", "\ue000"
#: More four-byte characters than an indexed text can have.
_LONGEST = 300


def compose_key(*parts: str, by: str = "/") -> str:
    """Join the parts to a key. A separator or ``%`` inside a part is escaped as ``%`` and two hex digits."""
    return by.join([escape_part(part, by) for part in parts])


def parts_of(key: str, *, by: str = "/") -> list[str]:
    """Split a key that `compose_key` made into its parts."""
    return [part.replace(_code(by), by).replace(_code(_ESCAPE), _ESCAPE) for part in key.split(by)]


def escape_part(part: str, by: str = "/") -> str:
    """Escape one part as it appears in a key."""
    return part.replace(_ESCAPE, _code(_ESCAPE)).replace(by, _code(by))


def _code(character: str) -> str:
    return f"{_ESCAPE}{ord(character):02X}"


def prefix_end(prefix: str) -> str:
    """Return the first text behind all texts with this prefix."""
    kept = prefix.rstrip(_LAST)
    if not kept:
        return _LAST * _LONGEST
    if kept[-1] == _BEFORE_SURROGATES:
        return kept[:-1] + _BEHIND_SURROGATES
    return kept[:-1] + chr(ord(kept[-1]) + 1)
