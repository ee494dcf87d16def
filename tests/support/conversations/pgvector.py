"""A server that has pgvector: the tests' own, or that of the wheel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lastlight_state.errors import BackendError
from lastlight_state.testing import ThrowawayPostgres
from lastlight_state.testing.postgres import WAYS, connect

_AVAILABLE = "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector')"


@contextmanager
def with_pgvector(own: ThrowawayPostgres) -> Iterator[ThrowawayPostgres]:
    """Lend the tests' own server, if it has the extension, or start the wheel's."""
    if _has_extension(own.url):
        yield own
        return
    try:
        served = WAYS["wheel"]()
    except (BackendError, ImportError) as error:
        pytest.skip(f"no server with pgvector: {error}")
    with ThrowawayPostgres(served.url, stop=served.stop) as server:
        yield server


def _has_extension(url: str) -> bool:
    with connect(url) as connection:
        found: Any = connection.execute(_AVAILABLE).fetchone()
        return bool(found[0])
