from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.each import with_each

from lastlight_state.errors import InvalidValue, ReservedName
from lastlight_state.outputs import column_types


@with_each(
    ("key", "table"),
    [
        ("analysis", "analysis"),
        ("codeReview", "code_review"),
        ("MyField", "my_field"),
        ("myURLField", "my_url_field"),
        ("parseHTML", "parse_html"),
        ("column2Name", "column2_name"),
        ("already_snake", "already_snake"),
    ],
)
def test_keys_become_table_names_in_snake_case(key: str, table: str) -> None:
    """outputs D-4."""
    assert column_types.snake_case(key) == table


@with_each("key", ["", "9a", "É", "a" * 49, "a-b", "a b", None, 3])
def test_a_key_is_a_short_ascii_name(key: Any) -> None:
    """outputs D-3."""
    with pytest.raises(InvalidValue):
        column_types.key(key)
    assert column_types.key("a" * 48)


@with_each("key", ["input", "inputs"])
def test_the_input_is_no_output(key: str) -> None:
    """outputs D-3."""
    with pytest.raises(ReservedName):
        column_types.key(key)


@with_each("field", ["runId", "node_id", "iteration", "row_x", "rowCreatedAt", "lastlight_x", "xmin"])
def test_fields_of_the_names_of_bookkeeping_are_refused(field: str) -> None:
    """outputs D-5."""
    with pytest.raises(ReservedName) as refusal:
        column_types.column(field)
    assert refusal.value.where == field


@with_each("table", ["scores", "messages", "run_notes", "pg_x", "sqlite_x", "alembic_version"])
def test_names_of_the_library_and_of_tools_are_reserved(table: str) -> None:
    """outputs D-5."""
    assert column_types.is_reserved(table)


@with_each("word", ["attempt", "status", "order", "select", "user"])
def test_plain_words_are_fields(word: str) -> None:
    """outputs D-5."""
    assert column_types.column(word) == word


def test_names_may_be_as_long_as_their_limits() -> None:
    """outputs D-3, D-4: 48 characters of a table that is made, 63 of a column and of a table of the caller's making."""
    assert column_types.table_name("table", "a" * 48) == "a" * 48
    assert column_types.column("a" * 63) == column_types.any_table_name("table", "a" * 63) == "a" * 63
    too_long: list[Callable[[], str]] = [
        lambda: column_types.table_name("table", "a" * 49),
        lambda: column_types.any_table_name("table", "a" * 64),
        lambda: column_types.column("a" * 64),
        lambda: column_types.column("a" * 62 + "Bc"),
    ]
    for call in too_long:
        with pytest.raises(InvalidValue, match=r"at most|1 to"):
            call()
