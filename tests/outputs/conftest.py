from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.outputs.shapes import a_run

from lastlight_state import StateStore
from lastlight_state.testing import Database, blocking_store


@pytest.fixture
def every_backend(database: Database) -> StateStore:
    """A store on each backend that may define outputs."""
    return database.open(migrate=True)


@pytest.fixture(params=("sync", "async"))
def store(request: pytest.FixtureRequest, every_backend: StateStore) -> Iterator[StateStore]:
    """The same, once itself and once through its async face."""
    if request.param == "sync":
        yield every_backend
        return
    with blocking_store(every_backend) as blocking:
        yield blocking


@pytest.fixture
def run_id(store: StateStore) -> str:
    """A run of ``store``."""
    return a_run(store)
