from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError
from support.messaging.chat import IN_THREAD, KEY, MILLISECOND, TIMEOUT, said, started

from lastlight_state import StateStore
from lastlight_state.messaging import MessagingMessage, MessagingSession
from lastlight_state.testing import FrozenClock


def test_a_session_tells_whether_it_is_idle(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """messaging M-11: the same boundary that resume has."""
    session = started(every_backend)
    then = session.last_activity_at + TIMEOUT
    assert not session.is_idle(then, TIMEOUT)
    assert session.is_idle(then + MILLISECOND, TIMEOUT)
    assert not session.is_idle(then + timedelta(days=9_000), None)
    assert not session.is_idle(then, timedelta.max)
    with pytest.raises(TypeError):
        session.is_idle(then, 30)  # type: ignore[arg-type]


def test_a_session_knows_its_key(every_backend: StateStore) -> None:
    assert started(every_backend, KEY).key == KEY
    assert started(every_backend, IN_THREAD).key == IN_THREAD
    assert IN_THREAD.place.thread_id == "T1"


def test_records_are_frozen_and_survive_json(every_backend: StateStore) -> None:
    session = every_backend.messaging.sessions.update(started(every_backend).id, version=0, metadata={"a": [1]})
    [message] = said(every_backend, session.id, "hello")
    with pytest.raises(ValidationError):
        session.title = "x"  # type: ignore[misc]
    assert MessagingSession.model_validate_json(session.model_dump_json()) == session
    assert MessagingMessage.model_validate_json(message.model_dump_json()) == message
