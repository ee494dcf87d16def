"""Brings the file of a side to the shape that is declared: adds tables, columns and indexes, removes nothing.

Files of the original have fewer columns, and some were left half-way by a program that died. Each step looks for
itself, and all are one transaction. There are no numbered revisions: whoever adds a column gives it a constant default,
or lets it be NULL.
"""

from __future__ import annotations

import logging
from typing import Any, TypedDict

import sqlalchemy as sa
from sqlalchemy.sql.elements import quoted_name

from lastlight_state.db import reconcile
from lastlight_state.db.reconcile import PresentColumn, PresentTable
from lastlight_state.db.statements import bind, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict
from lastlight_state.mailbox import models
from lastlight_state.mailbox.kernel import meta
from lastlight_state.mailbox.words import LAYOUT

_log = logging.getLogger("lastlight_state.mailbox")

_SAVEPOINT = "lastlight_index"
_SERIES = models.MESSAGES_IN.c.series_id
_UNNAMED = prepared(sa.select(models.MESSAGES_IN.c.id).where(_SERIES.is_(None)).limit(sa.literal_column("1")))
_NAME_SERIES = prepared(
    sa.update(models.MESSAGES_IN).where(_SERIES.is_(None)).values(series_id=models.MESSAGES_IN.c.id)
)
_HIGHEST = prepared(
    sa.select(sa.func.max(models.MESSAGES_IN.c.seq)).where(
        sa.func.typeof(models.MESSAGES_IN.c.seq) == sa.literal_column("'integer'")
    )
)


class ObjectName(TypedDict):
    """A table, view or index of a file."""

    type: str
    name: str


class ColumnFacts(TypedDict):
    """What SQLite tells of a column."""

    name: str
    type: str
    dflt_value: str | None
    pk: int
    notnull: int


_KIND, _NAME = sa.column("type", sa.Text), sa.column("name", sa.Text)
_OBJECTS = prepared(sa.select(_KIND, _NAME).select_from(sa.table("sqlite_master")), ObjectName)
_FACTS: list[sa.ColumnElement[Any]] = [
    *(_NAME, _KIND, sa.column("dflt_value", sa.Text), sa.column("pk", sa.Integer)),
    sa.column(quoted_name("notnull", quote=True), sa.Integer),
]
_COLUMNS = prepared(sa.select(*_FACTS).select_from(sa.func.pragma_table_info(bind("table", _NAME))), ColumnFacts)


def is_complete(unit: Unit, declared: sa.MetaData) -> bool:
    """Whether nothing is to be added. One look at the columns of each table, and no write lock."""
    for table in declared.sorted_tables:
        names = unit.backend.column_names(unit.checkout, table.name)
        if not names.issuperset(column.name for column in table.columns):
            return False
    wanted = {str(index.name) for table in declared.tables.values() for index in table.indexes} - _LOOSE
    if not _named(unit, "index") >= wanted or meta.find(unit, declared, "layout") is None:
        return False
    return declared is not models.INBOUND or unit.value(_UNNAMED) is None


def complete(unit: Unit, declared: sa.MetaData) -> None:
    """Add what is missing. Call inside a transaction that holds the write lock."""
    found = present(unit, declared)
    for table in declared.sorted_tables:
        for statement in reconcile.additions(table, found.get(table.name), unit.backend):
            _add(unit, statement)
    if declared is models.INBOUND:
        unit.change(_NAME_SERIES)
    if meta.find(unit, declared, "layout") is None:
        meta.put(unit, declared, "layout", LAYOUT)
        if declared is models.INBOUND:
            meta.put(unit, declared, "adopted_seq", str(unit.value(_HIGHEST) or 0))


def present(unit: Unit, declared: sa.MetaData) -> dict[str, PresentTable]:
    """The declared tables that the file has, with the indexes of all: reflection would leave out some of ours."""
    tables, indexes = _named(unit, "table"), frozenset(_named(unit, "index"))
    found = {}
    for name in declared.tables.keys() & (tables | _named(unit, "view")):
        rows = unit.rows(_COLUMNS, {"table": name})
        columns = {row["name"]: _present(row) for row in rows}
        key = tuple(row["name"] for row in sorted(rows, key=lambda row: int(row["pk"])) if row["pk"])
        found[name] = PresentTable(name, name in tables, columns, key, frozenset(), indexes)
    return found


def _present(row: ColumnFacts) -> PresentColumn:
    has_default = row["dflt_value"] is not None
    return PresentColumn(row["name"], row["type"].upper(), nullable=not row["notnull"], has_default=has_default)


def _named(unit: Unit, kind: str) -> set[str]:
    """The names of the tables, views or indexes of the file."""
    return {row["name"] for row in unit.rows(_OBJECTS) if row["type"] == kind}


def _add(unit: Unit, statement: str) -> None:
    """Run a statement. A unique index that stored rows contradict is left out."""
    if not statement.startswith("CREATE UNIQUE INDEX"):
        unit.plain(statement)
        return
    unit.plain(f"SAVEPOINT {_SAVEPOINT}")
    try:
        unit.plain(statement)
    except Conflict:
        unit.undo_to(_SAVEPOINT)
        _log.warning("an index is left out, because stored messages contradict it: %s", statement)
    else:
        unit.plain(f"RELEASE SAVEPOINT {_SAVEPOINT}")


#: Indexes that a file may lack, because its rows contradict them.
_LOOSE = frozenset({str(models.LIVE_SERIES.name)})
