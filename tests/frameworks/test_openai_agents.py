"""Sessions of the OpenAI Agents SDK over a store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from agents.memory import OpenAIResponsesCompactionSession, Session, SQLiteSession
from support.answers import dropped_answers

from lastlight_state import ClaimLost
from lastlight_state.aio import AsyncStateStore
from lastlight_state.integrations.openai_agents import OpenAIAgentsSession
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database
from lastlight_state.testing.contracts import HistoryContract
from lastlight_state.testing.contracts.session_stores import Histories, user_messages
from lastlight_state.workflows import Trigger


class TestSessions(HistoryContract):
    """integrations AD-11"""

    @pytest.fixture
    def history(self, database: Database) -> Iterator[Histories]:
        store = AsyncStateStore(database.open())
        yield lambda name: OpenAIAgentsSession(name, store)
        asyncio.run(store.close())


class TestShippedSessions(HistoryContract):
    """integrations AD-11: the contract asks for nothing that the SDK's own session does not do."""

    @pytest.fixture
    def history(self, tmp_path: Path) -> Iterator[Histories]:
        made: list[SQLiteSession] = []

        def session(name: str) -> SQLiteSession:
            made.append(SQLiteSession(name, tmp_path / "sessions.db"))
            return made[-1]

        yield session
        for one in made:
            one.close()


def run(database: Database, story: Callable[[AsyncStateStore], Any]) -> None:
    """Run a story over a store."""

    async def main() -> None:
        async with AsyncStateStore(database.open()) as store:
            await story(store)

    asyncio.run(main())


def test_the_sdk_takes_it_for_a_session(database: Database) -> None:
    """integrations AD-11: with its settings, also as a dictionary."""

    async def story(store: AsyncStateStore) -> None:
        session = OpenAIAgentsSession("a", store, session_settings={"limit": 2})
        assert isinstance(session, Session)
        await session.add_items(user_messages(*"abc"))
        assert await session.get_items() == user_messages("b", "c")
        assert await session.get_items(limit=3) == user_messages(*"abc")
        with pytest.raises(TypeError):
            OpenAIAgentsSession("a", store, session_settings={"other": 2})

    run(database, story)


def test_a_history_is_compacted_whole_or_not_at_all(database: Database) -> None:
    """integrations AD-12: and what was said meanwhile stays."""
    summary = {"type": "compaction", "id": "cmp", "encrypted_content": "short"}

    async def story(store: AsyncStateStore) -> None:
        session = OpenAIAgentsSession("a", store)
        await session.add_items(user_messages(*"abcd"))
        client = MagicMock()
        client.responses.compact = AsyncMock(return_value=SimpleNamespace(output=[summary]))
        compacting: Any = OpenAIResponsesCompactionSession("a", session, client=client, compaction_mode="input")
        await compacting.run_compaction({"force": True})
        assert await session.get_items() == [summary]

        await session.add_items(user_messages(*"efgh"))
        snapshot = await session._get_compaction_snapshot(3)
        assert snapshot is not None
        assert (snapshot.items, snapshot.complete) == (user_messages(*"fgh"), False)
        assert await snapshot.replace_suffix(1, [summary])
        assert await session.get_items() == [summary, *user_messages("e", "f"), summary]

        stale = await session._get_compaction_snapshot(2)
        assert stale is not None
        await session.add_items(user_messages("meanwhile"))
        assert not await stale.replace_suffix(0, [summary])
        assert await session.get_items(limit=1) == user_messages("meanwhile")

    run(database, story)


class Redacting(OpenAIAgentsSession):
    """A session that stores no secret."""

    async def add_items(self, items: Any) -> None:
        await super().add_items([{**one, "content": one["content"].replace("secret", "***")} for one in items])


class Counting(OpenAIAgentsSession):
    """A session that knows how often it was cleared."""

    cleared = 0

    async def clear_session(self) -> None:
        self.cleared += 1
        await super().clear_session()


@pytest.mark.parametrize("kind", [Redacting, Counting])
def test_compaction_goes_through_the_verbs_of_a_subclass(database: Database, kind: Any) -> None:
    """integrations AD-14: no private hook goes around a verb that a subclass has of its own."""
    summary = {"role": "assistant", "content": "the secret word"}

    async def story(store: AsyncStateStore) -> None:
        session = kind("a", store)
        await session.add_items(user_messages("secret", "b"))
        client = MagicMock()
        client.responses.compact = AsyncMock(return_value=SimpleNamespace(output=[summary]))
        compacting: Any = OpenAIResponsesCompactionSession("a", session, client=client, compaction_mode="input")
        await compacting.run_compaction({"force": True})
        [stored] = await session.get_items()
        assert stored["content"] == ("the *** word" if kind is Redacting else "the secret word")
        assert getattr(session, "cleared", 1) == 1
        assert await session._get_compaction_snapshot(3) is None

    run(database, story)


def test_items_whose_commit_got_no_answer_are_stored_once(postgres_database: Database) -> None:
    """integrations AD-13: the call is repeated by itself, and finds what it has stored."""
    with dropped_answers(postgres_database.url) as (url, drop):
        postgres_database.open()

        async def story() -> None:
            async with await AsyncStateStore.open(url) as store:
                session = OpenAIAgentsSession("a", store)
                for texts in ("ab", "cc"):
                    drop("COMMIT\0")
                    await session.add_items(user_messages(*texts))
                assert await session.get_items() == user_messages(*"abcc")
                assert store.metrics.retries == 2

        asyncio.run(story())


def test_a_second_runner_is_refused_by_a_claim(database: Database) -> None:
    """integrations AD-3: in every call that writes, and only there."""

    async def story(store: AsyncStateStore) -> None:
        flow = await store.workflows.runs.create("talk", trigger=Trigger("talk"), phase="talk")
        claim = await store.workflows.claims.take(flow.id, owner="one")
        session = OpenAIAgentsSession("a", store, claim=claim)
        await session.add_items(user_messages("a"))
        taken = await store.workflows.claims.transfer(claim, owner="two")
        for call in (session.add_items(user_messages("b")), session.pop_item(), session.clear_session()):
            with pytest.raises(ClaimLost):
                await call
        assert await session.get_items() == user_messages("a")
        await OpenAIAgentsSession("a", store, claim=taken).add_items(user_messages("c"))
        assert await session.get_items() == user_messages("a", "c")

    run(database, story)


def test_a_session_goes_with_its_person_and_with_a_prune(database: Database) -> None:
    """integrations AD-4."""

    async def story(store: AsyncStateStore) -> None:
        for name in ("ana", "bo"):
            await OpenAIAgentsSession(name, store, user=name).add_items(user_messages(f"I am {name}"))
        database.clock.advance(seconds=1)
        gone = PrunePolicy("sessions", ids=["openai-agents/session/bo"], keep_days=0, keep_n=0)
        await store.maintenance.prune.run(gone)
        assert await OpenAIAgentsSession("bo", store).get_items() == []
        await store.maintenance.erase.run("ana")
        assert "I am ana" not in str(await OpenAIAgentsSession("ana", store).get_items())

    run(database, story)
