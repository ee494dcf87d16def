from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg
import pytest
from support.each import with_each

from lastlight_state.backends.sql.expressions import refusal
from lastlight_state.errors import NotSupported
from lastlight_state.testing.postgres import connect

MESSAGE = 'it\'s 100% "full"'


@with_each("found", [False, True])
def test_a_condition_stops_a_script_on_sqlite_and_says_why(found: bool) -> None:
    """messaging M-6."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        script = ";\n".join(refusal("sqlite", f"SELECT 1 WHERE {int(found)}", MESSAGE))
        if not found:
            connection.executescript(script)
            connection.executescript(script)
            return
        with pytest.raises(sqlite3.IntegrityError, match=MESSAGE):
            connection.executescript(script)


@pytest.mark.parametrize("found", [False, True])
def test_a_condition_stops_a_script_on_postgres_and_says_why(found: bool, postgres_url: str) -> None:
    """messaging M-6."""
    with connect(postgres_url) as connection:
        (statement,) = refusal("postgresql", f"SELECT 1 WHERE {found}", MESSAGE)
        if not found:
            connection.execute(statement)
            return
        with pytest.raises(psycopg.Error, match=MESSAGE) as caught:
            connection.execute(statement)
        assert caught.value.sqlstate == "LL001"


def test_other_products_have_no_such_script() -> None:
    with pytest.raises(NotSupported):
        refusal("memolite", "SELECT 1", MESSAGE)
