"""The inspector over a store in which every list has rows, on each backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient
from support.filled_store import scene

from lastlight_state import StateStore
from lastlight_state.inspector import inspector
from lastlight_state.testing import Database


@pytest.fixture
def filled(fresh_database: Database) -> StateStore:
    """Return a store with rows of every kind."""
    return scene(fresh_database)[0]


@pytest.fixture
def browser(filled: StateStore, fresh_database: Database) -> Iterator[TestClient]:
    """Return a browser that may look."""
    with TestClient(inspector(filled, clock=fresh_database.clock), base_url="http://localhost") as client:
        yield client
