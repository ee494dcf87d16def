"""The declarative base of all models, and the only list of table names that belong to this library."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import ColumnElement, MetaData, Table, case, inspect
from sqlalchemy.orm import DeclarativeBase

from lastlight_state.db.schema import columns
from lastlight_state.db.schema.declarations import confirm, facts_of, is_personal

# Columns that a later revision adds, in a companion table: at most one row per row of its parent, with the same key.
#
# A column added to a table is stored behind the table's large columns. On SQLite, a list that shows the column would
# read the large values of every row, and a covering index with the column would be rebuilt by each release. A
# companion's row is found by its key, only for the rows that a page shows.


def of_companion(column: sa.Column[Any]) -> sa.Label[Any]:
    """Return a companion table's column for its parent's `Listing`: NULL if the companion has no row.

    The companion refers to its parent by one foreign key, which is also its primary key.
    """
    [reference] = column.table.foreign_key_constraints
    same = (each.parent == each.column for each in reference.elements)
    return sa.select(column).where(*same).scalar_subquery().label(column.name)


NAMING = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
}

VERSION_TABLE = "lastlight_state_version"

#: Prefixes of this library's new tables. Names of users' tables must not begin with one of them.
RESERVED_PREFIXES = (
    "lastlight_",
    "run_",
    "workflow_",
    "output_",
    "cron_",
    "messaging_",
    "conversation_",
    "mailbox_",
    "maintenance_",
    "checkpoint_",
)

#: Names of this library's tables, present or planned, that have no such prefix.
RESERVED_NAMES = frozenset(
    {
        "executions",
        "human_requests",
        "sandboxes",
        "tool_calls",
        "scores",
        "vectors",
        "vector_namespaces",
        "checkpoints",
        "states",
        "tombstones",
        "import_ledger",
        "copy_progress",
        "messages",
        "message_types",
        "progressions",
        "progression_links",
        "sessions",
        "session_transitions",
        "session_changes",
        "exchange_inboxes",
        "exchange_deliveries",
        "exchange_members",
        "branches",
        "invocation_kinds",
        "source_kinds",
        "progression_collections",
        "deliveries",
        "messages_in",
        "messages_out",
    }
)


class Base(DeclarativeBase):
    """The declarative base of the central schema. Models give tables and types; repositories run Core statements."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it as a plain class attribute
        str: columns.Text,
        int: columns.Integer,
        float: columns.Real,
        bool: columns.Flag,
        datetime: columns.Timestamp,
        dict[str, Any]: columns.Json,
        list[Any]: columns.Json,
    }

    def __init_subclass__(cls, **options: Any) -> None:
        """Declare the table of a model. Raises `UndeclaredColumn` if it leaves out a required fact."""
        super().__init_subclass__(**options)
        if "__table__" in vars(cls):  # an abstract model has no table
            confirm(table_of(cls))
            _set_storage_when_created(table_of(cls))

    def __repr__(self) -> str:
        """Return the row's key, status and name. Shows nothing personal, and reads nothing from the database."""
        keys, others = _repr_attributes(type(self))
        known: dict[str, Any] = dict(zip(keys, inspect(self).identity or (), strict=False)) | vars(self)
        told = ", ".join(f"{name}={known[name]!r}" for name in (*keys, *others) if name and name in known)
        return f"{type(self).__name__}({told})"


@cache
def _repr_attributes(model: type[Base]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a model's key attributes ("" for a personal one), and those for names and vocabulary words."""
    columns = {name: column for name, column in model.__mapper__.columns.items() if not is_personal(column)}
    names = {column: name for name, column in columns.items()}
    keys = tuple(names.get(column, "") for column in table_of(model).primary_key)
    telling = (name for name, column in columns.items() if name.endswith("name") or "words" in column.info)
    return keys, tuple(name for name in telling if name not in keys)


def _set_storage_when_created(table: Table) -> None:
    """Add a statement after a table's CREATE TABLE that sets its storage parameters on Postgres, as the revision does.

    SQLAlchemy 2.0 cannot write them into CREATE TABLE.
    """
    if storage := facts_of(table).storage:
        statement = sa.DDL(f"ALTER TABLE %(fullname)s SET ({storage})")  # type: ignore[no-untyped-call]
        sa.event.listen(table, "after_create", statement.execute_if(dialect="postgresql"))


def table_of(model: type[Base]) -> Table:
    """Return the Core table of a model."""
    return cast(Table, model.__table__)


def later_of(column: ColumnElement[Any], value: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the later of two times in SQL, so that a stored time never goes back. ``column`` is not NULL."""
    return case((column < value, value), else_=column)
