"""Keyset pages of this domain's lists, for any activity and any size of page."""

from __future__ import annotations

from itertools import count

from hypothesis import given, settings, strategies as st
from support.messaging.chat import said
from support.workflows.steps import all_pages

from lastlight_state import StateStore
from lastlight_state.messaging import ConversationKey
from lastlight_state.testing import FrozenClock

NUMBERS = count()
BOUNDED = settings(max_examples=15)


@BOUNDED
@given(steps=st.lists(st.integers(-2, 2), max_size=14), limit=st.integers(1, 6))
def test_pages_of_sessions_are_the_whole_list_in_order(
    every_backend: StateStore, frozen_clock: FrozenClock, steps: list[int], limit: int
) -> None:
    """messaging M-26: newest activity first, then greatest id."""
    platform = f"p{next(NUMBERS)}"
    sessions = every_backend.messaging.sessions
    made = []
    for user, step in enumerate(steps):
        frozen_clock.advance(seconds=step)
        made.append(sessions.create(ConversationKey(platform, "C1", f"U{user}")))
    expected = sorted(((one.last_activity_at, one.id) for one in made), reverse=True)
    listed = all_pages(sessions.list, platform=platform, limit=limit)
    assert [(one.last_activity_at, one.id) for one in listed] == expected


@BOUNDED
@given(many=st.integers(0, 14), limit=st.integers(1, 6))
def test_pages_and_windows_of_messages_are_the_whole_conversation(
    every_backend: StateStore, many: int, limit: int
) -> None:
    """messaging M-37, M-38, M-39."""
    key = ConversationKey("slack", "C1", f"U{next(NUMBERS)}")
    session_id = every_backend.messaging.sessions.create(key).id
    messages = every_backend.messaging.messages
    ids = [message.id for message in said(every_backend, session_id, *map(str, range(many)))]
    listed = all_pages(lambda **page: messages.list(session_id, **page), limit=limit)
    assert [one.id for one in listed] == ids[::-1]

    backwards: list[int] = []
    while window := messages.history(session_id, limit=limit, before=backwards[0] if backwards else None):
        backwards[:0] = [one.id for one in window]
    assert backwards == ids

    onwards: list[int] = []
    while window := messages.since(session_id, after=onwards[-1] if onwards else 0, limit=limit):
        onwards += [one.id for one in window]
    assert onwards == ids
