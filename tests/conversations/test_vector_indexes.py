"""Indexes of embeddings on Postgres: made on request, kept right by the database, used where a caller asks for them."""

from __future__ import annotations

import asyncio
import random
import struct
import threading
from collections.abc import Callable, Iterator
from math import sqrt
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import MetaData
from support.conversations.pgvector import (
    DIMENSIONS,
    QUERY,
    approximates,
    indexed,
    scored,
    some,
    with_pgvector,
)
from support.pooler import PGBOUNCER, pooled

from lastlight_state import AsyncStateStore, Settings, StateStore, Tenants
from lastlight_state.conversations import NewChunk, Search, VectorIndex
from lastlight_state.db.schema.declarations import COMMENT_PREFIX
from lastlight_state.errors import BackendUnavailable, Conflict, MisuseError, NotFound, NotSupported
from lastlight_state.migrations import check, include_object
from lastlight_state.testing import Database, FrozenClock, PostgresTemplate, ThrowawayPostgres

ODD = 'it\'s \\ 100% "odd" {0}'


@pytest.fixture(scope="module")
def template(lastlight_postgres_server: ThrowawayPostgres) -> Iterator[PostgresTemplate]:
    with with_pgvector(lastlight_postgres_server) as server:
        made = PostgresTemplate(server)
        yield made
        made.drop()


@pytest.fixture
def database(template: PostgresTemplate, tmp_path: Path) -> Iterator[Database]:
    with template.fresh(tmp_path, FrozenClock()) as made:
        yield made


@pytest.fixture
def store(database: Database) -> StateStore:
    return database.open()


def lags(database: Database, index: VectorIndex) -> list[str]:
    """Return the chunks whose vectors in the index are not those of the table, or that are in one of both."""
    wanted = (
        "SELECT id, unit FROM (SELECT id, lastlight_unit_halfvec(embedding, dimensions)::text FROM vectors "
        f"WHERE namespace = 'ns' AND dimensions = {index.dimensions}) AS stored (id, unit) WHERE unit IS NOT NULL"
    )
    found = f"SELECT id, unit::text FROM {index.name}"
    rows = database.raw().execute(f"({wanted} EXCEPT {found}) UNION ALL ({found} EXCEPT {wanted})").fetchall()
    return sorted({str(row[0]) for row in rows})


def test_an_index_finds_the_nearest_with_their_exact_scores(store: StateStore) -> None:
    """conversations CV-50: and a hit says that it was found so, where that was asked for."""
    vectors = store.conversations.vectors
    made = indexed(store, 300, ODD)
    assert (made.namespace, made.dimensions, made.state, made.size_bytes > 0) == (ODD, DIMENSIONS, "ready", True)
    assert (vectors.index(ODD), vectors.indexes()) == (made, [made])
    exact, near = vectors.search(ODD, QUERY), vectors.search(ODD, QUERY, approximate=True)
    assert scored(near) == scored(exact)
    assert (approximates(near), approximates(exact)) == ({True}, {False})
    least = Search(min_score=exact[2].score)
    assert scored(vectors.search(ODD, QUERY, approximate=True, how=least)) == scored(exact[:3])
    few = vectors.search(ODD, QUERY, approximate=True, where={"n": 3}, top_k=5)
    assert (scored(few), approximates(few)) == (scored(vectors.search(ODD, QUERY, where={"n": 3}, top_k=5)), {True})


def test_what_the_index_cannot_tell_is_searched_exactly(store: StateStore) -> None:
    """conversations CV-50: another metric, a document, too few, no index, another length."""
    vectors = store.conversations.vectors
    indexed(store, 600)
    vectors.put("other", some(20))
    asked: list[tuple[str, dict[str, Any]]] = [
        ("ns", {"how": Search("l2")}),
        ("ns", {"how": Search("dot")}),
        ("ns", {"document_id": "d1"}),
        ("ns", {"where": {"n": 3}, "top_k": 60}),
        ("ns", {"where": {"n": 11}}),
        ("ns", {"top_k": 501}),
        ("other", {}),
    ]
    for namespace, options in asked:
        found = vectors.search(namespace, QUERY, approximate=True, **options)
        assert scored(found) == scored(vectors.search(namespace, QUERY, **options))
        assert not any(approximates(found))
    vectors.clear("ns", scope="namespace")
    vectors.put("ns", [NewChunk("a", "", [1.0, 0.0])])
    assert approximates(vectors.search("ns", [1, 0], approximate=True)) == {False}
    [unused] = vectors.indexes()
    assert (unused.state, unused.namespace) == ("unused", "ns")
    vectors.clear("ns", scope="namespace")
    assert (vectors.search("ns", [1], approximate=True), vectors.indexes()[0].namespace) == ([], None)
    assert (vectors.drop_index("ns"), vectors.drop_index("ns"), vectors.indexes()) == (True, False, [])


CHANGES: dict[str, Callable[[StateStore, Any], object]] = {
    "put": lambda store, _: store.conversations.vectors.put("ns", some(40, seed=2)),
    "clear by id": lambda store, _: store.conversations.vectors.clear("ns", ids=["c0001", "c0002"]),
    "clear a document": lambda store, _: store.conversations.vectors.clear("ns", document_id="d1"),
    "clear a namespace": lambda store, _: store.conversations.vectors.clear("ns", scope="namespace"),
    "erase": lambda _, raw: raw.execute("DELETE FROM vectors WHERE id < 'c0020'"),
    "truncate": lambda _, raw: raw.execute("TRUNCATE vectors"),
    "other names": lambda _, raw: raw.execute("UPDATE vectors SET id = id || '-new' WHERE id < 'c0020'"),
    "other numbers": lambda _, raw: raw.execute("UPDATE vectors SET embedding = decode(repeat('00003f3f', 8), 'hex')"),
    "moved away": lambda _, raw: raw.execute("UPDATE vectors SET namespace = 'other' WHERE id > 'c0020'"),
    "moved here": lambda _, raw: raw.execute(
        "UPDATE vectors SET namespace = 'ns', id = 'moved' WHERE namespace = 'other' AND id = 'c0003'"
    ),
    "unsound": lambda _, raw: raw.execute("UPDATE vectors SET embedding = '\\x00' WHERE id < 'c0020'"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_database_keeps_an_index_right_whoever_writes(
    store: StateStore, database: Database, change: Callable[[StateStore, Any], object]
) -> None:
    """conversations CV-51: in the transaction of the change."""
    store.conversations.vectors.put("other", some(10))
    made = indexed(store, 50)
    change(store, database.raw())
    assert lags(database, made) == []
    assert not store.maintenance.doctor.examine(only=["DOC-20"]).findings or not store.conversations.vectors.count("ns")


def test_a_rollback_takes_the_index_back(store: StateStore, database: Database) -> None:
    """conversations CV-51."""
    made = indexed(store, 50)

    def put_and_fail() -> None:
        with store.transaction() as tx:
            tx.conversations.vectors.put("ns", some(50, seed=3))
            assert approximates(tx.conversations.vectors.search("ns", QUERY, approximate=True)) == {True}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        put_and_fail()
    assert lags(database, made) == []
    with store.transaction() as tx:
        tx.conversations.vectors.search("ns", QUERY, approximate=True)
        settings = "SELECT current_setting('enable_sort'), current_setting('hnsw.ef_search')"
        assert [*tx.connection.exec_driver_sql(settings).one()] == ["on", "40"]


def test_the_server_reads_the_numbers_of_an_embedding(store: StateStore, database: Database) -> None:
    """conversations CV-51: the smallest and the greatest, as unit vectors of 16 bits."""
    indexed(store, 1)
    drawn, raw = random.Random(5), database.raw()
    rows = [[drawn.gauss(0, 10.0**scale) for _ in range(8)] for scale in (-37, -5, 0, 5, 37)]
    for numbers in [*rows, [0.0] * 8, [1e-45] * 8, [3e38, -3e38, 0, 1, 2, 3, 4, 5], [-0.0, 1, -1, 0.5, 2, 3, 4, 5]]:
        packed = struct.pack("<8f", *numbers)
        length = sqrt(sum(one * one for one in numbers)) or 1.0
        [text] = raw.execute("SELECT lastlight_unit_halfvec(%s, 8)::text", (packed,)).fetchone()
        expected = [0.0 if abs(one) < 1.2e-38 else one / length for one in numbers]
        assert [float(one) for one in text.strip("[]").split(",")] == pytest.approx(expected, abs=1e-3)
    assert raw.execute("SELECT lastlight_unit_halfvec('\\x0000', 8)").fetchone() == (None,)


def test_others_write_while_an_index_is_made(store: StateStore, database: Database) -> None:
    """conversations CV-51: what they write meanwhile is in the index, and what they delete is not."""
    vectors = store.conversations.vectors
    vectors.put("ns", some(1_000))
    is_made = threading.Event()

    def write() -> None:
        round_ = 0
        while not is_made.is_set():
            vectors.put("ns", some(40, seed=(round_ := round_ + 1)))
            vectors.clear("ns", ids=[f"c{n:04}" for n in range(500 + round_, 1_000, 50)])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        made = vectors.index("ns")
    finally:
        is_made.set()
        writer.join()
    assert made is not None
    assert lags(database, made) == []


def test_an_index_that_was_cut_off_is_made_once_more(store: StateStore, database: Database) -> None:
    """conversations CV-50: doctor names it; searches are exact until then."""
    vectors, raw = store.conversations.vectors, database.raw()
    made = indexed(store, 50)
    raw.execute(f"DROP INDEX {made.name}_unit")
    assert [one.state for one in vectors.indexes()] == ["failed"]
    assert approximates(vectors.search("ns", QUERY, approximate=True)) == {False}
    [finding] = store.maintenance.doctor.examine(only=["DOC-07", "DOC-20"]).findings
    assert (finding.check, finding.severity, finding.samples) == ("DOC-20", "warning", ("ns",))
    lock = f"hashtextextended('lastlight_state:public:{made.name}', 0)"
    raw.execute(f"SELECT pg_advisory_lock({lock})")
    for call in (vectors.index, vectors.drop_index):
        with pytest.raises(Conflict) as refusal:
            call("ns")
        assert refusal.value.code == "already_running"
    [finding] = store.maintenance.doctor.examine(only=["DOC-20"]).findings
    assert (vectors.indexes()[0].state, finding.severity) == ("building", "info")
    raw.execute(f"SELECT pg_advisory_unlock({lock})")
    again = vectors.index("ns")
    assert again is not None
    assert (again.state, approximates(vectors.search("ns", QUERY, approximate=True))) == ("ready", {True})


def test_doctor_tells_of_an_index_that_lags(store: StateStore, database: Database) -> None:
    """conversations CV-51: where triggers did not fire, as on a subscriber; what is found is there all the same."""
    made, raw = indexed(store, 50), database.raw()
    raw.execute("SET session_replication_role = replica")
    raw.execute("DELETE FROM vectors WHERE id < 'c0010'")
    raw.execute(f"DELETE FROM {made.name} WHERE id > 'c0045'")
    [finding] = store.maintenance.doctor.examine(only=["DOC-20"]).findings
    assert finding.samples == ("ns: 4 chunks",)
    near = store.conversations.vectors.search("ns", QUERY, top_k=20, approximate=True)
    assert (approximates(near), min(hit.chunk.id for hit in near) >= "c0010") == ({True}, True)


def test_indexes_are_made_apart_from_transactions_and_of_what_is_there(store: StateStore) -> None:
    """conversations CV-50."""
    vectors = store.conversations.vectors
    with pytest.raises(NotFound):
        vectors.index("nobody")
    vectors.put("long", [NewChunk("a", "", [1.0] * 4_001)])
    with pytest.raises(NotSupported, match="at most 4000"):
        vectors.index("long")
    with pytest.raises(MisuseError), store.transaction() as tx:
        tx.conversations.vectors.index("long")


def test_without_rights_it_is_said_what_an_administrator_runs(store: StateStore, database: Database) -> None:
    """conversations CV-50: only the owner of the tables makes an index; who may read them uses it."""
    raw, url = database.raw(), database.url
    store.conversations.vectors.put("ns", some(50))
    raw.execute("CREATE ROLE plain LOGIN")
    try:
        raw.execute("GRANT SELECT, INSERT, DELETE, UPDATE ON ALL TABLES IN SCHEMA public TO plain")
        plain = Database(url.replace("postgres@", "plain@"), "postgresql", database.clock, database.state_dir)
        vectors = plain.open().conversations.vectors
        with pytest.raises(BackendUnavailable, match="owner of the table") as refusal:
            vectors.index("ns")
        assert refusal.value.details["reason"] == "permission"
        raw.execute("ALTER TABLE vectors OWNER TO plain; GRANT CREATE ON SCHEMA public TO plain")
        with pytest.raises(NotSupported, match="administrator runs in this database: CREATE EXTENSION vector"):
            vectors.index("ns")
        raw.execute("ALTER TABLE vectors OWNER TO postgres; GRANT SELECT, INSERT, DELETE, UPDATE ON vectors TO plain")
        made = store.conversations.vectors.index("ns")
        assert made is not None
        vectors.put("ns", some(60, seed=4))
        assert approximates(vectors.search("ns", QUERY, approximate=True)) == {True}
        raw.execute(f"REVOKE SELECT ON {made.name} FROM plain")
        assert approximates(vectors.search("ns", QUERY, approximate=True)) == {False}
        assert lags(database, made) == []
        raw.execute("SET ROLE plain; CREATE TABLE mine (id text)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw.execute("CREATE TRIGGER mine AFTER INSERT ON mine EXECUTE FUNCTION lastlight_keep_vector_index('mine')")
        raw.execute("RESET ROLE")
        plain.close()
    finally:
        raw.execute("DROP OWNED BY plain CASCADE; DROP ROLE plain")


def test_maintenance_knows_of_indexes(store: StateStore, database: Database, tmp_path: Path) -> None:
    """conversations CV-51, maintenance OP-50: check finds no difference, and a copy says that it has none."""
    made = indexed(store, 50)
    assert not check(store._scope.backend).differences
    assert not [one for one in store.maintenance.doctor.examine(deep=True).findings if one.severity == "error"]
    report = store.maintenance.copy.run(tmp_path / "copy.db", migrate=True)
    assert report.left_indexes == ("ns",)
    with StateStore.open(tmp_path / "copy.db", state_dir=tmp_path) as copied:
        hits = copied.conversations.vectors.search("ns", QUERY, approximate=True)
        assert scored(hits) == scored(store.conversations.vectors.search("ns", QUERY))
    [comment] = database.raw().execute("SELECT obj_description(%s::regclass)", (made.name,)).fetchone()
    assert comment.startswith(COMMENT_PREFIX)


@pytest.mark.skipif(PGBOUNCER is None, reason="no PgBouncer is installed")
def test_a_search_through_a_pooler_uses_an_index_that_was_made_on_a_direct_connection(
    store: StateStore, database: Database
) -> None:
    """conversations CV-50, backends B-95."""
    indexed(store, 50)
    expected = scored(store.conversations.vectors.search("ns", QUERY))
    with pooled(database) as url, StateStore.open(url, settings=Settings(pooler="transaction")) as behind:
        hits = behind.conversations.vectors.search("ns", QUERY, approximate=True)
        with pytest.raises(NotSupported, match="direct connection"):
            behind.conversations.vectors.index("ns")
    assert (scored(hits), approximates(hits)) == (expected, {True})


@pytest.mark.filterwarnings("ignore:Did not recognize type 'halfvec'")
def test_alembic_proposes_nothing_about_indexes(store: StateStore) -> None:
    """migrations MG-52: with the filter, in a host's autogenerate; without it, their tables would go."""
    made = indexed(store, 20)
    with store._scope.backend.migration(1) as connection:
        filtered = MigrationContext.configure(connection, opts={"include_object": include_object})
        assert compare_metadata(filtered, MetaData()) == []
        unfiltered = compare_metadata(MigrationContext.configure(connection), MetaData())
    assert made.name in {change[1].name for change in unfiltered if change[0] == "remove_table"}


def test_an_erased_tenant_leaves_no_index(database: Database) -> None:
    """conversations CV-51, tenants TN-14."""
    with Tenants.open(database.url, settings=Settings(state_dir=database.state_dir)) as tenants:
        tenants.create("acme")
        with tenants.store("acme") as tenant:
            indexed(tenant, 50)
            found = tenant.conversations.vectors.search("ns", QUERY, approximate=True)
            assert approximates(found) == {True}
        tenants.erase("acme", confirm="acme")
        assert not list(tenants.list())


def test_coroutines_make_and_use_indexes(store: StateStore) -> None:
    """conversations CV-50."""
    store.conversations.vectors.put("ns", some(50))

    async def run() -> None:
        vectors = AsyncStateStore(store).conversations.vectors
        made = await vectors.index("ns")
        assert await vectors.indexes() == [made]
        assert approximates(await vectors.search("ns", QUERY, approximate=True)) == {True}
        assert await vectors.drop_index("ns")

    asyncio.run(run())
    store.close()


def test_sqlite_searches_exactly_whatever_is_asked_for(sqlite_database: Database) -> None:
    """conversations CV-50: the same program runs on both databases."""
    vectors = sqlite_database.open().conversations.vectors
    vectors.put("ns", some(50))
    assert (vectors.index("ns"), vectors.indexes(), vectors.drop_index("ns")) == (None, [], False)
    found = vectors.search("ns", QUERY, approximate=True)
    assert (scored(found), approximates(found)) == (scored(vectors.search("ns", QUERY)), {False})
    with pytest.raises(NotFound):
        vectors.index("nobody")
