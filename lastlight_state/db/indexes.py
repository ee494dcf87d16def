"""Indexes for both databases: partial ones said once, and those that only one of the two needs."""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy import Index, text

ONLY = "only"
"""The key in an index's ``info`` that holds the name of the one product that has it."""


def where(predicate: str, *, postgresql: str | None = None) -> dict[str, Any]:
    """The options that make an `Index` partial. A planner uses it only where a statement repeats the predicate.

    ``postgresql`` is for the predicates that are spelt differently there, such as truth values.
    """
    return {"sqlite_where": text(predicate), "postgresql_where": text(postgresql or predicate)}


def only(product: Literal["sqlite", "postgresql"], index: Index) -> None:
    """Declare that the index exists on one product alone, because it costs more than it brings on the other."""
    index.ddl_if(dialect=product)
    index.info[ONLY] = product
