"""Arithmetic on stored times in SQL."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from support.each import with_each

from lastlight_state.backends.sql.expressions import millis_between
from lastlight_state.backends.sql.json import entry_of, member_of
from lastlight_state.db.schema import columns
from lastlight_state.testing import Database

START = datetime(2026, 2, 28, 23, 59, 59, 999_000, tzinfo=UTC)
STEPS = [
    timedelta(),
    timedelta(milliseconds=1),
    timedelta(milliseconds=-1),
    timedelta(seconds=1.234),
    timedelta(days=400, milliseconds=7),
    timedelta(days=-366, milliseconds=-999),
]


def test_milliseconds_between_two_times_are_exact(database: Database) -> None:
    """backends B-55: a question with two answers that agree."""
    start, end = (sa.bindparam(name, type_=columns.Timestamp) for name in ("start", "end"))
    with database.open().transaction() as tx:
        for step in STEPS:
            found = tx.connection.execute(
                sa.select(millis_between(start, end)), {"start": START, "end": START + step}
            ).scalar()
            assert found == step / timedelta(milliseconds=1)


@pytest.mark.parametrize("missing", ["start", "end"])
def test_with_one_time_missing_there_is_nothing_between(database: Database, missing: str) -> None:
    """backends B-55."""
    start, end = (sa.bindparam(name, type_=columns.Timestamp) for name in ("start", "end"))
    with database.open().transaction() as tx:
        values = {"start": START, "end": START, missing: None}
        assert tx.connection.execute(sa.select(millis_between(start, end)), values).scalar() is None


@with_each("name", ["a b", "a'b", "$.a", "1"])
def test_a_member_is_named_in_the_statement_and_can_be_nothing_but_a_name(name: str) -> None:
    """backends B-61."""
    for make in (
        lambda: member_of(sa.column("c"), name),
        lambda: entry_of(sa.column("c"), sa.column("k"), member=name),
    ):
        with pytest.raises(ValueError, match=re.escape(name)):
            make()
