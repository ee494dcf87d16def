"""Keys made of several parts: the only place where texts from callers are joined.

Two different tuples of parts never give the same key. Normal ids stay readable in a key:
``adk/session/support/ana/ticket-17``.
"""

from __future__ import annotations

_ESCAPE = "%"


def composed(*parts: str, by: str = "/") -> str:
    """Return the key of these parts. The separator and ``%`` in a part are escaped as ``%`` and two hex digits."""
    return by.join([escaped(part, by) for part in parts])


def parts_of(key: str, *, by: str = "/") -> list[str]:
    """Return the parts of a key that `composed` made."""
    return [part.replace(_code(by), by).replace(_code(_ESCAPE), _ESCAPE) for part in key.split(by)]


def escaped(part: str, by: str = "/") -> str:
    """Return one part, escaped as it stands in a key."""
    return part.replace(_ESCAPE, _code(_ESCAPE)).replace(by, _code(by))


def _code(character: str) -> str:
    return f"{_ESCAPE}{ord(character):02X}"
