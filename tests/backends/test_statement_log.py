"""Statements that are told to a logger."""

import logging

import pytest

from lastlight_state import Settings
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

LOGGER = "lastlight_state.statements"


def test_each_statement_is_told_at_debug_without_its_values(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """backends B-132."""
    store = database.open()
    with caplog.at_level(logging.DEBUG, LOGGER):
        run = store.workflows.runs.create("w", trigger=Trigger("secret-issue", type="cli"), phase="p")
        store.workflows.runs.get(run.id)
    told = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert any("INSERT INTO" in text for text in told)
    assert any("SELECT" in text for text in told)
    assert not any("secret-issue" in text or run.id in text for text in told)
    caplog.clear()
    store.workflows.runs.get(run.id)
    assert caplog.messages == []


def test_slow_statements_are_warnings_where_that_is_set(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """backends B-132."""
    with caplog.at_level(logging.WARNING):
        database.open().workflows.runs.list()
        assert caplog.messages == []
        database.open(settings=Settings(slow_statement=1e-9)).workflows.runs.list()
    assert caplog.messages
    assert {text.split(" took ")[0] for text in caplog.messages} == {"a statement"}
