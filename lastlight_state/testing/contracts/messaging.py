"""The contract of chat."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lastlight_state import StaleVersion, StateStore
from lastlight_state.messaging import ConversationKey, MessageDraft
from lastlight_state.testing.clock import FrozenClock
from lastlight_state.testing.contracts.steps import fresh


class MessagingContract:
    """``store.messaging``"""

    def test_a_key_has_one_active_session_with_or_without_a_thread(self, store: StateStore) -> None:
        for thread in (None, "T1"):
            key = ConversationKey("slack", fresh("C"), "U1", thread)
            first, again = store.messaging.sessions.resume(key), store.messaging.sessions.resume(key)
            assert (first.created, again.created, again.session) == (True, False, first.session)

    def test_silence_starts_a_new_session(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        key = ConversationKey("slack", fresh("C"), "U1")
        first = store.messaging.sessions.resume(key, idle_timeout=timedelta(minutes=30))
        frozen_clock.advance(timedelta(minutes=31))
        second = store.messaging.sessions.resume(key, idle_timeout=timedelta(minutes=30))
        assert (second.created, second.replaced) == (True, first.session.id)
        assert store.messaging.sessions.get(first.session.id).deactivated_reason == "timeout"

    def test_messages_are_counted_in_their_order_and_a_redelivery_is_not_stored(self, store: StateStore) -> None:
        session = store.messaging.sessions.resume(ConversationKey("slack", fresh("C"), "U1")).session
        drafts = [
            MessageDraft("user", "hello", "m1"),
            MessageDraft("assistant", "hi\n✓"),
            MessageDraft("user", "x", "m1"),
        ]
        stored = store.messaging.messages.append_many(session.id, drafts)
        assert [appended.created for appended in stored] == [True, True, False]
        assert [message.content for message in store.messaging.messages.history(session.id)] == ["hello", "hi\n✓"]
        assert store.messaging.sessions.get(session.id).message_count == 2

    def test_an_update_of_what_has_changed_is_refused(self, store: StateStore) -> None:
        session = store.messaging.sessions.resume(ConversationKey("slack", fresh("C"), "U1")).session
        updated = store.messaging.sessions.update(session.id, version=session.version, title="Deploys")
        assert (updated.title, updated.version) == ("Deploys", session.version + 1)
        with pytest.raises(StaleVersion):
            store.messaging.sessions.update(session.id, version=session.version, title="Other")
