"""What a call of this domain has looked at stays as it is until the call has written."""

from __future__ import annotations

from typing import Any

import pytest
from support.messaging.chat import KEY, MILLISECOND, TIMEOUT, drafts, started
from support.rivals import Look, Wait, after_waiting, check, parameters

from lastlight_state.errors import LostRace, StaleVersion
from lastlight_state.messaging import MessageDraft, ThreadPlace
from lastlight_state.testing import Database, racing

PLACE = ThreadPlace(KEY.platform, KEY.channel_id, KEY.thread_id)
POST = MessageDraft("assistant", "Done.", "p-1")


def _session(store: Any) -> str:
    return started(store).id


def _append(store: Any, session_id: str) -> Any:
    return store.messaging.messages.append(session_id, role="user", content="Hello", platform_message_id="p-1")


def _close(other: Any, session_id: str) -> None:
    other.messaging.sessions.close(session_id)


def _touch(other: Any, session_id: str) -> None:
    other.messaging.sessions.touch(session_id)


LOOKS = {
    "Messages.append": Look(_session, _append, _append),
    "Messages.append_many": Look(
        _session, lambda s, i: s.messaging.messages.append_many(i, drafts("Hello", platform_id="p-1")), _append
    ),
    "Messages._append_here": Look(
        _session, lambda s, _: s.messaging.messages.try_append_to_thread(PLACE, POST), _close
    ),
    "Sessions.resume": Look(
        _session, lambda s, _: s.messaging.sessions.resume(KEY), _touch, since=3, later=TIMEOUT + MILLISECOND
    ),
    "Sessions._replace": Look(_session, lambda s, _: s.messaging.sessions.create(KEY, on_active="close"), _touch),
}


@parameters(LOOKS)
def test_nobody_changes_what_a_call_has_looked_at_before_it_writes(database: Database, look: Look) -> None:
    """messaging M-50, M-53: the session's row is locked from the look to the commit."""
    check(database, look)


def test_a_session_resumed_after_the_look_is_the_one_session(database: Database) -> None:
    """messaging M-13: Sessions.resume."""
    store, other = database.open(), database.open()
    made: list[Any] = []
    with racing(store) as race:
        race.before_unit(2, lambda: made.append(other.messaging.sessions.resume(KEY)))
        found = store.messaging.sessions.resume(KEY)
    assert race.left == 0
    assert (found.created, found.session.id) == (False, made[0].session.id)


def test_a_session_used_after_it_was_found_idle_is_kept(database: Database) -> None:
    """messaging M-12: Sessions.resume retires what is still idle, under its lock."""
    store, other = database.open(), database.open()
    session_id = started(store).id
    database.clock.advance(TIMEOUT + MILLISECOND)
    with racing(store) as race:
        race.before_unit(2, lambda: other.messaging.sessions.touch(session_id))
        found = store.messaging.sessions.resume(KEY)
    assert race.left == 0
    assert (found.created, found.session.id) == (False, session_id)


@pytest.mark.parametrize("batch", [False, True])
def test_a_message_delivered_by_two_at_once_is_stored_once(shared_postgres: Database, *, batch: bool) -> None:
    """messaging M-33, M-34: Messages.append, Messages.append_many; the second waits, and finds what is stored."""

    def second(store: Any, session_id: str) -> Any:
        if not batch:
            return _append(store, session_id)
        [appended] = store.messaging.messages.append_many(session_id, drafts("Hello", platform_id="p-1"))
        return appended

    assert after_waiting(shared_postgres, Wait(_session, _append, second)).created is False


def test_a_post_delivered_by_two_at_once_is_stored_once(shared_postgres: Database) -> None:
    """messaging M-33, M-45: Messages._append_here."""

    def post(store: Any, _: Any) -> Any:
        return store.messaging.messages.try_append_to_thread(PLACE, POST)

    assert after_waiting(shared_postgres, Wait(_session, post, post)).created is False


def test_of_two_who_change_one_version_the_second_is_told(shared_postgres: Database) -> None:
    """messaging M-22: Sessions.update."""

    def change(store: Any, session_id: str) -> Any:
        return store.messaging.sessions.update(session_id, version=0, title="Ours")

    outcome = after_waiting(shared_postgres, Wait(_session, change, change))
    assert isinstance(outcome, StaleVersion)


def test_of_two_who_end_a_session_the_first_gives_the_reason(shared_postgres: Database) -> None:
    """messaging M-24: Sessions.close."""
    wait = Wait(
        _session,
        lambda t, i: t.messaging.sessions.close(i, reason="timeout"),
        lambda s, i: s.messaging.sessions.close(i),
    )
    assert after_waiting(shared_postgres, wait).deactivated_reason == "timeout"


def test_two_who_replace_a_session_make_one_after_the_other(shared_postgres: Database) -> None:
    """messaging M-17: Sessions._replace; who lost goes on in turn."""
    wait = Wait(
        _session,
        lambda t, _: t.messaging.sessions.create(KEY, on_active="close"),
        lambda s, _: s.messaging.sessions.create(KEY, on_active="close"),
    )
    made = after_waiting(shared_postgres, wait)
    assert not isinstance(made, LostRace)
    assert shared_postgres.open().messaging.sessions.resume(KEY).session.id == made.id
