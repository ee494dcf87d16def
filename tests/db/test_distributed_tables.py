"""Statements run where the tables of a schema lie on another server than the one that is asked, as with Citus.

Such a server passes a statement on. It refuses some that Postgres takes, and some of them only with certain values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.sql import visitors
from sqlalchemy.sql.functions import FunctionElement
from support.locks import named, statements

from lastlight_state.db.rows.statements import Family, Statement
from lastlight_state.testing import Database

_POSTGRES = postgresql.dialect()  # type: ignore[no-untyped-call]
#: Statements that select the rows of a table whose key the database numbers. The number comes from the server that has
#: the table, so that all of a schema's calls must enter by one server.
NUMBERED_BY_SELECT = {
    "messaging.deliveries._INSERT",
    "messaging.deliveries._INSERT_AND_COUNT",
    "messaging.deliveries._INSERT_ONE",  # on SQLite alone
    "messaging.message_statements.APPEND.whole",
    "messaging.message_statements.APPEND_HERE.whole",
}


def _tree(statement: Statement[Any] | Family[Any]) -> Any:
    made = statement if isinstance(statement, Statement) else statement._make([sa.bindparam(f"{statement._name}_0")])
    return made.element if isinstance(made, Statement) else made


def inserts() -> Iterator[tuple[str, sa.Insert]]:
    """Each INSERT of the library, inner ones of chains, too, by the name of its statement."""
    for name, statement in named().items():
        yield from ((name, node) for node in _nodes(_tree(statement), sa.Insert))


def _nodes(root: Any, kind: Any) -> Iterator[Any]:
    return iter({id(node): node for node in visitors.iterate(root) if isinstance(node, kind)}.values())


def _tables(root: Any) -> list[sa.Table]:
    return list(_nodes(root, sa.Table))


def _given(insert: sa.Insert) -> list[Any]:
    """Return what stands in VALUES."""
    several = [value for rows in insert._multi_values for row in rows for value in _row(row)]
    return [value for value in (*(insert._values or {}).values(), *several) if isinstance(value, sa.ClauseElement)]


def _row(row: Any) -> Any:
    return row.values() if isinstance(row, dict) else row


def _on_conflict(insert: sa.Insert) -> list[Any]:
    """Return what an insert says of a row that is there: what it sets, and which rows it leaves alone."""
    clause = insert._post_values_clause
    if clause is None:
        return []
    values = dict(getattr(clause, "update_values_to_set", None) or {}).values()
    where = [getattr(clause, "update_whereclause", None)]
    return [value for value in (*values, *where) if isinstance(value, sa.ClauseElement)]


def test_every_insert_is_looked_at() -> None:
    """backends B-197: the tests below see each INSERT that a text of ours has."""
    seen = [name for name, _ in inserts()]
    assert sorted(seen) == sorted(name for name, text in statements().items() for _ in range(text.count("INSERT INTO")))
    assert len(seen) > 140


def test_values_hold_no_subquery() -> None:
    """backends B-197: Citus refuses one in VALUES."""
    assert {name for name, insert in inserts() for value in _given(insert) for _ in _nodes(value, sa.Select)} == set()


def test_an_insert_from_a_table_depends_on_no_setting(shared_postgres: Database) -> None:
    """backends B-197: Citus writes an INSERT anew that selects from a table and is not the same with every setting."""
    connection = shared_postgres.raw()
    rows = connection.execute("SELECT proname FROM pg_proc GROUP BY proname HAVING bool_and(provolatile <> 'i')")
    unstable = {name for (name,) in rows.fetchall()}
    assert {"now", "to_char", "jsonb_build_object"} <= unstable
    found = {
        (name, word)
        for name, insert in inserts()
        if insert.select is not None and _tables(insert.select)
        for node in (insert.select, *_on_conflict(insert))
        for word in _settings_of(node, unstable)
    }
    assert found == set()


def _settings_of(root: Any, unstable: set[str]) -> Iterator[str]:
    """Return what in an expression gives another value with another setting, such as the time zone."""
    for node in _nodes(root, FunctionElement):
        if getattr(node, "name", "") in unstable:
            yield node.name
    for node in _nodes(root, sa.Cast):
        to = str(node.type.compile(_POSTGRES))
        if "TIMESTAMP" in to and not isinstance(node.clause, sa.BindParameter):
            yield f"a cast to {to}"


def test_parameters_of_on_conflict_stand_where_they_are_filled_in() -> None:
    """backends B-197: Citus writes the values of parameters into an INSERT, but leaves some out of ON CONFLICT.

    Those are a flag that is compared with true or false, and beside VALUES whatever stands in a subquery.
    """
    left_out = set()
    for name, insert in inserts():
        for clause in _on_conflict(insert):
            flags = [node for node in _nodes(clause, sa.BinaryExpression) if _is_flag(node.right)]
            selects = [] if insert.select is not None else _nodes(clause, sa.Select)
            left_out |= {(name, node.key) for root in (*flags, *selects) for node in _nodes(root, sa.BindParameter)}
    assert left_out == set()


def _is_flag(node: Any) -> bool:
    return isinstance(node, type(sa.true()) | type(sa.false()))


def test_on_conflict_reads_no_table() -> None:
    """backends B-197: a table named there has no schema, so that only a store of the first schema would find it."""
    tables = {
        (name, table.name)
        for name, insert in inserts()
        for clause in _on_conflict(insert)
        for select in _nodes(clause, sa.Select)
        for table in _nodes(select, sa.Table)
    }
    assert tables == set()


def test_a_subquery_of_an_insert_reads_no_list_of_the_statement_around_it() -> None:
    """backends B-197: Citus refuses a subquery that is correlated with a CTE; an outer join says the same."""
    correlated = {
        name
        for name, insert in inserts()
        if insert.select is not None
        for exists in _nodes(insert.select, sa.Exists)
        for column in _nodes(exists, sa.ColumnClause)
        if isinstance(column.table, sa.CTE)
    }
    assert correlated == set()


def test_statements_of_tables_ask_no_catalog() -> None:
    """backends B-197: the catalog of the server that has a table says nothing of the others."""
    words = ("pg_catalog", "to_regclass", "tableoid", "setval", "pg_class", "pg_get_")
    assert {name for name, text in statements().items() if any(word in text for word in words)} == set()


def test_numbers_that_an_insert_selects_are_known() -> None:
    """backends B-197."""
    found = {
        name
        for name, insert in inserts()
        if insert.select is not None and any(column.identity for column in insert.table.columns)
    }
    assert found == NUMBERED_BY_SELECT
