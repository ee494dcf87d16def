"""Processes that write vectors while others search."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.conversations import vector_racers
from support.conversations.pgvector import with_pgvector
from support.preloaded import run_program

from lastlight_state.conversations import NewChunk
from lastlight_state.testing import Database, FrozenClock, PostgresTemplate, SqliteTemplate

SCALE = [pytest.param(2, id="2s"), pytest.param(60, id="60s", marks=pytest.mark.soak)]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Lend a database of the test's own; on Postgres one that has pgvector."""
    if request.param == "sqlite":
        (tmp_path / "template").mkdir()
        with SqliteTemplate(tmp_path / "template").fresh(tmp_path, FrozenClock()) as made:
            yield made
        return
    with with_pgvector(request.getfixturevalue("lastlight_postgres_server")) as server:
        template = PostgresTemplate(server)
        with template.fresh(tmp_path, FrozenClock()) as made:
            yield made
        template.drop()


@pytest.mark.parametrize("seconds", SCALE)
def test_no_search_finds_what_no_state_of_the_database_had(database: Database, seconds: float) -> None:
    """conversations CV-39, CV-49, CV-50, CV-51: two processes put and clear, two search exactly and by an index."""
    store = database.open()
    vectors = store.conversations.vectors
    vectors.put(vector_racers.NAMESPACE, [NewChunk("w0-0", "0", vector_racers.embedding(0, 0), {"w": 0}, "w0")])
    vectors.index(vector_racers.NAMESPACE)
    vectors.clear(vector_racers.NAMESPACE, ids=["w0-0"])
    command = [sys.executable, "-W", "error", vector_racers.__file__, database.url, str(seconds)]
    finished = run_program(command, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    searches = [Counter[str](json.loads(line)) for line in finished.stdout.splitlines()]
    assert len(searches) == vector_racers.WRITERS
    found = sum(searches, Counter[str]())
    assert found["exact"] > 0
    assert (found["approximate"] > 0) == (database.name == "postgresql")
    if database.name == "postgresql":
        assert not store.maintenance.doctor.examine(only=["DOC-20"]).findings
