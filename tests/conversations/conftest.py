from __future__ import annotations

import pytest
from support.workflows.steps import Raw

from lastlight_state.testing import Database


@pytest.fixture
def raw(database: Database) -> Raw:
    """Plain SQL on the database of ``store`` and ``every_backend``."""
    return Raw(database)
