"""What a database says about its size and settings, in the same words for all products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TableSize:
    """Rows of a table, None until counted, and its bytes with indexes, None where the database does not keep them."""

    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Measures:
    """A database as a whole. What a product does not have is None.

    ``tables`` holds those of the tables asked for that exist, with the planner's estimate of their rows if it has one.
    ``settings`` are those that decide durability and waiting, by the product's own names.
    """

    version: str
    size_bytes: int
    tables: Mapping[str, TableSize]
    settings: Mapping[str, str | int | bool]
    wal_bytes: int | None = None
    free_pages: int | None = None
    free_bytes: int | None = None
