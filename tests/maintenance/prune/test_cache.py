"""Which entries of the cache of results go, and which stay."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.maintenance.rows import counts, difference, insert
from support.workflows.plans import plan_of

from lastlight_state import Conflict, InvalidValue, NotFound
from lastlight_state.db.rows.statements import Family, Statement
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.maintenance.prune.sweeps.expiry import CACHE_SWEEP
from lastlight_state.testing import Database, racing

DAY = 86_400
OLD = PrunePolicy("cache", keep_n=0)


def stored(database: Database, *keys: str, days: float, expired: float | None = None) -> None:
    """Entries of that age; those that have expired did so that many days ago, or will where it is below zero."""
    now = database.clock.now()
    row = {"workflow_name": "w", "node_id": "n", "output_key": "o", "table_name": "o", "schema_signature": "s"}
    expires = None if expired is None else now - timedelta(days=expired)
    more = {"created_at": now - timedelta(days=days), "expires_at": expires, "payload": "{}"}
    insert(database.raw(), "output_cache", *({"cache_key": key, **row, **more} for key in keys))


def left(database: Database) -> set[str]:
    return {row[0] for row in database.raw().execute("SELECT cache_key FROM output_cache").fetchall()}


def test_entries_go_by_their_age_and_expired_ones_at_any_age(store: Any, database: Database) -> None:
    """maintenance OP-26, OP-29, OP-89: plan, receipt and the rows that are gone are equal."""
    stored(database, "old", days=31)
    stored(database, "cutoff", "young", days=30)
    stored(database, "expired", days=1, expired=0.5)
    stored(database, "just expired", days=1, expired=0)
    stored(database, "expires", days=1, expired=-1)
    stored(database, "old and expired", days=40, expired=35)
    stored(database, "old and expires", days=40, expired=-35)
    stored(database, "old and just expired", days=40, expired=0)
    before = counts(database)
    plan = store.maintenance.prune.plan(OLD)
    receipt = store.maintenance.prune.run(OLD)
    assert plan.counts == receipt.counts == difference(before, counts(database)) == {"output_cache": 6}
    assert plan.records == 6
    assert plan.victims == (
        *("old and expired", "expired", "just expired", "old and just expired"),
        *("old and expires", "old"),
    )
    assert left(database) == {"cutoff", "young", "expires"}
    assert database.raw().execute("SELECT count(*) FROM tombstones").fetchone()[0] == 0
    assert (store.maintenance.prune.plan(OLD).records, store.maintenance.prune.run(OLD).counts) == (0, {})


def test_the_newest_entries_that_have_not_expired_stay(database: Database) -> None:
    """maintenance OP-26, OP-89: equal times are decided by the key."""
    store = database.open()
    stored(database, "a", "b", "c", days=40)
    stored(database, "d", days=31, expired=1)
    two = PrunePolicy("cache", keep_n=2)
    assert store.maintenance.prune.plan(two).victims == ("d", "a")
    assert store.maintenance.prune.plan(PrunePolicy("cache")).victims == ("d",)
    store.maintenance.prune.run(two)
    assert left(database) == {"b", "c"}


def test_ids_narrow_a_prune_of_the_cache(store: Any, database: Database) -> None:
    """maintenance OP-25, OP-26: an archive is refused, as there are no bundles of results."""
    stored(database, "a", "b", days=40)
    stored(database, "young", days=1)
    chosen = PrunePolicy("cache", keep_n=0, ids=["b", "young"], batch_rows=1)
    assert store.maintenance.prune.plan(chosen).victims == ("b",)
    assert store.maintenance.prune.run(chosen).counts == {"output_cache": 1}
    assert store.maintenance.prune.run(PrunePolicy("cache", keep_n=0, ids=[])).counts == {}
    assert left(database) == {"a", "young"}
    with pytest.raises(NotFound):
        store.maintenance.prune.plan(PrunePolicy("cache", ids=["nothing"]))
    with pytest.raises(InvalidValue):
        store.maintenance.prune.plan(PrunePolicy("cache", archive="."))


def test_a_result_that_is_put_in_place_of_an_expired_one_meanwhile_stays(database: Database) -> None:
    """maintenance OP-28, OP-89."""
    store, raw = database.open(), database.raw()
    stored(database, "a", days=2, expired=1)
    with racing(store) as race:
        race.before_unit(4, lambda: raw.execute("UPDATE output_cache SET expires_at = NULL"))
        assert store.maintenance.prune.run(OLD).counts == {}
    assert (race.left, left(database)) == (0, {"a"})


def test_an_entry_that_somebody_has_locked_is_passed_over(shared_postgres: Database) -> None:
    """maintenance OP-28."""
    store, raw = shared_postgres.open(), shared_postgres.raw()
    stored(shared_postgres, "a", "b", days=40)
    raw.execute("BEGIN")
    raw.execute("SELECT 1 FROM output_cache WHERE cache_key = 'a' FOR UPDATE")
    assert store.maintenance.prune.run(OLD).counts == {"output_cache": 1}
    raw.execute("ROLLBACK")
    assert left(shared_postgres) == {"a"}


def test_batches_of_the_cache_are_bounded_and_a_stopped_prune_goes_on(store: Any, database: Database) -> None:
    """maintenance OP-28, OP-31: one that is stopped keeps to what was so when it began."""
    stored(database, *(f"{n:03}" for n in range(450)), days=40)
    own = database.open()

    def interrupt() -> None:
        stored(database, "later", days=50)
        database.clock.advance(seconds=DAY)
        raise KeyboardInterrupt

    stored(database, "young", days=29.5)
    policy = PrunePolicy("cache", keep_n=1, batch_rows=250)
    assert store.maintenance.prune.plan(policy).victims == tuple(f"{n:03}" for n in range(20))
    with racing(own) as race:
        race.before_unit(5, interrupt)
        with pytest.raises(KeyboardInterrupt):
            own.maintenance.prune.run(policy)
    [stopped] = own.receipts.list(state="interrupted")
    assert stopped.counts == {"output_cache": 250}
    assert store.maintenance.prune.resume(stopped.id).counts == {"output_cache": 451}
    assert left(database) == {"young"}


def test_two_prunes_of_the_cache_at_once_are_a_conflict(store: Any, database: Database) -> None:
    """maintenance OP-7, OP-31."""
    other = database.open()
    other.receipts.begin("prune", scope="cache", policy={}, owner="other")
    with pytest.raises(Conflict):
        store.maintenance.prune.run(OLD)


def test_every_statement_about_the_cache_finds_its_rows_by_an_index(database: Database) -> None:
    """maintenance OP-28, OP-76."""
    store, now = database.open(), database.clock.now()
    values = {"key_0": "a", "key_1": "b", "now": now, "until_age": now, "until_key": "k", "kept": 5}
    for found in vars(CACHE_SWEEP.statements).values():
        if isinstance(found, Family | Statement):
            statement = found.of(["a", "b"])[0] if isinstance(found, Family) else found
            plan = plan_of(database, store, statement, values, in_order=True)
            assert not plan.scans_the_table, plan
            assert not plan.sorts_the_table, plan
