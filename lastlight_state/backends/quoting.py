"""Names and texts in SQL that goes to a driver as it stands."""

from __future__ import annotations


def quoted(name: str) -> str:
    """The name as a quoted identifier. SQLAlchemy's own quoting doubles ``%``, for statements that carry parameters."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """The text as a literal."""
    return "'" + text.replace("'", "''") + "'"
