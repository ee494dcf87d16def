"""Any sequence of calls leaves what a model in memory says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from support.checkpoints.steps import NOTHING

from lastlight_state.checkpoints import Content, NewCheckpoint, NewWrite
from lastlight_state.testing import Database

THREADS, SPACES, CHANNELS, TASKS = ("t", "u"), ("", "inner"), ("a", "b", "c"), ("x", "y")


@dataclass
class Stored:
    """A checkpoint as the model keeps it."""

    id: str
    namespace: str
    versions: dict[str, str]
    values: dict[str, bytes]
    run: str
    parent: str | None = None


@dataclass
class Model:
    """Threads as lists of checkpoints, oldest first, and writes by their places."""

    threads: dict[str, list[Stored]] = field(default_factory=lambda: {thread: [] for thread in THREADS})
    writes: dict[tuple[Any, ...], bytes] = field(default_factory=dict)

    def drop(self, thread: str, gone: Callable[[Stored], bool]) -> int:
        before = self.threads[thread]
        left = [one for one in before if not gone(one)]
        ids = {(one.namespace, one.id) for one in before if gone(one)}
        self.writes = {key: data for key, data in self.writes.items() if key[0] != thread or key[1:3] not in ids}
        self.threads[thread] = left
        return len(before) - len(left)


bodies = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda n, end: b"common start " * n + end, st.integers(0, 60), st.binary(max_size=9)),
)
threads, spaces = st.sampled_from(THREADS), st.sampled_from(SPACES)
actions = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            threads,
            spaces,
            st.dictionaries(st.sampled_from(CHANNELS), bodies),
            st.sets(st.sampled_from(CHANNELS), max_size=2),
            st.tuples(st.integers(0, 3), st.integers(1, 3)),
        ),
        st.tuples(st.just("write"), threads, st.sampled_from(TASKS), st.integers(0, 2), bodies, st.booleans()),
        st.tuples(st.just("runs"), st.integers(0, 3)),
        st.tuples(st.just("keep"), threads, st.integers(1, 3), st.sets(st.sampled_from(CHANNELS), max_size=2)),
        st.tuples(st.just("delete"), threads),
        st.tuples(st.just("copy"), threads),
    ),
    max_size=25,
)


@pytest.mark.slow
@given(actions)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_call_leaves_what_the_model_says(database: Database, given_actions: list[tuple[Any, ...]]) -> None:
    """checkpoints CK-1, CK-7, CK-11, CK-12, CK-13, CK-14."""
    store = database.open()
    checkpoints, model = store.checkpoints, Model()
    for thread in THREADS:
        checkpoints.delete(thread)
    for number, (name, *arguments) in enumerate(given_actions):
        globals()[f"_{name}"](checkpoints, model, number, *arguments)
        _compare(checkpoints, model)
    store.close()


def _put(
    checkpoints: Any,
    model: Model,
    number: int,
    thread: str,
    space: str,
    new: dict[str, bytes],
    bare: set[str],
    place: tuple[int, int],
) -> None:
    """Go on with one of the last checkpoints; the channels of ``bare`` get a version that has no value."""
    run, back = place
    before = [one for one in model.threads[thread] if one.namespace == space]
    parent = before[-back:][0] if before else Stored("", space, {}, {}, "")
    versions = {**parent.versions, **dict.fromkeys([*bare, *new], str(number))}
    values = {channel: Content("raw", data) for channel, data in new.items()}
    given_one = NewCheckpoint(f"c{number}", NOTHING, versions, values, space, parent.id or None, f"run-{run}")
    checkpoints.put(thread, given_one, after=before[-1].id if before else None)
    held = {channel: data for channel, data in parent.values.items() if channel not in bare}
    made = Stored(f"c{number}", space, versions, {**held, **new}, f"run-{run}", parent.id or None)
    model.threads[thread].append(made)


def _write(
    checkpoints: Any, model: Model, _: int, thread: str, task: str, idx: int, data: bytes, replace: bool
) -> None:
    if not model.threads[thread]:
        return
    latest = model.threads[thread][-1]
    key = (thread, latest.namespace, latest.id, task, idx)
    given_one = NewWrite(idx, "a", Content("raw", data))
    taken = "replace" if replace else "keep"
    checkpoints.put_writes(thread, latest.id, task, [given_one], namespace=latest.namespace, on_conflict=taken)
    if replace or key not in model.writes:
        model.writes[key] = data


def _runs(checkpoints: Any, model: Model, _: int, run: int) -> None:
    gone = sum(model.drop(thread, lambda one: one.run == f"run-{run}") for thread in THREADS)
    assert checkpoints.delete_runs([f"run-{run}"]) == gone


def _keep(checkpoints: Any, model: Model, _: int, thread: str, keep: int, channels: set[str]) -> None:
    if not model.threads[thread]:
        return
    kept = set()
    for space in SPACES:
        line = {one.id: one for one in model.threads[thread] if one.namespace == space}
        for latest in list(line.values())[-keep:]:
            kept.add(id(latest))
            for channel in channels:
                found: Stored | None = latest
                while found is not None and channel not in found.values:
                    found = line.get(found.parent or "")
                    kept.add(id(found))
    removed = model.drop(thread, lambda one: id(one) not in kept)
    assert checkpoints.keep_latest(thread, keep=keep, from_ancestors=channels) == removed


def _delete(checkpoints: Any, model: Model, _: int, thread: str) -> None:
    assert checkpoints.delete(thread) == model.drop(thread, lambda _one: True)


def _copy(checkpoints: Any, model: Model, _: int, thread: str) -> None:
    other = next(one for one in THREADS if one != thread)
    if not model.threads[thread]:
        return
    checkpoints.delete(other)
    model.drop(other, lambda _one: True)
    assert checkpoints.copy(thread, other) == len(model.threads[thread])
    model.threads[other] = list(model.threads[thread])
    model.writes |= {(other, *key[1:]): data for key, data in model.writes.items() if key[0] == thread}


def _compare(checkpoints: Any, model: Model) -> None:
    for thread in THREADS:
        found = checkpoints.history(thread, limit=100)
        told = [
            (one.id, one.namespace, dict(one.versions), {name: value.data for name, value in one.values.items()})
            for one in reversed(found.items)
        ]
        assert told == [(one.id, one.namespace, one.versions, one.values) for one in model.threads[thread]]
        writes = {
            (thread, one.namespace, one.id, write.task, write.idx): write.content.data
            for one in found
            for write in one.writes
        }
        assert writes == {key: data for key, data in model.writes.items() if key[0] == thread}
