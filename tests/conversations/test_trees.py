"""Whole sessions: what a runtime has goes in and comes out equal, and only what is new is written."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Literal

import pytest
from support.conversations.talk import begun, history, said
from support.each import with_each
from support.workflows.steps import Raw

from lastlight_state import (
    AlreadyExists,
    AsyncStateStore,
    Conflict,
    InvalidValue,
    NotFound,
    PayloadTooLarge,
    StateStore,
)
from lastlight_state.conversations import BranchTree, NewBranch, NewMessage, NewSession, SessionTree
from lastlight_state.errors import StaleVersion

LION = "lionagi.protocols.messages.instruction.Instruction"


def message(key: str, role: str = "user", **fields: Any) -> dict[str, Any]:
    return {"id": key, "created_at": 1765432101.123457, "role": role, "content": {"text": key},
            "metadata": {"lion_class": LION}, **fields}  # fmt: skip


def runtime() -> dict[str, Any]:
    """A session of three branches in mode ``json``: piles and a list, shared messages, one of them twice in an order,
    and a system message outside the order.
    """
    pile = {
        "id": "pile", "created_at": 2.5, "metadata": {"lion_class": "Pile"},
        "collections": [message("sys", "system"), message("a"), message("b", "assistant", rank=3)],
        "progression": {"id": "order", "name": "main", "order": ["a", "b", "a"]},
    }  # fmt: skip
    first = {
        "id": "one", "created_at": 3.25, "metadata": {"clone_from": {"id": "x"}}, "user": "ana", "name": "main",
        "messages": pile, "system": message("sys", "system"), "logs": {"collections": [{"id": "log"}]},
        "chat_model": {"endpoint": "chat", "request_options": {"n": 1}},
    }  # fmt: skip
    second = {"id": "two", "created_at": 3.25, "messages": [message("a"), message("c", embedding=[0.5, -2.0])]}
    third = {
        "id": "three", "created_at": 1.0, "metadata": {"parent_branch_id": "two", "forked_at_ord": 1},
        "messages": {"collections": [message("a"), message("d")]},
    }  # fmt: skip
    return {
        "id": "talk", "created_at": 1765432100.000001, "metadata": {"a": None}, "name": "talk", "mail": {"open": []},
        "branches": {"id": "branches", "progression": ["two", "one", "three"], "collections": [second, first, third]},
    }  # fmt: skip


def rows(raw: Raw) -> list[Any]:
    return [raw(f"SELECT * FROM {table} ORDER BY id") for table in ("sessions", "branches", "progressions", "messages")]


def test_a_session_of_a_runtime_comes_back_equal_and_is_saved_once(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-28."""
    trees = every_backend.conversations.trees
    report = trees.save(SessionTree.from_runtime(runtime()))
    counts = (report.session_created, report.branches_created, report.messages_created, report.links_added)
    assert counts == (True, 3, 5, 6)
    assert history(every_backend, "three") == ["a", "d"]
    assert every_backend.conversations.progressions.get(
        every_backend.conversations.branches.get("three").progression_id
    ).start_ord == 1  # fmt: skip
    loaded = trees.load("talk")
    assert loaded.to_runtime("json") == runtime()
    stored = rows(raw)
    for again in (loaded, SessionTree.from_runtime(loaded.to_runtime()), SessionTree.from_runtime(runtime())):
        assert not trees.save(again).changed
    assert rows(raw) == stored
    pool = every_backend.conversations.sessions.get("talk")
    assert (pool.message_count, pool.branch_count, pool.last_msg_id) == (5, 3, "d")


def test_a_system_message_that_the_order_holds_stands_where_it_stood() -> None:
    """conversations CV-28."""
    pile = {"collections": [message("sys", "system"), message("a")], "progression": ["sys", "a"]}
    branch = {"id": "one", "created_at": 3.25, "messages": pile, "system": message("sys", "system")}
    given = {**runtime(), "branches": [branch]}
    assert SessionTree.from_runtime(given).to_runtime("json") == given


@with_each("mode", ["db", "json", "python"])
def test_the_three_modes_make_one_tree(mode: Literal["db", "json", "python"]) -> None:
    """conversations CV-42: they differ in the outermost dictionary alone."""
    tree = SessionTree.from_runtime(runtime())
    given = tree.to_runtime(mode)
    assert ("metadata" in given, "node_metadata" in given) == (mode != "db", mode == "db")
    assert {key: value for key, value in given.items() if "metadata" not in key} == {
        key: value for key, value in runtime().items() if key != "metadata"
    }
    assert SessionTree.from_runtime(given) == tree


def talk(*texts: str, system: str | None = None, branch_id: str = "main", **fields: Any) -> SessionTree:
    """A session of one branch with these messages."""
    prompt = None if system is None else NewMessage("system", system, id=system)
    known = {"sys": prompt, "new": prompt}
    messages = [(known.get(text) if text == system else None) or said(text)[0] for text in texts]
    branch = NewBranch(branch_id, system=prompt, **fields)
    return SessionTree(NewSession("talk"), [BranchTree(branch, messages)])


def test_a_tree_that_has_grown_adds_what_is_new(every_backend: StateStore) -> None:
    """conversations CV-28: links, changed messages, and fields that are given."""
    trees = every_backend.conversations.trees
    trees.save(talk("a", "b", name="n", node_metadata={"model": "x"}))
    grown = trees.save(talk("a", "b", "c", "a"))
    assert (grown.messages_created, grown.links_added, grown.fields_changed) == (1, 2, 0)
    assert history(every_backend, "main") == ["a", "b", "c", "a"]
    branch = every_backend.conversations.branches.get("main")
    assert (branch.name, branch.node_metadata) == ("n", {"model": "x"})
    told = talk("a", "b", "c", "a", name="m", extra={"logs": [1]})
    [main] = told.branches
    changed = NewMessage("user", "other", id="b")
    told = SessionTree(
        NewSession("talk", user="ana"), [replace(main, messages=[main.messages[0], changed, *main.messages[2:]])]
    )
    report = trees.save(told)
    assert (report.messages_revised, report.fields_changed, report.links_added) == (1, 2, 0)
    assert every_backend.conversations.messages.get("b").content == "other"
    assert every_backend.conversations.sessions.get("talk").user == "ana"
    assert not trees.save(told).changed


@pytest.mark.parametrize("other", [("b", "a"), ("a",), ("x", "a", "b")])
def test_an_order_that_shrank_or_moved_is_refused_or_replaced(
    every_backend: StateStore, raw: Raw, other: tuple[str, ...]
) -> None:
    """conversations CV-28: refused, nothing has changed."""
    trees = every_backend.conversations.trees
    trees.save(talk("a", "b"))
    stored = rows(raw)
    with pytest.raises(StaleVersion):
        trees.save(talk(*other))
    assert rows(raw) == stored
    report = trees.save(talk(*other), mode="replace")
    assert (report.orders_replaced, history(every_backend, "main")) == (1, list(other))
    assert every_backend.conversations.sessions.get("talk").message_count == len({"a", "b", *other})
    assert not trees.save(talk(*other)).changed


def test_another_system_message_takes_the_place_of_the_former_one(every_backend: StateStore) -> None:
    """conversations CV-28, CV-41."""
    c = every_backend.conversations
    c.trees.save(talk("sys", "a", system="sys"))
    report = c.trees.save(talk("new", "a", "b", "c", system="new"))
    assert (report.systems_replaced, report.links_added) == (1, 2)
    assert (history(every_backend, "main"), c.branches.get("main").system_msg_id) == (["new", "a", "b", "c"], "new")
    assert not c.trees.save(talk("new", "a", "b", "c", system="new")).changed
    assert c.messages.get("sys").content == "sys"
    c.lineage.fork("main", at=1)
    with pytest.raises(Conflict) as refused:
        c.trees.save(talk("sys", "a", "b", "c", system="sys"))
    assert refused.value.code == "fork_prefix"


def test_a_system_message_outside_the_order_stays_outside(every_backend: StateStore) -> None:
    """conversations CV-28: pointer and pool only, by its id as well."""
    c = every_backend.conversations
    c.trees.save(talk("a", system="sys"))
    by_id = SessionTree(NewSession("talk"), [BranchTree(NewBranch("main", system="sys"), said("a", "b"))])
    assert (c.trees.save(by_id).systems_replaced, history(every_backend, "main")) == (0, ["a", "b"])
    assert c.trees.save(talk("a", "b", system="new")).systems_replaced == 1
    assert c.trees.load("talk").branches[0].branch.system == NewMessage(
        "system", "new", id="new", created_at=c.messages.get("new").created_at
    )
    assert c.sessions.get("talk").message_count == 4


def test_a_branch_of_another_session_continues_that(every_backend: StateStore) -> None:
    """conversations CV-28: of a tree whose session is not stored; else it is refused."""
    c = every_backend.conversations
    branch = begun(every_backend, "a")
    tree = talk("a", "b", name="main")
    report = c.trees.save(tree)
    assert (report.session_id, report.session_created, report.links_added) == (branch.session_id, False, 1)
    assert c.sessions.find("talk") is None
    c.sessions.create(NewSession("talk"))
    with pytest.raises(AlreadyExists):
        c.trees.save(tree)


def test_a_tree_whose_pool_is_missing_is_not_saved(every_backend: StateStore) -> None:
    """conversations CV-10, CV-28: it is named, and not taken for a session that another saved meanwhile."""
    c = every_backend.conversations
    with pytest.raises(NotFound) as missing:
        c.trees.save(SessionTree(NewSession("talk", progression_id="nobody"), [BranchTree(NewBranch("b"), said("a"))]))
    assert (missing.value.kind, missing.value.key) == ("progression", "nobody")
    assert (c.sessions.find("talk"), c.messages.count()) == (None, 0)


def test_a_tree_of_many_messages_is_saved_branch_by_branch(every_backend: StateStore) -> None:
    """conversations CV-28: a bad branch takes back itself only; below 1,000 messages all is one transaction."""
    c = every_backend.conversations
    many = [NewMessage("user", n, id=f"m{n}") for n in range(1_001)]
    bad = BranchTree(NewBranch("bad", node_metadata={"parent_branch_id": "nobody", "forked_at_ord": 0}))
    for messages, kept in ((many[:3], None), (many, 1_001)):
        with pytest.raises(NotFound):
            c.trees.save(SessionTree(NewSession("talk"), [BranchTree(NewBranch("good"), messages), bad]))
        good = c.branches.find("good")
        assert (good and good.length) == kept
    assert c.trees.save(SessionTree(NewSession("talk"), [BranchTree(NewBranch("good"), many)])).changed is False
    with pytest.raises(PayloadTooLarge):
        c.trees.load("talk", max_messages=1_000)
    with pytest.raises(NotFound):
        c.trees.load("nobody")


def test_a_fork_of_another_origin_is_refused(every_backend: StateStore) -> None:
    """conversations CV-24, CV-28: and so is an inherited part that differs, also where orders are replaced."""
    trees = every_backend.conversations.trees
    begun(every_backend, "a", "b")
    fork = every_backend.conversations.lineage.fork("main", at=2, branch_id="fork")
    saved = trees.load(fork.session_id)
    of_fork, main = sorted(saved.branches, key=lambda one: str(one.branch.id))
    with pytest.raises(StaleVersion):
        trees.save(replace(saved, branches=[replace(of_fork, messages=said("b", "c"))]), mode="replace")
    other = replace(of_fork.branch, node_metadata={"parent_branch_id": "main", "forked_at_ord": 1})
    with pytest.raises(AlreadyExists):
        trees.save(replace(saved, branches=[main, replace(of_fork, branch=other)]))
    kept = replace(of_fork.branch, node_metadata={"model": "x"})
    assert trees.save(replace(saved, branches=[replace(of_fork, branch=kept)])).fields_changed == 1
    stored = every_backend.conversations.branches.get("fork").node_metadata
    assert stored == {"model": "x", "parent_branch_id": "main", "forked_at_ord": 2}


CIRCLE = [
    BranchTree(NewBranch(one, node_metadata={"parent_branch_id": two, "forked_at_ord": 0}))
    for one, two in (("x", "y"), ("y", "x"))
]


@with_each(
    "tree",
    [
        SessionTree(NewSession()),
        SessionTree(NewSession("s"), [BranchTree(NewBranch())]),
        SessionTree(NewSession("s"), [BranchTree(NewBranch("b")), BranchTree(NewBranch("b"))]),
        SessionTree(NewSession("s"), [BranchTree(NewBranch("b"), [NewMessage("user", 1, id="m"), NewMessage("user", 2, id="m")])]),  # noqa: E501
        SessionTree(NewSession("s"), [BranchTree(NewBranch("b"), ["m"])]),  # type: ignore[list-item]
        SessionTree(NewSession("s"), [BranchTree(NewBranch("b"), said("m") * 50_001)]),
        SessionTree(NewSession("s"), CIRCLE),
    ],
)  # fmt: skip
def test_a_tree_that_cannot_be_saved_is_refused_before_anything_is_written(store: StateStore, tree: Any) -> None:
    """conversations CV-28."""
    with pytest.raises(InvalidValue):
        store.conversations.trees.save(tree)
    assert store.conversations.sessions.count() == 0


@with_each(
    ("wrong", "where"),
    [("m", ""), (NewMessage("user", 1, id=["m"]), ".id"), (NewMessage("user", {1}), ".content")],  # type: ignore[arg-type]
)
def test_a_message_that_cannot_be_saved_is_named_by_its_place(store: StateStore, wrong: Any, where: str) -> None:
    """conversations CV-28."""
    with pytest.raises(InvalidValue) as refused:
        store.conversations.trees.save(SessionTree(NewSession("s"), [BranchTree(NewBranch("b"), [*said("a"), wrong])]))
    assert refused.value.where == f"tree.branches[0].messages[1]{where}"


def broken(**branch: Any) -> dict[str, Any]:
    return {"id": "s", "branches": [{"id": "b", **branch}]}


@with_each(
    "given",
    [
        [], {}, {"id": "s", "branches": "x"}, {"id": "s", "branches": [{}]},
        broken(messages=[{"role": "user"}]), broken(messages={"collections": [1], "progression": []}),
        broken(messages={"collections": [message("a")], "progression": ["a", "b"]}),
        broken(messages={"collections": [message("a")], "progression": {"order": []}}),
        broken(messages={"collections": [message("a")], "progression": {"order": "a"}}),
        broken(messages={"collections": [message("s"), message("a")], "progression": []}, system=message("s")),
        broken(metadata={}, node_metadata={}), broken(created_at="soon"), broken(system={"id": "x"}),
    ],
)  # fmt: skip
def test_what_is_no_tree_is_refused(given: Any) -> None:
    """conversations CV-28."""
    with pytest.raises(InvalidValue):
        SessionTree.from_runtime(given)


async def _saved(opened: StateStore) -> SessionTree:
    trees = AsyncStateStore(opened).conversations.trees
    await trees.save(talk("a"))
    return await trees.load("talk")


def test_trees_from_coroutines(every_backend: StateStore) -> None:
    """conversations CV-28."""
    [branch] = asyncio.run(_saved(every_backend)).branches
    assert [one.id for one in branch.messages] == ["a"]
