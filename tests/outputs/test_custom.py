from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import BaseModel, Field
from support.each import with_each
from support.outputs.shapes import a_run, no_time

from lastlight_state import StateStore
from lastlight_state.errors import CorruptData, InvalidValue, MisuseError, ReservedName, SchemaMismatch
from lastlight_state.outputs import CacheKey, Output, OutputTable
from lastlight_state.testing import Database

METADATA = sa.MetaData()
REPORTS = sa.Table(
    "team_reports",
    METADATA,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("node_id", sa.Text, primary_key=True),
    sa.Column("iteration", sa.Integer, primary_key=True, default=0),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("done", sa.Boolean),
    sa.Column("facts", sa.JSON),
)


class Colour(Enum):
    RED = "red"


class Report(BaseModel):
    title: str = Field(min_length=3)
    done: bool | None = None


def made(database: Database, table: sa.Table) -> StateStore:
    """A store on a database that has the table."""
    engine = sa.create_engine(f"sqlite:///{database.url}" if database.name == "sqlite" else database.url)
    with engine.begin() as connection:
        table.create(connection)
    engine.dispose()
    return database.open()


#: The columns that a row is found by, without a key.
PLAIN = [sa.Column(name, sa.Text) for name in ("run_id", "node_id")]
SOME = sa.text("node_id <> 'x'")


def named(name: str, *parts: Any) -> sa.Table:
    return sa.Table(name, sa.MetaData(), *parts)


def test_a_table_of_ones_own_holds_outputs(fresh_database: Database) -> None:
    """outputs X-1, X-2, X-3, X-4, T-3: nothing is created; key and table differ."""
    store = made(fresh_database, REPORTS)
    run_id = a_run(store)
    reports: OutputTable[Any] = store.outputs.catalog.attach("report", REPORTS)
    assert (reports.kind, reports.table_name) == ("custom", "team_reports")
    put = store.outputs.results.put(reports, run_id, "n", {"title": "x", "done": True, "facts": {"a": [1]}})
    assert put.data == {"title": "x", "done": True, "facts": {"a": [1]}}
    found: Output[Any] = store.outputs.results.get("report", run_id, "n")
    assert found.data == put.data
    assert found.data["done"] is True
    assert found.created_at is None
    store.outputs.results.put(reports, run_id, "n", {"title": "y"}, iteration=2)
    snapshot = store.outputs.snapshot.load(run_id)
    assert snapshot.outputs["report"] is snapshot.outputs["team_reports"]
    assert [row.data["title"] for row in snapshot.outputs["report"]] == ["x", "y"]
    assert [row.iteration for row in store.outputs.results.list(reports).items] == [2, 0]
    store.outputs.results.put(reports, run_id, "n", {"title": "z"})
    assert [one.value["title"] for one in store.outputs.results.history(reports, run_id, "n").items] == ["x"]
    other = fresh_database.open()
    assert other.outputs.snapshot.load(run_id).outputs["report"][0].data["title"] == "z"
    with pytest.raises(MisuseError):
        _ = found.value


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        (sa.Numeric(10, 2), Decimal("1.10"), "1.10"),
        (sa.Float(), 1.5, 1.5),
        (sa.Double(), 3, 3.0),
        (sa.LargeBinary(), b"\0\xff", "00ff"),
        (sa.DateTime(), datetime(2026, 2, 3, 12, tzinfo=UTC), "2026-02-03T12:00:00.000Z"),
        (sa.DateTime(timezone=True), datetime(2026, 2, 3, 12, tzinfo=UTC), "2026-02-03T12:00:00.000Z"),
    ],
    ids=["numeric", "float", "double", "bytes", "time", "time with a zone"],
)
def test_columns_of_each_type_keep_their_values(fresh_database: Database, kind: Any, value: Any, kept: Any) -> None:
    """outputs X-3, T-2: typed, untyped, in a snapshot, in the history and in the cache."""
    key = [sa.Column(name, sa.Text, primary_key=True) for name in ("run_id", "node_id")]
    table = named("own", *key, sa.Column("it", kind))
    store, other = made(fresh_database, table), fresh_database.open()
    run_id = a_run(store)
    own: OutputTable[Any] = store.outputs.catalog.attach("own", table)
    put = store.outputs.results.put(own, run_id, "n", {"it": value})
    for found in (
        store.outputs.results.get(own, run_id, "n"),
        store.outputs.snapshot.load(run_id).get(own, "n"),
        other.outputs.snapshot.load(run_id).get("own", "n"),
        store.outputs.cache.ensure(CacheKey("w", "n", 1), own, {"it": value}),
    ):
        assert found.data == put.data == {"it": value}
        assert type(found.data["it"]) is type(put.data["it"])
    store.outputs.results.put(own, run_id, "n", {"it": None})
    assert store.outputs.results.history(own, run_id, "n").items[0].value == {"it": kept}


@with_each("kind", [sa.Uuid(), sa.Date(), sa.Time(), sa.Interval(), sa.Enum(Colour)], ids=repr)
def test_columns_of_other_types_are_refused(fresh_database: Database, kind: Any) -> None:
    """outputs X-3: by name."""
    table = named("own", sa.Column("run_id", sa.Text), sa.Column("node_id", sa.Text), sa.Column("it", kind))
    with pytest.raises(InvalidValue) as refusal:
        fresh_database.open().outputs.catalog.attach("own", table)
    assert refusal.value.where == "it"


def test_without_a_model_the_columns_decide(fresh_database: Database) -> None:
    """outputs X-2: unknown columns, and NULL where the column forbids it."""
    store = made(fresh_database, REPORTS)
    run_id = a_run(store)
    reports: OutputTable[Any] = store.outputs.catalog.attach("report", REPORTS)
    for value in ({"title": "x", "more": 1}, {"done": True}, {"title": 3}, ["x"]):
        with pytest.raises(InvalidValue):
            store.outputs.results.put(reports, run_id, "n", value)
    assert store.outputs.results.count(reports) == 0


def test_with_a_model_the_model_decides_first(fresh_database: Database) -> None:
    """outputs X-2."""
    store = made(fresh_database, REPORTS)
    run_id = a_run(store)
    reports = store.outputs.catalog.attach("report", REPORTS, model=Report)
    with pytest.raises(InvalidValue) as refusal:
        store.outputs.results.put(reports, run_id, "n", {"title": "x"})
    assert [issue.path for issue in refusal.value.issues] == ["title"]  # type: ignore[attr-defined]
    assert store.outputs.results.put(reports, run_id, "n", {"title": "long"}).value == Report(title="long")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (named("t", sa.Column("run_id", sa.Text, primary_key=True), sa.Column("x", sa.Text)), "node_id"),
        (named("t", sa.Column("run_id", sa.Text), sa.Column("node_id", sa.Text)), "unique key"),
        (
            named(
                "t",
                sa.Column("run_id", sa.Text, primary_key=True),
                sa.Column("node_id", sa.Text, primary_key=True),
                sa.Column("iteration", sa.Integer),
            ),
            "unique key",
        ),
        (named("t", *(column._copy() for column in PLAIN), sa.Index("i", "run_id", "node_id")), "unique key"),
        (
            named(
                "t",
                *(column._copy() for column in PLAIN),
                sa.Index("i", "run_id", "node_id", unique=True, sqlite_where=SOME, postgresql_where=SOME),
            ),
            "unique key",
        ),
    ],
    ids=["no node", "no key", "a key without its iteration", "an index that takes rows twice", "an index of some rows"],
)
def test_a_table_that_would_double_rows_is_refused(fresh_database: Database, table: sa.Table, said: str) -> None:
    """outputs X-1."""
    store = made(fresh_database, table)
    with pytest.raises(SchemaMismatch, match=said):
        store.outputs.catalog.attach("report", table)
    assert not store.outputs.catalog.list().items


def test_a_table_without_iterations_takes_the_first_alone(fresh_database: Database) -> None:
    """outputs X-1: a loop is InvalidValue. One column named payload takes the whole value."""
    table = named(
        "t",
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("node_id", sa.Text, nullable=False),
        sa.Column("payload", sa.JSON),
        sa.UniqueConstraint("run_id", "node_id"),
    )
    store = made(fresh_database, table)
    run_id = a_run(store)
    single: OutputTable[Any] = store.outputs.catalog.attach("single", table)
    assert store.outputs.results.put(single, run_id, "n", [1, {"a": 2}]).data == [1, {"a": 2}]
    assert store.outputs.results.get(single, run_id, "n").iteration == 0
    latest = store.outputs.results.find_latest(single, run_id, "n")
    assert latest is not None
    assert latest.data == [1, {"a": 2}]
    with pytest.raises(InvalidValue):
        store.outputs.results.put(single, run_id, "n", 1, iteration=1)


def test_a_table_with_times_and_without_iterations_is_read_by_every_process(fresh_database: Database) -> None:
    """outputs X-1, X-4: one that has not attached it."""
    columns = [sa.Column(name, sa.Text, primary_key=True) for name in ("run_id", "node_id")]
    table = named("t", *columns, sa.Column("row_created_at", sa.DateTime), sa.Column("title", sa.Text))
    store, other = made(fresh_database, table), fresh_database.open()
    run_id = a_run(store)
    put: Output[Any] = store.outputs.results.put(
        store.outputs.catalog.attach("single", table), run_id, "n", {"title": "x"}
    )
    assert other.outputs.snapshot.load(run_id).outputs["single"][0].data == put.data


def test_a_damaged_row_of_a_table_of_ones_own_is_named_by_its_key(fresh_database: Database) -> None:
    """outputs O-6, X-1: beside a number, too."""
    place = (sa.Column(name, sa.Text, primary_key=True) for name in ("run_id", "node_id"))
    iteration, amount = sa.Column("iteration", sa.Integer, primary_key=True), sa.Column("amount", sa.Numeric(10, 2))
    store = made(fresh_database, table := named("t", *place, iteration, amount, sa.Column("at", sa.DateTime)))
    run_id, results = a_run(store), store.outputs.results
    own: OutputTable[Any] = store.outputs.catalog.attach("own", table)
    results.put(own, run_id, "n", {"amount": Decimal(1), "at": datetime(2026, 2, 3, tzinfo=UTC)}, iteration=3)
    fresh_database.raw().execute(f"UPDATE t SET at = {no_time(fresh_database)}")
    with pytest.raises(CorruptData) as refusal:
        results.find_latest(own, run_id, "n")
    assert (refusal.value.table, refusal.value.key, refusal.value.column) == ("t", (run_id, "n", 3), "at")
    assert [one.key for one in results.load(own, run_id).damaged] == [(run_id, "n", 3)]
    with pytest.raises(CorruptData) as refusal:
        store.outputs.snapshot.load(run_id)
    assert refusal.value.key == (run_id, "n", 3)


def test_a_damaged_row_without_a_primary_key_is_named_by_what_was_sought(fresh_database: Database) -> None:
    """outputs O-6, X-1."""
    table = named(
        "t",
        *(sa.Column(name, sa.Text) for name in ("run_id", "node_id")),
        sa.Column("at", sa.DateTime),
        sa.UniqueConstraint("run_id", "node_id"),
    )
    store = made(fresh_database, table)
    run_id, results = a_run(store), store.outputs.results
    own: OutputTable[Any] = store.outputs.catalog.attach("own", table)
    results.put(own, run_id, "n", {"at": datetime(2026, 2, 3, tzinfo=UTC)})
    fresh_database.raw().execute(f"UPDATE t SET at = {no_time(fresh_database)}")
    for find, key in ((results.find, (run_id, "n", 0)), (results.find_latest, (run_id, "n"))):
        with pytest.raises(CorruptData) as refusal:
            find(own, run_id, "n")
        assert (refusal.value.table, refusal.value.key, refusal.value.column) == ("t", key, "at")


def test_a_table_of_ones_own_may_have_a_name_that_is_kept_from_defined_ones(fresh_database: Database) -> None:
    """outputs X-1: it is there already."""
    table = named("workflow_notes", *(column._copy() for column in REPORTS.columns))
    store = made(fresh_database, table)
    own: OutputTable[Any] = store.outputs.catalog.attach("own", table)
    assert store.outputs.results.put(own, a_run(store), "n", {"title": "x"}).data["title"] == "x"
    with pytest.raises(ReservedName):
        fresh_database.open(migrate=True).outputs.define("workflow_words", list[str])


def test_a_column_named_payload_of_another_type_is_a_column_like_others(fresh_database: Database) -> None:
    """outputs X-2, X-3: only one of type JSON takes the whole value."""
    key = [sa.Column(name, sa.Text, primary_key=True) for name in ("run_id", "node_id")]
    table = named("own", *key, sa.Column("payload", sa.Text))
    store = made(fresh_database, table)
    run_id = a_run(store)
    own: OutputTable[Any] = store.outputs.catalog.attach("own", table)
    with pytest.raises(InvalidValue, match="mapping of columns"):
        store.outputs.results.put(own, run_id, "n", "text")
    for text in ("a", "b"):
        assert store.outputs.results.put(own, run_id, "n", {"payload": text}).data == {"payload": text}
    assert store.outputs.results.get(own, run_id, "n").data == {"payload": "b"}
    assert store.outputs.results.history(own, run_id, "n").items[0].value == {"payload": "a"}


def test_a_table_that_is_not_there_is_refused(database: Database) -> None:
    """outputs X-1, X-5."""
    with pytest.raises(SchemaMismatch, match="missing"):
        database.open().outputs.catalog.attach("report", REPORTS)


def test_a_key_of_another_table_is_not_attached_to_ones_own(fresh_database: Database) -> None:
    """outputs X-1: not to one in place of a defined table, nor to a second one; what is registered stays."""
    second = named("second", *(column._copy() for column in REPORTS.columns))
    store, other = made(fresh_database, REPORTS), made(fresh_database, second)
    fresh_database.open(migrate=True).outputs.define("report", list[str])
    store.outputs.catalog.attach("own", REPORTS)
    for key in ("report", "own"):
        with pytest.raises(SchemaMismatch, match="another table"):
            other.outputs.catalog.attach(key, second)
    assert {table.table_name for table in store.outputs.catalog.list().items} == {"report", "team_reports"}
