"""Histories of channels along the ancestors of a checkpoint, and lists before an id."""

from __future__ import annotations

from typing import Any

import pytest
from support.checkpoints.steps import content, ids, step, write

from lastlight_state import CorruptData
from lastlight_state.checkpoints import ChannelHistory
from lastlight_state.testing import Database, racing

NOTHING = ChannelHistory(writes=(), value=None)


def grow(checkpoints: Any, steps: int, *, valued: int = 1, first: int = 1, parent: str | None = None) -> None:
    """Store steps whose tasks write to two channels; only one of the steps has a value of the first channel."""
    for number in range(first, steps + 1):
        new = {"a": f"value {number}"} if number == valued else {}
        step_parent = f"step-{number - 1}" if number > first else parent
        other = {"b": "x" * 1_000 + str(number)}
        checkpoints.put("t", step(number, {**new, **other}, versions={"a": str(number)}, parent_id=step_parent))
        writes = [write(0, f"a{number}.0"), write(1, "nothing", channel="b"), write(2, f"a{number}.2")]
        checkpoints.put_writes("t", f"step-{number}", "task", writes)


def written(found: ChannelHistory) -> list[str]:
    return [one.content.data.decode() for one in found.writes]


def test_a_channel_has_what_was_written_since_its_last_value(store: Any) -> None:
    """checkpoints CK-55: the oldest first, the writes of the checkpoint with the value too, its own not."""
    grow(store.checkpoints, 5, valued=2)
    found = store.checkpoints.channel_histories("t", ["a"], "step-5")
    assert found.keys() == {"a"}
    assert found["a"].value == content("value 2")
    assert written(found["a"]) == ["a2.0", "a2.2", "a3.0", "a3.2", "a4.0", "a4.2"]
    assert store.checkpoints.channel_histories("t", ["a"]) == found
    assert store.checkpoints.channel_histories("t", ["a"], "step-2")["a"].value is None
    assert written(store.checkpoints.channel_histories("t", ["a"], "step-2")["a"]) == ["a1.0", "a1.2"]


def test_channels_have_histories_of_their_own(store: Any) -> None:
    """checkpoints CK-55."""
    grow(store.checkpoints, 3, valued=1)
    found = store.checkpoints.channel_histories("t", ["a", "b", "c"])
    assert (len(found["a"].writes), len(found["b"].writes)) == (4, 1)
    assert found["b"].value == content("x" * 1_000 + "2")
    assert found["c"] == NOTHING


def test_a_fork_has_the_history_of_its_own_ancestors(store: Any) -> None:
    """checkpoints CK-55: whatever was stored meanwhile."""
    grow(store.checkpoints, 4)
    grow(store.checkpoints, 12, valued=0, first=11, parent="step-2")
    found = store.checkpoints.channel_histories("t", ["b"], "step-12")["b"]
    assert written(found) == ["nothing"]
    store.checkpoints.put("t", step(20, versions={"c": "1"}, parent_id="step-12"))
    assert store.checkpoints.channel_histories("t", ["b"], "step-20")["b"].value == content("x" * 1_000 + "12")


@pytest.mark.parametrize(
    "place", [("t", "step-9", ""), ("u", "step-1", ""), ("t", "step-1", "inner"), ("t", "step-1", "")]
)
def test_what_has_no_ancestors_has_no_history(store: Any, place: tuple[str, str, str]) -> None:
    """checkpoints CK-55: an unknown checkpoint, thread or namespace, and a first checkpoint."""
    grow(store.checkpoints, 1)
    thread, one, space = place
    assert store.checkpoints.channel_histories(thread, ["a"], one, namespace=space) == {"a": NOTHING}
    assert store.checkpoints.channel_histories(thread, [], one, namespace=space) == {}


def test_a_line_that_comes_back_to_itself_ends(store: Any) -> None:
    """checkpoints CK-55."""
    for number, parent in ((1, 3), (2, 1), (3, 2)):
        store.checkpoints.put("t", step(number, versions={"a": "none"}, parent_id=f"step-{parent}"))
        store.checkpoints.put_writes("t", f"step-{number}", "task", [write(0, f"a{number}")])
    assert written(store.checkpoints.channel_histories("t", ["a"], "step-3")["a"]) == ["a3", "a1", "a2"]


def test_a_history_takes_the_same_statements_for_any_number_of_ancestors(database: Database) -> None:
    """checkpoints CK-55."""
    counts = []
    for steps in (3, 60):
        with database.open() as store:
            store.checkpoints.delete("t")
            grow(store.checkpoints, steps)
            with racing(store) as race:
                assert len(store.checkpoints.channel_histories("t", ["a"])["a"].writes) == 2 * (steps - 1)
            counts.append(len(race.statements))
    assert counts[0] == counts[1] <= 8


def test_a_damaged_value_of_a_history_is_named(database: Database) -> None:
    """checkpoints CK-55."""
    with database.open() as store:
        grow(store.checkpoints, 3)
        database.raw().execute("UPDATE checkpoint_values SET body = 'wrong' WHERE channel = 'a'")
        with pytest.raises(CorruptData):
            store.checkpoints.channel_histories("t", ["a"])


def test_a_history_before_an_id_crosses_namespaces(store: Any) -> None:
    """checkpoints CK-56: by the order of ids alone, of whatever place the id is."""
    for number, space in ((1, ""), (2, "inner"), (3, ""), (4, "inner")):
        store.checkpoints.put("t", step(number, namespace=space))
    assert ids(store.checkpoints.history("t", namespace="inner", id_before="step-3")) == ["step-2"]
    assert ids(store.checkpoints.history("t", id_before="step-3")) == ["step-2", "step-1"]
    assert ids(store.checkpoints.history("t", id_before="step-10")) == ["step-1"]
    assert ids(store.checkpoints.history("t", namespace="inner", id_before="a")) == []
