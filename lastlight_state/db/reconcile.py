"""Adds the parts of a declared table that a database lacks: the table, indexes, columns. It changes and drops nothing.

The unit that does this takes a named lock before it reads the database, so any number of processes may declare a table
at once. The additions and the record of them are committed together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.reflection import Inspector
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable, SetColumnComment, SetTableComment

from lastlight_state.backends.base import Backend
from lastlight_state.db.units.unit import Unit

_FAMILIES = {
    "VARCHAR": "TEXT",
    "CHAR": "TEXT",
    "BIGINT": "INTEGER",
    "SMALLINT": "INTEGER",
    "INT": "INTEGER",
    "FLOAT": "REAL",
    "DOUBLE": "REAL",
    "DOUBLE PRECISION": "REAL",
    "DECIMAL": "NUMERIC",
}


@dataclass(frozen=True)
class Difference:
    """A difference that adding cannot repair: the column (None for the table), the expected and the found value."""

    table: str
    column: str | None
    kind: str
    expected: str
    found: str

    def __str__(self) -> str:
        where = f"{self.table}.{self.column}" if self.column else self.table
        return f"{where}: {self.kind}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True)
class PresentColumn:
    """A column as it exists in the database."""

    name: str
    type: str
    nullable: bool
    has_default: bool


@dataclass(frozen=True)
class PresentTable:
    """A table in the database, or another object with its name.

    ``unique`` has the sets of columns of its unique keys.
    """

    name: str
    is_table: bool
    columns: Mapping[str, PresentColumn]
    key: tuple[str, ...]
    unique: frozenset[frozenset[str]]
    indexes: frozenset[str]


def present(unit: Unit, names: Iterable[str]) -> dict[str, PresentTable]:
    """Return the existing tables among these names."""
    inspector = sa.inspect(unit.backend.connection(unit))
    schema = unit.backend.schema
    tables = frozenset(inspector.get_table_names(schema))
    wanted = [name for name in dict.fromkeys(names) if name in tables or inspector.has_table(name, schema)]
    return {name: _present(inspector, name, schema, is_table=name in tables) for name in wanted}


def existing_tables(unit: Unit, names: Iterable[str]) -> list[str]:
    """Return the tables among the given ones that exist in the database."""
    tables = frozenset(sa.inspect(unit.backend.connection(unit)).get_table_names(unit.backend.schema))
    return [name for name in names if name in tables]


def differences(table: sa.Table, found: PresentTable, dialect: Dialect) -> Iterator[Difference]:
    """Yield the differences that make the table unusable as declared.

    Missing parts that can be added are not reported.
    """
    if not found.is_table:
        yield Difference(table.name, None, "kind", "a table", "a view")
        return
    key = tuple(column.name for column in table.primary_key)
    if found.key != key:
        yield Difference(table.name, None, "primary key", _names_text(key), _names_text(found.key))
    for column in table.columns:
        there = found.columns.get(column.name)
        if there is not None and not _fits(column, there, dialect):
            yield Difference(table.name, column.name, "type", declared_type(column, dialect), there.type)
    for name, there in found.columns.items():
        if name not in table.columns and not there.nullable and not there.has_default:
            yield Difference(table.name, name, "column", "nullable or with a default", "NOT NULL without a default")


def additions(table: sa.Table, found: PresentTable | None, backend: Backend) -> Iterator[str]:
    """Yield the statements that add the missing parts of a table. Yields nothing if the table is complete."""
    if found is None:
        yield _sql(CreateTable(table), backend)
        columns: Sequence[sa.Column[Any]] = tuple(table.columns)
        if table.comment and _comments_apart(backend):
            yield _sql(SetTableComment(table), backend)
    else:
        columns = missing_columns(table, found)
        for column in columns:
            yield f"ALTER TABLE {name_of(table, backend)} ADD COLUMN {_sql(CreateColumn(_loose(column)), backend)}"
    for column in columns:
        if column.comment and _comments_apart(backend):
            yield _sql(SetColumnComment(column), backend)
    for index in sorted(table.indexes, key=lambda index: str(index.name)):
        if found is None or index.name not in found.indexes:
            yield _sql(CreateIndex(index), backend)


def missing_columns(table: sa.Table, found: PresentTable) -> list[sa.Column[Any]]:
    """Return the declared columns that the table in the database lacks."""
    return [column for column in table.columns if column.name not in found.columns]


def declared_type(column: sa.Column[Any], dialect: Dialect) -> str:
    """Return the type of a column, written as the database product writes it."""
    return column.type.compile(dialect).partition(" COLLATE ")[0]


def _present(inspector: Inspector, name: str, schema: str | None, *, is_table: bool) -> PresentTable:
    found = inspector.get_columns(name, schema)
    dialect = inspector.bind.dialect
    key = tuple(inspector.get_pk_constraint(name, schema)["constrained_columns"]) if is_table else ()
    indexes = inspector.get_indexes(name, schema) if is_table else []
    unique: list[Sequence[str | None]] = [
        entry["column_names"] for entry in indexes if entry["unique"] and not _is_partial(entry)
    ]
    unique += [entry["column_names"] for entry in (inspector.get_unique_constraints(name, schema) if is_table else [])]
    return PresentTable(
        name=name,
        is_table=is_table,
        columns={
            entry["name"]: PresentColumn(
                entry["name"],
                entry["type"].compile(dialect).partition(" COLLATE ")[0].upper(),
                nullable=entry["nullable"],
                has_default=entry["default"] is not None or "identity" in entry or "computed" in entry,
            )
            for entry in found
        },
        key=key,
        unique=frozenset(frozenset(name for name in names if name) for names in [*unique, *([key] if key else [])]),
        indexes=frozenset(str(entry["name"]) for entry in indexes),
    )


def _is_partial(entry: Any) -> bool:
    return any(name.endswith("_where") for name in entry.get("dialect_options", {}))


def _fits(column: sa.Column[Any], there: PresentColumn, dialect: Dialect) -> bool:
    wanted, found = _family(declared_type(column, dialect)), _family(there.type)
    return wanted == found or (wanted == "BOOLEAN" and found == "INTEGER" and not dialect.supports_native_boolean)


def _family(name: str) -> str:
    plain = name.partition("(")[0].strip().upper()
    return _FAMILIES.get(plain, plain)


def _loose(column: sa.Column[Any]) -> sa.Column[Any]:
    """Return the column so that it can be added to a table with rows: nullable, unless it has a constant default."""
    default = column.server_default
    constant = (
        sa.text(f"'{default.arg}'" if isinstance(default.arg, str) else str(default.arg))
        if (isinstance(default, sa.DefaultClause))
        else None
    )
    nullable = column.nullable or constant is None
    loose = sa.Column(column.name, column.type, server_default=constant, nullable=nullable)
    sa.Table(column.table.name, sa.MetaData(), loose)
    return loose


def _comments_apart(backend: Backend) -> bool:
    return backend.dialect.supports_comments


def name_of(table: sa.Table, backend: Backend) -> str:
    """Return the table's name for statements, with its schema."""
    return _sql(sa.delete(table), backend).removeprefix("DELETE FROM ")


def _sql(element: Any, backend: Backend) -> str:
    return _render(element.compile, backend)


def _render(compile_with: Any, backend: Backend) -> str:
    schema = {"schema_translate_map": {None: backend.schema}, "render_schema_translate": True} if backend.schema else {}
    text = str(compile_with(dialect=backend.dialect, **schema))
    return text.strip().replace("%%", "%") if backend.dialect.paramstyle in ("format", "pyformat") else text.strip()


def _names_text(names: Sequence[str]) -> str:
    return f"({', '.join(names)})" if names else "none"
