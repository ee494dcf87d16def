"""How values are stored: whole, as changes, or as the same; and what reading one takes."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from time import sleep
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.checkpoints.steps import NOTHING, content, machine_steps, step, texts, write
from support.each import with_each

from lastlight_state import CorruptData
from lastlight_state.checkpoints import Content, NewCheckpoint
from lastlight_state.checkpoints.changes import apply_changes, change_between
from lastlight_state.checkpoints.values import chain
from lastlight_state.testing import Database, racing
from lastlight_state.testing.postgres import connect

KB = 1024


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def rows(database: Database, columns: str, order: str = "channel, number, version") -> list[tuple[Any, ...]]:
    found = database.raw().execute(f"SELECT {columns} FROM checkpoint_values ORDER BY {order}").fetchall()
    return [tuple(row) for row in found]


@given(st.binary(max_size=300), st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_a_change_makes_one_value_of_any_other(before: bytes, after: bytes) -> None:
    """checkpoints CK-20."""
    assert apply_changes(before, change_between(before, after)) == after


@given(st.lists(st.binary(max_size=100), min_size=1, max_size=8))
@settings(max_examples=200, deadline=None)
def test_changes_one_after_the_other_make_the_last_value(several: list[bytes]) -> None:
    """checkpoints CK-20: also where values between are empty."""
    changes = [change_between(before, after) for before, after in pairwise(several)]
    assert apply_changes(several[0], *changes) == several[-1]


@given(st.integers(0, 2**32), st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_a_change_makes_one_value_of_an_edited_one(seed: int, edits: int) -> None:
    """checkpoints CK-20."""
    source = random.Random(seed)
    before = source.randbytes(source.randrange(4_000))
    after = bytearray(before)
    for _ in range(edits):
        start = source.randrange(len(after) + 1)
        after[start : start + source.randrange(60)] = source.randbytes(source.randrange(60))
    assert apply_changes(before, change_between(before, bytes(after))) == bytes(after)


@with_each(
    "edit",
    [
        lambda data: data + b"more",
        lambda data: b"\xdc\x01" + data[2:] + b"more",
        lambda data: b"\xdc\x01\x00\x10" + data[1:] + b"more",
        lambda data: data[:5_000] + b"in between" + data[5_000:],
        lambda data: data[:5_000] + data[5_500:],
        lambda data: data[:100] + b"here" + data[200:9_000] + b"there" + data[9_100:],
        lambda data: data[1_000:] + b"window",
        lambda data: data,
    ],
    ids=["end", "length and end", "longer length and end", "inside", "cut", "two places", "window", "none"],
)
def test_a_small_difference_is_a_small_change(edit: Any) -> None:
    """checkpoints CK-20."""
    before = noise(100 * KB)
    after = edit(before)
    made = change_between(before, after)
    assert (apply_changes(before, made) == after, len(made) < 400) == (True, True)


@with_each("damage", [b"\1", b"\xff" * 24, change_between(b"ab", b"abc")[:-1], change_between(b"abcdef", b"abcdefg")])
def test_a_change_that_does_not_fit_is_an_error(damage: bytes) -> None:
    """checkpoints CK-22."""
    with pytest.raises(ValueError, match=r"takes|ends"):
        apply_changes(b"ab", damage)


def test_the_values_before_are_those_with_the_lowest_bit_cleared() -> None:
    """checkpoints CK-21: at most seven rows."""
    assert (chain(0, 0), chain(10, 17), chain(64, 127)) == ([0], [10, 14, 16, 17], [64, 96, 112, 120, 124, 126, 127])
    assert max(len(chain(0, number)) for number in range(64)) == 7


def test_what_grows_is_stored_as_changes_with_whole_ones_in_between(store: Any, database: Database) -> None:
    """checkpoints CK-20, CK-21: one in sixty-four is whole, and each reads back."""
    c, data = store.checkpoints, noise(100 * KB)
    for number in range(1, 131):
        c.put("t", _grown(number, data))
    whole = [number for number, encoding in rows(database, "number, encoding") if encoding == "whole"]
    assert whole == [0, 64, 128]
    assert sum(size for (size,) in rows(database, "length(body)")) < 3 * 22 * KB + 130 * 2 * KB
    for number in (1, 2, 63, 64, 65, 100, 128, 129, 130):
        assert c.get("t", f"step-{number}").values["a"].data == data[: 20 * KB + 16 * number]


def _grown(number: int, data: bytes) -> NewCheckpoint:
    return NewCheckpoint(
        f"step-{number}", NOTHING, {"a": str(number)}, {"a": Content("raw", data[: 20 * KB + 16 * number])}
    )


def test_a_value_that_stays_the_same_has_no_bytes(store: Any, database: Database) -> None:
    """checkpoints CK-20: under whichever version, and in whichever format."""
    c = store.checkpoints
    for number in range(1, 71):
        format_ = "raw" if number % 2 else "other"
        c.put("t", NewCheckpoint(f"step-{number}", NOTHING, {"a": str(number)}, {"a": Content(format_, b"x" * KB)}))
    assert sorted(rows(database, "encoding, length(body)")) == [*[("same", 0)] * 69, ("whole", KB)]
    assert c.get("t").values["a"] == Content("other", b"x" * KB)
    assert c.get("t", "step-1").values["a"] == Content("raw", b"x" * KB)


def test_a_value_that_has_little_in_common_is_stored_whole(store: Any, database: Database) -> None:
    """checkpoints CK-21: reading one never takes more than about twice its bytes."""
    c = store.checkpoints
    for number, data in enumerate([noise(9 * KB, 1), noise(9 * KB, 2), noise(9 * KB, 2)[:100], b"", b"y"], 1):
        c.put("t", NewCheckpoint(f"step-{number}", NOTHING, {"a": str(number)}, {"a": Content("raw", data)}))
    assert rows(database, "encoding, length(body)") == [("whole", 9 * KB)] * 2 + [
        ("whole", 100),
        ("whole", 0),
        ("whole", 1),
    ]
    assert [len(one.values["a"].data) for one in c.history("t")] == [1, 0, 100, 9 * KB, 9 * KB]


def test_a_step_takes_the_same_statements_at_the_tenth_and_at_the_thousandth(database: Database) -> None:
    """checkpoints CK-23: a put, a get and a page; and SQLite walks no more rows."""
    store = database.open()
    c, taken = store.checkpoints, {}
    for number in range(1, 1_002):
        c_step = step(number, {"log": "x" * number, "at": str(number)}, parent_id=f"step-{number - 1}")
        if number not in (11, 1_001):
            c.put("t", c_step)
            continue
        with racing(store) as race:
            c.put("t", c_step)
            written = len(race.statements)
            assert texts(c.get("t"))["log"] == "x" * number
            read = len(race.statements) - written
            c.history("t", limit=5)
        taken[number] = (written, read, len(race.statements) - written - read)
    assert taken[11] == taken[1_001] == (3, 1, 2)


def test_a_step_walks_no_more_at_the_thousandth_than_at_the_tenth(sqlite_database: Database) -> None:
    """checkpoints CK-23: in steps of SQLite's machine, of a put, a get and a page."""
    store = sqlite_database.open()
    for number in range(1, 11):
        store.checkpoints.put("t", _grown(number, noise(100 * KB)))
    early = [machine_steps(store, act) for act in _ACTS]
    for number in range(12, 1_000):
        store.checkpoints.put("t", _grown(number, noise(100 * KB)))
    late = [machine_steps(store, act) for act in _ACTS]
    assert [after <= 1.5 * before for before, after in zip(early, late, strict=True)] == [True] * 3, (early, late)


@pytest.mark.slow
@pytest.mark.plain_postgres("reads statistics of tables, which the shards keep")
def test_a_step_reads_no_more_rows_and_stores_no_more_bytes_on_postgres(postgres_database: Database) -> None:
    """checkpoints CK-48: rows that the server fetched and wrote, and bytes of the rows, of ten steps each."""
    data = noise(40 * KB)

    def walk(first: int, last: int) -> list[int]:
        with connect(postgres_database.url) as server:
            before = _counters(server)
            with postgres_database.open() as store:
                for number in range(first, last):
                    store.checkpoints.put("t", _grown(number, data), after=f"step-{number - 1}" if number > 1 else None)
                    store.checkpoints.put_writes("t", f"step-{number}", "task", [write(0, "w")])
                    store.checkpoints.get("t")
            return [after - other for after, other in zip(_counters(server), before, strict=True)]

    walk(1, 11)
    early = walk(11, 21)
    walk(21, 523)
    late = walk(523, 533)  # as far behind a whole value as the others
    assert late[1] == early[1]
    assert late[0] <= 1.2 * early[0], (early, late)
    with connect(postgres_database.url) as server:
        sizes = "SELECT sum(pg_column_size(row.*)) FROM checkpoint_values AS row WHERE number >= %s AND number < %s"
        before, after = (bytes_ for place in ((11, 21), (523, 533)) for [bytes_] in server.execute(sizes, place))
    assert after <= 1.2 * before, (before, after)


def _counters(server: Any) -> list[int]:
    """Return the rows fetched and written of the tables of checkpoints, when nobody works.

    The planner knows then how many rows there are, as after an autovacuum.
    """
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    while server.execute(others).fetchone()[0]:
        sleep(0.01)
    server.execute("ANALYZE")
    found = server.execute("""
        SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), sum(n_tup_ins + n_tup_upd)
        FROM pg_stat_user_tables WHERE relname LIKE 'checkpoint%'
    """).fetchone()
    return [int(one or 0) for one in found]


_ACTS: tuple[Callable[[Any], object], ...] = (
    lambda tx: tx.checkpoints.put("t", _grown(tx.checkpoints.list("t", limit=1).items[0].seq + 1, noise(100 * KB))),
    lambda tx: tx.checkpoints.get("t"),
    lambda tx: tx.checkpoints.history("t", limit=5),
)


def test_a_value_that_cannot_be_rebuilt_is_named_and_the_next_is_stored_whole(
    store: Any, database: Database, caplog: Any
) -> None:
    """checkpoints CK-22: damage hides no other checkpoint."""
    c, data = store.checkpoints, noise(9 * KB).hex()
    for number in range(1, 5):
        c.put("t", step(number, {"a": data + str(number)}))
    database.raw().execute("DELETE FROM checkpoint_values WHERE version = '3'")
    with pytest.raises(CorruptData) as damage:
        c.get("t", "step-4")
    assert (damage.value.table, damage.value.column) == ("checkpoint_values", "body")
    page = c.history("t")
    assert [one.id for one in page] == ["step-3", "step-2", "step-1"]
    assert [one.table for one in page.damaged] == ["checkpoint_values"]
    assert texts(c.get("t", "step-2")) == {"a": data + "2"}
    database.raw().execute("DELETE FROM checkpoint_values WHERE version = '1'")
    c.put("t", step(5, {"a": data + "5"}))
    assert texts(c.get("t")) == {"a": data + "5"}
    assert "stored whole" in caplog.text


def test_a_value_whose_bytes_were_changed_is_damage(store: Any, database: Database) -> None:
    """checkpoints CK-22."""
    store.checkpoints.put("t", NewCheckpoint("c", NOTHING, {"a": "1"}, {"a": content("right")}))
    database.raw().execute("UPDATE checkpoint_values SET body = 'wrong'")
    with pytest.raises(CorruptData):
        store.checkpoints.get("t")


def test_forks_share_the_values_of_a_channel(store: Any) -> None:
    """checkpoints CK-4, CK-20: each line keeps its own versions."""
    c, base = store.checkpoints, noise(2 * KB).hex()
    c.put("t", step(1, {"a": base}))
    for number in range(2, 20):
        side = "left" if number % 2 else "right"
        parent = "step-1" if number < 4 else f"step-{number - 2}"
        c.put("t", step(number, {"a": f"{base} {side} {number}"}, parent_id=parent))
    for number in range(2, 20):
        assert texts(c.get("t", f"step-{number}")) == {"a": f"{base} {'left' if number % 2 else 'right'} {number}"}
