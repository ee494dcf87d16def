from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from support.conversations.talk import said

from lastlight_state import Conflict, StateStore
from lastlight_state.conversations import BranchTree, NewBranch, NewMessage, NewSession, SessionTree
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database, racing


def pointed(store: StateStore) -> dict[str, tuple[Any, Any]]:
    """What each session points to."""
    return {one.id: (one.first_msg_id, one.last_msg_id) for one in store.conversations.sessions.list()}


def ends(store: StateStore) -> dict[str, tuple[Any, Any]]:
    """The first and the last message of the pool of each session."""
    found = {}
    for one in store.conversations.sessions.list():
        ids = store.conversations.progressions.collection(one.progression_id)
        found[one.id] = (ids[0], ids[-1]) if ids else (None, None)
    return found


def shared(store: StateStore) -> tuple[list[str], list[str]]:
    """Branches and orders: ``two`` has the pool of ``one``, and so have branches of ``one`` and of ``three``."""
    talks = store.conversations
    pool = talks.sessions.create(NewSession("one")).progression_id
    talks.sessions.create(NewSession("two", progression_id=pool))
    for name in ("three", "four"):
        talks.sessions.create(NewSession(name))
    talks.branches.create("one", NewBranch("a"))
    talks.branches.create("one", NewBranch("b", progression_id=pool))
    talks.branches.create("three", NewBranch("c", progression_id=pool))
    own = talks.branches.get("a").progression_id
    talks.sessions.create(NewSession("five", progression_id=own))
    talks.branches.create("four", NewBranch("d"))
    return ["a", "b", "c", "d"], [pool, own, talks.sessions.get("three").progression_id, "p"]


def verbs(store: StateStore, dice: random.Random) -> list[Callable[[], object]]:
    """Every verb that changes an order, each upon something else whenever it is called."""
    talks, made = store.conversations, iter(range(10_000))
    branches, orders = shared(store)
    talks.progressions.create("p")

    def new(most: int = 3) -> list[NewMessage]:
        return said(*(f"n{next(made)}" for _ in range(dice.randint(0, most))))

    def known() -> list[str]:
        ids = [one.id for one in talks.messages.list(limit=20)]
        return dice.sample(ids, min(len(ids), dice.randint(0, 3)))

    def replace() -> None:
        order = dice.choice(orders)
        kept = talks.progressions.collection(order)[dice.randint(0, 1) :]
        version = talks.progressions.get(order).version
        talks.progressions.replace(order, kept[: dice.randint(0, 4)] + known(), expect_version=version)

    def save() -> None:
        tree = SessionTree(NewSession("four"), [BranchTree(NewBranch("d"), new())])
        talks.trees.save(tree, mode="replace")

    def fork() -> None:
        branches.append(talks.lineage.fork(dice.choice(branches)).id)

    return [
        lambda: talks.branches.append(dice.choice(branches), [*new(), *known()]),
        lambda: talks.branches.append(dice.choice(branches), known(), on_repeat="keep"),
        lambda: talks.progressions.append(dice.choice(orders), [*known(), *new()]),
        lambda: talks.progressions.append(dice.choice(orders), known(), on_repeat="keep"),
        lambda: talks.branches.pop(dice.choice(branches), dice.randint(1, 3)),
        lambda: talks.branches.truncate(dice.choice(branches), dice.randint(0, 6)),
        lambda: talks.progressions.pop(dice.choice(orders), dice.randint(1, 3)),
        lambda: talks.progressions.truncate(dice.choice(orders), dice.randint(0, 6)),
        lambda: talks.branches.replace_system(dice.choice(branches), said(f"s{next(made)}")[0]),
        lambda: talks.branches.create(dice.choice(["one", "three"]), NewBranch(system=NewMessage("system", "x"))),
        lambda: talks.sessions.create(NewSession(progression_id=dice.choice(orders))),
        replace,
        save,
        fork,
    ]


@pytest.mark.parametrize("seed", range(3))
def test_sessions_point_to_the_ends_of_their_pools_after_any_verbs(every_backend: StateStore, seed: int) -> None:
    """conversations CV-43: also those whose pool is the order of a branch or of another session."""
    dice = random.Random(seed)
    acts = verbs(every_backend, dice)
    refused = 0
    for _ in range(60):
        refused += 1
        with suppress(Conflict):
            dice.choice(acts)()
            refused -= 1
        assert pointed(every_backend) == ends(every_backend)
    assert refused < 40


def test_a_system_message_is_the_first_of_its_pool(every_backend: StateStore) -> None:
    """conversations CV-40, CV-43: so the session points to it, and to the next one once its place is taken."""
    talks = every_backend.conversations
    pool = talks.sessions.create(NewSession("s")).progression_id
    talks.branches.create("s", NewBranch("main", progression_id=pool, system=said("sys")[0]))
    assert pointed(every_backend) == {"s": ("sys", "sys")}
    talks.branches.append("main", said("m"))
    assert pointed(every_backend) == {"s": ("sys", "m")}
    talks.branches.replace_system("main", said("other")[0])
    assert pointed(every_backend) == {"s": ("other", "m")}


def test_an_append_of_what_the_pool_has_moves_no_pointer(every_backend: StateStore) -> None:
    """conversations CV-43: the pool ends as before, whatever another branch of it ends with."""
    talks = every_backend.conversations
    talks.sessions.create(NewSession("s"))
    for name in ("main", "other"):
        talks.branches.create("s", NewBranch(name))
    talks.branches.append("main", said("m0", "m1"))
    talks.branches.append("other", ["m0"])
    assert pointed(every_backend) == {"s": ("m0", "m1")}


def test_who_shares_an_order_is_told_of_what_is_appended(every_backend: StateStore) -> None:
    """conversations CV-29, CV-43: once, and with the position there."""
    talks = every_backend.conversations
    shared(every_backend)
    before = {one.id: one.change_seq for one in talks.sessions.list()}
    talks.branches.append("a", said("m0", "m1"))
    told = {name: list(talks.changes.after(name, seq)) for name, seq in before.items()}
    found = {name: [(one.kind, one.ord, one.count) for one in some] for name, some in told.items()}
    assert found.pop("four") == []
    assert found == {name: [("messages.appended", 0, 2)] for name in ("one", "two", "three", "five")}


@pytest.mark.parametrize("at", [1, 2])
def test_a_session_that_is_made_with_an_order_meanwhile_is_seen(postgres_database: Database, at: int) -> None:
    """conversations CV-16, CV-43: until the append has locked the order; SQLite has one writer at a time."""
    store, other = postgres_database.open(migrate=True), postgres_database.open(migrate=True)
    talks = store.conversations
    shared(store)
    talks.branches.append("d", said("m0"))
    pool = talks.sessions.get("four").progression_id
    with racing(store) as race:
        race.before(at, lambda: other.conversations.sessions.create(NewSession("late", progression_id=pool)))
        talks.branches.append("d", said("m1"))
    assert pointed(store) == ends(store)
    assert pointed(store)["late"] == ("m0", "m1")


def test_what_was_popped_off_every_order_is_an_orphan(every_backend: StateStore, database: Database) -> None:
    """conversations CV-43, CV-44, maintenance OP-29: no session keeps it by pointing to it."""
    talks = every_backend.conversations
    pool = talks.sessions.create(NewSession("s")).progression_id
    talks.progressions.append(pool, said("m0", "m1", "m2"))
    talks.progressions.pop(pool, 2)
    database.clock.advance(seconds=31 * 86_400)
    every_backend.maintenance.prune.run(PrunePolicy("orphans"))
    assert [talks.messages.find(name) is None for name in ("m0", "m1", "m2")] == [False, True, True]
