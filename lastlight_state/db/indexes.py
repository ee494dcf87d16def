"""Partial indexes, said once for both databases."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text


def where(predicate: str, *, postgresql: str | None = None) -> dict[str, Any]:
    """The options that make an `Index` partial. A planner uses it only where a statement repeats the predicate.

    ``postgresql`` is for the predicates that are spelt differently there, such as truth values.
    """
    return {"sqlite_where": text(predicate), "postgresql_where": text(postgresql or predicate)}
