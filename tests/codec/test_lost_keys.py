"""Values whose key is lost, among others."""

from __future__ import annotations

from typing import Any

import pytest
from support.checkpoints.steps import step, texts, write
from support.cli.calls import lastlight_state
from support.conversations.talk import begun
from support.sealing import Bound, Xor

from lastlight_state import SealedValue, StateStore, iterate
from lastlight_state.conversations import NewMessage
from lastlight_state.testing import Database

#: A codec of a lost key, and one that has both.
CODECS: list[tuple[Any, Any]] = [(Xor(7), Xor(9)), (Bound(1), Bound(2))]


@pytest.fixture(params=CODECS, ids=["alone", "bound"])
def half(request: pytest.FixtureRequest, database: Database) -> StateStore:
    """A store in which one value of each kind is under a lost key, and its neighbours are not."""
    lost, present = request.param
    gone, store = database.open(codec=lost), database.open(codec=present)
    gone.states.put("b", 2)
    store.states.merge({"a": 1, "c": 3})
    store.checkpoints.put("t", step(1, {"a": "long enough " * 20}))
    gone.checkpoints.put("t", step(2, {"a": "long enough " * 20 + "2"}))
    branch = begun(store, "x")
    store.conversations.branches.append(branch.id, [NewMessage(id="m1", role="user", content="one")])
    gone.conversations.branches.append(branch.id, [NewMessage(id="m2", role="user", content="two")])
    store.conversations.branches.append(branch.id, [NewMessage(id="m3", role="user", content="three")])
    return store


@pytest.mark.logs("passed over a row that cannot be read")
def test_every_list_passes_a_lost_value_over_and_names_it(half: StateStore) -> None:
    """codec CO-22."""
    states = half.states.items()
    assert ([one.value for one in states], [one.column for one in states.damaged]) == ([1, 3], ["value"])
    assert [one.value for one in iterate(half.states.items)] == [1, 3]
    assert {key: one.value for key, one in half.states.find_many(["a", "b", "c"]).items()} == {"a": 1, "c": 3}
    history = half.checkpoints.history("t")
    assert [one.id for one in history] == ["step-1"]
    assert [one.table for one in history.damaged] == ["checkpoints"]
    said = half.conversations.branches.history("main")
    assert [one.message.content for one in said][-2:] == ["one", "three"]
    assert [one.table for one in said.damaged] == ["messages"]
    assert half.conversations.branches._contents("main", 1, 4) == ["one", "three"]
    assert set(half.conversations.messages.get_many(["m1", "m2", "m3"])) == {"m1", "m3"}
    for read in (
        lambda: half.states.get("b"),
        lambda: half.checkpoints.get("t"),
        lambda: half.conversations.messages.get("m2"),
    ):
        with pytest.raises(SealedValue) as refused:
            read()
        assert refused.value.table
        assert refused.value.key is not None


@pytest.mark.logs("stored whole")
def test_a_thread_goes_on_after_a_value_that_is_lost(half: StateStore) -> None:
    """codec CO-23: the next value is whole, and so are a checkpoint that replaces and a write beside."""
    half.checkpoints.put("t", step(3, {"a": "long enough " * 20 + "3"}))
    half.checkpoints.put_writes("t", "step-3", "x", [write(0, "w")])
    assert texts(half.checkpoints.get("t")) == {"a": "long enough " * 20 + "3"}
    assert [one.id for one in half.checkpoints.history("t")] == ["step-3", "step-1"]


def test_a_lost_part_hides_its_checkpoint_alone(database: Database) -> None:
    """codec CO-22: a value, and a write."""
    gone, store = database.open(codec=Bound(1)), database.open(codec=Bound(2))
    for n in (1, 2, 3):
        store.checkpoints.put("t", step(n, {"a": f"{n}"}))
    gone.checkpoints.put_writes("t", "step-2", "x", [write(0, "lost")])
    page = store.checkpoints.history("t")
    assert ([one.id for one in page], [one.table for one in page.damaged]) == (
        ["step-3", "step-1"],
        ["checkpoint_writes"],
    )
    with pytest.raises(SealedValue) as refused:
        store.checkpoints.get("t", "step-2")
    assert refused.value.table == "checkpoint_writes"


def test_a_change_of_keys_goes_round_lost_values_and_counts_them(half: StateStore) -> None:
    """codec CO-12: in any batches, and again."""
    for batch_rows in (1, 2, 50):
        done = half.maintenance.reencrypt.run(batch_rows=batch_rows)
        assert (done.complete, sum(done.unopened.values()), len(done.unopened)) == (False, 4, 1)
        assert sorted(one.table for one in done.damaged) == ["checkpoint_values", "checkpoints", "messages", "states"]
        assert all(one.key is not None and "sealed with the key" in one.problem for one in done.damaged)


def test_a_deep_examination_names_lost_values(half: StateStore) -> None:
    """codec CO-24."""
    found = half.maintenance.doctor.examine(deep=True, only=["DOC-14"]).findings
    assert sorted(one.subject for one in found) == ["checkpoint_values", "checkpoints", "messages", "states"]
    assert all("cannot be opened" in one.message for one in found)


def test_the_commands_name_lost_values(database: Database) -> None:
    """codec CO-14, CO-24."""
    database.open(codec=Xor(5)).states.put("lost", 1)
    database.open().states.put("plain", 1)
    on: Any = ("--url", database.url)
    done = lastlight_state("reencrypt", "--codec", "support.sealing:FIRST", *on)
    assert done.code == 1
    assert "key-5" in done.out + done.err
    found = lastlight_state("doctor", "--deep", "--codec", "support.sealing:FIRST", *on)
    assert found.code == 1
    assert "key-5" in found.out
