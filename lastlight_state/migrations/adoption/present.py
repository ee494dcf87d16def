"""Skips columns and indexes that a file of the original program already has and a later revision would add.

Later versions of that program added some of them. They are skipped only where they equal what the revision makes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from alembic.migration import MigrationContext

from lastlight_state.backends.facts import Entry


def spare(context: MigrationContext, present: Collection[Entry]) -> None:
    """Make the operations of this context skip the columns and indexes in ``present``."""
    if not present:
        return
    impl: Any = context.impl
    add_column, create_index = impl.add_column, impl.create_index

    def add_missing_column(table: str, column: Any, **options: Any) -> None:
        if ("column", table, column.name) not in present:
            add_column(table, column, **options)

    def create_missing_index(index: Any, **options: Any) -> None:
        if ("index", index.table.name, index.name) not in present:
            create_index(index, **options)

    impl.add_column, impl.create_index = add_missing_column, create_missing_index
