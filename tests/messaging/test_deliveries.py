from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from support.messaging.chat import IN_THREAD, KEY, contents, counted, drafts, said, started
from support.sent import recorded
from support.workflows.steps import Raw

from lastlight_state import BackendUnavailable, InvalidValue, PayloadTooLarge, StateStore
from lastlight_state.messaging import Appended, MessageDraft
from lastlight_state.testing import Database, FrozenClock

COMMIT_IS_LOST_ONCE = """
CREATE SEQUENCE commits;
CREATE FUNCTION hang_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF nextval('commits') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER hang_up AFTER INSERT ON messaging_messages
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hang_up();
"""
"""The server ends the connection in the middle of the first COMMIT that stores a message."""


def delivered(store: Any, session_id: str, content: str, role: Any = "user", platform_id: str = "17.1") -> Appended:
    appended: Appended = store.messaging.messages.append(
        session_id, role=role, content=content, platform_message_id=platform_id
    )
    return appended


def test_a_message_delivered_twice_is_stored_once(
    every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """messaging M-33."""
    session = started(every_backend)
    first = delivered(every_backend, session.id, "hello")
    before = every_backend.messaging.sessions.get(session.id)
    frozen_clock.advance(seconds=1)
    second = delivered(every_backend, session.id, "edited meanwhile")
    assert (first.created, second.created) == (True, False)
    assert second.message == first.message
    assert counted(raw, session.id) == (1, 1)
    assert every_backend.messaging.sessions.get(session.id) == before


def test_the_answer_to_a_message_may_share_its_platform_id(every_backend: StateStore, raw: Raw) -> None:
    """messaging M-33: another role is another message, and so is another session."""
    session, other = started(every_backend), started(every_backend, IN_THREAD)
    made = [delivered(every_backend, session.id, "hello"), delivered(every_backend, session.id, "hi", "assistant")]
    made.append(delivered(every_backend, other.id, "hello"))
    assert all(appended.created for appended in made)
    assert (counted(raw, session.id), counted(raw, other.id)) == ((2, 2), (1, 1))
    assert delivered(every_backend, session.id, "?", "assistant").message == made[1].message


@pytest.mark.parametrize("platform_id", [None, ""])
def test_without_a_platform_id_equal_messages_are_two(every_backend: StateStore, raw: Raw, platform_id: Any) -> None:
    """messaging M-33."""
    session = started(every_backend)
    assert delivered(every_backend, session.id, "hello", platform_id=platform_id).created
    again = delivered(every_backend, session.id, "hello", platform_id=platform_id)
    assert again.created
    assert again.message.platform_message_id is None
    assert counted(raw, session.id) == (2, 2)


def test_of_duplicates_from_before_the_oldest_is_the_message(
    every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """messaging M-33: the original recorded twice."""
    session = started(every_backend)
    for content in ("first", "second"):
        raw(
            "INSERT INTO messaging_messages (session_id, role, content, timestamp, platform_message_id) "
            "VALUES (?, 'user', ?, ?, '17.1')",
            session.id,
            content,
            frozen_clock.now(),
        )
    again = delivered(every_backend, session.id, "third")
    assert (again.created, again.message.content) == (False, "first")


def test_a_batch_is_stored_in_its_order(every_backend: StateStore, raw: Raw) -> None:
    """messaging M-34."""
    session = started(every_backend)
    batch = [MessageDraft("user" if i % 3 else "assistant", f"{i}", f"p{i}" if i % 2 else None) for i in range(60)]
    appended = every_backend.messaging.messages.append_many(session.id, batch)
    assert [one.message for one in appended] == every_backend.messaging.messages.history(session.id, limit=60)
    assert [(one.message.role, one.message.content, one.message.platform_message_id) for one in appended] == [
        (draft.role, draft.content, draft.platform_message_id) for draft in batch
    ]
    assert all(one.created for one in appended)
    assert counted(raw, session.id) == (60, 60)


@pytest.mark.parametrize("size", [1, 500])
@pytest.mark.parametrize("keyed", [True, False])
def test_a_batch_has_one_to_five_hundred_messages(every_backend: StateStore, raw: Raw, size: int, keyed: bool) -> None:
    """messaging M-34."""
    session = started(every_backend)
    batch = [MessageDraft("user", f"{i}", f"p{i}" if keyed else None) for i in range(size)]
    appended = every_backend.messaging.messages.append_many(session.id, batch)
    stored = every_backend.messaging.messages.history(session.id, limit=500)
    assert contents(stored) == [draft.content for draft in batch]
    assert all(one.created for one in appended)
    assert counted(raw, session.id) == (size, size)


def test_a_batch_stores_what_it_holds_twice_once(every_backend: StateStore, raw: Raw) -> None:
    """messaging M-34."""
    session = started(every_backend)
    old = delivered(every_backend, session.id, "old", platform_id="a").message
    appended = every_backend.messaging.messages.append_many(
        session.id,
        [
            MessageDraft("user", "new", "b"),
            MessageDraft("user", "redelivered", "a"),
            MessageDraft("user", "plain"),
            MessageDraft("user", "new again", "b"),
            MessageDraft("assistant", "answer", "b"),
            MessageDraft("user", "plain"),
            MessageDraft("assistant", "late answer", "a"),
        ],
    )
    assert [one.created for one in appended] == [True, False, True, False, True, True, True]
    assert contents(one.message for one in appended) == [
        *("new", "old", "plain", "new", "answer", "plain", "late answer")
    ]
    assert appended[1].message == old
    assert counted(raw, session.id) == (6, 6)
    stored = every_backend.messaging.messages.history(session.id)
    assert contents(stored) == ["old", "new", "plain", "answer", "plain", "late answer"]


def test_a_batch_of_what_is_there_already_changes_nothing(
    every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """messaging M-33, M-34."""
    session = started(every_backend)
    first = every_backend.messaging.messages.append_many(
        session.id, drafts("a", platform_id="1") + drafts("b", platform_id="2")
    )
    before = every_backend.messaging.sessions.get(session.id)
    frozen_clock.advance(seconds=1)
    again = every_backend.messaging.messages.append_many(
        session.id, drafts("c", platform_id="2") + drafts("d", platform_id="1")
    )
    assert [one.message for one in again] == [one.message for one in reversed(first)]
    assert not any(one.created for one in again)
    assert every_backend.messaging.sessions.get(session.id) == before


@pytest.mark.parametrize(
    "bad",
    [
        MessageDraft("user", "x" * (2**20 + 1)),
        MessageDraft("system", "x"),  # type: ignore[arg-type]
        MessageDraft("user", "x", "p" * 257),
        "hello",
    ],
)
def test_a_bad_draft_spoils_its_batch(every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock, bad: Any) -> None:
    """messaging M-34."""
    session = started(every_backend)
    frozen_clock.advance(seconds=1)
    with pytest.raises((InvalidValue, PayloadTooLarge), match=r"drafts\[1\]"):
        every_backend.messaging.messages.append_many(session.id, [MessageDraft("user", "fine"), bad])
    assert counted(raw, session.id) == (0, 0)
    assert every_backend.messaging.sessions.get(session.id) == session


def test_what_is_no_batch_is_refused(every_backend: StateStore) -> None:
    nonsense: list[Any] = [[], drafts("x") * 501, "hello", None, 7]
    for batch in nonsense:
        with pytest.raises(InvalidValue, match=r"^drafts"):
            every_backend.messaging.messages.append_many("s", batch)


def test_a_post_delivered_twice_is_stored_once(every_backend: StateStore, raw: Raw) -> None:
    """messaging M-33, M-45."""
    session = started(every_backend, IN_THREAD)
    post = every_backend.messaging.messages.try_append_to_thread
    first, again = (post(IN_THREAD.place, MessageDraft("assistant", "done", "17.9")) for _ in range(2))
    assert first is not None
    assert again is not None
    assert (first.created, again.created, again.message) == (True, False, first.message)
    assert counted(raw, session.id) == (1, 1)


def test_a_batch_needs_no_more_statements_than_a_message(database: Database) -> None:
    """messaging M-61."""
    plain = [MessageDraft("user", "x")] * 100
    keyed = [MessageDraft("user", "x", f"p{i}") for i in range(100)]
    with recorded(database) as (store, sent):
        session = started(store)

        def statements(*batch: MessageDraft) -> int:
            sent.clear()
            store.messaging.messages.append_many(session.id, batch)
            return len(sent)

        assert statements(*plain) == statements(plain[0])
        assert statements(*keyed) == statements(MessageDraft("user", "x", "alone"))


def test_an_append_reads_nothing_before_it_writes(database: Database) -> None:
    """messaging M-30, M-61: one statement on Postgres, two in a transaction on SQLite."""
    with recorded(database) as (store, sent):
        session = started(store)
        sent.clear()
        said(store, session.id, "hello")
        plain = [sql.split()[0] for sql in sent]
        sent.clear()
        delivered(store, session.id, "hello")
        keyed = [sql.split()[0] for sql in sent]
    on_sqlite = ["BEGIN", "INSERT", "UPDATE", "COMMIT"]
    assert plain == (on_sqlite if database.name == "sqlite" else ["WITH"])
    assert keyed == (on_sqlite if database.name == "sqlite" else ["BEGIN", "SELECT", "WITH", "COMMIT"])


@pytest.mark.parametrize("platform_id", [None, "p1"])
def test_an_appended_message_is_as_it_is_stored(every_backend: StateStore, platform_id: str | None) -> None:
    """messaging M-30: to the millisecond, also where it was not read back."""
    messages = every_backend.messaging.messages
    session = started(every_backend)
    at = datetime(2026, 2, 3, 13, 34, 56, 789_999, tzinfo=timezone(timedelta(hours=1)))
    made = messages.append(session.id, role="user", content="ü\n", platform_message_id=platform_id, timestamp=at)
    assert made.created
    assert made.message == messages.get(made.message.id)
    assert every_backend.messaging.sessions.get(session.id).message_count == 1


def test_a_commit_of_unknown_outcome_is_repeated_for_a_message_with_a_platform_id(
    postgres_database: Database,
) -> None:
    """messaging M-51."""
    store, raw = postgres_database.open(), Raw(postgres_database)
    session = started(store)
    raw(COMMIT_IS_LOST_ONCE)
    assert delivered(store, session.id, "hello").created
    assert counted(raw, session.id) == (1, 1)
    assert store.metrics.retries == 1


@pytest.mark.parametrize("platform_ids", [[None], ["1", None]])
def test_a_commit_of_unknown_outcome_is_told_where_a_message_has_no_platform_id(
    postgres_database: Database, platform_ids: list[str | None]
) -> None:
    """messaging M-51."""
    store, raw = postgres_database.open(), Raw(postgres_database)
    session = started(store)
    raw(COMMIT_IS_LOST_ONCE)
    batch = [MessageDraft("user", "x", platform_id) for platform_id in platform_ids]
    with pytest.raises(BackendUnavailable) as caught:
        store.messaging.messages.append_many(session.id, batch)
    assert (caught.value.outcome, store.metrics.retries) == ("unknown", 0)
    assert counted(raw, session.id) == (0, 0)


def test_an_append_of_unknown_outcome_is_told(postgres_database: Database) -> None:
    """messaging M-51: also where it is a single statement."""
    store, raw = postgres_database.open(), Raw(postgres_database)
    session = started(store)
    raw(COMMIT_IS_LOST_ONCE)
    with pytest.raises(BackendUnavailable) as caught:
        said(store, session.id, "hello")
    assert (caught.value.outcome, store.metrics.retries) == ("unknown", 0)
    assert counted(raw, session.id) == (0, 0)


def test_a_key_is_one_conversation_for_redelivery(every_backend: StateStore, raw: Raw) -> None:
    """messaging M-33: after a new session has begun, the platform's id is new to it."""
    first = started(every_backend)
    delivered(every_backend, first.id, "hello")
    second = every_backend.messaging.sessions.create(KEY, on_active="close")
    assert delivered(every_backend, second.id, "hello").created
    assert (counted(raw, first.id), counted(raw, second.id)) == ((1, 1), (1, 1))
