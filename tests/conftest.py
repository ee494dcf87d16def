"""The library's own tests use the plugin that it ships, and pytest's own for tests of that plugin."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lastlight_state.testing import Database, FrozenClock, PostgresTemplate, SqliteTemplate

pytest_plugins = ["pytester"]


@pytest.fixture
def sqlite_database(sqlite_template: SqliteTemplate, state_dir: Path, frozen_clock: FrozenClock) -> Iterator[Database]:
    """A migrated file, for what is true of SQLite alone."""
    with sqlite_template.fresh(state_dir, frozen_clock) as database:
        yield database


@pytest.fixture
def postgres_database(
    postgres_template: PostgresTemplate, state_dir: Path, frozen_clock: FrozenClock
) -> Iterator[Database]:
    """A migrated database of the test's own on Postgres, for what is true of Postgres alone."""
    with postgres_template.fresh(state_dir, frozen_clock) as database:
        yield database
