"""Mailboxes from coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import pytest
from support.mailbox.files import PLACE, ids

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.errors import NestedTransaction


def test_a_message_is_answered_and_delivered(state_store: StateStore) -> None:
    """mailbox MB-49: from the host to the agent and back, awaited."""

    async def work() -> None:
        mailbox = AsyncStateStore(state_store).mailbox
        host = await mailbox.create("group", "session")
        agent = await mailbox.agent("group", "session")
        asked = await host.inbox.send(kind="chat", content={"text": "Who?"}, routing=PLACE)
        assert ids(await agent.inbox.take()) == [asked.id]
        await agent.outbox.send(kind="chat", content={"text": "Me."}, routing=PLACE, in_reply_to=asked.id)
        await agent.inbox.complete(asked.id)
        assert (await host.outbox.drain(lambda due: due.message.id)).delivered == 1
        assert (await host.sweep.sync()).completed == 1
        assert (await host.status()).undelivered == 0

    asyncio.run(work())


def test_a_cancelled_take_has_claimed_or_has_not(state_store: StateStore) -> None:
    """mailbox MB-42, case 83: a message that it claimed is known as such, and any other is taken by the next call."""

    async def work() -> None:
        mailbox = AsyncStateStore(state_store).mailbox
        host = await mailbox.create("group", "session")
        agent = await mailbox.agent("group", "session")
        sent = await host.inbox.send(kind="chat", content={}, routing=PLACE)
        taking = asyncio.create_task(agent.inbox.take())
        await asyncio.sleep(0)
        taking.cancel()
        with suppress(asyncio.CancelledError):
            await taking
        await agent.inbox.take()
        assert [claim.message_id for claim in await host.sweep.claims()] == [sent.id]

    asyncio.run(work())


def test_a_reply_and_what_it_answers_are_one_commit(state_store: StateStore) -> None:
    """mailbox MB-48: neither is there when the block fails or its task is cancelled in it."""

    async def work() -> None:
        mailbox = AsyncStateStore(state_store).mailbox
        host = await mailbox.create("group", "session")
        agent = await mailbox.agent("group", "session")
        asked = await host.inbox.send(kind="chat", content={}, routing=PLACE)

        async def answered(end: Callable[[], Awaitable[object]]) -> None:
            async with agent.transaction() as together:
                await together.outbox.send(kind="chat", content={}, routing=PLACE)
                await together.inbox.complete(asked.id)
                await end()

        for error in (ZeroDivisionError(), asyncio.CancelledError()):
            with suppress(type(error)):
                await answered(partial(_raised, error))
            assert (await agent.outbox.list()).items == ()
        await answered(partial(asyncio.sleep, 0))
        assert (await host.sweep.sync()).completed == 1
        assert len(await agent.outbox.list()) == 1

    asyncio.run(work())


def test_a_transaction_of_a_task_is_neither_opened_twice_nor_gone_round(state_store: StateStore) -> None:
    """mailbox MB-48: another task waits for it and finds what it did."""

    async def work() -> None:
        host = await AsyncStateStore(state_store).mailbox.create("group", "session")
        async with asyncio.timeout(10), host.transaction() as together:
            await together.inbox.send("first", kind="chat", content={})
            other = asyncio.create_task(host.inbox.send("second", kind="chat", content={}))
            for call in (host.status, partial(host.inbox.send, kind="chat", content={})):
                with pytest.raises(NestedTransaction, match="call the mailbox that it gave"):
                    await call()
            for side in (host, together):
                with pytest.raises(NestedTransaction):
                    async with side.transaction():
                        pass
        await other
        assert {message.id for message in (await host.inbox.list()).items} == {"first", "second"}

    asyncio.run(work())


async def _raised(error: BaseException) -> None:
    raise error
