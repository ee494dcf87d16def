"""What removals leave, and what they take: nothing of a thread is fetched to decide it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.checkpoints.steps import NOTHING, content, ids, machine_steps, step, texts, write
from support.each import with_each

from lastlight_state import CorruptData
from lastlight_state.checkpoints import Content, NewCheckpoint
from lastlight_state.checkpoints.values import chain
from lastlight_state.testing import Database, racing

#: Removals of checkpoints of a thread; each returns how many they were.
REMOVALS: dict[str, Callable[[Any], int]] = {
    "keep_latest": lambda checkpoints: checkpoints.keep_latest("t", keep=2, from_ancestors=["rare"]),
    "delete_runs": lambda checkpoints: checkpoints.delete_runs(["run-0", "run-1"]),
}


def grow(checkpoints: Any, steps: int, size: int = 10) -> None:
    """Store steps of three runs that have a log that grows, a constant channel, and one with a rare value."""
    for number in range(1, steps + 1):
        given = {"log": "x" * size + "y" * number}
        held = {"rare": str(number), "constant": "1"}
        if number == 1:
            given["constant"] = "c" * size
        if number % 4 == 1:
            given["rare"] = "z" * size
        parent = f"step-{number - 1}" if number > 1 else None
        checkpoints.put("t", step(number, given, versions=held, parent_id=parent, run_ref=f"run-{number % 3}"))
        checkpoints.put_writes("t", f"step-{number}", "task", [write(0, "w" * size)])


@contextmanager
def fetching(store: Any) -> Iterator[list[int]]:
    """Collect how many bytes each statement of the block fetches."""
    backend, taken = store.backend, []
    fetch_rows = backend.fetch_rows

    def counted(cursor: Any) -> Any:
        rows = fetch_rows(cursor)
        taken.append(sum(len(cell) if isinstance(cell, str | bytes) else 8 for row in rows for cell in row))
        return rows

    backend.fetch_rows = counted
    try:
        yield taken
    finally:
        backend.fetch_rows = fetch_rows


@pytest.mark.parametrize("call", ["keep_latest", "delete_runs"])
def test_a_removal_fetches_the_same_of_any_thread(database: Database, call: str) -> None:
    """checkpoints CK-49: in the same statements."""
    taken = []
    for steps, size in ((9, 10), (150, 5_000)):
        store = database.open()
        store.checkpoints.delete("t")
        grow(store.checkpoints, steps, size)
        with fetching(store) as fetched, racing(store) as race:
            assert REMOVALS[call](store.checkpoints) > 0
        taken.append((len(race.statements), sum(fetched)))
        store.close()
    assert taken[0] == taken[1]
    assert taken[0][1] < 100


@pytest.mark.parametrize("call", ["keep_latest", "delete_runs"])
def test_a_removal_takes_time_by_the_length_of_the_thread(sqlite_database: Database, call: str) -> None:
    """checkpoints CK-50: in steps of SQLite's machine, also where the planner has no statistics."""
    store, taken = sqlite_database.open(), []
    for steps in (60, 240):
        store.checkpoints.delete("t")
        grow(store.checkpoints, steps)
        taken.append(machine_steps(store, lambda tx: REMOVALS[call](tx.checkpoints)))
    assert taken[1] <= 5 * taken[0], taken


@with_each("left", [1, 2, 40, 63, 64, 65, 95, 128, 129, 140])
def test_the_rows_that_rebuild_a_value_stay_and_no_other(store: Any, database: Database, left: int) -> None:
    """checkpoints CK-51."""
    c, data, thread = store.checkpoints, bytes(range(256)) * 8, f"leaves-{left}"
    for number in range(1, 141):
        given = {"a": Content("raw", data + str(number).encode())}
        run = "stays" if number == left else f"goes-{left}"
        c.put(thread, NewCheckpoint(f"step-{number}", NOTHING, {"a": str(number)}, given, run_ref=run))
    assert c.delete_runs([f"goes-{left}"]) == 139
    where = f"thread_id = '{c.thread(thread).id}'"
    stored = database.raw().execute(f"SELECT number FROM checkpoint_values WHERE {where} ORDER BY number").fetchall()
    assert [row[0] for row in stored] == chain((left - 1) // 64 * 64, left - 1)
    assert c.get(thread).values["a"].data == data + str(left).encode()


def test_values_that_equal_the_one_before_stay_by_their_versions(store: Any, database: Database) -> None:
    """checkpoints CK-51: and the one with the bytes."""
    c = store.checkpoints
    for number in range(1, 6):
        c.put("t", step(number, {"a": "same", "b": str(number)}))
    assert c.keep_latest("t", keep=2) == 3
    assert [texts(one) for one in c.history("t")] == [{"a": "same", "b": "5"}, {"a": "same", "b": "4"}]
    stored = database.raw().execute("SELECT version FROM checkpoint_values WHERE channel = 'a' ORDER BY version")
    assert [row[0] for row in stored.fetchall()] == ["1", "4", "5"]


@with_each("name", ['a"b', "$.a", "$", "a\\b", "a.b", "a b", "[0]", "ключ", "😀", "a'b", "%s:x"])
def test_a_value_stays_whatever_its_channel_and_version_are_called(store: Any, name: str) -> None:
    """checkpoints CK-51, CK-52."""
    c, thread = store.checkpoints, f"of {name}"
    given = {name: content("kept"), "b": content("b")}
    c.put(thread, NewCheckpoint("step-1", NOTHING, {name: name, "b": "1"}, given))
    c.put(thread, NewCheckpoint("step-2", NOTHING, {name: "none"}, parent_id="step-1"))
    c.put(thread, NewCheckpoint("step-3", NOTHING, {name: "none"}, parent_id="step-2"))
    assert c.keep_latest(thread, from_ancestors=[name]) == 0
    c.put(thread, NewCheckpoint("step-4", NOTHING, {name: name}, parent_id="step-3"))
    assert c.keep_latest(thread, from_ancestors=[name]) == 3
    assert texts(c.get(thread)) == {name: "kept"}


def test_ancestors_that_lead_back_to_themselves_are_followed_once(store: Any) -> None:
    """checkpoints CK-52."""
    c = store.checkpoints
    for number, parent in ((1, 3), (2, 1), (3, 2), (4, 4)):
        c.put("t", step(number, {"a": "a"}, parent_id=f"step-{parent}", namespace="inner" if number == 4 else ""))
    assert c.keep_latest("t", from_ancestors=["b"]) == 0
    assert c.keep_latest("t", from_ancestors=["a"]) == 2
    assert ids(c.list("t")) == ["step-4", "step-3"]


@pytest.mark.parametrize("call", ["keep_latest", "delete_runs"])
def test_nothing_is_removed_where_a_checkpoint_does_not_say_what_it_names(sqlite_database: Database, call: str) -> None:
    """checkpoints CK-53: its values may be those of others."""
    store = sqlite_database.open()
    grow(store.checkpoints, 40)
    sqlite_database.raw().execute("UPDATE checkpoints SET versions = '{' WHERE id = 'step-2'")
    with pytest.raises(CorruptData) as damage:
        REMOVALS[call](store.checkpoints)
    assert (damage.value.table, damage.value.column) == ("checkpoints", "versions")
    assert len(store.checkpoints.list("t")) == 40


@with_each("versions", ["[]", "null", '"text"', "1"])
@with_each("call", ["keep_latest", "delete_runs"])
def test_nothing_is_removed_where_the_versions_of_a_checkpoint_are_no_object(
    store: Any, database: Database, call: str, versions: str
) -> None:
    """checkpoints CK-53: JSON, from which its values would look like nobody's. It cannot be read either."""
    grow(store.checkpoints, 6)
    database.raw().execute(f"UPDATE checkpoints SET versions = '{versions}' WHERE id = 'step-2'")
    for refused in (REMOVALS[call], lambda checkpoints: checkpoints.get("t", "step-2")):
        with pytest.raises(CorruptData) as damage:
            refused(store.checkpoints)
        assert (damage.value.table, damage.value.column) == ("checkpoints", "versions")
        assert "step-2" in str(damage.value)
    assert len(store.checkpoints.list("t")) == 6


@pytest.mark.parametrize("keep", [2**31, 2**63 - 1])
def test_a_removal_keeps_as_many_as_anybody_can_name(store: Any, keep: int) -> None:
    """checkpoints CK-14."""
    grow(store.checkpoints, 3)
    assert store.checkpoints.keep_latest("t", keep=keep) == 0
