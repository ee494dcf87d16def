from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from migrations.support import Place


@pytest.fixture(params=("sqlite", "postgresql"))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty place of each kind: a file that does not exist yet, and a Postgres database without a table."""
    if request.param == "sqlite":
        made = Place("sqlite", f"sqlite:///{tmp_path / 'state.db'}")
    else:
        made = Place("postgresql", request.getfixturevalue("postgres_url"))
    yield made
    made.close()


@pytest.fixture
def postgres_place(postgres_url: str) -> Iterator[Place]:
    """An empty Postgres database."""
    made = Place("postgresql", postgres_url)
    yield made
    made.close()


@pytest.fixture
def sqlite_place(tmp_path: Path) -> Iterator[Place]:
    """A SQLite file that does not exist yet."""
    made = Place("sqlite", f"sqlite:///{tmp_path / 'state.db'}")
    yield made
    made.close()
