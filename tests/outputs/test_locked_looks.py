"""What a call of this domain has looked at stays as it is until the call has written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
import sqlalchemy as sa
from support.outputs.shapes import Analysis, Grown, a_run
from support.rivals import Look, check, parameters, shut_out

from lastlight_state import Settings
from lastlight_state.backends import postgres
from lastlight_state.backends.waiting import Retry
from lastlight_state.errors import BackendBusy
from lastlight_state.outputs import CacheKey
from lastlight_state.testing import Database, racing

KEY = CacheKey("audit", "review", {"prompt": "look"})
OWN = sa.Table(
    "reports",
    sa.MetaData(),
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("node_id", sa.Text, primary_key=True),
    sa.Column("title", sa.Text),
)
MAKE_OWN = "CREATE TABLE reports (run_id TEXT, node_id TEXT, title TEXT, PRIMARY KEY (run_id, node_id))"


def _put(store: Any, run_id: str, summary: str = "ours") -> Any:
    made = store.outputs.define("analysis", Analysis)
    return store.outputs.results.put(made, run_id, "n", {"summary": summary})


def _stored(store: Any) -> str:
    run_id = a_run(store)
    _put(store, run_id, "first")
    return run_id


def _put_theirs(other: Any, run_id: str) -> None:
    _put(other, run_id, "theirs")


LOOKS = {
    "Results._put": Look(_stored, _put, _put_theirs, since=4),
    "Results.withdraw": Look(
        _stored, lambda s, r: s.outputs.results.withdraw("analysis", r, "n", reason="again"), _put_theirs, since=3
    ),
}


@parameters(LOOKS)
def test_nobody_changes_what_a_call_has_looked_at_before_it_writes(database: Database, look: Look) -> None:
    """outputs R-2, R-3: the row is locked from the look to the commit."""
    check(database, look)


def test_a_row_withdrawn_after_the_first_try_is_stored_anew(database: Database) -> None:
    """outputs R-2: Results._put."""
    store, other = database.open(migrate=True), database.open(migrate=True)
    run_id = _stored(store)
    other.outputs.define("analysis", Analysis)
    with racing(store) as race:
        race.before_unit(2, lambda: other.outputs.results.withdraw("analysis", run_id, "n", reason="again"))
        _put(store, run_id)
    assert race.left == 0
    assert store.outputs.results.get("analysis", run_id, "n").data["summary"] == "ours"


def test_an_entry_cleared_after_it_was_found_is_stored_anew(database: Database) -> None:
    """outputs H-2: Cache.ensure."""
    store, other = database.open(migrate=True), database.open(migrate=True)
    made = store.outputs.define("analysis", Analysis)
    store.outputs.cache.ensure(KEY, made, {"summary": "first"})
    with racing(store) as race:
        race.before_unit(2, lambda: other.outputs.cache.clear(workflow_name="audit"))
        assert store.outputs.cache.ensure(KEY, made, {"summary": "ours"}).data["summary"] == "ours"
    assert race.left == 0


def test_what_another_defined_after_the_look_is_added_to(database: Database) -> None:
    """outputs M-1: Catalog._complete_tables looks again under its lock; both shapes are there afterwards."""
    store, other = database.open(migrate=True), database.open(migrate=True)
    with racing(store) as race:
        race.before_unit(2, lambda: other.outputs.define("analysis", Analysis))
        made = store.outputs.define("analysis", Grown)
    assert race.left == 0
    assert {column.name for column in made.columns} >= {"summary", "severity", "score"}
    store.outputs.results.put(made, a_run(store), "n", {"summary": "ours", "score": 1})


def test_a_table_attached_after_the_look_is_attached_once(database: Database) -> None:
    """outputs X-1: Catalog.attach."""
    database.raw().execute(MAKE_OWN)
    store, other = database.open(migrate=True), database.open(migrate=True)
    with racing(store) as race:
        race.before_unit(2, lambda: other.outputs.catalog.attach("report", OWN))
        store.outputs.catalog.attach("report", OWN)
    assert race.left == 0
    assert [entry.key for entry in store.outputs.catalog.list().items] == ["report"]
    database.raw().execute("DROP TABLE reports")


def test_nobody_attaches_between_the_look_of_an_attach_and_its_note(database: Database) -> None:
    """outputs X-1, M-1: Catalog.attach."""
    database.raw().execute(MAKE_OWN)
    store, other = database.open(migrate=True), shut_out(database)

    def attempt() -> None:
        with pytest.raises(BackendBusy):
            other.outputs.catalog.attach("theirs", OWN)

    with racing(store) as race:
        race.before("INSERT", attempt)
        store.outputs.catalog.attach("report", OWN)
    assert race.left == 0
    database.raw().execute("DROP TABLE reports")


def test_nobody_defines_between_the_look_of_a_definition_and_its_table(database: Database) -> None:
    """outputs M-1: Catalog._complete_tables; two that make a table at once would meet in Postgres' catalog."""
    store, other = database.open(migrate=True), shut_out(database)

    def attempt() -> None:
        with pytest.raises(BackendBusy):
            other.outputs.define("theirs", Grown)

    with racing(store) as race:
        race.before("CREATE", attempt)
        store.outputs.define("analysis", Analysis)
    assert race.left == 0


def test_a_definition_waits_for_the_readers_of_its_table_for_a_short_time_alone(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """outputs M-1: whoever reads next would wait behind it; without the limit it would wait for ever."""
    other = postgres_database.open(migrate=True)
    run_id = _stored(other)
    store = postgres_database.open(migrate=True, settings=Settings(lock_timeout=None))
    cast(Any, store)._scope.retry = Retry(store.metrics, limit=0)
    monkeypatch.setattr(postgres, "DDL_WAIT_SECONDS", 0.01)
    with ThreadPoolExecutor(1) as pool, other.transaction() as tx:
        tx.outputs.results.get("analysis", run_id, "n")
        defining = pool.submit(store.outputs.define, "analysis", Grown)
        assert isinstance(defining.exception(30), BackendBusy)
