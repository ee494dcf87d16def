from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.workflows.crew import Crew
from support.workflows.steps import Raw

from lastlight_state.testing import Database


@pytest.fixture
def raw(database: Database) -> Raw:
    """Plain SQL on the database of ``store`` and ``every_backend``."""
    return Raw(database)


@pytest.fixture(scope="session")
def crew() -> Iterator[Crew]:
    """Processes for scripts to race in (a second, once)."""
    crew = Crew()
    yield crew
    crew.close()
