"""What a call of this domain decides although something changed between its look and its write."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from support.busy import impatient
from support.messaging.chat import KEY, MILLISECOND, TIMEOUT, started
from support.workflows.steps import Raw, wait_until_blocked

from lastlight_state import StateStore
from lastlight_state.messaging import MessageDraft, ThreadPlace
from lastlight_state.testing import Database, FrozenClock, racing


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_a_session_that_somebody_holds_is_passed_over_when_idle_ones_are_closed(
    postgres_database: Database, frozen_clock: FrozenClock
) -> None:
    """messaging M-25: it is about to become fresh, and is not waited for."""
    store, other = impatient(postgres_database), postgres_database.open()
    held = started(store)
    frozen_clock.advance(TIMEOUT + MILLISECOND)
    with other.transaction() as tx:
        tx.messaging.sessions.touch(held.id)
        assert store.messaging.sessions.close_idle(idle_timeout=TIMEOUT) == 0
    assert store.messaging.sessions.get(held.id).active


def test_a_session_is_idle_only_after_its_timeout(store: StateStore, frozen_clock: FrozenClock) -> None:
    """messaging M-11, M-25: at the very timeout it is fresh, for whoever closes, resumes or looks for it."""
    session = started(store)
    frozen_clock.set(session.last_activity_at + TIMEOUT)
    assert store.messaging.sessions.close_idle(idle_timeout=TIMEOUT) == 0
    assert store.messaging.sessions.resume(KEY, idle_timeout=TIMEOUT).session.id == session.id
    place = ThreadPlace(KEY.platform, KEY.channel_id, KEY.thread_id)
    for user_id in (None, KEY.user_id):
        found = store.messaging.sessions.find_active(place, user_id=user_id, idle_timeout=TIMEOUT)
        assert found is not None
    frozen_clock.advance(TIMEOUT + MILLISECOND)
    assert store.messaging.sessions.close_idle(idle_timeout=TIMEOUT) == 1


def test_a_post_never_lands_in_a_session_that_was_retired_while_it_was_waited_for(
    postgres_database: Database, pool: ThreadPoolExecutor
) -> None:
    """messaging M-45."""
    store, other = postgres_database.open(), postgres_database.open()
    place = ThreadPlace(KEY.platform, KEY.channel_id, KEY.thread_id)
    retired = started(store)
    append = partial(store.messaging.messages.try_append_to_thread, place, MessageDraft("assistant", "Done."))
    with other.transaction() as tx:
        tx.messaging.sessions.close(retired.id, reason="closed")
        posting = pool.submit(append)
        wait_until_blocked(Raw(postgres_database))
    assert posting.result(30) is None
    assert store.messaging.messages.history(retired.id) == []


def test_a_session_that_is_closed_before_it_can_be_named_as_the_keys_own_hinders_nobody(
    store: StateStore, database: Database
) -> None:
    """messaging M-12: Sessions.create tries again."""
    held, other = started(store), database.open()
    with racing(store) as race:
        race.before_unit(2, lambda: other.messaging.sessions.close(held.id))
        made = store.messaging.sessions.create(KEY)
    assert (race.left, made.active, made.id == held.id) == (0, True, False)
