"""Conversations of pydantic-ai over a store, beside its store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, InMemoryConversationStore
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RunUsage

from lastlight_state import ClaimLost
from lastlight_state.aio import AsyncStateStore
from lastlight_state.integrations.pydantic_ai import PydanticAIConversations
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

NAMES = ["a", "b", "c"]
THEN = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
SCOPES = [None, "ana", "bo"]


def said(number: int) -> list[ModelMessage]:
    """Return a question and its answer: with pictures, tools, and text that no database holds."""
    asked: Any = [f"question {number} \0 \U0001f600", BinaryContent(b"\x00\xff", media_type="application/pdf")]
    call = f"call {number}"
    return [
        ModelRequest([UserPromptPart(asked, timestamp=THEN)]),
        ModelResponse([TextPart(f"answer {number}"), ToolCallPart("look", {"n": number}, call)], timestamp=THEN),
        ModelRequest([ToolReturnPart("look", {"found": number}, call, timestamp=THEN)]),
    ]


class Told:
    """What an observer sees of a store: values, and errors by their names."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.held: dict[str, Conversation] = {}
        self.left: dict[str, list[str]] = {}
        self.number = 0

    async def step(self, verb: str, name: str, other: str, at: int, scope: str | None) -> Any:
        try:
            return await getattr(self, verb)(name, other, at, scope)
        except (UserError, LookupError) as error:
            return type(error).__name__

    async def load(self, name: str, _: str, at: int, scope: str | None) -> Any:
        found = await self.store.load(name, limit=at or None, scope=scope)
        if found is None:
            return None
        self.held[name] = found
        return found.messages, found.usage

    async def save(self, name: str, _: str, at: int, scope: str | None) -> Any:
        held = self.held.setdefault(name, Conversation(conversation_id=name))
        self.number += 1
        held.messages = [*held.messages, *said(self.number)[:at]]
        held.usage = RunUsage(requests=self.number)
        return [one.message for one in await self.store.save(held, scope=scope)]

    async def rewrite(self, name: str, _: str, at: int, scope: str | None) -> Any:
        held = self.held.setdefault(name, Conversation(conversation_id=name))
        self.number += 1
        held.messages, held.new_message_index = [*held.messages[:at], *said(self.number)], None
        return [one.message for one in await self.store.save(held, scope=scope)]

    async def branch(self, name: str, _: str, at: int, scope: str | None) -> Any:
        revision = self.held[name].revision if name in self.held else None
        self.held[name] = await self.store.branch(name, at=at, expected_revision=revision, scope=scope)
        return self.held[name].messages

    async def back(self, name: str, _: str, at: int, scope: str | None) -> Any:
        """Go back to a line that was left."""
        record = await self.store.read_record(name)
        if record is None or not record.branches:
            return None
        tip = record.branches[at % len(record.branches)]
        self.held[name] = await self.store.branch(name, from_entry=tip, expected_revision=record.revision)
        return self.held[name].messages

    async def fork(self, name: str, other: str, at: int, scope: str | None) -> Any:
        made = await self.store.fork(name, at=at, new_conversation_id=other, scope=scope)
        self.held[other] = made
        return made.messages, made.usage

    async def delete(self, name: str, _: str, at: int, scope: str | None) -> Any:
        return await self.store.delete(name, scope=scope)

    async def look(self, name: str, _: str, at: int, scope: str | None) -> Any:
        listed = await self.store.list_conversations(scope=scope, limit=at or None)
        records = [(one.conversation_id, one.scope, one.forked_from, len(one.branches), one.usage) for one in listed]
        entries = await self.store.load_entries(name, limit=at or None)
        return records, None if entries is None else [one.message for one in entries]


VERBS = ["load", "save", "save", "save", "rewrite", "branch", "back", "fork", "delete", "look"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(VERBS), st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(0, 4),
        st.sampled_from(SCOPES),
    ),
    min_size=4,
    max_size=25,
)  # fmt: skip


def test_a_story_is_what_it_is_in_memory(database: Database) -> None:
    """integrations AD-20: every answer, and every error."""
    sync = database.open()
    numbers = iter(range(10_000))

    @settings(max_examples=40)
    @given(STEPS)
    def told(steps: list[Any]) -> None:
        async def story(made: Any) -> list[Any]:
            teller = Told(made)
            return [await teller.step(*step) for step in steps]

        ours: Any = PydanticAIConversations(AsyncStateStore(sync), scope=f"story {next(numbers)}")
        assert asyncio.run(story(ours)) == asyncio.run(story(InMemoryConversationStore()))

    told()


async def kept(store: AsyncStateStore) -> int:
    return await store.conversations.messages.count()


def run(database: Database, story: Callable[[AsyncStateStore], Any]) -> None:
    """Run a story over a store."""

    async def main() -> None:
        async with AsyncStateStore(database.open()) as store:
            await story(store)

    asyncio.run(main())


def test_deleting_leaves_what_a_fork_has(database: Database) -> None:
    """integrations AD-21: and everything else goes, also from the database."""

    async def story(store: AsyncStateStore) -> None:
        made = PydanticAIConversations(store)
        first = Conversation(conversation_id="first", messages=said(1))
        await made.save(first)
        fork = await made.fork("first", at=2, new_conversation_id="second")
        fork.messages.extend(said(2))
        await made.save(fork)
        await made.delete("first")
        assert await kept(store) == 5
        found = await made.load("second")
        assert found is not None
        assert found.messages == [*said(1)[:2], *said(2)]
        await made.delete("second")
        assert await kept(store) == 0

    run(database, story)


def test_of_two_writers_one_gets_a_conflict(database: Database) -> None:
    """integrations AD-22: who began from the same revision, at the same time, from another store."""

    async def story(store: AsyncStateStore) -> None:
        made = PydanticAIConversations(store)
        await made.save(Conversation(conversation_id="a", messages=said(1)))
        async with AsyncStateStore(database.open()) as other:
            stores = [made, PydanticAIConversations(other)]
            for number in range(5):
                held = [await one.load("a") for one in stores]
                for one in held:
                    assert one is not None
                    one.messages.extend(said(number))
                outcomes = await asyncio.gather(
                    *(one.save(what) for one, what in zip(stores, held, strict=True) if what is not None),
                    return_exceptions=True,
                )
                lost = [one for one in outcomes if isinstance(one, BaseException)]
                assert [type(one) for one in lost] == [ConversationConflict]
            found = await made.load("a")
            assert found is not None
            assert len(found.messages) == 3 * 6

    run(database, story)


def test_a_second_runner_is_refused_by_a_claim(database: Database) -> None:
    """integrations AD-3."""

    async def story(store: AsyncStateStore) -> None:
        flow = await store.workflows.runs.create("talk", trigger=Trigger("talk"), phase="talk")
        claim = await store.workflows.claims.take(flow.id, owner="one")
        one = PydanticAIConversations(store, claim=claim)
        await one.save(Conversation(conversation_id="a", messages=said(1)))
        await store.workflows.claims.transfer(claim, owner="two")
        held = await one.load("a")
        assert held is not None
        held.messages.extend(said(2))
        with pytest.raises(ClaimLost):
            await one.save(held)

    run(database, story)


def test_a_conversation_goes_with_its_person_and_with_a_prune(database: Database) -> None:
    """integrations AD-4."""

    async def story(store: AsyncStateStore) -> None:
        made = PydanticAIConversations(store)
        for name in ("ana", "bo"):
            await made.save(Conversation(conversation_id=name, messages=said(1)), scope=name)
        assert [one.conversation_id for one in await made.list_conversations(scope="ana")] == ["ana"]
        database.clock.advance(seconds=1)
        await store.maintenance.prune.run(
            PrunePolicy("sessions", ids=["pydantic-ai/conversation/bo"], keep_days=0, keep_n=0)
        )
        assert await made.load("bo") is None
        assert await kept(store) == 3
        await store.maintenance.erase.run("ana")
        assert (await made.list_conversations(scope="ana")) == []

    run(database, story)
