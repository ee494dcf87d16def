import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import islice

from hypothesis import given, strategies as st

from lastlight_state.ids import IdSource, new_id, series

FORKING = """
import os, sys
from lastlight_state.ids import new_id

before = new_id()
read, write = os.pipe()
child = os.fork()
made = "\\n".join(new_id() for _ in range(500))
if child == 0:
    os.write(write, made.encode())
    os._exit(0)
os.close(write)
with os.fdopen(read) as pipe:
    theirs = pipe.read()
os.waitpid(child, 0)
print(made, theirs, sep="\\n")
"""


def told(times: Iterator[int]) -> Callable[[], int]:
    return lambda: next(times)


def test_an_id_is_a_uuid_of_version_seven() -> None:
    """house H-36."""
    made = uuid.UUID(new_id())
    assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_an_id_carries_the_millisecond_of_its_making() -> None:
    assert uuid.UUID(IdSource(lambda: 1_770_120_896_789).fresh()).int >> 80 == 1_770_120_896_789
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(IdSource().fresh()).int >> 80
    assert before <= made <= time.time_ns() // 1_000_000


@given(st.lists(st.integers(0, 2**47), min_size=2, max_size=50))
def test_ids_increase_whatever_the_clock_does(times: list[int]) -> None:
    """backends B-85: the clock moved backwards."""
    source = IdSource(told(iter(times)))
    made = [source.fresh() for _ in times]
    assert made == sorted(set(made))


def test_ids_of_one_millisecond_increase() -> None:
    source = IdSource(lambda: 5)
    made = [source.fresh() for _ in range(10_000)]
    assert made == sorted(set(made))


def test_ids_of_one_millisecond_increase_where_the_second_half_of_an_id_is_full() -> None:
    source = IdSource(lambda: 5)
    made = [source.fresh()]
    for tail in (2**62 - 2**32 - 1, 2**62 - 1, 2**63 - 1):
        source._tail = tail
        made.append(source.fresh())
    assert made[1:] == sorted(set(made[1:]))


def test_a_counter_that_is_full_goes_on_in_the_next_millisecond() -> None:
    source = IdSource(lambda: 5)
    first = source.fresh()
    source._tail = 2**74 - 1
    after = source.fresh()
    assert after > first
    assert uuid.UUID(after).int >> 80 == 6
    assert uuid.UUID(after).version == 7


def test_threads_never_get_the_same_id_and_each_sees_its_own_increase() -> None:
    """house H-36."""
    made: list[list[str]] = [[] for _ in range(8)]

    def make(into: list[str]) -> None:
        into.extend(new_id() for _ in range(2_000))

    threads = [threading.Thread(target=make, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(ids == sorted(ids) for ids in made)
    assert len({one for ids in made for one in ids}) == 16_000


def test_a_forked_child_makes_other_ids_than_its_parent() -> None:
    """backends B-11: after fork."""
    finished = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True)
    made = finished.stdout.split()
    assert len(made) == len(set(made)) == 1_000


def test_a_series_is_told_again_and_increases() -> None:
    """house H-36: in the seed's millisecond, and another one for another seed."""
    seeds = [new_id(), new_id()]
    first, again, other = (list(islice(series(seed), 100)) for seed in (*seeds[:1] * 2, seeds[1]))
    assert first == again == sorted(set(first))
    assert not {*first, *seeds} & set(other)
    assert {one[:13] for one in first} == {seeds[0][:13]}
    assert all(uuid.UUID(one).version == 7 for one in first)
