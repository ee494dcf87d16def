from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.messaging.chat import KEY, TIMEOUT, active_ids, at_once, counted, started
from support.messaging.speaker import KEY as SPOKEN, go, speaking
from support.workflows.crew import Crew
from support.workflows.steps import Raw, together

from lastlight_state import AlreadyExists, LostRace, StaleVersion, StateStore
from lastlight_state.messaging import ConversationKey, MessageDraft, ResumedSession, ThreadPlace
from lastlight_state.messaging.session_statements import retry_lost_race
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.testing.races import racing

Rounds = pytest.mark.parametrize("rounds", [12, pytest.param(300, marks=pytest.mark.soak)])


def resumed_together(store: StateStore, threads: int, key: ConversationKey = KEY) -> list[ResumedSession]:
    return at_once([lambda: store.messaging.sessions.resume(key)] * threads)


def keys(rounds: int) -> list[ConversationKey]:
    return [ConversationKey("slack", "C1", f"U{number}") for number in range(rounds)]


def test_simultaneous_first_messages_make_one_session(every_backend: StateStore, raw: Raw) -> None:
    """messaging M-1, M-13: also without a thread."""
    found = resumed_together(every_backend, 20)
    [session_id] = {one.session.id for one in found}
    assert [one.created for one in found].count(True) == 1
    assert raw("SELECT id FROM messaging_sessions") == [(session_id,)]


RESUME = """
from support.messaging.speaker import KEY, Future
from lastlight_state import StateStore

[url] = arguments
with StateStore.open(url, clock=Future()) as store:
    store.messaging.sessions.find("nobody")
    ready()
    resumed = store.messaging.sessions.resume(KEY)
result = [resumed.session.id, resumed.created]
"""


@pytest.mark.parametrize("processes", [4, pytest.param(16, marks=pytest.mark.soak)])
def test_simultaneous_first_messages_of_many_processes_make_one_session(
    database: Database, crew: Crew, raw: Raw, processes: int
) -> None:
    """messaging M-1, M-50."""
    found = crew.race(RESUME, *[[database.url]] * processes)
    [session_id] = {one[0] for one in found}
    assert [one[1] for one in found].count(True) == 1
    assert active_ids(raw) == [session_id]


def test_one_of_many_resumers_replaces_an_idle_session(
    every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """messaging M-12, M-13."""
    old = started(every_backend)
    frozen_clock.advance(TIMEOUT * 2)
    found = resumed_together(every_backend, 10)
    [session_id] = {one.session.id for one in found}
    assert [one.replaced for one in found if one.replaced is not None] == [old.id]
    assert [one.created for one in found] == [one.replaced is not None for one in found]
    assert active_ids(raw) == [session_id]
    assert raw("SELECT count(*) FROM messaging_sessions") == [(2,)]


def test_resuming_inside_transactions_makes_one_session(every_backend: StateStore, raw: Raw) -> None:
    """messaging M-52."""

    def resume() -> ResumedSession:
        with every_backend.transaction() as tx:
            found = tx.messaging.sessions.resume(KEY)
            tx.messaging.messages.append(found.session.id, role="user", content="hello")
            return found

    [session_id] = {one.session.id for one in at_once([resume] * 8)}
    assert counted(raw, session_id) == (8, 8)
    assert active_ids(raw) == [session_id]


@Rounds
def test_a_message_and_a_resume_race_without_loss(
    every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock, rounds: int
) -> None:
    """messaging M-14: the message came first and its session is resumed, or it is in the old session."""
    for key in keys(rounds):
        old = started(every_backend, key)
        frozen_clock.advance(timedelta(days=1))

        def append(session_id: str = old.id) -> Any:
            return every_backend.messaging.messages.append(session_id, role="user", content="late")

        def resume(key: ConversationKey = key) -> Any:
            return every_backend.messaging.sessions.resume(key)

        appended, resumed = at_once([append, resume])
        assert appended.message.session_id == old.id
        assert counted(raw, old.id) == (1, 1)
        stored = every_backend.messaging.sessions.get(old.id)
        if resumed.created:
            assert (resumed.replaced, stored.active) == (old.id, False)
        else:
            assert (resumed.session.id, resumed.replaced, stored.active) == (old.id, None, True)
        assert active_ids(raw) == [resumed.session.id]
        every_backend.messaging.sessions.close(resumed.session.id)


def test_a_resumer_killed_before_its_insert_leaves_the_old_session_active(
    database: Database, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """messaging M-12, case 8: all or nothing."""
    store = database.open()
    old = started(store, SPOKEN)
    with speaking("die", database.url) as speaker:
        go(speaker)
        assert speaker.wait() == -9
    assert store.messaging.sessions.get(old.id) == old
    frozen_clock.advance(TIMEOUT * 2)
    assert store.messaging.sessions.resume(SPOKEN).replaced == old.id


def test_of_many_creators_one_wins(every_backend: StateStore, raw: Raw) -> None:
    """messaging M-17."""
    found = together([lambda: every_backend.messaging.sessions.create(KEY)] * 8)
    [winner] = active_ids(raw)
    refused = [one.key for one in found if isinstance(one, AlreadyExists)]
    assert refused == [winner] * 7


@pytest.mark.parametrize("creators", [20, pytest.param(60, marks=pytest.mark.soak)])
def test_many_creators_that_close_follow_one_another(every_backend: StateStore, raw: Raw, creators: int) -> None:
    """messaging M-17: each makes its session, the last one stays active; none is told that it lost a race."""
    found = at_once([lambda: every_backend.messaging.sessions.create(KEY, on_active="close")] * creators)
    made = {one.id for one in found}
    assert {row[0] for row in raw("SELECT id FROM messaging_sessions")} == made
    assert len(made) == creators
    [last] = active_ids(raw)
    reasons = raw("SELECT DISTINCT deactivated_reason FROM messaging_sessions WHERE id <> ?", last)
    assert reasons == [("replaced",)]


def test_nothing_is_held_while_the_caller_thinks(every_backend: StateStore, raw: Raw) -> None:
    """messaging M-53: between two calls anybody may change the session and its messages, without waiting."""
    raw("SET lock_timeout = '1ms'" if raw.name == "postgresql" else "PRAGMA busy_timeout = 0")
    session = started(every_backend)
    every_backend.messaging.messages.append(session.id, role="user", content="hello")
    every_backend.messaging.messages.history(session.id)
    raw("UPDATE messaging_sessions SET title = 'mine' WHERE id = ?", session.id)
    assert every_backend.messaging.sessions.get(session.id).title == "mine"


@Rounds
def test_a_post_is_never_lost_to_a_new_session(every_backend: StateStore, raw: Raw, rounds: int) -> None:
    """messaging M-45: it goes to the session before or to the one after."""
    for number, key in enumerate(keys(rounds)):
        old = started(every_backend, key)

        def post(place: ThreadPlace = key.place, platform_id: str | None = f"p{number}" if number % 2 else None) -> Any:
            draft = MessageDraft("assistant", "done", platform_id)
            return every_backend.messaging.messages.try_append_to_thread(place, draft)

        def create(key: ConversationKey = key) -> Any:
            return every_backend.messaging.sessions.create(key, on_active="close")

        appended, new = at_once([post, create])
        assert appended.message.session_id in (old.id, new.id)
        assert counted(raw, appended.message.session_id) == (1, 1)
        every_backend.messaging.sessions.close(new.id)


@Rounds
def test_sessions_that_are_closed_as_soon_as_they_are_made_confuse_nobody(
    every_backend: StateStore, raw: Raw, rounds: int
) -> None:
    """messaging M-12: a resumer whose winner vanished looks again."""
    sessions = every_backend.messaging.sessions

    def resume_and_close() -> list[str]:
        found = []
        for _ in range(rounds):
            found.append(sessions.resume(KEY).session.id)
            sessions.close(found[-1])
        return found

    resumed = {session_id for one in at_once([resume_and_close] * 4) for session_id in one}
    assert {row[0] for row in raw("SELECT id FROM messaging_sessions")} == resumed


def test_all_proposals_get_the_same_agent_session(every_backend: StateStore) -> None:
    """messaging M-21."""
    session_id = started(every_backend).id
    ensure = every_backend.messaging.sessions.ensure_agent_session
    [winner] = set(at_once([partial(ensure, session_id, f"log-{i}") for i in range(10)]))
    stored = every_backend.messaging.sessions.get(session_id)
    assert (stored.agent_session_id, stored.version) == (winner, 1)


def test_of_two_writers_with_one_version_one_succeeds(every_backend: StateStore) -> None:
    """messaging M-22."""
    session_id = started(every_backend).id
    update = every_backend.messaging.sessions.update
    found = together([partial(update, session_id, version=0, title=title) for title in ("a", "b")])
    assert [type(one) for one in found].count(StaleVersion) == 1
    stored = every_backend.messaging.sessions.get(session_id)
    assert stored in found
    assert stored.version == 1


def test_a_resumer_whose_winners_vanish_again_and_again_gets_its_session(postgres_database: Database) -> None:
    """messaging M-12: others make and end a session between any two of its statements. (Postgres, where they can)"""
    store, other = postgres_database.open(), postgres_database.open()
    left = [20]

    def make() -> None:
        other.messaging.sessions.create(KEY)
        race.before("SELECT", end)

    def end() -> None:
        other.messaging.sessions.close(other.messaging.sessions.resume(KEY).session.id)
        left[0] -= 1
        if left[0]:
            race.before("INSERT", make)

    with racing(store) as race:
        race.before("INSERT", make)
        found = store.messaging.sessions.resume(KEY)
    assert (found.created, left, race.left) == (True, [0], 0)


def test_a_unit_that_never_settles_is_tried_a_hundred_and_one_times() -> None:
    """messaging M-12: a hundred repeats, then `LostRace`."""
    attempts = []

    def attempt() -> None:
        attempts.append(1)
        raise LostRace("again")

    with pytest.raises(LostRace):
        retry_lost_race(attempt)
    assert len(attempts) == 101


def test_what_is_no_lost_race_is_told_at_once(store: StateStore) -> None:
    """messaging M-17: neither a unit nor a call is repeated for an id that is taken."""
    made = store.messaging.sessions.create(KEY)
    attempts = []

    def attempt() -> None:
        attempts.append(1)
        store.messaging.sessions.create(ConversationKey("slack", "C1", "U2"), session_id=made.id)

    with pytest.raises(AlreadyExists):
        retry_lost_race(attempt)
    assert len(attempts) == 1
    with racing(store) as race, pytest.raises(AlreadyExists):
        store.messaging.sessions.create(KEY, session_id=made.id, on_active="close")
    assert len([sql for sql in race.statements if sql.startswith("INSERT")]) == 1


def test_a_creator_that_has_lost_once_queues_for_the_key(postgres_database: Database) -> None:
    """messaging M-17: under a lock of Postgres that it holds while it makes its session."""
    store, other, raw = postgres_database.open(), postgres_database.open(), Raw(postgres_database)
    held: list[Any] = []

    def look() -> None:
        # in this database: the server has the locks of other tests, too
        own = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        held.extend(raw(f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND {own}"))

    def win() -> None:
        other.messaging.sessions.create(KEY)
        race.before("INSERT", look)

    with racing(store) as race:
        race.before("INSERT", win)
        made = store.messaging.sessions.create(KEY, on_active="close")
    assert (held, race.left) == ([(1,)], 0)
    assert active_ids(raw) == [made.id]
