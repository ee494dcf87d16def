"""Events of MCP servers over a store: by MCP's own tests, and what those do not ask."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

from frameworks.suites import UNPACKED, Suite, judge
from mcp.server import Server
from mcp_types import JSONRPCNotification, JSONRPCResponse
from support.answers import dropped_answers

from lastlight_state.aio import AsyncStateStore
from lastlight_state.integrations.mcp import MCPEventStore, MCPSessions
from lastlight_state.testing import Database

SUITE = Suite(
    UNPACKED / "mcp",
    "replaced_mcp",
    (
        "tests/shared/test_streamable_http.py",
        *(f"tests/interaction/transports/test_{name}.py" for name in ("client_transport_http", "hosting_resume")),
    ),
    passed=21,
    # Its conftest wants packages for what other tests ask.
    options=("-c/dev/null", "--rootdir=.", "--noconftest", "-pno:asyncio", "-panyio"),
)


def note(text: str) -> Any:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"data": text})


async def replayed(events: Any, last: str) -> tuple[str | None, list[tuple[str, Any]]]:
    found: list[tuple[str, Any]] = []

    async def send(event: Any) -> None:
        found.append((event.event_id, event.message))

    return await events.replay_events_after(last, send), found


def test_its_own_tests_pass(database: Database, tmp_path: Path) -> None:
    """integrations AD-140."""
    judge(SUITE, database, tmp_path)


def test_a_stream_is_replayed_behind_an_event_in_its_order(database: Database) -> None:
    """integrations AD-140: at any number of events, without those of other streams and without places."""

    async def work() -> None:
        async with AsyncStateStore(database.open()) as store:
            events: Any = MCPEventStore(store)
            first = await events.store_event("1", None)
            stored = []
            for at in range(230):
                message = note(f"\\0 {at} \U0001f600")
                stored.append((await events.store_event("1", message), message))
                if at % 50 == 0:
                    await events.store_event("2", note("of another stream"))
                    await events.store_event("1", None)
            answer = JSONRPCResponse(jsonrpc="2.0", id=1, result={"n": [1.5, None]})
            stored.append((await events.store_event("1", answer), answer))
            assert await replayed(events, first) == ("1", stored)
            assert await replayed(events, stored[99][0]) == ("1", stored[100:])
            assert await replayed(events, stored[-1][0]) == ("1", [])

    asyncio.run(work())


def test_an_event_that_comes_while_a_client_resumes_is_sent_once(database: Database) -> None:
    """integrations AD-142: behind the others, or by the SDK once it goes on."""

    async def work() -> None:
        async with AsyncStateStore(database.open()) as store:
            for turn in range(5):
                events: Any = MCPEventStore(store)
                got: list[str] = []
                goes_on = False
                first = await events.store_event("1", None)
                texts = [f"{turn} {at}" for at in range(20)]

                async def route(text: str, events: Any = events, got: list[str] = got) -> None:
                    await events.store_event("1", note(text))
                    if goes_on:  # noqa: B023 - awaited within the turn
                        got.append(text)

                async def send(event: Any, got: list[str] = got) -> None:
                    got.append(event.message.params["data"])

                async def resume(events: Any = events, first: str = first, send: Any = send) -> None:
                    nonlocal goes_on
                    stream = await events.replay_events_after(first, send)
                    await events.store_event(stream, None)
                    goes_on = True

                await asyncio.gather(*map(route, texts[:turn]), resume(), *map(route, texts[turn:]))
                assert sorted(got) == sorted(texts)

    asyncio.run(work())


def test_an_event_that_is_not_there_resumes_nothing(database: Database) -> None:
    """integrations AD-140: one of another session, too, and one that has expired."""

    async def work() -> None:
        async with AsyncStateStore(database.open()) as store:
            one: Any = MCPEventStore(store, session="a", ttl=timedelta(hours=1))
            other: Any = MCPEventStore(store, session="b", ttl=timedelta(hours=1))
            first = await one.store_event("1", None)
            await one.store_event("1", note("x"))
            assert [await replayed(other, last) for last in (first, "none", "\0", "")] == [(None, [])] * 4
            assert (await replayed(MCPEventStore(store, session="a"), first))[0] == "1"
            database.clock.advance(timedelta(hours=1))
            assert await replayed(one, first) == (None, [])

    asyncio.run(work())


def test_each_session_of_a_manager_has_events_of_its_own(database: Database) -> None:
    """integrations AD-141: two clients whose requests have one id do not get what the other got."""

    async def work() -> None:
        async with AsyncStateStore(database.open()) as store:
            manager = MCPSessions(Server("s"), lambda: MCPEventStore(store), retry_interval=10)
            one, other = (manager._admit_session(None)._event_store for _ in range(2))
            first = await one.store_event("1", None)
            await other.store_event("1", note("of the other client"))
            assert await replayed(one, first) == ("1", [])
            assert await replayed(other, first) == (None, [])

    asyncio.run(work())


def test_events_of_a_person_are_erased(database: Database) -> None:
    """integrations AD-4."""

    async def work() -> None:
        async with AsyncStateStore(database.open()) as store:
            events: Any = MCPEventStore(store, user="ana")
            first = await events.store_event("1", note("x"))
            assert await replayed(events, first) == ("1", [])
            await store.maintenance.erase.run("ana")
            assert await replayed(events, first) == (None, [])

    asyncio.run(work())


def test_an_event_whose_commit_got_no_answer_is_stored_once(postgres_database: Database) -> None:
    """integrations AD-140."""
    with dropped_answers(postgres_database.url) as (url, drop):
        postgres_database.open()

        async def work() -> None:
            async with await AsyncStateStore.open(url) as store:
                events: Any = MCPEventStore(store)
                first = await events.store_event("1", None)
                drop("COMMIT\0")
                second = await events.store_event("1", note("x"))
                assert await replayed(events, first) == ("1", [(second, note("x"))])
                assert store.metrics.retries == 1

        asyncio.run(work())
