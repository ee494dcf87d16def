"""Cutting a text for a transcript. The tail is kept, because the next turn builds on the end of an answer."""

from __future__ import annotations

from lastlight_state.errors import InvalidValue

PREFIX = "…(truncated)…\n"
#: The least limit: the prefix and one more unit.
LEAST = len(PREFIX) + 1

_LOW_SURROGATES = range(0xDC00, 0xE000)


def units(text: str) -> int:
    """The length of ``text`` in UTF-16 code units, as chat platforms count."""
    return len(text) if text.isascii() else len(_encoded(text)) // 2


def clip_tail(text: str, limit: int) -> str:
    """``text`` if it has at most ``limit`` UTF-16 units, else its tail behind ``…(truncated)…`` and a newline.

    The result then has exactly ``limit`` units, or one less where the cut would split a surrogate pair. Raises
    `InvalidValue` for a limit below 15, which has no room for a tail.
    """
    if limit < LEAST:
        raise InvalidValue("limit", f"must be at least {LEAST}, got {limit}", least=LEAST)
    if units(text) <= limit:
        return text
    tail = _encoded(text)[-2 * (limit - len(PREFIX)) :]
    if int.from_bytes(tail[:2], "little") in _LOW_SURROGATES:
        tail = tail[2:]
    return PREFIX + tail.decode("utf-16-le", "surrogatepass")


def _encoded(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")
