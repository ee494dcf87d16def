from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.messaging.chat import at_once, counted, drafts, started
from support.messaging.speaker import go, speaking
from support.workflows.steps import Raw

from lastlight_state import StateStore
from lastlight_state.messaging import Appended, MessagingMessage
from lastlight_state.testing import Database

SOAK = pytest.mark.soak


@pytest.mark.parametrize("appends", [25, pytest.param(400, marks=SOAK)])
def test_a_tail_sees_every_message_of_many_writers_once_and_in_order(
    every_backend: StateStore, raw: Raw, appends: int
) -> None:
    """messaging M-32, M-38."""
    messages, session_id = every_backend.messaging.messages, started(every_backend).id
    total, finished, seen = 8 * appends, threading.Event(), list[MessagingMessage]()

    def write() -> list[Appended]:
        return [messages.append(session_id, role="user", content=f"{i}") for i in range(appends)]

    def follow() -> None:
        while True:
            over = finished.is_set()
            new = messages.since(session_id, after=seen[-1].id if seen else 0)
            seen.extend(new)
            if over and not new:
                return

    reader = threading.Thread(target=follow)
    reader.start()
    try:
        written = at_once([write] * 8)
    finally:
        finished.set()
        reader.join()
    ids = sorted(one.message.id for batch in written for one in batch)
    assert [message.id for message in seen] == ids
    assert len(ids) == total
    assert counted(raw, session_id) == (total, total)


@pytest.mark.parametrize("rounds", [5, pytest.param(100, marks=SOAK)])
def test_a_message_delivered_by_many_threads_at_once_is_stored_once(
    every_backend: StateStore, raw: Raw, rounds: int
) -> None:
    """messaging M-33."""
    session_id = started(every_backend).id
    append = every_backend.messaging.messages.append
    for turn in range(rounds):

        def deliver(platform_id: str = f"p{turn}") -> Appended:
            return append(session_id, role="user", content="hello", platform_message_id=platform_id)

        outcomes = at_once([deliver] * 10)
        assert len({one.message.id for one in outcomes}) == 1
        assert [one.created for one in outcomes].count(True) == 1
        assert counted(raw, session_id) == (turn + 1, turn + 1)


def test_batches_and_single_messages_interleave_whole(every_backend: StateStore, raw: Raw) -> None:
    """messaging M-32, M-34: a batch's messages stand together."""
    session_id = started(every_backend).id
    messages = every_backend.messaging.messages
    batch = [*drafts("b1", platform_id="1"), *drafts("b2"), *drafts("b3", platform_id="2")]
    works: list[Callable[[], Any]] = [lambda: messages.append_many(session_id, batch)]
    works += [lambda: messages.append_many(session_id, drafts("c1", "c2", "c3"))] * 3
    works += [lambda: messages.append(session_id, role="user", content="single")] * 6
    at_once(works)
    stored = [message.content for message in messages.history(session_id)]
    assert counted(raw, session_id) == (18, 18)
    joined = " ".join(stored)
    assert joined.count("b1 b2 b3") == 1
    assert joined.count("c1 c2 c3") == 3


@pytest.mark.parametrize("rounds", [1, pytest.param(40, marks=SOAK)])
def test_a_writer_killed_at_any_moment_leaves_the_counter_right(database: Database, raw: Raw, rounds: int) -> None:
    """messaging M-30, case 23: whatever was answered is there, and the count equals the messages."""
    store = database.open()
    session_id = started(store).id
    for turn in range(rounds):
        answered = []
        with speaking("append", database.url, session_id) as speaker:
            go(speaker)
            assert speaker.stdout is not None
            answered += [int(speaker.stdout.readline()) for _ in range(7 + 13 * turn)]
            speaker.kill()
            answered += [int(line) for line in speaker.stdout]
        _wait_until_alone(database, raw)
        stored = {row[0] for row in raw("SELECT id FROM messaging_messages")}
        assert set(answered) <= stored
        counter, found = counted(raw, session_id)
        assert counter == found


def _wait_until_alone(database: Database, raw: Raw) -> None:
    """Until a Postgres server has noticed that its client is gone."""
    if database.name == "postgresql":
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active'"
        while raw(others) != [(1,)]:
            time.sleep(0.01)
