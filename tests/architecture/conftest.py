from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import trees


@pytest.fixture(scope="module", autouse=True)
def reading() -> Iterator[None]:
    """Let go of the sources when a module has been tested."""
    with trees.reading():
        yield
