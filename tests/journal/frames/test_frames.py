from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest
from support.each import with_each
from support.journal.trees import element, text
from support.sent import recorded
from support.workflows.steps import Raw, all_pages, started, undone

from lastlight_state import StateStore
from lastlight_state.errors import AlreadyExists, FrameChainBroken, InvalidValue, NotFound
from lastlight_state.journal.frames import codec
from lastlight_state.testing import Database

REST = [element("step", text("done, and nothing of it changes"), id=f"s{i}") for i in range(10)]


def frame(i: int) -> Any:
    """A tree of which little changes from one number to the next."""
    return element("plan", element("now", text(f"step {i}"), id="now"), *REST)


def stored(store: Any, run_id: str) -> list[tuple[int, str]]:
    return [(one.frame_no, one.encoding) for one in all_pages(store.journal.frames.list, run_id=run_id)][::-1]


@contextmanager
def behind_the_guards(raw: Raw) -> Iterator[None]:
    """Plain SQL may change frames."""
    with raw.without_guard("run_frames_no_update") if raw.name == "sqlite" else _switched_off(raw):
        raw("INSERT INTO maintenance_permits (receipt_id) VALUES ('edit')")
        yield
        raw("DELETE FROM maintenance_permits")


@contextmanager
def _switched_off(raw: Raw) -> Iterator[None]:
    raw("ALTER TABLE run_frames DISABLE TRIGGER USER")
    yield
    raw("ALTER TABLE run_frames ENABLE TRIGGER USER")


def test_every_fiftieth_frame_is_whole_and_all_come_back_as_they_were(store: StateStore) -> None:
    """journal R-1, R-3, R-4, R-6: reading one walks a chain of fifty at most."""
    run = started(store).id
    for i in range(121):
        assert store.journal.frames.append(run, frame(i)).frame_no == i
    assert stored(store, run) == [(i, "full" if i == 0 else "keyframe" if i % 50 == 0 else "delta") for i in range(121)]
    for i in (0, 1, 49, 50, 51, 99, 120):
        found = store.journal.frames.get(run, i)
        assert codec.canonical(found.tree) == codec.canonical(frame(i))
        assert found.content_hash == codec.digest(codec.canonical(frame(i)))
    latest = store.journal.frames.find_latest(run)
    assert latest is not None
    assert (latest.frame_no, latest.xml.startswith("<plan><now id=")) == (120, True)
    assert [one.frame_no for one in store.journal.frames.list(run, after_frame_no=117)] == [120, 119, 118]


def test_frames_are_whole_where_a_change_would_not_do(store: StateStore) -> None:
    """journal R-3: at the beginning, across a gap, and where the change is longer."""
    run = started(store).id
    frames = store.journal.frames
    assert frames.append(run, frame(1), frame_no=1).encoding == "full"
    assert frames.append(run, frame(1)).encoding == "delta"
    assert frames.diff(run, 1, 2).ops == ()
    assert frames.append(run, text("something else"), frame_no=3).encoding == "full"
    assert frames.append(run, frame(5), frame_no=5).encoding == "full"
    assert frames.append(run, None).encoding == "full"
    assert [one[0] for one in stored(store, run)] == [1, 2, 3, 5, 6]
    assert frames.get(run, 6).tree is None
    with pytest.raises(NotFound):
        frames.get(run, 4)
    with pytest.raises(NotFound):
        frames.append("nobody", None)
    assert frames.find_latest("nobody") is None


def test_a_stored_frame_never_changes(every_backend: StateStore, run_id: str) -> None:
    """journal R-2: the same again is the stored one."""
    frames = every_backend.journal.frames
    first = frames.append(run_id, frame(0), note="begin", mounted_task_ids=["a"], task_index={"a": 0})
    again = frames.append(run_id, frame(0), frame_no=0, note="begin", mounted_task_ids=["a"], task_index={"a": 0})
    assert again == first
    for given in ({"tree": frame(1), "note": "begin"}, {"tree": frame(0)}):
        with pytest.raises(AlreadyExists):
            frames.append(run_id, frame_no=0, **given)
    found = frames.get(run_id, 0)
    assert (found.note, found.mounted_task_ids, found.task_index) == ("begin", ("a",), {"a": 0})
    with pytest.raises(InvalidValue):
        frames.append(run_id, {"kind": "other"})


def test_a_rolled_back_frame_is_remembered_by_nobody(database: Database) -> None:
    """journal R-1, R-9: another tree under its number is what everybody reads."""
    one, other = database.open(), database.open()
    run = started(one).id
    one.journal.frames.append(run, frame(0))
    with undone(one) as tx:
        tx.journal.frames.append(run, frame(1))
        assert tx.journal.frames.get(run, 1).tree == codec_tree(frame(1))
    other.journal.frames.append(run, frame(9))
    for store in (one, other):
        assert store.journal.frames.get(run, 1).tree == codec_tree(frame(9))


def codec_tree(tree: Any) -> Any:
    return codec.apply(tree, codec.diff(tree, tree))


@pytest.mark.slow
def test_texts_that_are_kept_are_never_mixed_up_and_never_too_many(every_backend: StateStore) -> None:
    """journal R-9, P-4: 600 frames of two runs, read twice in any order."""
    runs = [started(every_backend).id for _ in range(2)]
    trees = {(run, i): element("t", run=run, i=i) for run in runs for i in range(300)}
    with every_backend.transaction() as tx:
        for (run, _), tree in trees.items():
            tx.journal.frames.append(run, tree)
    wanted = list(trees) * 2
    random.Random(7).shuffle(wanted)
    for run, i in wanted:
        assert every_backend.journal.frames.get(run, i).tree == codec_tree(trees[run, i])
    assert len(every_backend.journal.frames._cache) <= 512


@pytest.mark.logs("a frame begins a new chain")
def test_a_broken_chain_is_an_error_and_never_another_frame(database: Database, raw: Raw) -> None:
    """journal R-5, R-8, R-10: later whole frames can be read, and a new chain can begin."""
    with database.open() as store:
        run = started(store).id
        with store.transaction() as tx:
            for i in range(105):
                tx.journal.frames.append(run, frame(i))
    with behind_the_guards(raw):
        raw("DELETE FROM run_frames WHERE frame_no IN (0, 70)")
        raw("UPDATE run_frames SET body = '{' WHERE frame_no = 60")
        raw('UPDATE run_frames SET body = \'{"version":1,"ops":[]}\' WHERE frame_no = 65')
        raw("UPDATE run_frames SET body = 'null' WHERE frame_no = 100")
        raw("UPDATE run_frames SET encoding = 'zip' WHERE frame_no = 50")
    with database.open() as store:
        frames = store.journal.frames
        assert frames.get(run, 50).tree == codec_tree(frame(50))
        assert frames.get(run, 59).tree == codec_tree(frame(59))
        for number, reason, at in (
            (1, "no_anchor", 1),
            (60, "bad_delta", 60),
            (61, "bad_delta", 60),
            (100, "hash_mismatch", 100),
        ):
            with pytest.raises(FrameChainBroken) as raised:
                frames.get(run, number)
            assert (raised.value.reason, raised.value.frame_no) == (reason, at)
        check = frames.verify(run)
        assert (check.frames, check.anchors) == (103, 2)
        assert dict(check.broken)[71] == "missing_frame"
        assert frames.append(run, frame(105)).encoding == "full"
        assert frames.get(run, 105).tree == codec_tree(frame(105))


DAMAGED = {
    "DELETE FROM run_frames WHERE frame_no = 2": (2, "missing_frame", {3: "missing_frame", 4: "no_anchor"}),
    "UPDATE run_frames SET body = '{' WHERE frame_no = 2": (2, "bad_delta", {2: "bad_delta", 3: "no_anchor"}),
    'UPDATE run_frames SET body = \'{"version":1,"ops":[]}\' WHERE frame_no = 3': (
        3,
        "hash_mismatch",
        {3: "hash_mismatch", 4: "no_anchor"},
    ),
    "UPDATE run_frames SET body = '{' WHERE frame_no = 0": (0, "unreadable", {0: "unreadable", 1: "no_anchor"}),
    "UPDATE run_frames SET body = 'null' WHERE frame_no = 0": (0, "hash_mismatch", {0: "hash_mismatch"}),
    "DELETE FROM run_frames WHERE frame_no = 0": (3, "no_anchor", {1: "no_anchor", 2: "no_anchor"}),
}


@with_each("damage", DAMAGED, ids=[f"{row[1]} {row[0]}" for row in DAMAGED.values()])
def test_what_is_wrong_with_a_chain_is_said_of_the_row_at_fault(database: Database, raw: Raw, damage: str) -> None:
    """journal R-5, R-8: for each frame that is rebuilt from it, and by `verify`, which goes on with the next whole."""
    at, reason, broken = DAMAGED[damage]
    with database.open() as store:
        run = started(store).id
        for i in range(5):
            store.journal.frames.append(run, frame(i))
        store.journal.frames.append(run, frame(6), frame_no=6)
    with behind_the_guards(raw):
        raw(damage)
    with database.open() as store:
        frames = store.journal.frames
        with pytest.raises(FrameChainBroken):
            list(frames.replay(run))
        with pytest.raises(FrameChainBroken) as raised:
            frames.get(run, 3)
        assert (raised.value.frame_no, raised.value.reason) == (at, reason)
        check = frames.verify(run)
        assert dict(check.broken).items() >= broken.items()
        assert [number for number, _ in check.broken] == list(range(min(broken), 5))
        assert (check.frames, check.anchors) == (
            6 - ("DELETE" in damage),
            2 - ("DELETE" in damage and reason == "no_anchor"),
        )
        assert frames.get(run, 6).tree == codec_tree(frame(6))


def test_a_replay_reads_each_row_once(database: Database) -> None:
    """journal R-7, R-6: and lists select no contents."""
    with recorded(database) as (store, sent):
        run = started(store).id
        with store.transaction() as tx:
            for i in range(130):
                tx.journal.frames.append(run, frame(i))
        sent.clear()
        assert [one.frame_no for one in store.journal.frames.replay(run, after=60, upto=120)] == list(range(61, 121))
        assert len(sent) == 4
        sent.clear()
        store.journal.frames.list(run)
        assert "body" not in sent[0]
        sent.clear()
        whole = [one.tree for one in store.journal.frames.replay(run)]
        assert len(sent) == 4
    assert whole == [codec_tree(frame(i)) for i in range(130)]


@pytest.mark.slow
def test_a_replay_begins_after_a_frame_and_ends_with_one(store: StateStore) -> None:
    """journal R-4, R-7: whole frames and changes are where it begins and ends; no bound is every frame."""
    run = started(store).id
    with store.transaction() as tx:
        for i in range(53):
            tx.journal.frames.append(run, frame(i))
    for after, upto in product((None, -1, 0, 1, 49, 50, 51, 52, 60), (None, 0, 1, 50, 51, 52, 60)):
        found = [(one.frame_no, one.tree) for one in store.journal.frames.replay(run, after=after, upto=upto)]
        first, last = 0 if after is None else after + 1, 52 if upto is None else min(upto, 52)
        assert found == [(i, codec_tree(frame(i))) for i in range(first, last + 1)]
    assert [one.frame_no for one in store.journal.frames.list(run, after_frame_no=-1)] == list(range(52, 2, -1))
    for bad in ({"after": -2}, {"upto": -1}):
        with pytest.raises(InvalidValue):
            list(store.journal.frames.replay(run, **bad))


def test_a_change_is_stored_only_where_it_is_shorter(store: StateStore) -> None:
    """journal R-3: as long as the whole is not shorter."""
    run, kept = started(store).id, set()
    for i in range(90):
        tree = element("t", id="a", n=i % 2, rest="x" * (i // 2))
        appended = store.journal.frames.append(run, tree)
        if i % 2:
            delta = codec.encode_delta(codec.diff(element("t", id="a", n=0, rest=tree["props"]["rest"]), tree))
            missing = appended.full_bytes - len(delta)
            kept.add(missing)
            if i != 50:
                assert appended.encoding == ("delta" if missing > 0 else "full")
    assert {-1, 0, 1} <= kept


def test_a_frame_under_the_number_that_comes_next_is_like_any_other(
    store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    """journal R-1: the next one comes after it, without a word; one before it changes no number."""
    run, frames = started(store).id, store.journal.frames
    with caplog.at_level(logging.WARNING):
        assert [frames.append(run, frame(i), frame_no=i).frame_no for i in (0, 5, 3)] == [0, 5, 3]
        assert frames.append(run, frame(6)).frame_no == 6
    assert caplog.messages == []
    for number in (0, 3, 5, 6):
        assert frames.get(run, number).tree == codec_tree(frame(number))
    assert frames.append(run, frame(0), frame_no=2**31 - 1).frame_no == 2**31 - 1
    for bad in (2**31, -1, True):
        with pytest.raises(InvalidValue):
            frames.append(run, frame(0), frame_no=bad)
