from __future__ import annotations

from typing import Any

import pytest
from support.conversations.talk import begun, history, numbered, said

from lastlight_state import AlreadyExists, Conflict, InvalidValue, NotFound, PayloadTooLarge, StateStore
from lastlight_state.conversations import Appended, BranchPatch, NewBranch, NewMessage
from lastlight_state.testing import FrozenClock


def test_an_append_stores_links_and_moves_the_session(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-17: branch, pool and session agree."""
    c = every_backend.conversations
    branch = begun(every_backend)
    c.messages.create(said("known")[0])
    frozen_clock.advance(seconds=5)
    assert c.branches.append("main", [*said("a"), "known", *said("b")]) == Appended(first_ord=0, appended=3, skipped=0)
    session = c.sessions.get(branch.session_id)
    assert (session.first_msg_id, session.last_msg_id, session.message_count) == ("a", "b", 3)
    assert session.last_message_at == session.updated_at == frozen_clock.now()
    for order in (branch.progression_id, session.progression_id):
        assert c.progressions.collection(order) == ["a", "known", "b"]
    assert c.branches.history("main").items[0].message.content == {"text": "a"}
    assert [one.message.id for one in c.branches.tail("main", 2)] == ["known", "b"]


def test_what_the_history_holds_is_skipped_unless_it_is_to_be_kept(every_backend: StateStore) -> None:
    """conversations CV-18: the inherited part counts; the order's own append looks at its own links."""
    c = every_backend.conversations
    begun(every_backend, "m0", "m1")
    fork = c.lineage.fork("main")
    before = c.sessions.get(fork.session_id)
    assert c.branches.append(fork.id, ["m0", *said("m1")]) == Appended(first_ord=None, appended=0, skipped=2)
    assert c.sessions.get(fork.session_id) == before.model_copy()
    assert c.branches.append(fork.id, ["m0", "m0"], on_repeat="keep").appended == 2
    assert c.progressions.append(fork.progression_id, ["m0", "m1", "m1"]) == Appended(
        first_ord=4, appended=1, skipped=2
    )
    assert history(every_backend, fork.id, limit=2) == ["m0", "m1", "m0", "m0", "m1"]
    assert c.sessions.get(fork.session_id).message_count == 2


def test_of_a_bad_batch_nothing_is_stored(every_backend: StateStore) -> None:
    """conversations CV-17: the bad one is named by its position."""
    c = every_backend.conversations
    begun(every_backend)
    with pytest.raises(InvalidValue, match=r"messages\[2\]\.content"):
        c.branches.append("main", [*said("a", "b"), NewMessage("user", None), *said("c")])
    with pytest.raises(NotFound) as missing:
        c.branches.append("main", [*said("a"), "nobody"])
    assert (missing.value.kind, missing.value.key) == ("message", "nobody")
    with pytest.raises(InvalidValue, match="1001"):
        c.branches.append("main", numbered(0, 1001))
    with pytest.raises(InvalidValue, match="two different"):
        c.branches.append("main", [NewMessage("user", 1, id="a"), NewMessage("user", 2, id="a")])
    assert (c.messages.count(), c.branches.get("main").length) == (0, 0)


def test_the_messages_of_a_call_are_bounded_together(every_backend: StateStore) -> None:
    """conversations CV-4."""
    begun(every_backend)
    large = NewMessage("user", "é" * (4 * 1024 * 1024 - 1))
    with pytest.raises(PayloadTooLarge):
        every_backend.conversations.branches.append("main", [large] * 5)


@pytest.mark.parametrize("missing", ["branch", "session"])
def test_what_is_missing_is_named_and_the_store_goes_on(every_backend: StateStore, missing: str) -> None:
    """conversations CV-10."""
    c = every_backend.conversations
    with pytest.raises(NotFound) as refused:
        c.branches.append("x", said("a")) if missing == "branch" else c.branches.create("x")
    assert refused.value.kind == missing
    assert begun(every_backend, "a").length == 1


def test_a_message_may_be_named_beside_itself(every_backend: StateStore) -> None:
    """conversations CV-10, CV-17: before it as well; it need not be stored."""
    begun(every_backend)
    every_backend.conversations.branches.append("main", ["a", *said("a"), "a"], on_repeat="keep")
    assert history(every_backend, "main") == ["a", "a", "a"]


def test_a_message_that_grows_is_revised_by_an_append(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-6, CV-17: it stands once, and the session says that something changed."""
    c = every_backend.conversations
    branch = begun(every_backend, "m0", "m1")
    frozen_clock.advance(seconds=1)
    grown = NewMessage("user", {"text": "m1, and more"}, id="m1")
    assert c.branches.append("main", [grown]) == Appended(first_ord=None, appended=0, skipped=1)
    assert (c.messages.get("m1").content, c.messages.get("m1").revision) == (grown.content, 1)
    session = c.sessions.get(branch.session_id)
    assert (session.updated_at, session.last_msg_id) == (frozen_clock.now(), "m1")


def test_a_system_message_stands_in_the_pool_and_not_in_the_order(every_backend: StateStore) -> None:
    """conversations CV-40: it is stored with the branch, or is stored already."""
    c = every_backend.conversations
    session = c.sessions.create()
    branch = c.branches.create(session.id, NewBranch(system=NewMessage("system", "be kind", id="sys")))
    again = c.branches.create(session.id, NewBranch(system="sys"))
    assert (branch.system_msg_id, again.system_msg_id, branch.length) == ("sys", "sys", 0)
    assert c.progressions.collection(session.progression_id) == ["sys"]
    with pytest.raises(NotFound):
        c.branches.create(session.id, NewBranch(system="nobody"))
    assert c.sessions.get(session.id).branch_count == 2


def test_the_tail_of_each_branch_is_its_own(every_backend: StateStore) -> None:
    """conversations CV-23: whatever its ancestors and other branches have, and as far up as it goes."""
    c = every_backend.conversations
    begun(every_backend, "m0", "m1", "m2")
    c.lineage.fork("main", at=2, branch_id="fork")
    c.branches.append("fork", said("f2", "f3", "f4"))
    begun(every_backend, branch_id="empty")

    def tail(branch_id: str, limit: int) -> list[str]:
        return [one.message.id for one in c.branches.tail(branch_id, limit)]

    assert [tail("fork", n) for n in (1, 4, 9)] == [["f4"], ["m1", "f2", "f3", "f4"], ["m0", "m1", "f2", "f3", "f4"]]
    assert [tail("main", 2), tail("empty", 2)] == [["m1", "m2"], []]


def test_another_system_message_takes_the_first_place_of_the_former(every_backend: StateStore) -> None:
    """conversations CV-41: unless a fork has inherited that place; the former one stays stored."""
    c = every_backend.conversations
    session = c.sessions.create()
    system = NewMessage("system", "be kind", id="s0")
    branch = c.branches.create(session.id, NewBranch(id="main", system=system))
    c.branches.append("main", ["s0", *said("m0")])
    version = c.progressions.get(branch.progression_id).version
    changed = c.branches.replace_system("main", NewMessage("system", "be kinder", id="s1"))
    assert (changed.system_msg_id, history(every_backend, "main")) == ("s1", ["s1", "m0"])
    assert c.progressions.get(branch.progression_id).version == version + 1
    assert c.progressions.collection(session.progression_id) == ["s0", "m0", "s1"]
    c.lineage.fork("main", branch_id="fork")
    with pytest.raises(Conflict) as refused:
        c.branches.replace_system("main", "s0")
    assert refused.value.code == "fork_prefix"
    assert c.branches.replace_system("fork", "s0").system_msg_id == "s0"
    assert history(every_backend, "fork") == ["s1", "m0"]


def test_another_system_message_takes_no_place_of_a_message_that_is_not_the_former_one(
    every_backend: StateStore,
) -> None:
    """conversations CV-41: only the pointer moves, also where there was no system message."""
    c = every_backend.conversations
    branch = begun(every_backend, "m0", "m1")
    version = c.progressions.get(branch.progression_id).version
    for system in ("s0", "s1", "m1", "m0", "m0"):
        c.branches.replace_system("main", said(system)[0])
    assert (c.branches.get("main").system_msg_id, history(every_backend, "main")) == ("m0", ["m0", "m1"])
    assert c.progressions.get(branch.progression_id).version == version


def test_branches_are_ensured_listed_and_changed(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-5, CV-24: an equal one is returned as it is."""
    c = every_backend.conversations
    session, other = c.sessions.create(), c.sessions.create()
    new = NewBranch(id="b", name="n", node_metadata={"model": "x"}, extra={"log": [1]}, system=said("sys")[0])
    branch = c.branches.ensure(session.id, new)
    assert c.branches.ensure(session.id, new) == branch
    with pytest.raises(AlreadyExists) as refused:
        c.branches.ensure(other.id, NewBranch(id="b", name="m", node_metadata={}, system="other"))
    assert vars(refused.value)["fields"] == ("session_id", "name", "system_msg_id", "node_metadata")
    with pytest.raises(AlreadyExists):
        c.branches.create(other.id, NewBranch(id="b"))
    frozen_clock.advance(seconds=1)
    assert c.branches.update("b", BranchPatch(name=None, user="ana")).user == "ana"
    assert c.branches.update("b", BranchPatch(node_metadata=None)).node_metadata is None
    assert c.branches.update("b", BranchPatch()).name is None
    assert c.sessions.get(session.id).updated_at == frozen_clock.now()
    fork = c.lineage.fork("b")
    assert c.branches.update(fork.id, BranchPatch(node_metadata={"x": 1})).node_metadata == {
        "x": 1,
        "parent_branch_id": "b",
        "forked_at_ord": 0,
    }
    page = c.branches.list(session.id, limit=1)
    assert [one.id for one in page] == ["b"]
    assert [one.id for one in c.branches.list(session.id, page_token=page.next_page_token)] == [fork.id]
    assert (c.branches.find("nobody"), c.branches.find("b")) == (None, c.branches.get("b"))


def test_a_branch_may_share_an_order(every_backend: StateStore) -> None:
    """conversations CV-17, CV-40: with another branch, or with the pool, which then grows once."""
    c = every_backend.conversations
    session = c.sessions.create()
    branch = c.branches.create(session.id, NewBranch(progression_id=session.progression_id))
    c.branches.append(branch.id, said("a", "b"))
    assert c.progressions.collection(session.progression_id) == ["a", "b"]
    with pytest.raises(NotFound):
        c.branches.create(session.id, NewBranch(progression_id="nobody"))


@pytest.mark.parametrize(
    ("content", "role"),
    [
        ([{"type": "function_call", "call_id": "c1", "name": "grep", "arguments": '{"pattern":"x"}'}], "assistant"),
        ([{"type": "function_call_output", "call_id": "c1", "output": "1: x"}], "tool"),
        ([{"type": "reasoning", "summary": [], "encrypted_content": "gAAA✓"}], "assistant"),
        ([{"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"}], "user"),
        ([{"type": "tool_use", "id": "t1", "name": "grep", "input": {"n": 1.5, "deep": [None, True]}}], "assistant"),
    ],
)
def test_structured_items_of_any_role_come_back_equal(every_backend: StateStore, content: Any, role: str) -> None:
    """conversations CV-7: tool calls, function outputs, reasoning, references to images."""
    c = every_backend.conversations
    begun(every_backend)
    c.branches.append("main", [NewMessage(role, content)])
    [one] = c.branches.history("main")
    assert (one.message.role, one.message.content) == (role, content)


def test_metadata_that_are_no_hints_are_kept_and_hint_at_nothing(every_backend: StateStore) -> None:
    """conversations CV-17: a value of another kind, or longer than a name, is no error."""
    session_id = begun(every_backend).session_id
    metadata = {"provider": 5, "model": "m" * 10_000, "agent_name": "ana"}
    branch = every_backend.conversations.branches.create(session_id, NewBranch(node_metadata=metadata))
    assert (branch.provider, branch.model, branch.agent_name) == (None, None, "ana")
    assert every_backend.conversations.branches.get(branch.id).node_metadata == metadata
