from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
from support.each import with_each
from support.messaging.chat import (
    IN_THREAD,
    KEY,
    TIMEOUT,
    active_ids,
    contents,
    counted,
    drafts,
    legacy_session,
    said,
    started,
)
from support.stored_words import unguarded_words
from support.workflows.steps import Raw, all_pages

from lastlight_state import AlreadyExists, InvalidValue, NotFound, PayloadTooLarge, StateStore
from lastlight_state.db.lists.pages import encode_token
from lastlight_state.messaging import ConversationKey, MessageDraft, ThreadPlace
from lastlight_state.messaging.message_statements import PREFIX, units
from lastlight_state.testing import Database, FrozenClock

HOSTILE = "'; DROP TABLE x; -- %s %(a)s :name ? {0} \\ \t\r\n \u202eright to left \U0001f600\u0301 " + "é" * 10_000


def test_a_message_and_its_count_are_stored_together(store: StateStore, frozen_clock: FrozenClock) -> None:
    """messaging M-30, M-31."""
    session = started(store)
    later = frozen_clock.advance(seconds=5)
    appended = store.messaging.messages.append(session.id, role="user", content="hello")
    message = appended.message
    assert appended.created
    assert (message.session_id, message.role, message.content) == (session.id, "user", "hello")
    assert (message.timestamp, message.platform_message_id) == (later, None)
    assert store.messaging.messages.get(message.id) == message
    assert store.messaging.sessions.get(session.id) == session.model_copy(
        update={"message_count": 1, "last_activity_at": later}
    )


def test_an_unknown_session_takes_no_message(store: StateStore, raw: Raw) -> None:
    """messaging M-30."""
    messages = store.messaging.messages
    for call in (
        lambda: messages.append("nowhere", role="user", content="x"),
        lambda: messages.append("nowhere", role="user", content="x", platform_message_id="p"),
        lambda: messages.append_many("nowhere", drafts("x")),
        lambda: messages.append_many("nowhere", drafts("x", platform_id="p")),
    ):
        with pytest.raises(NotFound) as caught:
            call()
        assert (caught.value.kind, caught.value.key) == ("messaging_session", "nowhere")
    assert raw("SELECT count(*) FROM messaging_messages") == [(0,)]


@pytest.mark.parametrize("content", ["", " \n ", HOSTILE, "x" * 2**20])
def test_what_was_said_is_stored_verbatim(every_backend: StateStore, content: str) -> None:
    """messaging M-5: empty and up to 1 MiB."""
    session = started(every_backend)
    message = every_backend.messaging.messages.append(session.id, role="assistant", content=content).message
    assert every_backend.messaging.messages.get(message.id).content == message.content == content


def test_content_has_a_limit_of_one_mebibyte(every_backend: StateStore, raw: Raw) -> None:
    """messaging M-73."""
    session = started(every_backend)
    with pytest.raises(PayloadTooLarge) as caught:
        every_backend.messaging.messages.append(session.id, role="user", content="é" * (2**19) + "x")
    assert (caught.value.where, caught.value.limit, caught.value.actual) == ("content", 2**20, 2**20 + 1)
    assert counted(raw, session.id) == (0, 0)


def test_the_limit_of_content_is_a_setting(database: Database) -> None:
    settings = database.open().settings
    limits = settings.limits.model_copy(update={"message_content": 3})
    store = database.open(settings=settings.model_copy(update={"limits": limits}))
    session = started(store)
    said(store, session.id, "abc")
    with pytest.raises(PayloadTooLarge):
        said(store, session.id, "abcd")


def test_activity_never_goes_back(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """messaging M-31."""
    session = started(every_backend)
    frozen_clock.advance(seconds=-60)
    message = every_backend.messaging.messages.append(session.id, role="user", content="early").message
    assert message.timestamp == frozen_clock.now()
    assert every_backend.messaging.sessions.get(session.id).last_activity_at == session.last_activity_at


def test_an_inactive_session_takes_messages_and_stays_inactive(every_backend: StateStore, raw: Raw) -> None:
    """messaging M-19, M-35."""
    closed = every_backend.messaging.sessions.close(started(every_backend).id)
    said(every_backend, closed.id, "an answer that began before")
    assert counted(raw, closed.id) == (1, 1)
    assert not every_backend.messaging.sessions.get(closed.id).active
    assert every_backend.messaging.sessions.resume(KEY).created


def test_a_message_revives_an_idle_session(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """messaging M-19, M-36."""
    session = started(every_backend)
    frozen_clock.advance(timedelta(hours=3))
    said(every_backend, session.id, "at last")
    resumed = every_backend.messaging.sessions.resume(KEY)
    assert (resumed.session.id, resumed.created) == (session.id, False)


def test_an_imported_message_keeps_its_time_and_activity_uses_now(
    every_backend: StateStore, frozen_clock: FrozenClock
) -> None:
    """messaging M-41."""
    session = started(every_backend)
    zone = timezone(timedelta(hours=13))
    moments = [datetime(1999, 12, 31, 23, 59, 59, 123_999, zone), datetime(2999, 1, 1, tzinfo=UTC)]
    later = frozen_clock.advance(seconds=1)
    for moment in moments:
        every_backend.messaging.messages.append(session.id, role="user", content="x", timestamp=moment)
    stored = [message.timestamp for message in every_backend.messaging.messages.history(session.id)]
    assert stored == [datetime(1999, 12, 31, 10, 59, 59, 123_000, UTC), moments[1]]
    assert every_backend.messaging.sessions.get(session.id).last_activity_at == later


def test_history_is_the_newest_oldest_first(store: StateStore) -> None:
    """messaging M-37."""
    session = started(store)
    one, two, three, four, five = said(store, session.id, "1", "2", "3", "4", "5")
    history = store.messaging.messages.history
    assert history(session.id, limit=2) == [four, five]
    assert history(session.id, limit=2, before=four.id) == [two, three]
    assert history(session.id) == [one, two, three, four, five]
    assert history(session.id, before=one.id) == []


def test_order_is_the_order_of_appending_whatever_the_clock_says(
    every_backend: StateStore, frozen_clock: FrozenClock
) -> None:
    """messaging M-32: one millisecond, and a clock stepped back."""
    session = started(every_backend)
    said(every_backend, session.id, "1", "2", "3")
    frozen_clock.advance(seconds=-10)
    said(every_backend, session.id, "4")
    assert contents(every_backend.messaging.messages.history(session.id)) == ["1", "2", "3", "4"]
    assert contents(every_backend.messaging.messages.since(session.id, after=0)) == ["1", "2", "3", "4"]
    assert [found.preview for found in every_backend.messaging.messages.list(session.id)] == ["4", "3", "2", "1"]


def test_an_unknown_session_has_no_messages(every_backend: StateStore) -> None:
    """messaging M-37."""
    said(every_backend, started(every_backend).id, "somewhere else")
    assert every_backend.messaging.messages.history("nowhere") == []
    assert every_backend.messaging.messages.since("nowhere", after=0) == []
    assert every_backend.messaging.messages.list("nowhere").items == ()


def test_a_limit_outside_one_to_five_hundred_is_refused(every_backend: StateStore) -> None:
    """messaging M-37."""
    messages, sessions = every_backend.messaging.messages, every_backend.messaging.sessions
    nonsense: list[Any] = [0, 501, -1, True, 2.5, "5", None]
    for limit in nonsense:
        for call in (
            partial(messages.history, "s"),
            partial(messages.since, "s", after=0),
            partial(messages.list, "s"),
            sessions.list,
            sessions.close_idle,
        ):
            with pytest.raises(InvalidValue, match=r"^limit: "):
                call(limit=limit)


def test_a_tail_that_passes_the_last_id_sees_each_message_once(store: StateStore) -> None:
    """messaging M-38."""
    session, other = started(store), started(store, IN_THREAD)
    seen, after = [], 0
    for turn in range(6):
        said(store, session.id, f"{turn}a", f"{turn}b", f"{turn}c")
        said(store, other.id, "not here")
        new = store.messaging.messages.since(session.id, after=after, limit=2)
        after = new[-1].id
        seen += new
    seen += store.messaging.messages.since(session.id, after=after)
    assert seen == store.messaging.messages.history(session.id)
    assert store.messaging.messages.since(session.id, after=seen[-1].id) == []


def test_a_list_shows_previews_newest_first(every_backend: StateStore) -> None:
    """messaging M-39."""
    session = started(every_backend)
    long = "\U0001f600é" * 200
    said(every_backend, session.id, "short", long, "")
    listed = every_backend.messaging.messages.list(session.id)
    assert [(found.preview, found.content_chars) for found in listed] == [("", 0), (long[:280], 400), ("short", 5)]
    assert "content" not in type(listed.items[0]).model_fields


def test_pages_of_messages_follow_one_another(every_backend: StateStore) -> None:
    session, other = started(every_backend), started(every_backend, IN_THREAD)
    made = said(every_backend, session.id, *(str(i) for i in range(7)))
    said(every_backend, other.id, "not here")
    listed = all_pages(lambda **given: every_backend.messaging.messages.list(session.id, **given), limit=3)
    assert [found.id for found in listed] == [message.id for message in reversed(made)]


def test_a_page_token_serves_its_own_session_alone(every_backend: StateStore) -> None:
    """messaging M-74."""
    session = started(every_backend)
    said(every_backend, session.id, "1", "2")
    token = every_backend.messaging.messages.list(session.id, limit=1).next_page_token
    assert token is not None
    forged = [encode_token(["messaging_messages", session.id], key) for key in ([], [1, 2], ["1"], [2**63])]
    for session_id, bad in (("another", token), *((session.id, bad) for bad in (token[:-3], "x", *forged))):
        with pytest.raises(InvalidValue, match="page_token"):
            every_backend.messaging.messages.list(session_id, page_token=bad)


@with_each("message_id", [0, 2**62])
def test_an_unknown_message_is_not_found(every_backend: StateStore, message_id: int) -> None:
    with pytest.raises(NotFound) as caught:
        every_backend.messaging.messages.get(message_id)
    assert (caught.value.kind, caught.value.key) == ("messaging_message", message_id)


def test_a_role_of_a_newer_version_is_readable(every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """messaging M-10."""
    session = started(every_backend)
    with unguarded_words(raw.name, raw):
        raw(
            "INSERT INTO messaging_messages (session_id, role, content, timestamp) VALUES (?, 'tool', 'ran', ?)",
            session.id,
            frozen_clock.now(),
        )
    [message] = every_backend.messaging.messages.history(session.id)
    assert (message.role, message.content, message.timestamp) == ("tool", "ran", frozen_clock.now())
    assert every_backend.messaging.messages.list(session.id).items[0].role == "tool"


def test_platform_ids_are_those_of_a_channel(store: StateStore) -> None:
    """messaging M-40."""
    messages = store.messaging.messages
    keys = [
        KEY,
        IN_THREAD,
        ConversationKey("slack", "C2", "U1"),
        ConversationKey("cli", "C1", "U1"),
    ]
    for key in keys:
        messages.append(started(store, key).id, role="user", content=str(key), platform_message_id="17.1")
    found = messages.find_by_platform_id("slack", "C1", "17.1")
    assert found is not None
    assert found.content == str(IN_THREAD)  # the greatest id of the two in this channel
    assert messages.find_by_platform_id("slack", "C3", "17.1") is None
    assert messages.find_by_platform_id("slack", "C1", "17") is None


def test_a_post_goes_to_the_newest_active_session_of_its_thread(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """messaging M-36, M-45: idle or not."""
    sessions = store.messaging.sessions
    closed = sessions.close(started(store, IN_THREAD).id)
    ana = started(store, ConversationKey("slack", "C1", "ana", "T1"))
    frozen_clock.advance(seconds=1)
    ben = started(store, ConversationKey("slack", "C1", "ben", "T1"))
    later = frozen_clock.advance(timedelta(days=2))
    appended = store.messaging.messages.try_append_to_thread(IN_THREAD.place, MessageDraft("assistant", "\n  done \n"))
    assert appended is not None
    assert (appended.created, appended.message.session_id, appended.message.content) == (True, ben.id, "done")
    assert [counted(raw, session.id) for session in (closed, ana, ben)] == [(0, 0), (0, 0), (1, 1)]
    assert sessions.get(ben.id).last_activity_at == later


@pytest.mark.parametrize("platform_id", [None, "p"])
def test_a_post_without_a_session_or_content_is_dropped(store: StateStore, raw: Raw, platform_id: str | None) -> None:
    """messaging M-45."""
    post = store.messaging.messages.try_append_to_thread
    assert post(IN_THREAD.place, MessageDraft("assistant", "hello", platform_id)) is None
    started(store, KEY)
    store.messaging.sessions.close(started(store, IN_THREAD).id)
    assert post(IN_THREAD.place, MessageDraft("assistant", "hello", platform_id)) is None
    assert post(KEY.place, MessageDraft("assistant", " \n\t\u00a0", platform_id)) is None
    assert raw("SELECT count(*) FROM messaging_messages") == [(0,)]


def test_a_long_post_keeps_its_tail(store: StateStore) -> None:
    """messaging M-45."""
    started(store, IN_THREAD)

    def posted(content: str, **options: Any) -> str:
        appended = store.messaging.messages.try_append_to_thread(
            IN_THREAD.place, MessageDraft("assistant", content), **options
        )
        assert appended is not None
        stored = store.messaging.messages.get(appended.message.id).content
        assert stored == appended.message.content
        return stored

    text = "".join(chr(97 + i % 26) for i in range(5_000))
    assert posted(text) == PREFIX + text[-(4_000 - len(PREFIX)) :]
    assert len(posted(text)) == 4_000
    assert units(posted("\U0001f600" * 3_000)) == 4_000
    assert units(posted("\U0001f600" * 3_000, clip=3_999)) == 3_998
    assert posted(f"  {text}  ", clip=5_000) == posted(text, clip=None) == text


def test_a_clip_without_room_for_a_tail_is_refused(every_backend: StateStore) -> None:
    started(every_backend, IN_THREAD)
    nonsense: list[Any] = [14, 0, -1, True, 4e3]
    for clip in nonsense:
        with pytest.raises(InvalidValue, match=r"^clip: "):
            every_backend.messaging.messages.try_append_to_thread(
                IN_THREAD.place, MessageDraft("user", "hi"), clip=clip
            )


def test_a_post_is_checked_though_it_is_dropped(every_backend: StateStore) -> None:
    post = every_backend.messaging.messages.try_append_to_thread
    for bad in (MessageDraft("system", "x"), MessageDraft("user", "x", "p" * 257), MessageDraft("user", 7)):  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match=r"draft\."):
            post(ThreadPlace("slack", "nowhere"), bad)


def test_a_message_and_its_session_are_written_together_or_not_at_all(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """messaging M-52."""
    before = started(store, IN_THREAD)
    frozen_clock.advance(TIMEOUT * 2)

    def talk_that_fails(tx: Any) -> None:
        session = started(tx)
        said(tx, session.id, "hello")
        tx.messaging.messages.append(session.id, role="user", content="again", platform_message_id="p")
        tx.messaging.sessions.ensure_agent_session(session.id, "log-1")
        assert tx.messaging.sessions.resume(IN_THREAD).replaced == before.id
        said(tx, before.id, "hello")
        assert tx.messaging.sessions.get(session.id).message_count == 2
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"), store.transaction() as tx:
        talk_that_fails(tx)
    assert active_ids(raw) == [before.id]
    assert counted(raw, before.id) == (0, 0)
    with store.transaction() as tx:
        session = started(tx)
        said(tx, session.id, "hello")
        assert tx.messaging.sessions.resume(KEY).session.id == session.id
    assert counted(raw, session.id) == (1, 1)


def test_a_refused_call_leaves_its_transaction_whole(every_backend: StateStore, raw: Raw) -> None:
    """messaging M-52: what the call wrote is undone, and what was written before it stays."""
    with every_backend.transaction() as tx:
        session = started(tx)
        for call in (
            lambda: tx.messaging.messages.append("nowhere", role="user", content="x"),
            lambda: tx.messaging.sessions.create(KEY, session_id=session.id, on_active="close"),
        ):
            with pytest.raises((NotFound, AlreadyExists)):
                call()
        said(tx, session.id, "hello")
    assert active_ids(raw) == [session.id]
    assert counted(raw, session.id) == (1, 1)


def test_counters_of_other_programs_go_on_from_where_they_are(
    every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """messaging M-31: an adopted counter counted turns, and is not recomputed."""
    legacy_session(raw, "legacy", frozen_clock.now(), message_count=7)
    said(every_backend, "legacy", "hello")
    every_backend.messaging.messages.append_many("legacy", drafts("a", "b"))
    assert counted(raw, "legacy") == (10, 3)


def test_a_chat_takes_place_in_the_schema_of_its_store(postgres_database: Database) -> None:
    """backends B-35: every statement finds its tables in ``schema=``, and nothing reaches those beside it."""
    raw = Raw(postgres_database)
    raw("CREATE SCHEMA chat")
    store = postgres_database.open(schema="chat", migrate=True)
    session = started(store, IN_THREAD)
    said(store, session.id, "1")
    store.messaging.messages.append_many(session.id, [*drafts("2"), *drafts("3", platform_id="a")])
    for platform_id in (None, "b"):
        store.messaging.messages.try_append_to_thread(IN_THREAD.place, MessageDraft("user", "4", platform_id))
    assert contents(store.messaging.messages.history(session.id)) == ["1", "2", "3", "4", "4"]
    assert contents(store.messaging.messages.since(session.id, after=0)) == ["1", "2", "3", "4", "4"]
    assert len(store.messaging.messages.list(session.id)) == 5
    assert store.messaging.messages.find_by_platform_id("slack", "C1", "b") is not None
    assert store.messaging.sessions.find_active(IN_THREAD.place) is not None
    assert store.messaging.sessions.close_idle() == 0
    new = store.messaging.sessions.create(IN_THREAD, on_active="close")
    assert [found.id for found in store.messaging.sessions.list(active=True)] == [new.id]
    assert raw("SELECT count(*) FROM messaging_sessions") == [(0,)]
