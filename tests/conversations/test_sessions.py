from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from support.each import with_each
from support.workflows.steps import Raw

from lastlight_state import (
    AlreadyExists,
    CorruptData,
    InvalidValue,
    NotFound,
    StaleVersion,
    StateStore,
    iterate,
)
from lastlight_state.conversations import NewSession, Provenance, SessionFilter, SessionPatch, SessionTimes
from lastlight_state.testing import FrozenClock

AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)


def test_a_session_has_defaults_and_a_pool(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-12."""
    c = every_backend.conversations
    session = c.sessions.create()
    assert (session.created_at, session.updated_at) == (frozen_clock.now(), frozen_clock.now())
    assert (session.source_kind, session.last_message_at, session.message_count) == ("live", None, 0)
    assert c.progressions.get(session.progression_id).size == 0
    started = c.sessions.create(NewSession(times=SessionTimes(started_at=AT, created_at=1765432101.5)))
    assert (started.last_message_at, started.created_at_unix) == (AT, 1765432101.5)
    shared = c.sessions.create(NewSession(progression_id=session.progression_id))
    assert shared.progression_id == session.progression_id
    with pytest.raises(NotFound):
        c.sessions.create(NewSession(progression_id="nobody"))


def test_an_equal_session_is_ensured_and_an_unequal_one_refused(every_backend: StateStore) -> None:
    """conversations CV-12: the stored one is not changed."""
    sessions = every_backend.conversations.sessions
    provenance = Provenance(agent_name="a", source_kind="imported_fs")
    new = NewSession("s", name="n", provenance=provenance, times=SessionTimes(updated_at=AT), node_metadata={"x": 1})
    stored = sessions.ensure(new)
    assert stored.updated_at == AT
    assert sessions.ensure(new) == sessions.ensure(NewSession("s")) == stored
    with pytest.raises(AlreadyExists) as refused:
        sessions.ensure(NewSession("s", name="m", node_metadata={"x": 2}))
    assert vars(refused.value)["fields"] == ("name", "node_metadata")
    with pytest.raises(AlreadyExists):
        sessions.create(NewSession("s"))
    assert (sessions.get("s"), sessions.find("s"), sessions.find("x")) == (stored, stored, None)


@with_each("given", [{"invocation_kind": "x"}, {"source_kind": "x"}, {"artifacts_path": "x" * 4_097}])
def test_words_of_a_session_are_known(every_backend: StateStore, given: dict[str, Any]) -> None:
    """conversations CV-1, CV-4."""
    with pytest.raises(InvalidValue):
        every_backend.conversations.sessions.create(NewSession(provenance=Provenance(**given)))


def test_fields_are_set_all_or_none(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-12: None clears, what is not given stays, and the version is compared where it is given."""
    sessions = every_backend.conversations.sessions
    session = sessions.create(NewSession("s", name="n", user="u"))
    frozen_clock.advance(seconds=1)
    changed = sessions.update("s", SessionPatch(name=None, agent_name="a"), expect_version=session.version)
    assert (changed.name, changed.user, changed.agent_name) == (None, "u", "a")
    assert (changed.updated_at, changed.version) == (frozen_clock.now(), session.version + 1)
    frozen_clock.advance(seconds=1)
    assert sessions.update("s", SessionPatch(updated_at=cast(Any, None))).updated_at == frozen_clock.now()
    assert sessions.update("s", SessionPatch(updated_at=AT)).updated_at == AT
    same = sessions.update("s", SessionPatch())
    assert same.updated_at == AT
    assert sessions.update("s", SessionPatch(), expect_version=same.version) == same
    for patch in (SessionPatch(name="x"), SessionPatch()):
        with pytest.raises(StaleVersion):
            sessions.update("s", patch, expect_version=session.version)
    for missing in (
        lambda: sessions.update("x", SessionPatch(name="x")),
        lambda: sessions.merge_metadata("x", {}),
        lambda: sessions.touch("x"),
    ):
        with pytest.raises(NotFound):
            missing()


def test_clocks_never_move_back(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-12."""
    sessions = every_backend.conversations.sessions
    session = sessions.create()
    later = frozen_clock.now() + timedelta(seconds=10)
    assert sessions.touch(session.id, at=later) == later
    assert sessions.touch(session.id) == later
    assert sessions.get(session.id).updated_at == later


def test_merges_of_different_keys_at_once_all_stay(every_backend: StateStore) -> None:
    """conversations CV-13: under the lock of the row."""
    sessions = every_backend.conversations.sessions
    sessions.create(NewSession("s", node_metadata={"gone": 1, "deep": {"a": 1}}))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: sessions.merge_metadata("s", {f"k{n}": n}), range(12)))
    sessions.merge_metadata("s", {"gone": None, "deep": {"b": [None]}})
    assert sessions.get("s").node_metadata == {"deep": {"a": 1, "b": [None]}, **{f"k{n}": n for n in range(12)}}


def test_metadata_that_are_no_object_are_damage(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-13: never thrown away."""
    sessions = every_backend.conversations.sessions
    sessions.create(NewSession("s"))
    raw("UPDATE sessions SET node_metadata = '[1]' WHERE id = 's'")
    with pytest.raises(CorruptData):
        sessions.merge_metadata("s", {"a": 1})
    assert [(one.id, one.message_count) for one in sessions.list()] == [("s", 0)]


def test_sessions_are_found_by_their_provenance(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-5, CV-46: the last updated first, each once, also of one instant."""
    sessions = every_backend.conversations.sessions
    for n in range(3):
        provenance = Provenance(playbook_name=f"p{n}", invocation_kind="flow", show_topic="t", agent_name="a")
        sessions.create(NewSession(f"s{n}", user=None if n == 1 else "ana", provenance=provenance))
    assert [one.id for one in iterate(sessions.list, limit=1)] == ["s2", "s1", "s0"]
    frozen_clock.advance(seconds=1)
    sessions.touch("s0")
    by = {
        SessionFilter(invocation_kind="flow", show_topic="t"): ["s0", "s2", "s1"],
        SessionFilter(playbook_name="p1", agent_name="a", source_kind="live"): ["s1"],
        SessionFilter(invocation_kind="play"): [],
        SessionFilter(user="ana"): ["s0", "s2"],
        SessionFilter(user="ana", playbook_name="p2"): ["s2"],
        SessionFilter(updated_since=frozen_clock.now()): ["s0"],
    }
    for where, expected in by.items():
        assert [one.id for one in sessions.list(where=where)] == expected
        assert sessions.count(where=where) == len(expected)
