from __future__ import annotations

import pytest
from support.open_files import nothing_is_left_open  # noqa: F401 - of every test here
from support.workflows.steps import Raw, started

from lastlight_state import StateStore
from lastlight_state.testing import Database


@pytest.fixture
def raw(database: Database) -> Raw:
    """Plain SQL on the database of ``store`` and ``every_backend``."""
    return Raw(database)


@pytest.fixture
def run_id(every_backend: StateStore) -> str:
    """A run on each backend."""
    return started(every_backend).id
