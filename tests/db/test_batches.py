from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any

import pytest
import sqlalchemy as sa
from support.each import with_each
from support.scratch import THINGS

from lastlight_state import InvalidValue, StateStore
from lastlight_state.backends.postgres import bulk
from lastlight_state.db.rows.batches import Column
from lastlight_state.db.rows.statements import bind, statement_of
from lastlight_state.db.schema import columns

AT = datetime(2026, 2, 3, 12, 34, 56, 789_000, tzinfo=UTC)
INSERT = statement_of(sa.insert(THINGS).values({one.name: bind(one.name, one) for one in THINGS.c}))
ALL = statement_of(sa.select(THINGS).order_by(THINGS.c.id))
NOTHING: dict[str, Any] = dict.fromkeys(("kind", "number", "real", "flag", "json"))


class Kind(StrEnum):
    TABBED = "a\tb"


class Size(IntEnum):
    LARGE = 3


def insert(store: StateStore, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    store._scope.write(lambda unit: unit.insert(THINGS, INSERT, rows))
    return store._scope.read(lambda unit: unit.rows(ALL))


def row(place: int, **values: Any) -> dict[str, Any]:
    return {**NOTHING, "id": f"t{place:04}", "at": AT, **values}


def test_many_rows_come_back_as_they_were_given(scratch: StateStore) -> None:
    """house H-32: each type, nothing at all, and texts that mean something where many rows are sent at once."""
    texts = ["", " ", "\\", "\\N", "\\.", "a\\tb", "a\tb", "a\nb\r\nc", "'\"%s?", "é🙂", "x" * 10_000, "N"]
    rows = [row(i, kind=text, json='{"said":"one\\ntwo\\\\"}') for i, text in enumerate(texts)]
    rows += [row(20 + i, number=number) for i, number in enumerate((0, -(2**63), 2**63 - 1))]
    rows += [row(30 + i, real=real, flag=bool(i % 2)) for i, real in enumerate((0.1, -0.0, 1e300, 5e-324, 1 / 3))]
    rows += [row(40 + i, at=AT - i * timedelta(days=1000, milliseconds=7)) for i in range(300)]
    told = {'{"said":"one\\ntwo\\\\"}': {"said": "one\ntwo\\"}, None: None}
    assert insert(scratch, rows) == [{**one, "json": told[one["json"]]} for one in rows]


@pytest.mark.parametrize("text", ["a\tb", "a\nb", "a\rb", "a\\b", r"\N", r"\.", ""], ids=ascii)
def test_a_text_means_nothing_where_it_is_the_only_one_of_its_kind(scratch: StateStore, text: str) -> None:
    """house H-32: many rows are sent at once, and each such character has a meaning there."""
    rows = [row(1, kind="plain"), row(2, kind=text), row(3, kind="plain")]
    assert [one["kind"] for one in insert(scratch, rows)] == ["plain", text, "plain"]


def test_values_of_derived_types_are_stored_as_what_they_are_derived_from(scratch: StateStore) -> None:
    """house H-32"""
    [found] = insert(scratch, [row(1, kind=Kind.TABBED, number=Size.LARGE)])
    assert (found["kind"], found["number"]) == ("a\tb", 3)


def test_of_no_rows_nothing_is_inserted(scratch: StateStore) -> None:
    assert insert(scratch, []) == []


@with_each(
    ("name", "value", "problem"),
    [
        ("kind", 1, "expected text, got int"),
        ("kind", "a\0b", "NUL character"),
        ("number", "1", "expected a whole number, got str"),
        ("number", True, "expected a whole number, got bool"),
        ("number", 2**63, "integer beyond 64 bits"),
        ("number", -(2**63) - 1, "integer beyond 64 bits"),
        ("at", "2026-02-03", "expected a datetime, got str"),
        ("at", datetime(2026, 2, 3), "naive datetime"),  # noqa: DTZ001 - the zone is what is missing
        ("json", {}, "expected JSON text, got dict"),
    ],
)
def test_a_wrong_value_among_many_rows_is_refused_as_in_a_single_one(
    scratch: StateStore, name: str, value: Any, problem: str
) -> None:
    """house H-32: by the name of its column, and no row is inserted."""
    rows = [row(i, **({name: value} if i == 150 else {})) for i in range(300)]
    with pytest.raises(InvalidValue, match=problem):
        insert(scratch, rows)
    assert scratch._scope.read(lambda unit: unit.rows(ALL)) == []


def test_a_value_that_no_column_has_is_named() -> None:
    """journal E-8: rather than left out with its column."""
    with pytest.raises(TypeError, match="values of type list cannot be stored"):
        bulk._lines([["a"], [[]]])


def test_a_missing_value_among_many_is_not_converted() -> None:
    """codec CO-9: as in a single row; what makes an envelope gets values alone."""
    column = Column("body", columns.Bytes, lambda value: b"sealed " + value)
    assert column.of([{"body": None}, {"body": b"a"}]) == [None, b"sealed a"]
    assert column.of([{"body": b"a"}, {"body": None}]) == [b"sealed a", None]
