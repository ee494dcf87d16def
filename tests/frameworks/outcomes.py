"""A plugin of pytest that hands the outcomes of a framework's own tests to the test of ours that started them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

#: What became of each test, the worst of its phases.
OUTCOMES: dict[str, str] = {}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Wait shortly for what is listed: some of it waits for things that never happen here."""
    listed = json.loads(os.environ["FRAMEWORKS_LISTED"])
    for item in items:
        seconds = 5 if item.nodeid in listed or item.nodeid.partition("[")[0] in listed else 240
        item.add_marker(pytest.mark.timeout(seconds))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what became of a test."""
    if OUTCOMES.get(report.nodeid) != "failed":
        OUTCOMES[report.nodeid] = report.outcome


def pytest_sessionfinish() -> None:
    """Write the outcomes down."""
    Path(os.environ["FRAMEWORKS_OUTCOMES"]).write_text(json.dumps(OUTCOMES))
