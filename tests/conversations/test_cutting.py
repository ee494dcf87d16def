from __future__ import annotations

from typing import Any

import pytest
from support.conversations.talk import begun, history, numbered, said
from support.workflows.steps import Raw

from lastlight_state import Conflict, NotFound, StaleVersion, StateStore
from lastlight_state.conversations import Appended, Link, NewBranch, NewMessage, NewSession
from lastlight_state.testing import racing


def ids(store: StateStore, progression_id: str) -> list[str]:
    return store.conversations.progressions.collection(progression_id)


def test_an_order_gives_its_last_messages(every_backend: StateStore) -> None:
    """conversations CV-44: in their order, and fewer where it has fewer."""
    orders = every_backend.conversations.progressions
    begun(every_backend, *numbered(0, 5))
    orders.create("p", ["m0", "m1", "m0", "m2"])
    assert orders.pop("p") == [Link(ord=3, message_id="m2")]
    assert [one.message_id for one in orders.pop("p", 2)] == ["m1", "m0"]
    assert (ids(every_backend, "p"), orders.get("p").version) == (["m0"], 2)
    assert [one.ord for one in orders.pop("p", 10)] == [0]
    assert orders.pop("p") == []
    assert (orders.get("p").size, orders.get("p").version) == (0, 3)
    assert orders.append("p", ["m4"]) == Appended(first_ord=0, appended=1, skipped=0)


def test_an_order_ends_before_a_position(every_backend: StateStore) -> None:
    """conversations CV-44: what ends before it already stays as it is."""
    orders = every_backend.conversations.progressions
    begun(every_backend, *numbered(0, 5))
    order = orders.create("p", ["m0", "m1", "m2", "m3"])
    cut = orders.truncate("p", 2)
    assert (cut.size, cut.version, ids(every_backend, "p")) == (2, order.version + 1, ["m0", "m1"])
    assert orders.truncate("p", 2) == orders.truncate("p", 7) == cut
    assert orders.truncate("p", 0).size == 0


def test_an_order_of_another_version_keeps_its_end(every_backend: StateStore) -> None:
    """conversations CV-44: and an order that is not there is named."""
    orders = every_backend.conversations.progressions
    begun(every_backend, "m0", "m1")
    order = orders.create("p", ["m0"])
    orders.append("p", ["m1"])
    for stale in (
        lambda: orders.pop("p", expect_version=order.version),
        lambda: orders.truncate("p", 0, expect_version=order.version),
    ):
        with pytest.raises(StaleVersion):
            stale()
    assert [one.message_id for one in orders.pop("p", expect_version=order.version + 1)] == ["m1"]
    for missing in (lambda: orders.pop("q"), lambda: orders.truncate("q", 0)):
        with pytest.raises(NotFound):
            missing()


def test_a_branch_gives_its_last_messages_whole(every_backend: StateStore) -> None:
    """conversations CV-44: the pool keeps them, and the feed says which positions are gone."""
    talks = every_backend.conversations
    branch = begun(every_backend, *numbered(0, 4))
    seen = talks.sessions.get(branch.session_id).change_seq
    popped = talks.branches.pop("main", 2)
    assert [(one.ord, one.branch_id, one.message.content) for one in popped] == [
        (2, "main", {"text": "m2"}),
        (3, "main", {"text": "m3"}),
    ]
    assert talks.branches.truncate("main", 1).length == 1
    assert history(every_backend, "main") == ["m0"]
    assert talks.sessions.get(branch.session_id).message_count == 4
    told = [(one.kind, one.branch_id, one.ord, one.count) for one in talks.changes.after(branch.session_id, seen)]
    assert told == [("progression.truncated", "main", 2, 2), ("progression.truncated", "main", 1, 1)]
    assert talks.branches.truncate("main", 1) == talks.branches.get("main")
    assert talks.sessions.get(branch.session_id).change_seq == seen + 2


def test_a_branch_that_is_the_pool_takes_from_its_session_too(every_backend: StateStore) -> None:
    """conversations CV-44: such as that of a chat that is only ever taken back."""
    talks = every_backend.conversations
    pool = talks.sessions.create(NewSession("s")).progression_id
    talks.branches.create("s", NewBranch("main", progression_id=pool))
    talks.branches.append("main", said("m0", "m1"))
    assert [one.message.id for one in talks.branches.pop("main")] == ["m1"]
    session = talks.sessions.get("s")
    assert (session.message_count, session.last_msg_id) == (1, "m0")
    talks.branches.pop("main")
    assert (talks.sessions.get("s").first_msg_id, talks.branches.pop("main")) == (None, [])


def test_what_a_fork_shares_stays(every_backend: StateStore) -> None:
    """conversations CV-11, CV-44: in the parent what a fork has inherited, in the fork what is not its own."""
    talks = every_backend.conversations
    begun(every_backend, *numbered(0, 4))
    fork = talks.lineage.fork("main", at=2, branch_id="fork")
    talks.branches.append("fork", said("f0"))
    for refused in (
        lambda: talks.branches.pop("main", 3),
        lambda: talks.branches.truncate("main", 1),
        lambda: talks.branches.pop("fork", 2),
        lambda: talks.branches.truncate("fork", 1),
        lambda: talks.progressions.pop(fork.progression_id, 2),
    ):
        with pytest.raises(Conflict) as conflict:
            refused()
        assert conflict.value.code == "fork_prefix"
    assert history(every_backend, "fork") == ["m0", "m1", "f0"]
    assert [one.message.id for one in talks.branches.pop("main", 2)] == ["m2", "m3"]
    assert [one.message.id for one in talks.branches.pop("fork")] == ["f0"]
    with pytest.raises(Conflict):
        talks.branches.pop("fork")
    assert history(every_backend, "fork") == history(every_backend, "main") == ["m0", "m1"]


def test_the_end_of_a_long_order_costs_what_is_taken(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-44: past the 10,000 that `collection` gives, and in as many statements."""
    talks = every_backend.conversations
    order = begun(every_backend, *numbered(0, 10)).progression_id

    def cost(call: Any) -> int:
        with racing(every_backend) as race:
            call()
        return len(race.statements)

    def costs() -> list[int]:
        calls = (
            lambda: talks.branches.pop("main"),
            lambda: talks.progressions.pop(order, 2),
            lambda: talks.branches.truncate("main", talks.progressions.get(order).next_ord - 2),
        )
        return [cost(call) for call in calls]

    short = costs()
    raw(_MANY, 5, 12_000, order)
    raw("UPDATE progressions SET next_ord = 12000 WHERE id = ?", order)
    assert costs() == short
    assert max(short) <= 14
    assert talks.progressions.truncate(order, 1).size == 1
    assert history(every_backend, "main") == ["m0"]


_MANY = (
    "WITH RECURSIVE n(i) AS (SELECT CAST(? AS INTEGER) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?) "
    "INSERT INTO progression_links (progression_id, ord, message_id) SELECT ?, i, 'm0' FROM n"
)


def test_an_order_takes_messages_to_store(every_backend: StateStore) -> None:
    """conversations CV-45: with ids of stored ones among them, and as many statements for many."""
    talks = every_backend.conversations
    begun(every_backend, "m0")
    talks.progressions.create("p")
    assert talks.progressions.append("p", [*said("a"), "m0", *said("b", "a")]).appended == 3
    assert ids(every_backend, "p") == ["a", "m0", "b"]
    with pytest.raises(NotFound):
        talks.progressions.append("p", [*said("c"), "nobody"])
    assert talks.messages.find("c") is None
    assert talks.progressions.append("p", [NewMessage("user", {"text": "more"}, id="a")]).skipped == 1
    assert talks.messages.get("a").content == {"text": "more"}
