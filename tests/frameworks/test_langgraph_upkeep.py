"""What quickstarts of LangGraph call besides: the opening by a URL, setup, and sweeps of what has expired."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from lastlight_state import Conflict
from lastlight_state.integrations.langgraph import LangGraphSaver
from lastlight_state.integrations.langgraph_store import LangGraphStore
from lastlight_state.testing import Database

TTL: Any = {"default_ttl": 10, "sweep_interval_minutes": 0.0001}


def test_a_store_is_opened_by_its_url_and_closed(database: Database) -> None:
    """integrations AD-120: with its setup, and from coroutines with the same words and await."""
    with LangGraphStore.from_conn_string(database.url, scope="s") as memories:
        memories.setup()
        memories.put(("a",), "k", {"n": 1})

    async def work() -> Any:
        async with LangGraphStore.from_conn_string(database.url, scope="s") as memories:
            await memories.setup()
            await memories.start_ttl_sweeper()
            assert await memories.stop_ttl_sweeper()
            return await memories.aget(("a",), "k")

    assert asyncio.run(work()).value == {"n": 1}
    with LangGraphSaver.from_conn_string(database.url) as saver:
        saver.setup()
        assert saver.get_tuple({"configurable": {"thread_id": "t"}}) is None


def test_a_sweep_removes_what_has_expired(database: Database) -> None:
    """integrations AD-121: and returns how many rows that were."""
    with database.open() as store:
        memories = LangGraphStore(store, ttl=TTL)
        memories.put(("a",), "old", {"n": 1})
        memories.put(("a",), "kept", {"n": 2}, ttl=None)
        assert memories.sweep_ttl() == 0
        database.clock.advance(timedelta(minutes=11))
        assert memories.sweep_ttl() == 1
        assert [one.key for one in memories.search(("a",))] == ["kept"]


def test_a_sweeper_sweeps_until_it_is_stopped(database: Database) -> None:
    """integrations AD-121: one at a time, and none without a time to live."""
    with database.open() as store:
        memories = LangGraphStore(store, ttl=TTL)
        swept = memories.start_ttl_sweeper()
        assert memories.start_ttl_sweeper() is swept
        assert memories.stop_ttl_sweeper() == 1
        swept.result(timeout=60)
        again = memories.start_ttl_sweeper()
        assert again is not swept
        assert again.cancel()
        assert memories.stop_ttl_sweeper() == 1
        assert LangGraphStore(store).start_ttl_sweeper().done()


@pytest.mark.logs("a sweep of expired items failed")
def test_a_sweep_that_fails_is_tried_again(database: Database) -> None:
    """integrations AD-121: and said in the log."""
    tried: list[int] = []
    again = threading.Event()

    class Failing(LangGraphStore):
        def sweep_ttl(self) -> Any:
            tried.append(1)
            if len(tried) > 1:
                again.set()
            raise Conflict("somebody is at it", code="busy")

    with database.open() as store:
        memories = Failing(store, ttl=TTL)
        memories.start_ttl_sweeper()
        assert again.wait(60)
        assert memories.stop_ttl_sweeper() == 1


@pytest.mark.parametrize("name", ["fields", "text_fields"])
@pytest.mark.parametrize("given", ["text", ["text"]])
def test_an_index_embeds_the_fields_that_either_name_says(database: Database, name: str, given: Any) -> None:
    """integrations AD-122."""
    embedded: list[str] = []

    def embed(texts: list[str]) -> list[list[float]]:
        embedded.extend(texts)
        return [[1.0, 0.0] for _ in texts]

    with database.open() as store:
        index: Any = {"dims": 2, "embed": embed, name: given}
        LangGraphStore(store, index=index).put(("a",), "k", {"text": "one", "other": "two"})
    assert embedded == ["one"]
