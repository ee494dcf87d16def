"""Which threads of checkpoints go, and which stay."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.checkpoints.steps import step, write
from support.maintenance.rows import counts, difference
from support.workflows.plans import plan_of

from lastlight_state import InvalidValue, NotFound
from lastlight_state.db.rows.statements import Family, Statement
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.maintenance.prune.sweeps.expiry import CHECKPOINTS_SWEEP
from lastlight_state.testing import Database, racing

DAY = 86_400
OLD = PrunePolicy("checkpoints", keep_n=0)


def grown(store: Any, *threads: str, ttl: timedelta | None = None) -> None:
    """Threads of two checkpoints, three values and a write each."""
    for thread in threads:
        store.checkpoints.put(thread, step(1, {"a": "one", "b": "two"}), ttl=ttl)
        store.checkpoints.put(thread, step(2, {"a": "other"}))
        store.checkpoints.put_writes(thread, "step-2", "x", [write(0, "w")])


def left(store: Any) -> set[str]:
    return {one.key for one in store.checkpoints.threads(limit=500)}


def filled(database: Database) -> Any:
    """A store with threads of forty days, of thirty, and of one; two of them have expired."""
    store = database.open()
    grown(store, "old")
    grown(store, "old and expired", ttl=timedelta(days=5))
    database.clock.advance(seconds=10 * DAY)
    grown(store, "cutoff")
    database.clock.advance(seconds=29 * DAY)
    grown(store, "expired", ttl=timedelta(hours=12))
    grown(store, "expires", ttl=timedelta(days=9))
    grown(store, "young")
    database.clock.advance(seconds=DAY)
    return store


def test_threads_go_whole_by_their_age_and_expired_ones_at_any_age(database: Database) -> None:
    """checkpoints CK-30, maintenance OP-26, OP-29: plan, receipt and the rows that are gone are equal."""
    store = filled(database)
    before = counts(database)
    plan, receipt = store.maintenance.prune.plan(OLD), store.maintenance.prune.run(OLD)
    whole = {"checkpoint_threads": 3, "checkpoint_values": 9, "checkpoint_writes": 3, "checkpoints": 6}
    assert plan.counts == receipt.counts == difference(before, counts(database)) == whole
    assert (plan.records, left(store)) == (3, {"cutoff", "expires", "young"})
    assert (store.maintenance.prune.plan(OLD).records, store.maintenance.prune.run(OLD).counts) == (0, {})


def test_the_newest_threads_that_have_not_expired_stay(database: Database) -> None:
    """checkpoints CK-30, maintenance OP-26."""
    store = filled(database)
    store.maintenance.prune.run(PrunePolicy("checkpoints", keep_n=2, keep_days=0))
    assert left(store) == {"expires", "young"}


def test_named_threads_go_only_if_they_may(database: Database) -> None:
    """checkpoints CK-30: batches of one thread each, each thread whole."""
    store = filled(database)
    ids = [store.checkpoints.thread(key).id for key in ("old", "expired", "young")]
    chosen = PrunePolicy("checkpoints", keep_n=0, ids=ids, batch_rows=1)
    plan, receipt = store.maintenance.prune.plan(chosen), store.maintenance.prune.run(chosen)
    assert plan.counts == receipt.counts
    assert receipt.counts["checkpoint_threads"] == 2
    assert left(store) == {"cutoff", "expires", "old and expired", "young"}
    with pytest.raises(NotFound):
        store.maintenance.prune.plan(PrunePolicy("checkpoints", ids=["nobody"]))
    with pytest.raises(InvalidValue):
        store.maintenance.prune.plan(PrunePolicy("checkpoints", archive="."))


def test_a_thread_that_goes_on_between_the_look_and_the_removal_stays(database: Database) -> None:
    """checkpoints CK-30: what is removed is judged again under its lock."""
    store, rival = filled(database), database.open()
    with racing(store) as race:
        race.before_unit(4, lambda: rival.checkpoints.put("old", step(3)))
        store.maintenance.prune.run(OLD)
    assert (race.left, "old" in left(store)) == (0, True)


def test_every_statement_about_threads_finds_its_rows_by_an_index(database: Database) -> None:
    """checkpoints CK-30, maintenance OP-28, OP-76."""
    store, now = database.open(), database.clock.now()
    values = {"key_0": "a", "key_1": "b", "now": now, "until_age": now, "until_key": "k", "kept": 5}
    for found in vars(CHECKPOINTS_SWEEP.statements).values():
        if isinstance(found, Family | Statement):
            statement = found.of(["a", "b"])[0] if isinstance(found, Family) else found
            plan = plan_of(database, store, statement, values, in_order=True)
            assert not plan.scans_the_table, plan
            assert not plan.sorts_the_table, plan
