"""What differs between the versions of SQLAlchemy that are supported, and must not be noticed."""

from typing import Any

import sqlalchemy as sa
from support.each import with_each

from lastlight_state.backends import open_backend, urls
from lastlight_state.backends.base import Options
from lastlight_state.db.schema.base import table_of
from lastlight_state.models import WorkflowRunModel


def statements_that_make(table: sa.Table, url: str) -> list[str]:
    """Return what `create` of a table sends to a server."""
    sent: list[str] = []
    engine: Any = sa.create_mock_engine(
        url, lambda made, *_, **__: sent.append(str(made.compile(dialect=engine.dialect)))
    )
    table.create(engine)
    return sent


def test_a_literal_keeps_its_backslashes_before_anybody_has_connected() -> None:
    """backends B-188."""
    backend = open_backend("postgresql://nobody@127.0.0.1:1/db", Options())
    matching = sa.column("name").like(sa.bindparam("pattern"), escape="\\")
    assert str(matching.compile(dialect=backend.dialect)).endswith("ESCAPE '\\'")


@with_each("text", ["postgres://host/db", "postgresql://host/db", "postgresql+psycopg://host/db"])
def test_a_url_without_a_driver_means_psycopg(text: str) -> None:
    """backends B-188."""
    assert urls.driver(urls.parse(text)) == "psycopg"
    assert open_backend(text, Options()).name == "postgresql"


@with_each(("url", "sets"), [("postgresql+psycopg://", 1), ("sqlite://", 0)])
def test_a_table_gets_its_storage_parameters_by_a_statement_of_their_own(url: str, sets: int) -> None:
    """backends B-188."""
    sent = statements_that_make(table_of(WorkflowRunModel), url)
    assert sent.count("ALTER TABLE workflow_runs SET (fillfactor = 80)") == sets
    assert not any("fillfactor" in statement for statement in sent[:1])
