"""Values of callers in the texts of errors, whatever they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

#: Characters of a value in an error's text.
_LONGEST = 300


def shown(value: Any, most: int = _LONGEST) -> str:
    """Return a caller's value as an error shows it, whatever it is: cut, and never an error of its own."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - an integer of too many digits, a cycle, a repr that raises
        return f"<{type(value).__name__}>"
    return text if len(text) <= most else text[:most] + "…"


def listed(values: Iterable[object]) -> str:
    """Return values as an error shows several: each on a line of its own, behind the line that the error begins."""
    return "".join(f"\n  {value}" for value in values)
