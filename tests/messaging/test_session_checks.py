from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from support.each import with_each
from support.messaging.chat import KEY, legacy_session, said, started
from support.workflows.steps import Raw

from lastlight_state import InvalidValue, NotFound, PayloadTooLarge, StateStore, StoreClosed
from lastlight_state.messaging import ConversationKey, MessageDraft, ThreadPlace
from lastlight_state.messaging.models import OnActive
from lastlight_state.testing import FrozenClock

WORDS = ("platform", "channel_id", "user_id", "thread_id")
BAD_TEXTS = ["a\0b", "\ud800", 7, b"slack", ["slack"]]


def key(**words: Any) -> ConversationKey:
    return ConversationKey(**{"platform": "slack", "channel_id": "C1", "user_id": "U1", **words})


def nothing_is_stored(raw: Raw) -> bool:
    return raw("SELECT count(*) FROM messaging_sessions") == [(0,)]


@with_each("word", WORDS)
def test_a_key_of_unfit_words_is_refused_by_name(every_backend: StateStore, raw: Raw, word: str) -> None:
    """messaging M-73."""
    absent = [] if word == "thread_id" else ["", None]
    for bad in [*BAD_TEXTS, *absent, " ", "x" * 257, "é" * 129]:
        for call in (every_backend.messaging.sessions.resume, every_backend.messaging.sessions.create):
            with pytest.raises(InvalidValue, match=f"^{word}: "):
                call(key(**{word: bad}))
    assert nothing_is_stored(raw)


def test_words_may_be_as_long_as_their_limit(every_backend: StateStore) -> None:
    """messaging M-73: bytes of UTF-8."""
    longest = key(platform="é" * 32, channel_id="é" * 128, user_id="u" * 256, thread_id="t" * 256)
    assert started(every_backend, longest).key == longest
    assert every_backend.messaging.sessions.find_active(longest.place, user_id=longest.user_id) is not None
    with pytest.raises(InvalidValue, match=r"^platform: 65 bytes, more than the limit of 64"):
        started(every_backend, key(platform="é" * 32 + "x"))


def test_an_id_of_a_callers_own_must_fit(every_backend: StateStore, raw: Raw) -> None:
    """messaging M-73."""
    ways: tuple[OnActive, ...] = ("refuse", "close")
    nonsense: list[Any] = [*BAD_TEXTS, "", "x" * 201]
    for session_id, on_active in product(nonsense, ways):
        with pytest.raises(InvalidValue, match=r"^session_id: "):
            every_backend.messaging.sessions.create(KEY, session_id=session_id, on_active=on_active)
    assert nothing_is_stored(raw)
    assert every_backend.messaging.sessions.create(KEY, session_id="x" * 200).id == "x" * 200


@with_each("bad", BAD_TEXTS)
def test_what_is_looked_up_must_be_a_text_that_could_be_there(every_backend: StateStore, bad: Any) -> None:
    """messaging M-74: one error on both databases."""
    sessions, messages = every_backend.messaging.sessions, every_backend.messaging.messages
    place = ThreadPlace("slack", "C1")
    calls: dict[str, list[Callable[[], Any]]] = {
        "session_id": [
            lambda: sessions.get(bad),
            lambda: sessions.find(bad),
            lambda: sessions.touch(bad),
            lambda: sessions.ensure_agent_session(bad, "log-1"),
            lambda: sessions.update(bad, version=0, title="t"),
            lambda: sessions.close(bad),
            lambda: messages.append(bad, role="user", content="x"),
            lambda: messages.append_many(bad, [MessageDraft("user", "x")]),
            lambda: messages.history(bad),
            lambda: messages.since(bad, after=0),
            lambda: messages.list(bad),
        ],
        "user_id": [lambda: sessions.find_active(place, user_id=bad), lambda: sessions.list(user_id=bad)],
        "channel_id": [
            lambda: sessions.list(channel_id=bad),
            lambda: messages.find_by_platform_id("slack", bad, "p"),
            lambda: sessions.find_active(ThreadPlace("slack", bad)),
        ],
        "platform": [lambda: sessions.list(platform=bad), lambda: messages.find_by_platform_id(bad, "C1", "p")],
        "platform_message_id": [lambda: messages.find_by_platform_id("slack", "C1", bad)],
        "agent_session_id": [lambda: sessions.find_by_agent_session(bad)],
    }
    for word, named in calls.items():
        for call in named:
            with pytest.raises(InvalidValue, match=f"^{word}: "):
                call()


def test_what_is_too_long_to_be_there_is_merely_not_found(
    every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """messaging M-74: the limits are for what is written; rows of other programs stay readable."""
    sessions = every_backend.messaging.sessions
    legacy_session(raw, "x" * 300, frozen_clock.now())
    assert sessions.get("x" * 300).active
    assert sessions.find("") is None
    assert sessions.find("y" * 300) is None
    with pytest.raises(NotFound):
        sessions.touch("y" * 300)


def test_a_key_is_a_key(every_backend: StateStore) -> None:
    nonsense: list[Any] = [None, "slack", ("slack", "C1", "U1"), ThreadPlace("slack", "C1")]
    for bad in nonsense:
        with pytest.raises(InvalidValue, match=r"^key: "):
            every_backend.messaging.sessions.resume(bad)


def test_a_place_is_a_place(every_backend: StateStore) -> None:
    nonsense: list[Any] = [None, "slack", KEY]
    for bad in nonsense:
        with pytest.raises(InvalidValue, match=r"^place: "):
            every_backend.messaging.sessions.find_active(bad)
        with pytest.raises(InvalidValue, match=r"^place: "):
            every_backend.messaging.messages.try_append_to_thread(bad, MessageDraft("user", "x"))


def test_an_unknown_way_to_create_is_refused(every_backend: StateStore, raw: Raw) -> None:
    nonsense: list[Any] = ["", "closed", None, True, ["close"]]
    for on_active in nonsense:
        with pytest.raises(InvalidValue, match=r"^on_active: "):
            every_backend.messaging.sessions.create(KEY, on_active=on_active)
    assert nothing_is_stored(raw)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


UNFIT: list[tuple[str, Any, type[InvalidValue]]] = [
    ("title", "é" * 256 + "x", PayloadTooLarge),
    ("title", "a\0", InvalidValue),
    ("title", 7, InvalidValue),
    ("metadata", {"a": "x" * 2**14}, PayloadTooLarge),
    ("metadata", nested(17), InvalidValue),
    ("metadata", {"a": float("nan")}, InvalidValue),
    ("metadata", {"a": "\ud800"}, InvalidValue),
    ("metadata", {7: "a"}, InvalidValue),
    ("metadata", {"a": timedelta(1)}, InvalidValue),
    ("agent_session_id", "a/b", InvalidValue),
    ("agent_session_id", "", InvalidValue),
]


def test_an_update_of_unfit_values_changes_nothing(every_backend: StateStore) -> None:
    """messaging M-73."""
    session = started(every_backend)
    for name, value, error in UNFIT:
        given: dict[str, Any] = {name: value}
        with pytest.raises(error, match=f"^{name}"):
            every_backend.messaging.sessions.update(session.id, version=0, **given)
    assert every_backend.messaging.sessions.get(session.id) == session


def test_values_at_their_limits_are_stored(every_backend: StateStore) -> None:
    """messaging M-73."""
    session = started(every_backend)
    metadata = {"nested": nested(15), "text": "x" * (2**14 - 100)}
    updated = every_backend.messaging.sessions.update(session.id, version=0, title="é" * 256, metadata=metadata)
    assert every_backend.messaging.sessions.get(session.id) == updated
    assert (updated.title, updated.metadata) == ("é" * 256, metadata)


def test_a_version_is_a_whole_number(every_backend: StateStore) -> None:
    session = started(every_backend)
    nonsense: list[Any] = [-1, True, "0", None, 1.0]
    for version in nonsense:
        with pytest.raises(InvalidValue, match=r"^version: "):
            every_backend.messaging.sessions.update(session.id, version=version, title="x")


def test_the_activity_filter_is_a_truth_value(every_backend: StateStore) -> None:
    nonsense: list[Any] = [1, 0, "true"]
    for active in nonsense:
        with pytest.raises(InvalidValue, match=r"^active: "):
            every_backend.messaging.sessions.list(active=active)


def test_a_closed_store_answers_nothing(every_backend: StateStore) -> None:
    """messaging M-75."""
    session = started(every_backend)
    every_backend.close()
    for call in (
        lambda: every_backend.messaging.sessions.resume(KEY),
        lambda: every_backend.messaging.messages.history(session.id),
        lambda: said(every_backend, session.id, "x"),
    ):
        with pytest.raises(StoreClosed):
            call()
