"""Embeddings that a store holds in memory: the same answers as a scan, of what the namespace has at that moment."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import sqlite3
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from support.preloaded import Program
from support.workflows.steps import Raw

from lastlight_state import AsyncStateStore, Settings, StateStore
from lastlight_state.conversations import NewChunk, Search, VectorHit
from lastlight_state.conversations.vectors import Vectors, held
from lastlight_state.errors import InvalidValue
from lastlight_state.testing import Database

pytest.importorskip("numpy")

METRICS: Any = ["cosine", "dot", "l2"]
QUERY = [1.0, 0.5]

Sent = Callable[[Callable[[], object]], bool]


def chunk(key: str, *numbers: float, **fields: Any) -> NewChunk:
    return NewChunk(key, f"text of {key}", numbers, **fields)


def some(count: int, **fields: Any) -> list[NewChunk]:
    return [chunk(f"c{n}", n, 1, **fields) for n in range(count)]


def ids(hits: list[VectorHit]) -> list[str]:
    return [hit.chunk.id for hit in hits]


@pytest.fixture
def store(sqlite_database: Database) -> StateStore:
    return sqlite_database.open()


@pytest.fixture
def raw(sqlite_database: Database) -> Raw:
    return Raw(sqlite_database)


@pytest.fixture
def vectors(store: StateStore) -> Vectors:
    return store.conversations.vectors


@pytest.fixture
def scans(sqlite_database: Database) -> Vectors:
    """The same namespaces through a store that holds nothing."""
    return sqlite_database.open(settings=Settings(vector_memory=0)).conversations.vectors


@pytest.fixture
def reads(caplog: pytest.LogCaptureFixture) -> Sent:
    """Return whether a call reads the embeddings of the database."""
    caplog.set_level(logging.DEBUG, "lastlight_state.statements")

    def reading(call: Callable[[], object]) -> bool:
        caplog.clear()
        call()
        return any("vectors.embedding" in record.getMessage() for record in caplog.records)

    return reading


def warm(vectors: Vectors, namespace: str = "ns", **given: Any) -> list[VectorHit]:
    """Search as often as it takes until the namespace is held; the hits."""
    return [vectors.search(namespace, QUERY, **given) for _ in range(3)][-1]


def test_a_namespace_is_read_twice_and_then_no_more(vectors: Vectors, reads: Sent) -> None:
    """conversations CV-49: a process that searches once holds nothing."""
    vectors.put("ns", some(20))
    found = [vectors.search("ns", QUERY)]
    assert reads(lambda: found.append(vectors.search("ns", QUERY)))
    assert not reads(lambda: found.append(vectors.search("ns", QUERY)))
    assert not reads(lambda: vectors.search("ns", QUERY, how=Search("l2")))
    assert found[0] == found[1] == found[2]


def test_the_metadata_of_a_namespace_are_read_once(vectors: Vectors, reads: Sent) -> None:
    """conversations CV-49: and it is one place in memory for both kinds of searches."""
    vectors.put("ns", [*some(6, chunk_metadata={"k": 1}), chunk("z", 9, 9, chunk_metadata={"k": [True]})])
    for where in ({"k": 1}, None, {"k": [True]}, {"k": True}, {}, {"n": 1}):
        vectors.search("ns", QUERY, where=where)
        vectors.search("ns", QUERY, where=where)
    found: list[list[VectorHit]] = []
    for where in ({"k": 1}, {"k": [True]}, {"k": True}, {}, {"n": 1}, None):
        assert not reads(lambda where=where: found.append(vectors.search("ns", QUERY, where=where)))  # type: ignore[misc]
    assert [len(one) for one in found] == [6, 1, 0, 7, 0, 7]


def hostile(chance: random.Random) -> list[NewChunk]:
    """Vectors that are equal, close together, zero, and so long or short that 32 bits do not hold their products."""
    base = [chance.gauss(0, 1) for _ in range(24)]
    made = [[chance.gauss(0, 1) for _ in range(24)] for _ in range(300)]
    made += [[one + chance.gauss(0, 1e-7) for one in base] for _ in range(200)] + [base] * 40 + [[0.0] * 24] * 20
    made += [[one * 10.0**power for one in base] for power in (-42, -38, -30, -19, -13, 17, 19, 30, 37) for _ in "ab"]
    made += [[3e38, -3e38] * 12, [1e-45] * 24]
    kinds = [{"k": n % 7, "l": {"m": n % 2}} for n in range(len(made))]
    return [
        NewChunk(f"c{n * 577 % 1009}", "", one, kind if n % 5 else None)
        for n, (one, kind) in enumerate(zip(made, kinds, strict=True))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("metric", METRICS)
def test_what_is_held_answers_as_a_scan_does(vectors: Vectors, scans: Vectors, raw: Raw, metric: Any) -> None:
    """conversations CV-49: ids, order and scores, to the last bit."""
    chance = random.Random(11)
    chunks = hostile(chance)
    vectors.put("ns", chunks)
    raw("UPDATE vectors SET norm = 2 * norm WHERE id < 'c2'")
    raw("UPDATE vectors SET norm = -norm WHERE id > 'c9'")
    queries = [chunks[0].embedding, chunks[350].embedding, chunks[-1].embedding, chunks[-2].embedding, [1e-30] * 24]
    queries += [[chance.gauss(0, 1) for _ in range(24)] for _ in range(2)]
    for query in queries:
        for given in ({}, {"top_k": 1}, {"top_k": 1000}, {"where": {"k": 3}}, {"where": {"l": {"m": 1}, "k": 2}}):
            for least in (None, 0.2, -3.0):
                how = Search(metric, min_score=least)
                ours = [vectors.search("ns", query, how=how, **given) for _ in range(2)][1]
                assert ours == scans.search("ns", query, how=how, **given)


COLUMNS = "namespace, id, dimensions, norm, created_at, embedding, content"
AS_NEW, AS_C3 = (COLUMNS.replace(" id", f" '{key}'") for key in ("new", "c3"))


@pytest.mark.parametrize(
    "change",
    [f"INSERT INTO vectors ({COLUMNS}) SELECT {AS_NEW} FROM vectors WHERE id = 'c3'",
     f"INSERT OR REPLACE INTO vectors ({COLUMNS}) SELECT {AS_C3} FROM vectors WHERE id = 'c1'",
     "UPDATE vectors SET embedding = (SELECT embedding FROM vectors WHERE id = 'c1') WHERE id = 'c3'",
     "UPDATE vectors SET norm = norm * 2 WHERE id = 'c3'",
     "UPDATE vectors SET chunk_metadata = NULL WHERE id = 'c3'",
     "UPDATE vectors SET namespace = 'other' WHERE id = 'c3'",
     "DELETE FROM vectors WHERE id = 'c3'",
     "DELETE FROM vectors"],
)  # fmt: skip
def test_whoever_changes_a_chunk_is_noticed(vectors: Vectors, scans: Vectors, raw: Raw, change: str) -> None:
    """conversations CV-49: by plain SQL, too."""
    vectors.put("ns", some(5, chunk_metadata={"k": 1}))
    vectors.put("other", [chunk("o", 2, 1, chunk_metadata={"k": 1})])
    for name in ("ns", "other"):
        warm(vectors, name, where={"k": 1})
    raw(change)
    for name in ("ns", "other"):
        for where in ({"k": 1}, None):
            assert vectors.search(name, QUERY, where=where) == scans.search(name, QUERY, where=where)


def test_a_namespace_that_is_begun_anew_is_another_one(vectors: Vectors) -> None:
    """conversations CV-49: with another length, and with chunks of the same ids at the same time."""
    vectors.put("ns", some(3))
    assert ids(warm(vectors, top_k=1)) == ["c2"]
    vectors.clear("ns", scope="namespace")
    vectors.put("ns", [chunk("c2", -1, -1), chunk("c1", 5, 1), chunk("c0", 1, 9)])
    assert ids(vectors.search("ns", QUERY, top_k=1)) == ["c1"]
    vectors.clear("ns", scope="namespace")
    assert vectors.search("ns", QUERY) == []
    vectors.put("ns", [chunk("a", 1, 2, 3)])
    assert ids([vectors.search("ns", [1, 1, 1]) for _ in range(3)][-1]) == ["a"]


def test_a_rollback_brings_back_what_is_held(store: StateStore, vectors: Vectors, reads: Sent) -> None:
    """conversations CV-49: what a transaction has not committed is seen in it, and held for nobody."""
    vectors.put("ns", some(3))
    before = warm(vectors)

    def undone() -> None:
        with store.transaction() as tx:
            tx.conversations.vectors.put("ns", [chunk("best", 2, 1)])
            assert ids(warm(tx.conversations.vectors, top_k=1)) == ["best"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        undone()
    found: list[list[VectorHit]] = []
    assert not reads(lambda: found.append(vectors.search("ns", QUERY)))
    assert found == [before]


def test_a_transaction_of_a_host_holds_nothing_for_others(
    sqlite_database: Database, store: StateStore, vectors: Vectors, reads: Sent
) -> None:
    """conversations CV-49: it may be rolled back after its block."""
    vectors.put("ns", some(3))
    before = warm(vectors)
    engine = sa.create_engine(f"sqlite:///{sqlite_database.url}")
    with engine.connect() as connection:
        connection.begin()
        with store.transaction(connection=connection) as tx:
            tx.conversations.vectors.put("ns", [chunk("best", 2, 1)])
            assert ids(warm(tx.conversations.vectors, top_k=1)) == ["best"]
        assert vectors.search("ns", QUERY) == before
        connection.rollback()
    assert not reads(lambda: vectors.search("ns", QUERY))
    engine.dispose()


def test_a_view_keeps_its_moment(store: StateStore, vectors: Vectors) -> None:
    """conversations CV-49: what others hold meanwhile is of another one."""
    vectors.put("ns", some(3))
    warm(vectors)
    with ThreadPoolExecutor(1) as others, store.view() as view:
        before = view.conversations.vectors.search("ns", QUERY)
        others.submit(vectors.put, "ns", [chunk("best", 2, 1)]).result()
        assert ids(others.submit(warm, vectors, top_k=1).result()) == ["best"]
        assert warm(view.conversations.vectors) == before
        assert ids(others.submit(warm, vectors, top_k=1).result()) == ["best"]


def test_a_backup_that_is_put_over_the_file_is_noticed(
    sqlite_database: Database, vectors: Vectors, scans: Vectors, raw: Raw, tmp_path: Path
) -> None:
    """conversations CV-49: also when the namespace has been changed as often since as before."""
    vectors.put("ns", some(3))
    file, kept = sqlite_database.url.removeprefix("sqlite:///"), tmp_path / "kept.db"
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(kept)) as copy:
        source.backup(copy)
    vectors.put("ns", [chunk("best", 2, 1)])
    assert ids(warm(vectors, top_k=1)) == ["best"]
    with closing(sqlite3.connect(kept)) as source, closing(sqlite3.connect(file)) as over:
        source.backup(over)
    raw(f"INSERT INTO vectors ({COLUMNS}) SELECT {AS_NEW} FROM vectors WHERE id = 'c0'")
    assert vectors.search("ns", QUERY) == scans.search("ns", QUERY)
    assert ids(warm(vectors, top_k=1)) == ["c2"]


@pytest.mark.parametrize("most", [0, 100])
def test_nothing_is_held_beyond_the_memory_that_is_given(sqlite_database: Database, reads: Sent, most: int) -> None:
    """conversations CV-49."""
    vectors = sqlite_database.open(settings=Settings(vector_memory=most)).conversations.vectors
    vectors.put("ns", some(50))
    warm(vectors)
    assert reads(lambda: vectors.search("ns", QUERY))


@pytest.mark.parametrize("most", [20_000, 1_000_000])
def test_memory_stays_within_its_bound_while_a_namespace_is_read(
    sqlite_database: Database, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """conversations CV-49: values of metadata, and what was held before, count as well."""
    vectors = sqlite_database.open(settings=Settings(vector_memory=most)).conversations.vectors
    for name, values in ("few", 1), ("many", 300):
        vectors.put(name, some(50, chunk_metadata={f"k{n}": n for n in range(values)}))
    memory = vectors._remember(held.HeldNamespaces)
    seen: list[int] = []

    class Watched(held.HeldNamespace):
        def complete(self) -> bool:
            seen.append(self.size + sum(one.size for one in memory._held.values()))
            return super().complete()

    monkeypatch.setattr(held, "HeldNamespace", Watched)
    for name, where in ("few", None), ("many", {"k0": 0}), ("many", None), ("few", {"k0": 0}), ("many", {"k0": 0}):
        warm(vectors, name, where=where)
        seen.append(sum(one.size for one in memory._held.values()))
    assert 0 < max(seen) <= most


def test_a_state_that_is_too_large_is_tried_once(sqlite_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """conversations CV-49: with the values of metadata, and again when it has changed."""
    vectors = sqlite_database.open(settings=Settings(vector_memory=20_000)).conversations.vectors
    vectors.put("ns", some(50, chunk_metadata={f"k{n}": n for n in range(30)}))
    made: list[bool] = []

    class Watched(held.HeldNamespace):
        def __init__(self, *given: Any, has_values: bool) -> None:
            made.append(has_values)
            super().__init__(*given, has_values=has_values)

    monkeypatch.setattr(held, "HeldNamespace", Watched)
    for where in ({"k0": 0}, None, {"k0": 0}, None):
        warm(vectors, where=where)
    assert made == [True, False]
    vectors.put("ns", some(1))
    warm(vectors, where={"k0": 0})
    assert made == [True, False, True]


def test_a_length_that_plain_sql_has_changed_is_the_error_of_a_scan(vectors: Vectors, scans: Vectors, raw: Raw) -> None:
    """conversations CV-49."""
    vectors.put("ns", some(5))
    warm(vectors)
    raw("UPDATE vector_namespaces SET dimensions = 3")
    for each in (scans, vectors):
        with pytest.raises(InvalidValue):
            each.search("ns", QUERY)
    assert vectors.search("ns", [1, 1, 1]) == scans.search("ns", [1, 1, 1]) == []


def test_a_closed_store_holds_nothing(store: StateStore, vectors: Vectors) -> None:
    """conversations CV-49."""
    vectors.put("ns", some(5))
    warm(vectors)
    kept = weakref.ref(vectors._remember(held.HeldNamespaces))
    store.close()
    gc.collect()
    assert kept() is None


def test_what_was_searched_last_is_held(sqlite_database: Database, reads: Sent) -> None:
    """conversations CV-49: where there is no room for all of it."""
    vectors = sqlite_database.open(settings=Settings(vector_memory=9_000)).conversations.vectors
    for name in ("a", "b", "c"):
        vectors.put(name, some(50))
        warm(vectors, name)
        warm(vectors, "a")
    assert [reads(lambda name=name: vectors.search(name, QUERY)) for name in ("a", "c", "b")] == [False, False, True]  # type: ignore[misc]


def test_without_numpy_nothing_is_held(vectors: Vectors, reads: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    """conversations CV-49."""
    monkeypatch.setitem(sys.modules, "numpy", None)
    vectors.put("ns", some(5))
    warm(vectors)
    assert reads(lambda: vectors.search("ns", QUERY))


@pytest.mark.logs("passed over a row that cannot be read")
def test_a_damaged_chunk_is_told_of_by_each_search(store: StateStore, vectors: Vectors, raw: Raw) -> None:
    """conversations CV-49: what cannot be read whole is not held."""
    vectors.put("ns", some(5))
    raw("UPDATE vectors SET norm = 'long' WHERE id = 'c3'")
    warm(vectors)
    before = store.metrics.damaged_rows
    assert ids(vectors.search("ns", QUERY, top_k=2)) == ["c2", "c4"]
    assert store.metrics.damaged_rows == before + 1


def test_values_of_one_hash_are_told_apart(vectors: Vectors, scans: Vectors, monkeypatch: pytest.MonkeyPatch) -> None:
    """conversations CV-49."""
    monkeypatch.setattr(held, "hash", lambda _: 7, raising=False)
    vectors.put("ns", [chunk(f"c{n}", n, 1, chunk_metadata={"k": n % 2}) for n in range(6)])
    assert warm(vectors, where={"k": 1}) == scans.search("ns", QUERY, where={"k": 1})


def test_threads_that_search_at_once_find_the_same(vectors: Vectors) -> None:
    """conversations CV-49: while one of them reads to hold it."""
    vectors.put("ns", some(400))
    expected, found = vectors.search("ns", QUERY), list[list[VectorHit]]()
    threads = [threading.Thread(target=lambda: found.extend(warm(vectors) for _ in range(5))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 40
    assert all(one == expected for one in found)


async def _searched(store: StateStore) -> list[list[VectorHit]]:
    vectors = AsyncStateStore(store).conversations.vectors
    await vectors.put("ns", some(5))
    return [await vectors.search("ns", QUERY) for _ in range(3)]


def test_coroutines_search_what_is_held(store: StateStore, reads: Sent) -> None:
    """conversations CV-49."""
    first, second, third = asyncio.run(_searched(store))
    assert first == second == third
    assert not reads(lambda: store.conversations.vectors.search("ns", QUERY))


#: Each state of the namespace has 20 chunks that name it in their metadata; chunk ``cN`` is nearer the greater N is.
PROGRAM = """
import math
import sys
from lastlight_state import StateStore
from lastlight_state.conversations import NewChunk

url, kind, name = sys.argv[1:]
with StateStore.open(url) as store:
    vectors = store.conversations.vectors
    if kind == "write":
        for turn in range(10):
            state = f"{name}-{turn}"
            with store.transaction() as tx:
                own = tx.conversations.vectors
                own.search("ns", [1, 0])
                if turn % 4 == 3:
                    own.clear("ns", scope="namespace")
                own.put("ns", [NewChunk(f"c{n}", state, [n + 1, turn], {"state": state}) for n in range(20)])
                own.search("ns", [1, 0])
        sys.exit()
    print("ready", flush=True)
    state = ""
    while state != "end-0":
        hits = vectors.search("ns", [1, 0], top_k=20)
        [state] = {hit.chunk.content for hit in hits}
        turn = int(state.rpartition("-")[2])
        assert {hit.chunk.id for hit in hits} == {f"c{n}" for n in range(20)}
        assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.chunk.id))
        for hit in hits:
            number = int(hit.chunk.id[1:]) + 1
            assert math.isclose(hit.score, number / math.hypot(number, turn)), (hit, turn)
        again = vectors.search("ns", [1, 0], top_k=20, where={"state": state})
        assert len(again) in (0, 20), len(again)
"""


def put_state(database: Database, state: str) -> None:
    with StateStore.open(database.url) as store:
        store.conversations.vectors.put("ns", [NewChunk(f"c{n}", state, [n + 1, 0]) for n in range(20)])


@pytest.mark.slow
def test_processes_find_states_that_the_namespace_had(sqlite_database: Database) -> None:
    """conversations CV-49: two write, two search, and each answer is of one committed state."""
    put_state(sqlite_database, "first-0")
    with ExitStack() as stack:

        def begin(kind: str, name: str) -> Program:
            command = [sys.executable, "-c", PROGRAM, sqlite_database.url, kind, name]
            made = stack.enter_context(Program(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            stack.callback(made.kill)
            return made

        searchers = [begin("search", name) for name in ("x", "y")]
        for each in searchers:
            assert each.stdout
            assert each.stdout.readline() == "ready\n"
        writers = [begin("write", name) for name in ("a", "b")]
        for each in [*writers, *searchers]:
            if each is searchers[0]:
                put_state(sqlite_database, "end-0")
            _, errors = each.communicate(timeout=120)
            assert (each.returncode, errors) == (0, "")
