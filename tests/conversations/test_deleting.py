from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.conversations.talk import begun, history, numbered, said
from support.maintenance.rows import counts, difference
from support.rivals import Wait, after_waiting

from lastlight_state import Conflict, NotFound, StateStore
from lastlight_state.conversations import NewBranch, NewChunk, NewSession
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database


def talk(store: StateStore, name: str) -> str:
    """A session with a fork, a system message, a change of status and a message that the session ``other`` has too."""
    talks = store.conversations
    session = talks.sessions.create(NewSession(name, status="running")).id
    talks.branches.create(session, NewBranch(f"{name}-main", system=said(f"{name}-sys")[0]))
    talks.branches.append(f"{name}-main", [*said(f"{name}-0", f"{name}-1"), "shared"])
    talks.lineage.fork(f"{name}-main", at=1, branch_id=f"{name}-fork")
    talks.branches.append(f"{name}-fork", said(f"{name}-2"))
    talks.lifecycle.transition(session, "completed")
    return session


@pytest.fixture
def pair(store: StateStore) -> tuple[str, str]:
    """Two sessions that are alike."""
    begun(store, "shared", branch_id="other")
    return talk(store, "a"), talk(store, "b")


def test_a_session_goes_as_a_prune_removes_it(store: StateStore, database: Database, pair: tuple[str, str]) -> None:
    """conversations CV-47: the same rows, and a tombstone; what another session has stays."""
    rows = counts(database)
    assert store.conversations.sessions.delete("a") is True
    deleted = difference(rows, counts(database))
    rows = counts(database)
    database.clock.advance(seconds=1)
    store.maintenance.prune.run(PrunePolicy("sessions", ids=["b"], keep_days=0, keep_n=0))
    assert deleted == difference(rows, counts(database))
    assert deleted["messages"] == 4
    assert store.conversations.messages.get("shared").role == "user"
    assert store.conversations.sessions.find("a") is None
    assert [one.status for one in store.conversations.lifecycle.history("a")] == ["completed", "running"]
    buried = database.raw().execute("SELECT kind, id FROM tombstones ORDER BY id").fetchall()
    assert [tuple(row) for row in buried] == [("session", "a"), ("session", "b")]
    assert database.raw().execute("SELECT count(*) FROM maintenance_permits").fetchone()[0] == 0


def test_a_delete_is_kept_or_undone_with_its_transaction(
    store: StateStore, database: Database, pair: tuple[str, str]
) -> None:
    """conversations CV-47: and in it another session of the id may be made at once."""
    before = counts(database)

    def undone() -> None:
        with store.transaction() as tx:
            assert tx.conversations.sessions.delete("a")
            assert tx.conversations.branches.delete("b-fork")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        undone()
    assert counts(database) == before
    with store.transaction() as tx:
        tx.conversations.sessions.delete("a")
        tx.conversations.sessions.create(NewSession("a", name="anew"))
        tx.workflows.overrides.put("wf", enabled=False, by="ana")
    assert (store.conversations.sessions.get("a").name, store.conversations.branches.list("a").items) == ("anew", ())


def test_what_is_not_there_is_deleted_already(store: StateStore, pair: tuple[str, str]) -> None:
    """conversations CV-47: and nothing is written."""
    talks = store.conversations
    assert [talks.sessions.delete("a"), talks.sessions.delete("a"), talks.branches.delete("a-main")] == [
        True, False, False,
    ]  # fmt: skip
    for gone in (lambda: talks.changes.after("a", 0), lambda: talks.branches.append("a-main", said("x"))):
        with pytest.raises(NotFound):
            gone()


def test_a_session_that_is_needed_stays(store: StateStore, database: Database, pair: tuple[str, str]) -> None:
    """conversations CV-47: one that is under way, held, or forked elsewhere; a `Conflict` says which."""
    talks = store.conversations
    talks.sessions.create(NewSession("c", status="pending"))
    talks.sessions.hold("a", "audit")
    talks.lineage.fork("b-main", session_id="a", branch_id="elsewhere")
    before = counts(database)
    for name, code in {"c": "not_ended", "a": "held", "b": "forked"}.items():
        with pytest.raises(Conflict) as conflict:
            talks.sessions.delete(name)
        assert conflict.value.code == code
    assert counts(database) == before
    talks.sessions.hold("a", None)
    assert [talks.sessions.delete(name) for name in ("a", "b")] == [True, True]


def test_a_branch_goes_with_its_order(store: StateStore, database: Database, pair: tuple[str, str]) -> None:
    """conversations CV-48: the pool keeps its messages, a message of the order alone goes, and the feed says so."""
    talks = store.conversations
    order = talks.branches.get("a-fork").progression_id
    talks.progressions.append(order, said("alone"))
    session = talks.sessions.get("a")
    assert talks.branches.delete("a-fork") is True
    assert (talks.branches.find("a-fork"), talks.progressions.find(order)) == (None, None)
    assert (talks.messages.find("alone"), talks.messages.get("a-2").role) == (None, "user")
    left = talks.sessions.get("a")
    assert (left.branch_count, left.message_count) == (1, session.message_count)
    [told] = talks.changes.after("a", session.change_seq)
    assert (told.kind, told.branch_id) == ("branch.deleted", "a-fork")


def test_a_branch_that_is_needed_stays(store: StateStore, pair: tuple[str, str]) -> None:
    """conversations CV-48: a parent, one that runs, one of a held session."""
    talks = store.conversations

    def code(branch_id: str) -> Any:
        with pytest.raises(Conflict) as conflict:
            talks.branches.delete(branch_id)
        return conflict.value.code

    assert code("a-main") == "forked"
    talks.sessions.hold("a", "audit")
    assert code("a-fork") == "held"
    talks.lifecycle.transition("b", "running", branch_id="b-fork")
    assert code("b-fork") == "not_ended"
    assert history(store, "a-fork") == ["a-0", "a-2"]


def test_an_order_that_others_have_stays(store: StateStore) -> None:
    """conversations CV-47, CV-48: the pool of a session, and that of another session."""
    talks = store.conversations
    pool = talks.sessions.create(NewSession("s")).progression_id
    talks.branches.create("s", NewBranch("main", progression_id=pool))
    talks.branches.append("main", said(*numbered(0, 2)))
    talks.sessions.create(NewSession("t", progression_id=pool))
    assert talks.branches.delete("main")
    assert talks.progressions.collection(pool) == ["m0", "m1"]
    assert talks.sessions.delete("s")
    assert (talks.sessions.get("t").last_msg_id, talks.messages.get("m0").id) == ("m1", "m0")
    assert talks.sessions.delete("t")
    assert talks.messages.find("m0") is None


def test_deliveries_and_chunks_are_left_as_a_prune_leaves_them(store: StateStore) -> None:
    """conversations CV-33, CV-47: a message of which a delivery is open stays, and chunks are derived data."""
    talks = store.conversations
    session = begun(store, "m0", "m1").session_id
    talks.exchange.send(said("m1")[0], to="ana")
    talks.vectors.put("ns", [NewChunk("c", "text", [1.0], document_id="m0")])
    talks.sessions.delete(session)
    assert (talks.messages.find("m0"), talks.messages.get("m1").id) == (None, "m1")
    assert talks.vectors.count("ns") == 1


def _delete(branch: str) -> Callable[[Any, Any], Any]:
    return lambda s, _: s.conversations.branches.delete(branch)


def _elsewhere(store: Any) -> Any:
    begun(store, "x", branch_id="second")
    return begun(store, "m0", "m1")


def _fork(store: Any, _: Any) -> Any:
    into = store.conversations.branches.get("second").session_id
    return store.conversations.lineage.fork("main", session_id=into, branch_id="fork")


def test_a_fork_that_waited_for_a_delete_finds_no_parent(shared_postgres: Database) -> None:
    """conversations CV-47, CV-48: Lineage.fork into another session; nothing is half made."""
    for delete in (_delete("main"), lambda s, b: s.conversations.sessions.delete(b.session_id)):
        assert isinstance(after_waiting(shared_postgres, Wait(_elsewhere, delete, _fork)), NotFound)
        shared_postgres.open().conversations.branches.delete("second")


def test_a_delete_that_waited_for_a_fork_sees_it(shared_postgres: Database) -> None:
    """conversations CV-48: Branches.delete and Sessions.delete."""
    refused = after_waiting(shared_postgres, Wait(_elsewhere, _fork, _delete("main")))
    assert (isinstance(refused, Conflict), getattr(refused, "code", None)) == (True, "forked")
    assert history(shared_postgres.open(), "fork") == ["m0", "m1"]
