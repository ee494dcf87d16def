"""An empty database, and its tenants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lastlight_state import Tenants
from lastlight_state.testing import ThrowawayPostgres


@pytest.fixture
def url(lastlight_postgres_server: ThrowawayPostgres) -> Iterator[str]:
    with lastlight_postgres_server.database() as made:
        yield made


@pytest.fixture
def tenants(url: str, tmp_path: Path) -> Iterator[Tenants]:
    with Tenants.open(url, state_dir=tmp_path / "state") as opened:
        yield opened
