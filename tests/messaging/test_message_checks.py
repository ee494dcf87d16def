from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from support.messaging.chat import counted, started
from support.workflows.steps import Raw

from lastlight_state import InvalidValue, StateStore
from lastlight_state.messaging import MessageDraft

FINE: dict[str, Any] = {"role": "user", "content": "x"}


UNFIT: list[tuple[str, Any]] = [
    ("role", "system"),
    ("role", "User"),
    ("role", ""),
    ("role", None),
    ("content", "a\0b"),
    ("content", "\ud800"),
    ("content", None),
    ("content", b"x"),
    ("platform_message_id", "p" * 257),
    ("platform_message_id", "a\0b"),
    ("platform_message_id", 17),
    ("timestamp", datetime(2026, 2, 3)),  # noqa: DTZ001 - naive on purpose
    ("timestamp", "2026-02-03T00:00:00Z"),
    ("timestamp", 0),
]


def test_an_unfit_message_is_refused_by_the_name_of_its_field(every_backend: StateStore, raw: Raw) -> None:
    """messaging M-10, M-73."""
    session = started(every_backend)
    for field, bad in UNFIT:
        given = {**FINE, field: bad}
        with pytest.raises(InvalidValue, match=f"^{field}: "):
            every_backend.messaging.messages.append(session.id, **given)
        with pytest.raises(InvalidValue, match=rf"^drafts\[0\]\.{field}: "):
            every_backend.messaging.messages.append_many(session.id, [MessageDraft(**given)])
        with pytest.raises(InvalidValue, match=rf"^draft\.{field}: "):
            every_backend.messaging.messages.try_append_to_thread(session.key.place, MessageDraft(**given))
    assert counted(raw, session.id) == (0, 0)


def test_a_platform_id_may_have_256_bytes(every_backend: StateStore) -> None:
    session = started(every_backend)
    message = every_backend.messaging.messages.append(session.id, **FINE, platform_message_id="é" * 128).message
    assert every_backend.messaging.messages.find_by_platform_id("slack", "C1", "é" * 128) == message


def test_an_id_of_a_message_is_a_whole_number(every_backend: StateStore) -> None:
    """messaging M-73."""
    messages = every_backend.messaging.messages
    nonsense: list[Any] = [-1, 2**63, True, "7", 7.0]
    for bad in nonsense:
        with pytest.raises(InvalidValue, match=r"^before: "):
            messages.history("s", before=bad)
        with pytest.raises(InvalidValue, match=r"^after: "):
            messages.since("s", after=bad)
        with pytest.raises(InvalidValue, match=r"^message_id: "):
            messages.get(bad)
