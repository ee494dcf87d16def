"""Sessions, then orders, then messages: a call has locked what it changes before it goes on to the next of them."""

from __future__ import annotations

from typing import Any

import pytest
from support.conversations.talk import begun, said
from support.rivals import Act, Look, check, parameters

from lastlight_state import BackendBusy
from lastlight_state.conversations import BranchPatch, BranchTree, NewBranch, NewSession, SessionTree
from lastlight_state.testing import Database


def _talk(store: Any) -> Any:
    """A branch of two messages, and its session."""
    return begun(store, "m0", "m1")


def _tree(branch: Any) -> SessionTree:
    return SessionTree(NewSession(branch.session_id), [BranchTree(NewBranch("main"), said("m0", "m1", "m3"))])


def _touch(store: Any, branch: Any) -> Any:
    return store.conversations.sessions.touch(branch.session_id)


def _use(order: str) -> Act:
    """Somebody makes a session whose pool is the order ``own`` of the branch, or the ``pool`` of its session."""

    def use(store: Any, branch: Any) -> Any:
        c = store.conversations
        pool = c.sessions.get(branch.session_id).progression_id
        return c.sessions.create(NewSession(progression_id=branch.progression_id if order == "own" else pool))

    return use


_OWN, _POOL = _use("own"), _use("pool")


def _each(*rivals: Act) -> Act:
    """All of these, each of whom is refused."""

    def tried(store: Any, known: Any) -> None:
        for rival in rivals[:-1]:
            with pytest.raises(BackendBusy):
                rival(store, known)
        rivals[-1](store, known)

    return tried


def _system(store: Any) -> Any:
    """A branch whose order begins with its system message."""
    branch = _talk(store)
    store.conversations.branches.replace_system("main", "m0")
    return branch


def _fork_by_metadata(store: Any, branch: Any) -> Any:
    origin = {"parent_branch_id": "main", "forked_at_ord": 1}
    return store.conversations.branches.create(branch.session_id, NewBranch(system="m0", node_metadata=origin))


def _share(store: Any, branch: Any) -> Any:
    return store.conversations.branches.create(branch.session_id, NewBranch(progression_id=branch.progression_id))


ROWS = {
    "Branches.append": Look(
        _talk,
        lambda s, _: s.conversations.branches.append("main", said("m0", "m2")),
        _each(_touch, _OWN, _POOL),
        since=4,
    ),
    "Branches.create": Look(
        _talk,
        lambda s, b: s.conversations.branches.create(b.session_id, NewBranch(system="m0")),
        _each(_touch, _POOL),
        since=3,
    ),
    "Branches.create of a fork": Look(_talk, _fork_by_metadata, _each(_touch, _OWN, _POOL), since=4),
    "Branches.create of a shared order": Look(_talk, _share, _each(_touch, _OWN), since=3),
    "Branches.update": Look(
        _talk, lambda s, _: s.conversations.branches.update("main", BranchPatch(name="x")), _touch, since=3
    ),
    "Branches.replace_system": Look(
        _system, lambda s, _: s.conversations.branches.replace_system("main", "m1"), _each(_touch, _OWN, _POOL), since=4
    ),
    "Lineage.fork": Look(_talk, lambda s, _: s.conversations.lineage.fork("main"), _touch, since=3),
    "Progressions.append": Look(
        _talk, lambda s, b: s.conversations.progressions.append(b.progression_id, ["m0"]), _each(_touch, _OWN), since=4
    ),
    "Progressions.replace": Look(
        _talk,
        lambda s, b: s.conversations.progressions.replace(b.progression_id, ["m1", "m0"], expect_version=1),
        _each(_touch, _OWN),
        since=4,
    ),
    "Branches.pop": Look(_talk, lambda s, _: s.conversations.branches.pop("main"), _each(_touch, _OWN), since=4),
    "Branches.truncate": Look(
        _talk, lambda s, _: s.conversations.branches.truncate("main", 1), _each(_touch, _OWN), since=4
    ),
    "Progressions.pop": Look(
        _talk, lambda s, b: s.conversations.progressions.pop(b.progression_id), _each(_touch, _OWN), since=4
    ),
    "Progressions.truncate": Look(
        _talk, lambda s, b: s.conversations.progressions.truncate(b.progression_id, 0), _each(_touch, _OWN), since=4
    ),
    "Sessions.create of a shared pool": Look(_talk, _POOL, _POOL, since=3),
    "Trees.save": Look(_talk, lambda s, b: s.conversations.trees.save(_tree(b)), _each(_touch, _OWN, _POOL), since=6),
}


@parameters(ROWS)
def test_a_call_locks_the_session_and_its_orders_before_it_looks_at_messages(database: Database, look: Look) -> None:
    """conversations CV-16: in one order, so that no two calls wait for one another."""
    check(database, look)
