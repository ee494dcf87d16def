"""Contract tests of a checkpoint store for an agent framework, as a test class over a fixture ``checkpoints``.

They serve anybody who writes such a store. ``checkpoints`` is a function that opens the store anew at each call, as
another process would::

    from lastlight_state.testing.contracts import CheckpointsContract

    class TestMyCheckpoints(CheckpointsContract):
        @pytest.fixture
        def checkpoints(self, tmp_path):
            return lambda: MyCheckpoints(tmp_path / "checkpoints.db")

The interface is the smallest that such stores have in common. A few lines adapt any store to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

from lastlight_state.testing.contracts.steps import fresh

#: Every byte value, including those that end texts.
BYTES = bytes(range(256))


class KeptCheckpoint(NamedTuple):
    """A checkpoint as it is read: the values of all its channels, and the tasks' writes made after it."""

    id: str
    parent: str | None
    values: Mapping[str, bytes]
    #: Triples of task, channel and value. A task's writes are in order.
    writes: Sequence[tuple[str, str, bytes]]


class CheckpointStore(Protocol):
    """A store of threads. A thread is a sequence of checkpoints, each with the values of its channels."""

    def put(self, thread: str, checkpoint: str, values: Mapping[str, bytes], *, parent: str | None = None) -> None: ...

    def put_writes(self, thread: str, checkpoint: str, task: str, writes: Sequence[tuple[str, bytes]]) -> None: ...

    def get(self, thread: str, checkpoint: str | None = None) -> KeptCheckpoint | None: ...

    def list(self, thread: str) -> Sequence[str]: ...

    def delete(self, thread: str) -> None: ...


Checkpoints = Callable[[], CheckpointStore]


class CheckpointsContract:
    """Tests of a checkpoint store.

    It is opened again for each call, as by another process, and used by concurrent threads.
    """

    def test_a_checkpoint_comes_back_equal(self, checkpoints: Checkpoints) -> None:
        thread = fresh("thread")
        values = {"all": BYTES, "none": b"", "text": "\u00e9 \U0001f600".encode()}
        checkpoints().put(thread, "1", values)
        assert checkpoints().get(thread, "1") == KeptCheckpoint("1", None, values, [])

    def test_without_an_id_it_is_the_last_that_was_stored(self, checkpoints: Checkpoints) -> None:
        """Store checkpoints whose ids are not in the order of storing."""
        thread = fresh("thread")
        for name in ("b", "c", "a"):
            checkpoints().put(thread, name, {"n": name.encode()})
        found = checkpoints().get(thread)
        assert found is not None
        assert (found.id, found.values) == ("a", {"n": b"a"})
        assert list(checkpoints().list(thread)) == ["a", "c", "b"]

    def test_nothing_is_in_a_thread_that_nobody_wrote_to(self, checkpoints: Checkpoints) -> None:
        thread = fresh("thread")
        assert (checkpoints().get(thread), checkpoints().get(thread, "1"), [*checkpoints().list(thread)]) == (
            None, None, [],
        )  # fmt: skip
        checkpoints().delete(thread)

    def test_every_step_stays_as_it_was(self, checkpoints: Checkpoints) -> None:
        """Store a value that never changes, one that changes, one that grows, and a channel that ends."""
        thread = fresh("thread")
        steps = [_step(number) for number in range(70)]
        store = checkpoints()
        for number, values in enumerate(steps):
            store.put(thread, f"{number}", values, parent=f"{number - 1}" if number else None)
        for number, values in enumerate(steps):
            found = checkpoints().get(thread, f"{number}")
            assert found == KeptCheckpoint(f"{number}", f"{number - 1}" if number else None, values, [])

    def test_of_two_that_follow_one_each_has_its_own_values(self, checkpoints: Checkpoints) -> None:
        thread = fresh("thread")
        checkpoints().put(thread, "root", {"log": b"root"})
        for name in ("left", "right"):
            checkpoints().put(thread, name, {"log": b"root " + name.encode()}, parent="root")
        found = [checkpoints().get(thread, name) for name in ("root", "left", "right")]
        assert [one and (one.parent, one.values["log"]) for one in found] == [
            (None, b"root"), ("root", b"root left"), ("root", b"root right"),
        ]  # fmt: skip

    def test_threads_do_not_see_each_other(self, checkpoints: Checkpoints) -> None:
        one, other = fresh("thread"), fresh("thread")
        for thread in (one, other):
            checkpoints().put(thread, "1", {"whose": thread.encode()})
            checkpoints().put_writes(thread, "1", "task", [("whose", thread.encode())])
        checkpoints().delete(one)
        assert (checkpoints().get(one), list(checkpoints().list(one))) == (None, [])
        found = checkpoints().get(other)
        assert found == KeptCheckpoint("1", None, {"whose": other.encode()}, [("task", "whose", other.encode())])

    def test_a_deleted_thread_begins_anew(self, checkpoints: Checkpoints) -> None:
        """Read neither a value nor a write of the thread that was deleted."""
        thread = fresh("thread")
        checkpoints().put(thread, "1", {"n": b"old"})
        checkpoints().put_writes(thread, "1", "task", [("n", b"old")])
        checkpoints().delete(thread)
        checkpoints().put(thread, "1", {"n": b"new"})
        assert checkpoints().get(thread) == KeptCheckpoint("1", None, {"n": b"new"}, [])

    def test_what_tasks_wrote_comes_with_its_checkpoint(self, checkpoints: Checkpoints) -> None:
        """Read each task's writes in their order, also several writes to one channel."""
        thread = fresh("thread")
        checkpoints().put(thread, "1", {"n": b"1"})
        checkpoints().put_writes(thread, "1", "first", [("a", b"1"), ("b", b""), ("a", BYTES)])
        checkpoints().put_writes(thread, "1", "second", [("a", b"2")])
        checkpoints().put(thread, "2", {"n": b"2"}, parent="1")
        found = checkpoints().get(thread, "1")
        assert found is not None
        by_task = {task: [one[1:] for one in found.writes if one[0] == task] for task, *_ in found.writes}
        assert by_task == {"first": [("a", b"1"), ("b", b""), ("a", BYTES)], "second": [("a", b"2")]}
        last = checkpoints().get(thread)
        assert last is not None
        assert list(last.writes) == []

    def test_a_call_that_is_made_again_changes_nothing(self, checkpoints: Checkpoints) -> None:
        """Repeat each call, as a program does if it does not know the outcome."""
        thread = fresh("thread")
        for _ in range(2):
            checkpoints().put(thread, "1", {"n": b"1"})
            checkpoints().put_writes(thread, "1", "task", [("n", b"2"), ("n", b"3")])
        assert list(checkpoints().list(thread)) == ["1"]
        wrote = [("task", "n", b"2"), ("task", "n", b"3")]
        assert checkpoints().get(thread) == KeptCheckpoint("1", None, {"n": b"1"}, wrote)

    def test_writers_at_once_lose_nothing(self, checkpoints: Checkpoints) -> None:
        """Write from four Python threads to two threads of checkpoints."""
        threads = [fresh("thread"), fresh("thread")]

        def write(writer: int) -> None:
            store = checkpoints()
            for number in range(10):
                name = f"{writer}-{number}"
                store.put(threads[writer % 2], name, {f"own {writer}": name.encode() * 50})
                store.put_writes(threads[writer % 2], name, "task", [("n", name.encode())])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        for at, thread in enumerate(threads):
            names = [f"{writer}-{number}" for writer in (at, at + 2) for number in range(10)]
            assert sorted(checkpoints().list(thread)) == sorted(names)
            found = [checkpoints().get(thread, name) for name in names]
            assert [one and (one.values, [*one.writes]) for one in found] == [
                ({f"own {name[0]}": name.encode() * 50}, [("task", "n", name.encode())]) for name in names
            ]


def _step(number: int) -> dict[str, bytes]:
    """Return the channel values of a step."""
    kept = {"stays": BYTES * 20, "grows": b"".join(b"message %d\n" % one for one in range(number))}
    passing = {"passes": b"x" * number} if number % 3 else {}
    return {**kept, "changes": f"{number}".encode() * 10, **passing}
