"""What lies exactly on a bound: a time, a position, a number of messages."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.conversations.talk import begun, history, said
from support.workflows.steps import Raw

from lastlight_state import AlreadyExists, ClaimLost, InvalidValue, PayloadTooLarge, StateStore
from lastlight_state.conversations import (
    BranchTree,
    MessageFilter,
    NewBranch,
    NewChunk,
    NewMessage,
    NewSession,
    SessionFilter,
    SessionTree,
)
from lastlight_state.conversations.trees.plans import plan_of
from lastlight_state.db.lists.pages import encode_token
from lastlight_state.testing import Database, FrozenClock

MILLISECOND = timedelta(milliseconds=1)
MINUTE = timedelta(minutes=1)


def test_a_time_from_which_is_included_and_one_before_which_is_not(
    every_backend: StateStore, frozen_clock: FrozenClock
) -> None:
    """conversations CV-5, CV-31."""
    c, at = every_backend.conversations, frozen_clock.now()
    c.messages.create(NewMessage("user", "x"))
    session = c.sessions.create()
    for moment, later in ((at, 1), (at + MILLISECOND, 0)):
        assert c.messages.count(where=MessageFilter(since=moment)) == later
        assert c.messages.count(where=MessageFilter(until=moment)) == 1 - later
        assert c.sessions.count(where=SessionFilter(updated_since=moment)) == later
        assert [one.id for one in c.changes.updated_sessions(moment + MINUTE)] == [session.id] * later


def test_a_lease_is_over_at_its_end(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-34: another reader may say then that it is done."""
    exchange = every_backend.conversations.exchange
    exchange.send(NewMessage("user", "x"), to="bo")
    exchange.take("bo", reader="r1", lease=MINUTE)
    frozen_clock.advance(MINUTE - MILLISECOND)
    with pytest.raises(ClaimLost):
        exchange.ack("bo", 0, reader="r2")
    frozen_clock.advance(MILLISECOND)
    assert exchange.ack("bo", 0, reader="r2") == 1


def test_an_owner_is_silent_after_ninety_seconds(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-26: and a session stale only after the time that is asked for."""
    c, reap = every_backend.conversations, every_backend.maintenance.reap
    c.sessions.create(NewSession("s", status="running"))
    c.lifecycle.heartbeat("s", "a")
    frozen_clock.advance(seconds=90)
    with pytest.raises(ClaimLost) as held:
        c.lifecycle.heartbeat("s", "b")
    assert (held.value.held_by, held.value.current_epoch) == ("a", 0)
    assert reap.plan(older_than=timedelta(seconds=90)).sessions == ()
    frozen_clock.advance(MILLISECOND)
    assert [one.id for one in reap.plan(older_than=timedelta(seconds=90)).sessions] == ["s"]
    assert c.lifecycle.heartbeat("s", "b") == frozen_clock.now()


def test_what_its_parent_said_at_the_fork_point_is_new_to_a_fork(every_backend: StateStore) -> None:
    """conversations CV-18, CV-22."""
    c = every_backend.conversations
    begun(every_backend, "m0", "m1")
    c.lineage.fork("main", at=1, branch_id="fork")
    assert c.branches.append("fork", ["m0", "m1"]).appended == 1
    assert history(every_backend, "fork") == ["m0", "m1"]


def test_the_first_of_its_own_messages_can_be_replaced_in_a_fork(every_backend: StateStore) -> None:
    """conversations CV-28: right behind what it inherited."""
    c = every_backend.conversations
    begun(every_backend, "m0")
    fork = c.lineage.fork("main", branch_id="fork")
    c.branches.append("fork", said("m1"))
    saved = c.trees.load(fork.session_id)
    [of_fork] = [one for one in saved.branches if one.branch.id == "fork"]
    other = replace(of_fork, messages=said("m0", "m2"))
    assert c.trees.save(replace(saved, branches=[other]), mode="replace").orders_replaced == 1
    assert history(every_backend, "fork") == ["m0", "m2"]


def test_forks_of_a_tree_may_stand_before_their_parents(every_backend: StateStore) -> None:
    """conversations CV-28: each before the one that it was forked from."""
    c = every_backend.conversations

    def of(parent: str) -> dict[str, Any]:
        return {"parent_branch_id": parent, "forked_at_ord": 1}

    forks = [BranchTree(NewBranch(one, node_metadata=of(two)), said("a")) for one, two in (("z", "y"), ("y", "x"))]
    c.trees.save(SessionTree(NewSession("s"), [*forks, BranchTree(NewBranch("x"), said("a"))]))
    assert [c.branches.get(one).fork_depth for one in "xyz"] == [0, 1, 2]


def test_a_position_beyond_all_orders_is_no_page_token(every_backend: StateStore) -> None:
    """conversations CV-21."""
    branches = every_backend.conversations.branches
    begun(every_backend, "m0")
    asked = ["branches.history", "main", 0]
    assert branches.history("main", page_token=encode_token(asked, [2**63 - 1])).items == ()
    with pytest.raises(InvalidValue, match="page_token"):
        branches.history("main", page_token=encode_token(asked, [2**63]))


def test_a_collection_has_ten_thousand_ids_at_most(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-4: one more is refused, whatever the order's length."""
    c = every_backend.conversations
    order = begun(every_backend, "m0").progression_id
    raw(_LINKS, 1, 10_000, order)
    assert len(c.progressions.collection(order)) == 10_000
    raw(_LINKS, 10_000, 10_002, order)
    with pytest.raises(PayloadTooLarge, match="10001"):
        c.progressions.collection(order)


_LINKS = (
    "WITH RECURSIVE n(i) AS (SELECT CAST(? AS INTEGER) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?) "
    "INSERT INTO progression_links (progression_id, ord, message_id) SELECT ?, i, 'm0' FROM n"
)


def test_a_tree_of_a_thousand_messages_is_one_transaction(every_backend: StateStore) -> None:
    """conversations CV-28: of a branch that is refused, the other one takes nothing; and it is loaded at its size."""
    c = every_backend.conversations
    begun(every_backend, branch_id="taken")
    [message] = said("m")
    good = BranchTree(NewBranch("good"), [message] * 999)
    bad = BranchTree(NewBranch("taken"), [message])
    c.sessions.create(NewSession("talk"))
    with pytest.raises(AlreadyExists):
        c.trees.save(SessionTree(NewSession("talk"), [good, bad]))
    assert c.branches.find("good") is None
    c.trees.save(SessionTree(NewSession("talk"), [good]))
    [loaded] = c.trees.load("talk", max_messages=999).branches
    assert len(loaded.messages) == 999
    with pytest.raises(PayloadTooLarge):
        c.trees.load("talk", max_messages=998)


def test_a_tree_has_fifty_thousand_messages_at_most(frozen_clock: FrozenClock) -> None:
    """conversations CV-28: the same one counts wherever it stands."""
    [message] = said("m")

    def planned(most: int) -> Any:
        branches = [BranchTree(NewBranch("a"), [message]), BranchTree(NewBranch("b"), [message] * (most - 1))]
        return plan_of(SessionTree(NewSession("s"), branches), frozen_clock.now())

    assert len(planned(50_000).branches) == 2
    with pytest.raises(InvalidValue, match="50001"):
        planned(50_001)


def test_the_messages_of_a_call_have_32_mebibytes_together_at_most(sqlite_database: Database) -> None:
    """conversations CV-4: in their encoded form."""
    store = sqlite_database.open()
    begun(store)
    four = [NewMessage("user", "x" * (8 * 1024 * 1024 - 2)) for _ in range(4)]
    with pytest.raises(PayloadTooLarge):
        store.conversations.branches.append("main", [*four, NewMessage("user", 1)])
    assert store.conversations.branches.append("main", four).appended == 4


def test_many_messages_to_store_have_32_mebibytes_together_at_most(sqlite_database: Database) -> None:
    """conversations CV-4, CV-45: of one more byte nothing is stored."""
    talks = sqlite_database.open().conversations
    talks.progressions.create("p")
    four = [NewMessage("user", "x" * (8 * 1024 * 1024 - 2), id=f"m{n}") for n in range(4)]
    with pytest.raises(PayloadTooLarge):
        talks.progressions.append("p", [*four, NewMessage("user", 1)])
    assert talks.messages.find("m0") is None
    talks.progressions.append("p", four)
    assert talks.messages.find("m3") is not None


def test_the_chunks_of_a_call_have_32_mebibytes_together_at_most(sqlite_database: Database) -> None:
    """conversations CV-4, CV-37: their texts and their embeddings."""
    vectors = sqlite_database.open().conversations.vectors
    chunks = [NewChunk(f"c{n}", "x" * (1024 * 1024 - 4), [1]) for n in range(32)]
    with pytest.raises(PayloadTooLarge):
        vectors.put("ns", [*chunks[1:], NewChunk("c0", "x" * (1024 * 1024 - 3), [1])])
    assert vectors.put("ns", chunks) == 32
