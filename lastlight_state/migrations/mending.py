"""Restores lost parts of a current schema: indexes, guards, functions, views; on Postgres also keys and references.

It only adds. A person must repair the rest: lost tables and columns, parts that SQLite cannot add, and parts that exist
in another form. The error names all of them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.engine import Connection, Dialect

from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.db.schema.guards import DerivedRow
from lastlight_state.errors import SchemaMismatch
from lastlight_state.migrations import apply, outlines, scripts
from lastlight_state.migrations.metadata import DERIVED_ROWS, METADATA
from lastlight_state.migrations.records import HOLDING, REMAKE, Absent

#: The most conflicting rows that are named for each part.
MOST_ROWS = 20

_MADE = re.compile(r"CREATE (?:OR REPLACE )?(?:UNIQUE )?(INDEX|TRIGGER|FUNCTION|VIEW) (?:IF NOT EXISTS )?(\w+)")
_SWITCHED_ON = {
    "trigger": "ALTER TABLE {table} ENABLE TRIGGER {name}",
    "index": "REINDEX INDEX {name}",
    "constraint": "ALTER TABLE {table} VALIDATE CONSTRAINT {constraint}",
}

_log = logging.getLogger("lastlight_state.migrations")


def put_back(connection: Connection, revision: str) -> tuple[str, ...]:
    """Restore the parts of the newest revision that the schema lacks. Return the kind and name of each.

    Does nothing at another revision. Raises `SchemaMismatch` ``damaged`` with what cannot be restored: lost tables and
    columns, indexes in another form, and the rows that violate a unique index or a reference.
    """
    absent = _absent(connection) if revision == scripts.head() else ()
    if not absent:
        return ()
    refuse_lost(absent)
    in_the_way = [line for one in absent for line in _rows_in_the_way(connection, one)]
    if in_the_way:
        raise SchemaMismatch(
            "rows do not permit what the schema has lost, and nothing is put back; change them, then migrate again:",
            code="damaged",
            differences=in_the_way,
        )
    for statement in statements(connection.dialect, absent):
        connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
    told = tuple(one.place for one in absent)
    _log.warning("put back what the schema had lost: %s", ", ".join(told))
    return told


def refuse_lost(absent: Sequence[Absent]) -> None:
    """Raise `SchemaMismatch` ``damaged`` if a lost part cannot be restored by any statement."""
    lost = tuple(one.line for one in absent if one.kind in HOLDING)
    if lost:
        raise SchemaMismatch(
            "the schema lost what held values, and nothing brings them back but a backup; restore it:",
            code="damaged",
            differences=lost,
        )
    left_out = tuple(one.line for one in absent if one.is_final)
    if left_out:
        raise SchemaMismatch(f"{REMAKE}:", code="damaged", differences=left_out)
    others = tuple(f"{one.line}; run: DROP INDEX {one.name}" for one in absent if one.found == "other")
    if others:
        raise SchemaMismatch(
            "indexes are there in another form, and a migration drops nothing; drop them, then migrate again:",
            code="damaged",
            differences=others,
        )


def statements(dialect: Dialect, absent: Sequence[Absent]) -> list[str]:
    """Return the statements that restore these parts, in an order in which they succeed, without semicolons."""
    made = _made_by_revisions(dialect.name, scripts.folder(), scripts.head())
    missing = [one for one in absent if one.found is None]
    switched = [_switched_on(one) for one in absent if one.found == "off"]
    created = [made[place] for one in missing if (place := (one.kind, one.name or one.table)) in made]
    added = [_add_statement(dialect, one) for kind in _CONSTRAINTS for one in missing if _is_constraint(one, kind)]
    return [*switched, *(statement for _, statement in sorted(created)), *added, *_derived_statements(absent)]


def _absent(connection: Connection) -> tuple[Absent, ...]:
    product = connection.dialect.name
    outline = outlines.outline_expression(product, VERSION_TABLE)
    found = connection.exec_driver_sql(f"SELECT {outline}").scalar()
    return outlines.absent_entries(product, found)


@cache
def _made_by_revisions(product: str, _folder: Path, newest: str) -> Mapping[tuple[str, str], tuple[int, str]]:
    """Return the last statement that creates each object, and its position, by the object's kind and name."""
    return {
        (found[1].lower(), found[2]): (place, statement.removesuffix(";"))
        for place, statement in enumerate(apply.statements(registry.load(product)(), None, newest))
        if (found := _MADE.match(statement))
    }


def _switched_on(one: Absent) -> str:
    name = constraint_of(one).name if one.kind == "constraint" else None
    return _SWITCHED_ON[one.kind].format(table=one.table, name=one.name, constraint=name)


# Keys, unique constraints and references belong to their table's CREATE statement, so they are taken from the models.

_CONSTRAINTS = ("key", "unique", "foreign key")  # foreign keys need the others first


def _is_constraint(one: Absent, kind: str) -> bool:
    return one.kind == kind if kind == "key" else one.kind == "constraint" and one.name.startswith(f"{kind} (")


def constraint_of(one: Absent) -> Any:
    """Return the constraint that the models declare for an absent one."""
    table = METADATA.tables[one.table]
    if one.kind == "key":
        return table.primary_key
    kind = sa.UniqueConstraint if one.name.startswith("unique") else sa.ForeignKeyConstraint
    told = one.name.partition("(")[2].removesuffix(")")
    return next(
        found
        for found in table.constraints
        if isinstance(found, kind) and ", ".join(sorted(column.name for column in found.columns)) == told
    )


def _add_statement(dialect: Dialect, one: Absent) -> str:
    compiler: Any = dialect.ddl_compiler
    return f"ALTER TABLE {one.table} ADD {compiler(dialect, None).process(constraint_of(one)).strip()}"


# Rows that lost triggers would have derived meanwhile. Existing rows stay, because they may hold more than their
# parents.


def _derived_statements(absent: Sequence[Absent]) -> Iterator[str]:
    lost = {one.name for one in absent if one.kind == "trigger"}
    for derived in DERIVED_ROWS:
        if lost.intersection(name for name, *_ in derived.triggers()):
            yield _missing_rows(derived)


def _missing_rows(derived: DerivedRow) -> str:
    own = next(iter(derived.values))
    there = f"SELECT 1 FROM {derived.target} WHERE {derived.target}.{own} = NEW.{derived.key}"
    return (
        f"INSERT INTO {derived.target} ({', '.join(derived.values)}) SELECT {', '.join(derived.values.values())} "
        f"FROM {derived.table} AS NEW WHERE {derived.among.format(row='NEW.')} AND NOT EXISTS ({there})"
    )


# Rows that a unique index, a key or a reference would refuse.


def _rows_in_the_way(connection: Connection, one: Absent) -> Iterator[str]:
    query = _query_for(connection.dialect.name, one)
    rows = [] if query is None else connection.execute(query.limit(MOST_ROWS + 1)).all()
    if rows:
        named = "; ".join(", ".join(map("{0[0]}={0[1]!r}".format, row._mapping.items())) for row in rows[:MOST_ROWS])
        more = " and more" if len(rows) > MOST_ROWS else ""
        fault = "refer to no row" if _is_constraint(one, "foreign key") else "have equal keys"
        yield f"{one.place}: rows of {one.table} {fault}: {named}{more}"


def _query_for(product: str, one: Absent) -> sa.Select[Any] | None:
    """Return a query for the keys of rows that violate the lost part. Return None if no row can violate it."""
    table = METADATA.tables[one.table] if one.kind in ("index", "key", "constraint") else None
    if table is None or (one.kind == "index" and not one.is_unique):
        return None
    if one.kind == "index":
        index = next(found for found in table.indexes if found.name == one.name)
        return _shared_key_query(table, index.expressions, index.dialect_options[product]["where"])
    constraint = constraint_of(one)
    if isinstance(constraint, sa.ForeignKeyConstraint):
        return _orphans(table, constraint)
    return _shared_key_query(table, tuple(constraint.columns), None)


def _shared_key_query(table: sa.Table, key: Sequence[Any], among: Any) -> sa.Select[Any]:
    """Return a query for the primary keys of rows with the same ``key`` as another row, among rows that meet ``among``.

    NULL equals no other value.
    """
    count = sa.func.count().over(partition_by=list(key)).label("rows_of_key")
    order = [part.label(f"key_{place}") for place, part in enumerate(key)]
    found = sa.select(*table.primary_key.columns, *order, count).where(*(part.is_not(None) for part in key))
    several = (found if among is None else found.where(among)).subquery()
    shown = [several.c[column.name] for column in table.primary_key.columns]
    by = [several.c[part.name] for part in order]
    return sa.select(*shown).where(several.c.rows_of_key > 1).order_by(*by, *shown)


def _orphans(table: sa.Table, constraint: sa.ForeignKeyConstraint) -> sa.Select[Any]:
    parent = constraint.referred_table.alias()
    pairs = [(element.parent, parent.c[element.column.name]) for element in constraint.elements]
    there = sa.exists().where(*(one == other for one, other in pairs))
    keys = list(table.primary_key.columns)
    return sa.select(*keys).where(*(one.is_not(None) for one, _ in pairs), ~there).order_by(*keys)
