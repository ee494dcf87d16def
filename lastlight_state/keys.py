"""Keys that are made of several parts: the only composition of texts whose parts come from callers.

Two different tuples of parts never give one key. Normal ids stand in it as they are, so that people know it again:
``adk/session/support/ana/ticket-17``.
"""

from __future__ import annotations

_ESCAPE = "%"


def composed(*parts: str, by: str = "/") -> str:
    """Return the key of these parts. In a part the separator and ``%`` become ``%`` and two hex digits."""
    return by.join([escaped(part, by) for part in parts])


def parts_of(key: str, *, by: str = "/") -> list[str]:
    """Return the parts of a key of `composed`."""
    return [part.replace(_code(by), by).replace(_code(_ESCAPE), _ESCAPE) for part in key.split(by)]


def escaped(part: str, by: str = "/") -> str:
    """Return one part as it stands in a key."""
    return part.replace(_ESCAPE, _code(_ESCAPE)).replace(by, _code(by))


def _code(character: str) -> str:
    return f"{_ESCAPE}{ord(character):02X}"
