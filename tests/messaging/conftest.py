from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.workflows.steps import Raw

from lastlight_state.testing import Database, FrozenClock, PostgresTemplate


@pytest.fixture
def raw(database: Database) -> Raw:
    """Plain SQL on the database of ``store`` and ``every_backend``."""
    return Raw(database)


@pytest.fixture
def postgres_database(
    postgres_template: PostgresTemplate, state_dir: Path, frozen_clock: FrozenClock
) -> Iterator[Database]:
    """A Postgres database of the test's own, for what SQLite does not have."""
    with postgres_template.fresh(state_dir, frozen_clock) as database:
        yield database
