"""What a definition, an attached table and their handles refuse, by name, and how little is enough for them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import BaseModel
from support.each import with_each
from support.outputs.shapes import Analysis, Grown, a_run

from lastlight_state import StateStore
from lastlight_state.errors import (
    AlreadyExists,
    InvalidValue,
    MisuseError,
    NotMigrated,
    PayloadTooLarge,
    SchemaMismatch,
)
from lastlight_state.outputs import OutputTable
from lastlight_state.testing import Database


class Inner(BaseModel):
    x: int


def own_table(*columns: sa.Column[Any], name: str = "own") -> sa.Table:
    """A table of the caller's making, with these columns beside the key."""
    key = [sa.Column(one, sa.Text, primary_key=True) for one in ("run_id", "node_id")]
    return sa.Table(name, sa.MetaData(), *key, *columns)


def made(database: Database, ddl: str) -> StateStore:
    """A store on a database in which this was run."""
    database.raw().execute(ddl)
    return database.open()


OWN = "CREATE TABLE {} (run_id TEXT NOT NULL, node_id TEXT NOT NULL, {}, PRIMARY KEY (run_id, node_id))"


def test_another_definition_of_a_key_names_each_difference(store: StateStore) -> None:
    """outputs M-6, D-6, D-8: the table, the kind, the limit; the same one again is the same handle."""
    first = store.outputs.define("analysis", Analysis)
    assert store.outputs.define("analysis", Analysis) is first
    others: list[tuple[str, Callable[[], object]]] = [
        ("table_name", lambda: store.outputs.define("analysis", Analysis, table="other")),
        ("kind", lambda: store.outputs.define("analysis", list[str])),
        ("max_bytes", lambda: store.outputs.define("analysis", Analysis, max_bytes=5)),
    ]
    for what, call in others:
        with pytest.raises(SchemaMismatch, match="restart needed") as refusal:
            call()
        assert what in {one.kind for one in refusal.value.differences}
    with pytest.raises(AlreadyExists, match="would share the table"):
        store.outputs.define("second", Analysis, table="analysis")
    with pytest.raises(AlreadyExists, match="would share the table"):
        store.outputs.catalog.attach("second", own_table(name="analysis"))
    store.outputs.define("codeReview", Analysis, table="reviews")
    store.outputs.define("plans", Analysis, table="all_plans")
    for key, table in (("second", "plans"), ("reviews", "second")):
        with pytest.raises(AlreadyExists, match="could be taken for") as taken:
            store.outputs.define(key, Analysis, table=table)
        assert taken.value.details["owner"] == ("plans" if table == "plans" else "codeReview")


def test_a_key_of_another_process_keeps_its_table(database: Database) -> None:
    """outputs M-3, D-6: another name for it is refused, and changes nothing."""
    ours, theirs = database.open(migrate=True), database.open(migrate=True)
    ours.outputs.define("analysis", Analysis)
    with pytest.raises(SchemaMismatch) as refusal:
        theirs.outputs.define("analysis", Analysis, table="other")
    assert [(one.kind, one.expected, one.found) for one in refusal.value.differences] == [
        ("table", "analysis", "other")
    ]
    assert [found.table_name for found in theirs.outputs.catalog.list().items] == ["analysis"]


def test_a_registered_table_that_is_gone_is_not_made_anew(fresh_database: Database) -> None:
    """outputs M-3: what it held would be missed by nobody."""
    fresh_database.open(migrate=True).outputs.define("analysis", Analysis)
    store = fresh_database.open(migrate=True)
    fresh_database.raw().execute("DROP TABLE analysis")
    with pytest.raises(SchemaMismatch, match="missing, though it is registered"):
        store.outputs.define("analysis", Grown)


def test_a_store_that_may_not_migrate_registers_no_table(fresh_database: Database) -> None:
    """outputs M-7, M-9: also one that has every column; its row of the registry is named."""
    fresh_database.open(migrate=True)
    time = "TEXT" if fresh_database.name == "sqlite" else "TIMESTAMPTZ"
    fresh_database.raw().execute(
        "CREATE TABLE analysis (run_id TEXT NOT NULL, node_id TEXT NOT NULL, iteration INTEGER NOT NULL DEFAULT 0, "
        f"row_created_at {time} NOT NULL, row_updated_at {time} NOT NULL, summary TEXT, severity TEXT, "
        "PRIMARY KEY (run_id, node_id, iteration))"
    )
    store = fresh_database.open(migrate=False)
    with pytest.raises(NotMigrated, match="registry row of analysis"):
        store.outputs.define("analysis", Analysis)
    assert store.outputs.catalog.list().items == ()


def test_a_table_that_lacks_a_column_of_its_key_is_not_attached(fresh_database: Database) -> None:
    """outputs X-1: whatever its declaration says; what is no table at all is said to be none."""
    store = made(fresh_database, "CREATE TABLE own (run_id TEXT PRIMARY KEY, it TEXT)")
    with pytest.raises(SchemaMismatch) as refusal:
        store.outputs.catalog.attach("own", own_table(sa.Column("it", sa.Text)))
    assert ("node_id", "column") in {(one.column, one.kind) for one in refusal.value.differences}
    for wrong in ("own", Analysis, object()):
        with pytest.raises(InvalidValue, match="expected a SQLAlchemy Table"):
            store.outputs.catalog.attach("own", wrong)


def test_a_table_of_ones_own_may_keep_the_times(fresh_database: Database) -> None:
    """outputs X-1, X-4: they are no part of its key; attached again it is the same handle."""
    time = "TEXT" if fresh_database.name == "sqlite" else "TIMESTAMPTZ"
    store = made(fresh_database, OWN.format("own", f"it TEXT, row_created_at {time}, row_updated_at {time}"))
    times = [sa.Column(name, sa.DateTime(timezone=True)) for name in ("row_created_at", "row_updated_at")]
    own: OutputTable[Any] = store.outputs.catalog.attach("own", table := own_table(sa.Column("it", sa.Text), *times))
    assert store.outputs.catalog.attach("own", table) is own
    run_id = a_run(store)
    assert store.outputs.results.put(own, run_id, "n", {"it": "x"}).data == {"it": "x"}
    found = store.outputs.results.get(own, run_id, "n")
    assert isinstance(found.created_at, datetime)
    with pytest.raises(MisuseError, match="no model"):
        own.describe()


@with_each(
    "name, kind, wrong",
    [
        ("reals", sa.Float(), ["word", True, 10**400, float("nan"), float("inf")]),
        ("decimals", sa.Numeric(), [1.5, "1.5", Decimal("NaN"), Decimal("Infinity")]),
        ("integers", sa.Integer(), [True, 1.0, 2**63, -(2**63) - 1]),
        ("texts", sa.Text(), [1, b"x"]),
        ("booleans", sa.Boolean(), [1, "true"]),
        ("blobs", sa.LargeBinary(), ["x", 1]),
        ("times", sa.DateTime(), ["2026-01-01", datetime(2026, 1, 1)]),  # noqa: DTZ001 - that is the point
    ],
)
def test_a_value_that_its_column_does_not_hold_is_refused(
    fresh_database: Database, name: str, kind: Any, wrong: list[Any]
) -> None:
    """outputs X-2, X-3: by name; nothing is written."""
    sqlite = fresh_database.name == "sqlite"
    type_of = kind.compile(sa.create_engine("sqlite://" if sqlite else "postgresql+psycopg://").dialect)
    with made(fresh_database, OWN.format(name, f"it {type_of}")) as store:
        own: OutputTable[Any] = store.outputs.catalog.attach(name, own_table(sa.Column("it", kind), name=name))
        run_id = a_run(store)
        for value in wrong:
            with pytest.raises(InvalidValue) as refusal:
                store.outputs.results.put(own, run_id, "n", {"it": value})
            assert refusal.value.where == "value.it"
        assert store.outputs.results.count(own) == 0


def test_a_limit_of_a_row_is_one_byte_at_least(store: StateStore, run_id: str) -> None:
    """outputs O-3: the limit itself passes."""
    with pytest.raises(InvalidValue, match="max_bytes"):
        store.outputs.define("number", int, max_bytes=0)
    number = store.outputs.define("number", int, max_bytes=1)
    assert store.outputs.results.put(number, run_id, "n", 7).data == 7
    with pytest.raises(PayloadTooLarge):
        store.outputs.results.put(number, run_id, "n", 10)


def test_a_payload_is_told_and_kept_as_it_is(store: StateStore, run_id: str) -> None:
    """outputs P-2, R-6, D-12, N-1: in the history without its column's name; models in a tuple are taken apart."""
    pairs: OutputTable[Any] = store.outputs.define("pairs", tuple[Inner, int])
    assert [(one["name"], one["token"], one["type"]) for one in pairs.describe()] == [("payload", "json", "array")]
    assert store.outputs.results.put(pairs, run_id, "n", (Inner(x=1), 2)).data == [{"x": 1}, 2]
    unchecked: Any = {"x": "3"}
    store.outputs.results.put(pairs, run_id, "n", (Inner.model_construct(**unchecked), 4))
    assert store.outputs.results.get(pairs, run_id, "n").data == [{"x": 3}, 4]
    assert [one.value for one in store.outputs.results.history(pairs, run_id, "n").items] == [[{"x": 1}, 2]]
    assert len(store.outputs.snapshot.load(run_id).outputs) == 1


def test_what_a_store_may_not_make_is_named_once(database: Database) -> None:
    """outputs M-7: the table, or the columns that it lacks, and not the registry beside."""
    database.open(migrate=True).outputs.define("analysis", Analysis)
    store = database.open(migrate=False)
    for key, model, missing in (("other", Analysis, "table other"), ("analysis", Grown, "column analysis.score")):
        with pytest.raises(NotMigrated) as refusal:
            store.outputs.define(key, model)
        assert refusal.value.missing == (missing,)
    with pytest.raises(NotMigrated) as refusal:
        store.outputs.catalog.define_all({"analysis": Analysis, "other": Grown})
    assert refusal.value.missing == ("table other",)


@with_each("left_out", ["run_id", "node_id"])
def test_a_row_of_others_needs_its_run_and_node(every_backend: StateStore, database: Database, left_out: str) -> None:
    """outputs T-4: only its iteration has a default."""
    every_backend.outputs.define("analysis", Analysis)
    given = {"run_id": a_run(every_backend), "node_id": "n", "summary": "s", "severity": "low"}
    given |= dict.fromkeys(("row_created_at", "row_updated_at"), "2026-01-01T00:00:00.000Z")
    del given[left_out]
    values = ", ".join(f"'{value}'" for value in given.values())
    with pytest.raises(Exception, match=r"(?i)null"):
        database.raw().execute(f"INSERT INTO analysis ({', '.join(given)}) VALUES ({values})")
