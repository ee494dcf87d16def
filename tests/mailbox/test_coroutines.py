"""Mailboxes from coroutines."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from support.mailbox.files import PLACE, ids

from lastlight_state import AsyncStateStore, StateStore


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
