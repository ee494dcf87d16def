"""LangGraph's own suite for checkpointers, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from lastlight_state.aio import AsyncStateStore
from lastlight_state.integrations.langgraph import LangGraphSaver
from lastlight_state.testing import Database

#: How many tests a capability has in the pinned version.
TESTS = 81


@pytest.mark.parametrize("face", ["sync store", "async store"])
def test_every_capability_passes_every_test(database: Database, face: str) -> None:
    """checkpoints CK-40: eight of eight."""
    store = database.open()
    given = AsyncStateStore(store) if face == "async store" else store

    @checkpointer_test(name="lastlight")
    async def saver() -> AsyncGenerator[Any, None]:
        yield LangGraphSaver(given)

    report = asyncio.run(validate(saver))
    failures = {name: result.failures for name, result in report.results.items() if result.failures}
    assert failures == {}
    assert {name for name, result in report.results.items() if result.passed} == {one.value for one in Capability}
    assert sum(result.tests_passed for result in report.results.values()) == TESTS
