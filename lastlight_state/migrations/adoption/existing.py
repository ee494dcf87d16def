"""Makes revisions skip the tables, columns and indexes that a database of the original program already has.

Different versions of that program made different tables. If a table exists, a revision that would create it adds only
the missing columns. Columns and indexes are skipped if they equal those of the revision.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from alembic.migration import MigrationContext

from lastlight_state.backends.facts import Entry


def skip_existing(context: MigrationContext, present: Collection[Entry]) -> None:
    """Make this context's operations skip the tables, columns and indexes listed in ``present``."""
    if not present:
        return
    impl: Any = context.impl
    create_table, add_column, create_index = impl.create_table, impl.add_column, impl.create_index

    def complete_table(table: Any, **options: Any) -> None:
        if ("table", table.name, "") not in present:
            create_table(table, **options)
            return
        for column in table.columns:
            add_missing_column(table.name, column)
        if context.dialect.supports_comments:
            impl.create_table_comment(table)

    def add_missing_column(table: str, column: Any, **options: Any) -> None:
        if ("column", table, column.name) not in present:
            add_column(table, column, **options)

    def create_missing_index(index: Any, **options: Any) -> None:
        if ("index", index.table.name, index.name) not in present:
            create_index(index, **options)

    impl.create_table, impl.add_column, impl.create_index = complete_table, add_missing_column, create_missing_index
