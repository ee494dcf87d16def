from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.messaging.chat import IN_THREAD, KEY, MILLISECOND, TIMEOUT, active_ids, legacy_session, said, started
from support.refusal import code_of
from support.workflows.steps import Raw, all_pages

from lastlight_state import AlreadyExists, InvalidValue, NotFound, StaleVersion, StateStore
from lastlight_state.messaging import ConversationKey, ThreadPlace
from lastlight_state.testing import Database, FrozenClock


def test_the_first_message_of_a_key_starts_a_session(store: StateStore, frozen_clock: FrozenClock) -> None:
    """messaging M-16."""
    resumed = store.messaging.sessions.resume(IN_THREAD)
    session = resumed.session
    assert (resumed.created, resumed.replaced) == (True, None)
    assert session.key == IN_THREAD
    assert (session.message_count, session.active, session.version, session.agent_session_id) == (0, True, 0, None)
    assert session.created_at == session.last_activity_at == frozen_clock.now()
    assert store.messaging.sessions.get(session.id) == session


@pytest.mark.parametrize("key", [KEY, IN_THREAD])
def test_a_session_that_is_not_idle_is_resumed_as_it_is(
    store: StateStore, frozen_clock: FrozenClock, key: ConversationKey
) -> None:
    """messaging M-11: looking is no activity."""
    session = started(store, key)
    frozen_clock.advance(seconds=60)
    resumed = store.messaging.sessions.resume(key)
    assert (resumed.session, resumed.created, resumed.replaced) == (session, False, None)


def test_a_session_silent_for_exactly_the_timeout_is_reused(
    every_backend: StateStore, frozen_clock: FrozenClock
) -> None:
    """messaging M-11: the boundary is inclusive."""
    session = started(every_backend)
    frozen_clock.advance(TIMEOUT)
    assert every_backend.messaging.sessions.resume(KEY).session == session


def test_a_session_silent_for_one_millisecond_more_is_replaced(store: StateStore, frozen_clock: FrozenClock) -> None:
    """messaging M-11, M-12, M-15."""
    old = started(store)
    frozen_clock.advance(TIMEOUT + MILLISECOND)
    resumed = store.messaging.sessions.resume(KEY)
    assert (resumed.created, resumed.replaced) == (True, old.id)
    retired = store.messaging.sessions.get(old.id)
    assert (retired.active, retired.deactivated_reason, retired.version) == (False, "timeout", 1)
    assert retired.deactivated_at == frozen_clock.now()
    assert retired.last_activity_at == old.last_activity_at


def test_none_means_never_idle(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """messaging M-11."""
    session = started(every_backend)
    frozen_clock.advance(timedelta(days=365))
    assert every_backend.messaging.sessions.resume(KEY, idle_timeout=None).session == session


def test_a_timeout_longer_than_time_itself_is_never_over(every_backend: StateStore) -> None:
    session = started(every_backend)
    assert every_backend.messaging.sessions.resume(KEY, idle_timeout=timedelta.max).session == session


def test_the_timeout_is_a_setting(database: Database, frozen_clock: FrozenClock) -> None:
    """backends B-1: `messaging_idle_timeout`."""
    opened = database.open()
    settings = opened.settings.model_copy(update={"messaging_idle_timeout": timedelta(seconds=10)})
    store = database.open(settings=settings)
    old = started(store)
    frozen_clock.advance(seconds=11)
    assert opened.messaging.sessions.resume(KEY).session.id == old.id
    assert store.messaging.sessions.resume(KEY).replaced == old.id


def test_a_timeout_that_is_no_positive_duration_is_refused(every_backend: StateStore, raw: Raw) -> None:
    sessions = every_backend.messaging.sessions
    nonsense: list[Any] = [timedelta(0), timedelta(seconds=-1), 1800, "30m"]
    for idle_timeout in nonsense:
        with pytest.raises(InvalidValue, match=r"^idle_timeout: "):
            sessions.resume(KEY, idle_timeout=idle_timeout)
        with pytest.raises(InvalidValue, match=r"^idle_timeout: "):
            sessions.find_active(KEY.place, idle_timeout=idle_timeout)
        with pytest.raises(InvalidValue, match=r"^idle_timeout: "):
            sessions.close_idle(idle_timeout=idle_timeout)
    assert active_ids(raw) == []


def test_an_empty_thread_is_no_thread(store: StateStore, raw: Raw) -> None:
    """messaging M-8."""
    empty = ConversationKey(KEY.platform, KEY.channel_id, KEY.user_id, thread_id="")
    session = started(store, empty)
    assert started(store, KEY) == session
    assert raw("SELECT thread_id FROM messaging_sessions") == [(None,)]
    assert session.key == KEY


def test_a_stored_empty_thread_is_no_thread_either(
    every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """messaging M-8: rows of other programs."""
    legacy_session(raw, "legacy", frozen_clock.now(), thread_id="")
    found = started(every_backend, KEY)
    assert (found.id, found.key) == ("legacy", KEY)
    assert every_backend.messaging.sessions.find_active(KEY.place) == found


@pytest.mark.parametrize("thread_id", [None, ""])
def test_the_database_refuses_a_second_active_session_of_a_key(
    database: Database, raw: Raw, frozen_clock: FrozenClock, thread_id: str | None
) -> None:
    """messaging M-1: also where there is no thread."""
    legacy_session(raw, "first", frozen_clock.now())
    with pytest.raises(Exception, match=r"(?i)unique") as caught:
        legacy_session(raw, "second", frozen_clock.now(), thread_id=thread_id)
    assert code_of(caught.value) in (("SQLITE_CONSTRAINT_UNIQUE", None), (None, "23505"))


def test_keys_are_compared_exactly(every_backend: StateStore) -> None:
    """messaging M-4, M-9."""
    keys = [
        KEY,
        IN_THREAD,
        ConversationKey("Slack", "C1", "U1"),
        ConversationKey("slack", "c1", "U1"),
        ConversationKey("slack", "C1", "U1 "),
        ConversationKey("slack", "C1", "U2"),
    ]
    made = [started(every_backend, key) for key in keys]
    assert len({session.id for session in made}) == len(keys)
    assert [session.key for session in made] == keys


def test_inactive_sessions_of_a_key_stack_up(every_backend: StateStore, raw: Raw) -> None:
    """messaging M-2."""
    for _ in range(3):
        every_backend.messaging.sessions.close(started(every_backend).id)
    fourth = every_backend.messaging.sessions.resume(KEY)
    assert fourth.created
    assert raw("SELECT count(*) FROM messaging_sessions") == [(4,)]
    assert active_ids(raw) == [fourth.session.id]


def test_a_legacy_row_without_values_is_read_as_inactive_and_empty(
    every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """messaging M-7."""
    legacy_session(raw, "legacy", frozen_clock.now(), message_count=None, active=None)
    legacy = every_backend.messaging.sessions.get("legacy")
    assert (legacy.message_count, legacy.active) == (0, False)
    assert every_backend.messaging.sessions.resume(KEY).created
    assert [found.id for found in every_backend.messaging.sessions.list(active=False)] == ["legacy"]
    said(every_backend, "legacy", "hello")
    assert every_backend.messaging.sessions.get("legacy").message_count == 1


def test_create_is_refused_while_the_key_has_an_active_session(store: StateStore, frozen_clock: FrozenClock) -> None:
    """messaging M-17: an idle one counts."""
    active = started(store)
    frozen_clock.advance(timedelta(days=1))
    with pytest.raises(AlreadyExists) as caught:
        store.messaging.sessions.create(KEY)
    assert (caught.value.kind, caught.value.key) == ("messaging_session", active.id)
    assert store.messaging.sessions.get(active.id).active


def test_create_can_close_the_active_session_first(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """messaging M-17."""
    old = started(store)
    new = store.messaging.sessions.create(KEY, session_id="mine", on_active="close")
    retired = store.messaging.sessions.get(old.id)
    assert (retired.active, retired.deactivated_reason, retired.deactivated_at) == (
        False,
        "replaced",
        frozen_clock.now(),
    )
    assert active_ids(raw) == [new.id] == ["mine"]


@pytest.mark.parametrize("on_active", ["refuse", "close"])
def test_create_makes_a_session_where_there_is_none(store: StateStore, on_active: Any) -> None:
    created = store.messaging.sessions.create(KEY, on_active=on_active)
    assert store.messaging.sessions.resume(KEY).session == created


@pytest.mark.parametrize("on_active", ["refuse", "close"])
def test_a_used_id_retires_nothing(every_backend: StateStore, raw: Raw, on_active: Any) -> None:
    """messaging M-17."""
    active, other = started(every_backend), started(every_backend, IN_THREAD)
    with pytest.raises(AlreadyExists) as caught:
        every_backend.messaging.sessions.create(KEY, session_id=other.id, on_active=on_active)
    assert caught.value.key == other.id
    assert every_backend.messaging.sessions.get(active.id) == active


def test_the_id_of_the_active_session_itself_is_used(every_backend: StateStore) -> None:
    active = started(every_backend)
    with pytest.raises(AlreadyExists) as caught:
        every_backend.messaging.sessions.create(KEY, session_id=active.id, on_active="close")
    assert caught.value.key == active.id
    assert every_backend.messaging.sessions.get(active.id) == active


def test_a_session_is_found_whether_active_or_not(store: StateStore) -> None:
    closed = store.messaging.sessions.close(started(store).id)
    assert store.messaging.sessions.find(closed.id) == store.messaging.sessions.get(closed.id) == closed
    assert store.messaging.sessions.find("nowhere") is None
    with pytest.raises(NotFound) as caught:
        store.messaging.sessions.get("nowhere")
    assert (caught.value.kind, caught.value.key) == ("messaging_session", "nowhere")


def test_two_users_in_one_thread_have_two_sessions(store: StateStore, frozen_clock: FrozenClock) -> None:
    """messaging M-4, M-18."""
    place = ThreadPlace("slack", "C1", "T1")
    ana, ben = (started(store, ConversationKey("slack", "C1", user, "T1")) for user in ("ana", "ben"))
    assert store.messaging.sessions.find_active(place) == ben  # the same activity: the greater id
    frozen_clock.advance(seconds=1)
    store.messaging.sessions.touch(ana.id)
    found = store.messaging.sessions.find_active(place)
    assert found is not None
    assert found.id == ana.id
    assert store.messaging.sessions.find_active(place, user_id="ben") == ben
    assert store.messaging.sessions.find_active(place, user_id="nobody") is None


def test_an_idle_session_is_found_only_by_who_asks_for_any_age(store: StateStore, frozen_clock: FrozenClock) -> None:
    """messaging M-18."""
    session = started(store, IN_THREAD)
    frozen_clock.advance(TIMEOUT)
    assert store.messaging.sessions.find_active(IN_THREAD.place) == session
    frozen_clock.advance(MILLISECOND)
    for user_id in (None, "U1"):
        assert store.messaging.sessions.find_active(IN_THREAD.place, user_id=user_id) is None
        assert store.messaging.sessions.find_active(IN_THREAD.place, user_id=user_id, idle_timeout=None) == session


def test_no_thread_is_outside_any_thread(every_backend: StateStore) -> None:
    """messaging M-18."""
    started(every_backend, IN_THREAD)
    assert every_backend.messaging.sessions.find_active(ThreadPlace("slack", "C1")) is None


def test_a_closed_session_is_not_found_as_active(every_backend: StateStore) -> None:
    every_backend.messaging.sessions.close(started(every_backend).id)
    assert every_backend.messaging.sessions.find_active(KEY.place, idle_timeout=None) is None


def test_an_agent_session_leads_to_the_newest_session(store: StateStore, frozen_clock: FrozenClock) -> None:
    sessions = store.messaging.sessions
    first = started(store)
    sessions.ensure_agent_session(first.id, "log-1")
    frozen_clock.advance(seconds=1)
    second = sessions.create(KEY, on_active="close")
    sessions.ensure_agent_session(second.id, "log-1")
    found = sessions.find_by_agent_session("log-1")
    assert found is not None
    assert found.id == second.id
    assert sessions.find_by_agent_session("log-2") is None


def test_touch_never_moves_activity_back(store: StateStore, frozen_clock: FrozenClock) -> None:
    """messaging M-20."""
    session = started(store)
    frozen_clock.advance(seconds=-60)
    assert store.messaging.sessions.touch(session.id) == session.last_activity_at
    later = frozen_clock.advance(seconds=90)
    assert store.messaging.sessions.touch(session.id) == later
    assert store.messaging.sessions.get(session.id) == session.model_copy(update={"last_activity_at": later})


def test_touch_leaves_an_inactive_session_inactive(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """messaging M-19, M-20."""
    closed = every_backend.messaging.sessions.close(started(every_backend).id)
    later = frozen_clock.advance(seconds=1)
    every_backend.messaging.sessions.touch(closed.id)
    assert every_backend.messaging.sessions.get(closed.id) == closed.model_copy(update={"last_activity_at": later})


def test_touch_revives_an_idle_session(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """messaging M-19."""
    session = started(every_backend)
    frozen_clock.advance(timedelta(hours=2))
    every_backend.messaging.sessions.touch(session.id)
    assert every_backend.messaging.sessions.resume(KEY).session.id == session.id


def test_the_first_agent_session_stays(store: StateStore) -> None:
    """messaging M-21, M-23."""
    session = started(store)
    assert store.messaging.sessions.ensure_agent_session(session.id, "log-1") == "log-1"
    assert store.messaging.sessions.ensure_agent_session(session.id, "log-2") == "log-1"
    stored = store.messaging.sessions.get(session.id)
    assert (stored.agent_session_id, stored.version) == ("log-1", 1)


def test_a_proposal_that_is_no_safe_file_name_is_refused(every_backend: StateStore) -> None:
    """messaging M-21."""
    session = started(every_backend)
    nonsense: list[Any] = ["../x", "a.b", "", "a\n", "a" * 201, "é", None, 7]
    for proposed in nonsense:
        with pytest.raises(InvalidValue, match=r"^proposed: "):
            every_backend.messaging.sessions.ensure_agent_session(session.id, proposed)
    assert every_backend.messaging.sessions.get(session.id) == session


def test_a_stored_agent_session_is_returned_as_it_is(
    every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """messaging M-21: values of other programs."""
    legacy_session(raw, "legacy", frozen_clock.now(), agent_session_id="a.b/c")
    assert every_backend.messaging.sessions.ensure_agent_session("legacy", "a" * 200) == "a.b/c"


def test_update_replaces_what_is_given_and_keeps_the_rest(store: StateStore) -> None:
    """messaging M-22, M-23."""
    sessions = store.messaging.sessions
    session = started(store)
    first = sessions.update(session.id, version=0, title="plans", metadata={"tone": "dry", "tags": [1, None]})
    assert first == session.model_copy(
        update={"title": "plans", "metadata": {"tone": "dry", "tags": [1, None]}, "version": 1}
    )
    second = sessions.update(session.id, version=1, metadata={"other": True}, agent_session_id="log-1")
    assert (second.title, second.metadata, second.agent_session_id, second.version) == (
        "plans",
        {"other": True},
        "log-1",
        2,
    )
    third = sessions.update(session.id, version=2, title=None, metadata=None, agent_session_id=None)
    assert third == session.model_copy(update={"version": 3})
    assert sessions.get(session.id) == third


def test_update_of_an_older_version_is_stale(store: StateStore) -> None:
    """messaging M-22."""
    session = started(store)
    store.messaging.sessions.update(session.id, version=0, title="first")
    for nothing_or_title in ({}, {"title": "second"}):
        with pytest.raises(StaleVersion) as caught:
            store.messaging.sessions.update(session.id, version=0, **nothing_or_title)
        assert (caught.value.expected, caught.value.found) == (0, 1)
    assert store.messaging.sessions.get(session.id).title == "first"


def test_an_update_of_nothing_writes_nothing(every_backend: StateStore) -> None:
    """messaging M-22."""
    session = started(every_backend)
    assert every_backend.messaging.sessions.update(session.id, version=0) == session


def test_a_forgotten_agent_session_gives_room_for_a_new_one(every_backend: StateStore) -> None:
    """messaging M-22."""
    session = started(every_backend)
    every_backend.messaging.sessions.ensure_agent_session(session.id, "log-1")
    every_backend.messaging.sessions.update(session.id, version=1, agent_session_id=None)
    assert every_backend.messaging.sessions.ensure_agent_session(session.id, "log-2") == "log-2"


def test_messages_and_touches_are_no_new_version(every_backend: StateStore) -> None:
    """messaging M-23."""
    session = started(every_backend)
    said(every_backend, session.id, "hello")
    every_backend.messaging.sessions.touch(session.id)
    assert every_backend.messaging.sessions.get(session.id).version == 0
    assert every_backend.messaging.sessions.close(session.id).version == 1


def test_a_closed_session_keeps_its_first_reason_and_time(store: StateStore, frozen_clock: FrozenClock) -> None:
    """messaging M-24."""
    session = started(store)
    closed = store.messaging.sessions.close(session.id, reason="timeout")
    assert (closed.active, closed.deactivated_reason, closed.deactivated_at) == (False, "timeout", frozen_clock.now())
    frozen_clock.advance(seconds=5)
    assert store.messaging.sessions.close(session.id) == closed


def test_a_session_is_closed_for_no_other_reason(every_backend: StateStore) -> None:
    """messaging M-24."""
    session = started(every_backend)
    nonsense: list[Any] = ["replaced", "duplicate", "", None]
    for reason in nonsense:
        with pytest.raises(InvalidValue, match=r"^reason: "):
            every_backend.messaging.sessions.close(session.id, reason=reason)
    assert every_backend.messaging.sessions.get(session.id).active


def test_what_changes_a_session_needs_one(store: StateStore) -> None:
    sessions = store.messaging.sessions
    for call in (
        lambda: sessions.touch("nowhere"),
        lambda: sessions.ensure_agent_session("nowhere", "log-1"),
        lambda: sessions.update("nowhere", version=0, title="x"),
        lambda: sessions.update("nowhere", version=0),
        lambda: sessions.close("nowhere"),
    ):
        with pytest.raises(NotFound) as caught:
            call()
        assert (caught.value.kind, caught.value.key) == ("messaging_session", "nowhere")


def test_the_longest_silent_sessions_are_closed_first(
    every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """messaging M-25."""
    idle = []
    for user in range(25):
        idle.append(started(every_backend, ConversationKey("slack", "C1", f"U{user}")).id)
        frozen_clock.advance(seconds=1)
    frozen_clock.advance(TIMEOUT)
    fresh = started(every_backend, IN_THREAD).id
    revived = idle.pop(1)
    every_backend.messaging.sessions.touch(revived)
    assert every_backend.messaging.sessions.close_idle(limit=10) == 10
    assert active_ids(raw) == sorted([*idle[10:], revived, fresh])
    assert {every_backend.messaging.sessions.get(found).deactivated_reason for found in idle[:10]} == {"timeout"}
    assert every_backend.messaging.sessions.close_idle(idle_timeout=TIMEOUT) == len(idle) - 10
    assert every_backend.messaging.sessions.close_idle(idle_timeout=None) == 0


def test_a_list_shows_the_newest_activity_first(store: StateStore, frozen_clock: FrozenClock) -> None:
    """messaging M-26."""
    keys = [ConversationKey(platform, "C1", user) for platform in ("slack", "cli") for user in ("U1", "U2")]
    made = []
    for key in keys:
        made.append(started(store, key).id)
        frozen_clock.advance(seconds=1)
    store.messaging.sessions.close(made[0])
    store.messaging.sessions.touch(made[1])

    def listed(**filters: Any) -> list[str]:
        return [found.id for found in store.messaging.sessions.list(**filters)]

    assert listed() == [made[1], made[3], made[2], made[0]]
    assert listed(platform="slack") == [made[1], made[0]]
    assert listed(active=True) == [made[1], made[3], made[2]]
    assert listed(active=False) == [made[0]]
    assert listed(channel_id="C1", user_id="U2", active=True) == [made[1], made[3]]
    assert listed(platform="irc") == []


def test_a_listed_session_says_everything_but_its_metadata(every_backend: StateStore) -> None:
    """messaging M-63."""
    session = started(every_backend)
    session = every_backend.messaging.sessions.update(session.id, version=0, title="t", metadata={"a": 1})
    [listed] = every_backend.messaging.sessions.list()
    assert listed.model_dump() == session.model_dump(exclude={"metadata"})


def test_no_session_is_listed_twice_while_one_of_them_is_busy(
    every_backend: StateStore, frozen_clock: FrozenClock
) -> None:
    """messaging M-26."""
    made = []
    for user in range(120):
        made.append(started(every_backend, ConversationKey("slack", "C1", f"U{user}")).id)
        frozen_clock.advance(MILLISECOND)
    first = every_backend.messaging.sessions.list(limit=50)
    said(every_backend, made[30], "still here")
    second = every_backend.messaging.sessions.list(limit=50, page_token=first.next_page_token)
    third = every_backend.messaging.sessions.list(limit=50, page_token=second.next_page_token)
    seen = [found.id for page in (first, second, third) for found in page]
    assert seen == [found for found in reversed(made) if found != made[30]]
    assert third.next_page_token is None


def test_a_page_token_serves_its_own_list_alone(every_backend: StateStore) -> None:
    """messaging M-74."""
    sessions = every_backend.messaging.sessions
    for user in ("U1", "U2"):
        started(every_backend, ConversationKey("slack", "C1", user))
    token = sessions.list(limit=1).next_page_token
    assert token is not None
    assert len(all_pages(sessions.list, limit=1)) == 2
    for bad in (token[:-3], token + "AAAA", "", "nonsense", "é"):
        with pytest.raises(InvalidValue, match="page_token"):
            sessions.list(page_token=bad)
    with pytest.raises(InvalidValue, match="page_token"):
        sessions.list(platform="slack", page_token=token)
    with pytest.raises(InvalidValue, match="page_token"):
        every_backend.messaging.messages.list("any", page_token=token)
