"""What is done to one session leaves those of other places, users and times alone."""

from __future__ import annotations

from typing import Any

import pytest
from support.messaging.chat import IN_THREAD, TIMEOUT, contents, started

from lastlight_state import AlreadyExists, NotFound, StaleVersion, StateStore
from lastlight_state.messaging import ConversationKey, MessageDraft, ThreadPlace
from lastlight_state.testing import FrozenClock

#: Each differs from `IN_THREAD` in one word. All but the last have another place.
OTHERS = (
    ConversationKey("teams", "C1", "U1", "T1"),
    ConversationKey("slack", "C2", "U1", "T1"),
    ConversationKey("slack", "C1", "U1", "T2"),
    ConversationKey("slack", "C1", "U1"),
    ConversationKey("slack", "C1", "U2", "T1"),
)
PLACE = ThreadPlace("slack", "C1", "T1")


@pytest.fixture
def bystanders(every_backend: StateStore, frozen_clock: FrozenClock) -> list[str]:
    """Active sessions of others and one of the same key that has ended, each with a message ``p1``."""
    m = every_backend.messaging
    ids = [m.sessions.create(key).id for key in (*OTHERS, IN_THREAD)]
    for session_id in ids:
        m.messages.append(session_id, role="user", content="theirs", platform_message_id="p1")
    m.sessions.close(ids[-1])
    frozen_clock.advance(seconds=1)
    return ids


def _seen(store: Any, ids: list[str]) -> list[Any]:
    m = store.messaging
    return [(m.sessions.get(one), m.messages.history(one)) for one in ids]


def test_messages_of_one_session_are_no_concern_of_others(every_backend: StateStore, bystanders: list[str]) -> None:
    """messaging M-33, M-34, M-45: an id that a platform gives twice counts in its session, for its role."""
    m, before = every_backend.messaging, _seen(every_backend, bystanders)
    own = started(every_backend, IN_THREAD).id
    first = m.messages.append(own, role="user", content="1", platform_message_id="p1")
    answer = m.messages.append(own, role="assistant", content="2", platform_message_id="p1")
    again = m.messages.append_many(own, [MessageDraft("user", "x", "p1"), MessageDraft("user", "3", "p2")])
    assert (first.created, answer.created, [one.created for one in again]) == (True, True, [False, True])
    assert again[0].message == first.message
    m.messages.append(own, role="user", content="4")
    m.messages.append_many(own, [MessageDraft("user", "5"), MessageDraft("user", "6")])
    for n, platform_id in ((7, None), (8, "p8")):
        posted = m.messages.try_append_to_thread(PLACE, MessageDraft("assistant", str(n), platform_id))
        assert posted is not None
        assert posted.message.session_id == own
    told = ["1", "2", "3", "4", "5", "6", "7", "8"]
    assert contents(m.messages.history(own)) == contents(m.messages.since(own, after=0)) == told
    assert len(m.messages.list(own).items) == m.sessions.get(own).message_count == 8
    assert contents(m.messages.history(own, before=answer.message.id)) == ["1"]
    assert contents(m.messages.since(own, after=first.message.id)) == told[1:]
    assert _seen(every_backend, bystanders) == before


def test_changes_of_one_session_are_no_concern_of_others(
    every_backend: StateStore, frozen_clock: FrozenClock, bystanders: list[str]
) -> None:
    """messaging M-11, M-12, M-17, M-21, M-22: nor is the end of it."""
    sessions, before = every_backend.messaging.sessions, _seen(every_backend, bystanders)
    own = sessions.create(IN_THREAD)
    assert own.id not in bystanders
    with pytest.raises(AlreadyExists) as taken:
        sessions.create(IN_THREAD)
    assert taken.value.key == own.id
    assert sessions.resume(IN_THREAD).session.id == own.id
    sessions.touch(own.id)
    sessions.ensure_agent_session(own.id, "log-1")
    changed = sessions.update(own.id, version=sessions.get(own.id).version, title="mine")
    with pytest.raises(StaleVersion):
        sessions.update(own.id, version=changed.version + 1, title="other")
    assert sessions.get(own.id) == changed
    following = sessions.create(IN_THREAD, on_active="close")
    assert (sessions.get(own.id).active, sessions.get(following.id).active) == (False, True)
    assert _seen(every_backend, bystanders) == before
    frozen_clock.advance(TIMEOUT * 2)
    last = sessions.resume(IN_THREAD, idle_timeout=TIMEOUT)
    assert last.replaced == following.id
    sessions.close(last.session.id)
    assert _seen(every_backend, bystanders) == before
    messages = every_backend.messaging.messages
    posted = messages.try_append_to_thread(PLACE, MessageDraft("assistant", "done"))
    assert posted is not None
    assert posted.message.session_id == bystanders[4]  # of the same place, and not ended
    with pytest.raises(NotFound):
        messages.append("nobody", role="user", content="x", platform_message_id="p9")
