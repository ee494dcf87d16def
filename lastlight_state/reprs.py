"""Texts for callers' values in error messages, whatever their type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

#: The most characters of a value in an error message.
_LONGEST = 300


def repr_of(value: Any, most: int = _LONGEST) -> str:
    """Return the text of a caller's value for an error message, cut off if it is too long.

    Never raises, whatever the value.
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - an integer of too many digits, a cycle, a repr that raises
        return f"<{type(value).__name__}>"
    return text if len(text) <= most else text[:most] + "…"


def indented_lines(values: Iterable[object]) -> str:
    """Return the text of several values for an error message, each on its own line after the message's first line."""
    return "".join(f"\n  {value}" for value in values)
