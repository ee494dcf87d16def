from __future__ import annotations

from collections.abc import Callable

import pytest
from support.conversations.talk import begun, history, numbered, places, said
from support.workflows.steps import Raw

from lastlight_state import AlreadyExists, Conflict, CorruptData, InvalidValue, NotFound, StateStore, iterate
from lastlight_state.conversations import Ancestor, NewBranch

Call = Callable[[], object]

#: A fork by hand: its id, parent and depth, and the branch that it is otherwise like.
_LIKE = (
    "INSERT INTO branches (id, created_at, session_id, progression_id, parent_branch_id, forked_at_ord, fork_depth) "
    "SELECT ?, created_at, session_id, progression_id, ?, 1, ? FROM branches WHERE id = ?"
)


def test_a_fork_sees_what_it_inherited_and_its_own_at_every_depth(every_backend: StateStore) -> None:
    """conversations CV-21, CV-22, CV-23: nothing of what its parents get later."""
    c = every_backend.conversations
    begun(every_backend, *numbered(0, 10))
    parent, depth = "main", 20
    for n in range(1, depth + 1):
        c.lineage.fork(parent, at=4 if n == 1 else None, branch_id=f"f{n}")
        c.branches.append(parent, said(f"late-{n}"))
        c.branches.append(f"f{n}", said(f"own-{n}"))
        parent = f"f{n}"
    assert history(every_backend, parent) == [*numbered(0, 4), *(f"own-{n}" for n in range(1, depth + 1))]
    assert c.branches.get(parent).length == 4 + depth
    assert places(c.branches.history("f2", from_ord=3, limit=3)) == [
        (3, "main", "m3"),
        (4, "f1", "own-1"),
        (5, "f2", "own-2"),
    ]


def test_inherited_positions_end_at_the_smallest_fork_point_on_the_way(every_backend: StateStore) -> None:
    """conversations CV-23, case 2: forks of forks at 10, then 6, then 8."""
    c = every_backend.conversations
    begun(every_backend, *numbered(0, 12))
    c.lineage.fork("main", at=10, branch_id="b")
    c.branches.append("b", said("b10"))
    c.lineage.fork("b", at=6, branch_id="c")
    c.branches.append("c", said("c6", "c7", "c8"))
    c.lineage.fork("c", at=8, branch_id="d")
    assert history(every_backend, "d") == [*numbered(0, 6), "c6", "c7"]
    assert c.lineage.ancestors("d") == [
        Ancestor(branch_id="c", from_ord=6, until_ord=8),
        Ancestor(branch_id="b", from_ord=6, until_ord=6),
        Ancestor(branch_id="main", from_ord=0, until_ord=6),
    ]
    assert [fork.id for fork in c.lineage.forks("main")] == ["b"]
    with pytest.raises(NotFound):
        c.lineage.ancestors("nobody")


def test_a_fork_says_where_it_comes_from_in_columns_and_metadata(every_backend: StateStore) -> None:
    """conversations CV-22, CV-24: it has the parent's system message, and may be in another session."""
    c = every_backend.conversations
    session, other = c.sessions.create(), c.sessions.create()
    [system] = said("sys", role="system")
    c.branches.create(session.id, NewBranch(id="main", system=system))
    fork = c.lineage.fork("main", session_id=other.id, name="try", node_metadata={"model": "x"})
    assert (fork.session_id, fork.name, fork.system_msg_id, fork.fork_depth) == (other.id, "try", "sys", 1)
    origin = {"parent_branch_id": "main", "forked_at_ord": 0}
    assert (fork.parent_branch_id, fork.forked_at_ord, fork.node_metadata) == ("main", 0, {"model": "x", **origin})
    assert c.lineage.fork("main", at=0, node_metadata=origin).node_metadata == origin
    by_metadata = c.branches.create(session.id, NewBranch(node_metadata=origin))
    assert (by_metadata.parent_branch_id, by_metadata.fork_depth) == ("main", 1)
    assert c.branches.create(session.id, NewBranch(node_metadata=origin, system="sys")).system_msg_id == "sys"


@pytest.mark.parametrize("at", [-1, 3])
def test_a_fork_point_is_within_the_history(every_backend: StateStore, at: int) -> None:
    """conversations CV-21."""
    begun(every_backend, "m0", "m1")
    with pytest.raises(InvalidValue):
        every_backend.conversations.lineage.fork("main", at=at)


def test_what_contradicts_a_fork_is_refused(every_backend: StateStore) -> None:
    """conversations CV-24: its origin never changes."""
    c = every_backend.conversations
    branch = begun(every_backend, "m0", "m1")
    fork = c.lineage.fork("main", at=1)
    other = {"parent_branch_id": "other", "forked_at_ord": 1}
    refused: list[Call] = [
        lambda: c.lineage.fork("main", at=1, node_metadata=other),
        lambda: c.lineage.fork("main", at=1, node_metadata={"parent_branch_id": "main", "forked_at_ord": 2}),
        lambda: c.lineage.fork("main", node_metadata={"parent_branch_id": "main", "forked_at_ord": 2}),
        lambda: c.branches.create(branch.session_id, NewBranch(node_metadata={"forked_at_ord": 1})),
        lambda: c.branches.create(branch.session_id, NewBranch(node_metadata=other, progression_id="p")),
        lambda: c.sessions.merge_metadata(branch.session_id, {"parent_branch_id": "x"}),
    ]
    for call in refused:
        with pytest.raises(InvalidValue):
            call()
    missing: list[Call] = [
        lambda: c.branches.create(branch.session_id, NewBranch(node_metadata=other)),
        lambda: c.lineage.fork("nobody"),
        lambda: c.lineage.fork("main", session_id="nobody"),
    ]
    for call in missing:
        with pytest.raises(NotFound):
            call()
    with pytest.raises(AlreadyExists):
        c.lineage.fork("main", branch_id=fork.id)
    assert c.branches.get(fork.id) == fork


def test_a_fork_of_a_thousand_ancestors_is_the_last(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-4."""
    c = every_backend.conversations
    begun(every_backend, "m0")
    fork = c.lineage.fork("main")
    raw(_LIKE, "deep", "main", 1000, fork.id)
    with pytest.raises(InvalidValue):
        c.lineage.fork("deep")


def test_a_circle_of_ancestors_is_named_and_ends(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-23: only foreign data can have one, or a depth that is too small by one."""
    c = every_backend.conversations
    branch = begun(every_backend, "m0")
    raw(_LIKE, "round", "round", 9, branch.id)
    raw(_LIKE, "shallow", "main", 0, branch.id)
    for looked in (c.branches.history, c.branches.order, c.branches.tail, c.lineage.ancestors):
        for name in ("round", "shallow"):
            with pytest.raises(CorruptData):
                looked(name)


def test_a_gap_in_a_history_is_named(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-23: a page never leaves out a position in silence."""
    branch = begun(every_backend, "m0", "m1", "m2")
    raw("UPDATE progressions SET next_ord = 5 WHERE id = ?", branch.progression_id)
    with pytest.raises(CorruptData):
        every_backend.conversations.branches.history("main")


def test_the_order_that_a_fork_inherited_stays(every_backend: StateStore) -> None:
    """conversations CV-11, case 3: from the fork point on it may change."""
    c = every_backend.conversations
    branch = begun(every_backend, *numbered(0, 6))
    c.lineage.fork("main", at=3, branch_id="f")
    version = c.progressions.get(branch.progression_id).version
    with pytest.raises(Conflict) as refused:
        c.progressions.replace(branch.progression_id, ["m0", "m2", "m1"], expect_version=version)
    assert refused.value.code == "fork_prefix"
    with pytest.raises(Conflict):
        c.progressions.replace(branch.progression_id, ["m0"], expect_version=version)
    c.progressions.replace(branch.progression_id, ["m0", "m1", "m2", "m5"], expect_version=version)
    assert history(every_backend, "main") == ["m0", "m1", "m2", "m5"]
    assert history(every_backend, "f") == ["m0", "m1", "m2"]


def test_forks_are_listed_once_each(every_backend: StateStore) -> None:
    """conversations CV-5: of one instant, by their ids."""
    begun(every_backend)
    made = sorted(every_backend.conversations.lineage.fork("main").id for _ in range(3))
    assert [one.id for one in iterate(every_backend.conversations.lineage.forks, "main", limit=1)] == made


@pytest.mark.soak
def test_a_history_of_900_forks(every_backend: StateStore) -> None:
    """conversations CV-23."""
    c = every_backend.conversations
    begun(every_backend, "m0")
    parent = "main"
    with every_backend.transaction() as tx:
        for _ in range(900):
            parent = tx.conversations.lineage.fork(parent).id
            tx.conversations.branches.append(parent, said(f"own-{parent}"))
    assert len(history(every_backend, parent, limit=100)) == 901
    assert len(c.branches.tail(parent, 500)) == 500
