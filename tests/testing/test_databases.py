"""Databases that tests share are empty for each of them."""

from __future__ import annotations

import sys
from pathlib import Path

import psycopg
import pytest

from lastlight_state.testing import FrozenClock, PostgresTemplate, ThrowawayPostgres, databases
from lastlight_state.testing.databases import empty_tables
from lastlight_state.testing.postgres import connect
from lastlight_state.workflows import Trigger


def test_a_shared_database_is_emptied_after_each_test(
    postgres_template: PostgresTemplate, state_dir: Path, frozen_clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are gone, and the tables of outputs with them. After many tests it is replaced."""
    monkeypatch.setattr(databases, "MOST_USES", sys.maxsize)  # it may be time for that just here
    with postgres_template.shared(state_dir, frozen_clock) as first:
        store = first.open(migrate=True)
        store.workflows.runs.create("build", trigger=Trigger("t"), phase="plan")
        store.outputs.define("report", list[str])
    with postgres_template.shared(state_dir, frozen_clock) as second:
        assert second.url == first.url
        assert not second.open().workflows.runs.list().items
        assert second.raw().execute("SELECT to_regclass('report')").fetchone() == (None,)
        monkeypatch.setattr(databases, "MOST_USES", 0)
    with postgres_template.shared(state_dir, frozen_clock) as third:
        assert third.url != second.url


def test_a_connection_that_could_not_empty_a_database_is_usable(postgres_server: ThrowawayPostgres) -> None:
    """The failed transaction is over, so that the next test is told its own error."""
    with postgres_server.database() as url, connect(url) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable):
            empty_tables(connection)
        assert connection.execute("SELECT 1").fetchone() == (1,)
