"""pytest plugin: tells coverage which test runs, so that it records the lines of each (without its variants)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from coverage import Coverage
from mutants.forked import IMPORTED

MEASURED = Coverage.current()
assert MEASURED is not None, "run it under coverage"
MEASURED.switch_context(IMPORTED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Lines that run from here on are this test's."""
    assert MEASURED is not None
    MEASURED.switch_context(item.nodeid.partition("[")[0])
    return (yield)
