"""Scopes of adapters, where their users choose ids."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai.conversation_store import ConversationRecord

from lastlight_state import AsyncStateStore
from lastlight_state.integrations.openai_agents import OpenAIAgentsSession
from lastlight_state.integrations.pydantic_ai import PydanticAIConversations
from lastlight_state.testing import Database

ITEMS: list[Any] = [{"role": "user", "content": "secret"}]


def test_an_id_reaches_no_session_of_another_scope(database: Database) -> None:
    """integrations AD-68: nobody reads or clears it, with the other adapter neither."""

    async def work() -> None:
        async with AsyncStateStore(database.open()) as store:
            beta = OpenAIAgentsSession("x", store, scope="app:beta")
            default = OpenAIAgentsSession("x", store)
            slashed = OpenAIAgentsSession("x", store, scope="app/session")
            kept = [beta, default, slashed]
            for one in kept:
                await one.add_items(ITEMS)
            for scope, name in (
                ("app", "beta:x"),
                ("", "openai-agents:x"),
                ("", "openai-agents/session/x"),
                ("app", "session/x"),
                ("app", "session%2Fx"),
                ("app%2Fsession", "x"),
            ):
                other = OpenAIAgentsSession(name, store, scope=scope)
                assert await other.get_items() == []
                await other.clear_session()
            for scope, name in (("openai-agents", "x"), ("", "openai-agents/session/x"), ("app:beta", "x")):
                assert await PydanticAIConversations(store, scope=scope).read_record(name) is None
            assert [await one.get_items() for one in kept] == [ITEMS] * 3

    asyncio.run(work())


def test_two_adapters_with_one_scope_do_not_meet(database: Database) -> None:
    """integrations AD-68."""

    async def work() -> None:
        async with AsyncStateStore(database.open()) as store:
            session = OpenAIAgentsSession("x", store, scope="app")
            await session.add_items(ITEMS)
            conversations = PydanticAIConversations(store, scope="app")
            await conversations.write_record(
                ConversationRecord(conversation_id="x", head_id=None), expected_revision=None
            )
            assert await session.get_items() == ITEMS
            assert len(await conversations.read_records()) == 1

    asyncio.run(work())
