"""JSON inside statements: reading elements and members, and building objects, on each product.

A statement that takes a variable number of values gets them as one parameter, a JSON array that it reads as rows. So it
is compiled only once, whatever the number of values.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class elements_of(FunctionElement[Any]):  # noqa: N801 - reads as the SQL function that it stands for
    """The elements of a JSON array in a text, one per row: ``elements_of(text).table_valued("value")``."""

    inherit_cache = True


class members_of(FunctionElement[Any]):  # noqa: N801
    """The members of a JSON column's object, one per row: ``members_of(column).table_valued("key", "value")``.

    Values are texts. A value that is not an object has no members.
    """

    inherit_cache = True


class member_of(FunctionElement[str]):  # noqa: N801
    """The member ``key`` of a JSON object, as text; NULL if it is null or absent."""

    type = sa.Text()
    inherit_cache = False

    def __init__(self, document: sa.ColumnElement[Any], key: str) -> None:
        if not key.isidentifier():
            raise ValueError(key)
        super().__init__(document)
        self.member = key


class entry_of(FunctionElement[str]):  # noqa: N801
    """``document[key].member`` as text: ``entry_of(document, key, member="m")``.

    NULL if the document, key or member is missing, or if the entry is not an object. The key may be any text.
    """

    type = sa.Text()
    inherit_cache = False

    def __init__(self, document: sa.ColumnElement[Any], key: sa.ColumnElement[str], *, member: str) -> None:
        if not member.isidentifier():
            raise ValueError(member)
        super().__init__(document, key)
        self.member = member


class object_of(FunctionElement[Any]):  # noqa: N801
    """An aggregate that builds one JSON object from keys and values.

    Without rows it is ``{}`` on SQLite and NULL on Postgres.
    """

    inherit_cache = True


class has_members(FunctionElement[bool]):  # noqa: N801
    """True if a JSON object has all members of a second one, given as text: ``has_members(document, text)``.

    The second object's values are texts, numbers, bools and nulls. A value that is not an object has no members.
    """

    type = sa.Boolean()
    inherit_cache = True


class kind_of(FunctionElement[str]):  # noqa: N801
    """The kind of a JSON column's outermost value: ``object``, ``array``, ``null`` …; NULL if the value is not JSON."""

    type = sa.Text()
    inherit_cache = True


@compiles(elements_of, "sqlite")
def _elements_on_sqlite(element: elements_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **options)})"


@compiles(elements_of, "postgresql")
def _elements_on_postgres(element: elements_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"jsonb_array_elements(CAST({compiler.process(element.clauses, **options)} AS JSONB))"


@compiles(members_of, "sqlite")
def _members_on_sqlite(element: members_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_each({_object_or_null(compiler.process(element.clauses, **options))})"


@compiles(members_of, "postgresql")
def _members_on_postgres(element: members_of, compiler: SQLCompiler, **options: Any) -> str:
    document = compiler.process(element.clauses, **options)
    return f"jsonb_each_text(CASE WHEN jsonb_typeof({document}) = 'object' THEN {document} END)"


@compiles(member_of, "sqlite")
def _member_on_sqlite(element: member_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_extract({compiler.process(element.clauses, **options)}, '$.{element.member}')"


@compiles(member_of, "postgresql")
def _member_on_postgres(element: member_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"({compiler.process(element.clauses, **options)} ->> '{element.member}')"


@compiles(entry_of, "sqlite")
def _entry_on_sqlite(element: entry_of, compiler: SQLCompiler, **options: Any) -> str:
    document, key = (compiler.process(part, **options) for part in element.clauses)
    return (
        f"(SELECT CAST(json_extract(value, '$.{element.member}') AS TEXT)"
        f" FROM json_each(CASE WHEN json_valid({document}) THEN {document} END) WHERE key = {key} AND type = 'object')"
    )


@compiles(entry_of, "postgresql")
def _entry_on_postgres(element: entry_of, compiler: SQLCompiler, **options: Any) -> str:
    document, key = (compiler.process(part, **options) for part in element.clauses)
    return f"(({document} -> CAST({key} AS TEXT)) ->> '{element.member}')"


@compiles(object_of, "sqlite")
def _object_on_sqlite(element: object_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_group_object({compiler.process(element.clauses, **options)})"


@compiles(object_of, "postgresql")
def _object_on_postgres(element: object_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"jsonb_object_agg({compiler.process(element.clauses, **options)})"


@compiles(kind_of, "sqlite")
def _kind_on_sqlite(element: kind_of, compiler: SQLCompiler, **options: Any) -> str:
    document = compiler.process(element.clauses, **options)
    return f"(CASE WHEN json_valid({document}) THEN json_type({document}) END)"


@compiles(kind_of, "postgresql")
def _kind_on_postgres(element: kind_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"jsonb_typeof({compiler.process(element.clauses, **options)})"


@compiles(has_members, "sqlite")
def _has_members_on_sqlite(element: has_members, compiler: SQLCompiler, **options: Any) -> str:
    document, wanted = (compiler.process(part, **options) for part in element.clauses)
    has = "has.key = wanted.key AND has.value IS wanted.value"
    kinds = "replace(has.type, 'real', 'integer') = replace(wanted.type, 'real', 'integer')"
    read = f"json_each({_object_or_null(document)})"
    return (
        f"(NOT EXISTS (SELECT 1 FROM json_each({wanted}) AS wanted"
        f" WHERE NOT EXISTS (SELECT 1 FROM {read} AS has WHERE {has} AND {kinds})))"
    )


@compiles(has_members, "postgresql")
def _has_members_on_postgres(element: has_members, compiler: SQLCompiler, **options: Any) -> str:
    document, wanted = (compiler.process(part, **options) for part in element.clauses)
    return f"coalesce({document} @> CAST({wanted} AS JSONB), false)"


def _object_or_null(document: str) -> str:
    """Return SQL for SQLite that is the document if it is a JSON object, else NULL."""
    return f"CASE WHEN json_valid({document}) AND json_type({document}) = 'object' THEN {document} END"
