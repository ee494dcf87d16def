"""States that are pruned, erased, shown, and read from coroutines."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.maintenance.rows import counts, difference
from support.workflows.plans import plan_of

from lastlight_state import InvalidValue, NotFound
from lastlight_state.aio import AsyncStateStore
from lastlight_state.db.rows.statements import Family, Statement
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.maintenance.prune.sweeps.expiry import STATES_SWEEP
from lastlight_state.testing import Database, racing

HOUR = timedelta(hours=1)


def filled(database: Database) -> Any:
    store = database.open()
    for key, ttl in (("old", None), ("over", HOUR), ("long over", timedelta(minutes=1)), ("expires", 100 * HOUR)):
        store.states.put(key, {"k": key}, ttl=ttl)
    database.clock.advance(seconds=48 * 3600)
    store.states.put("young", b"x")
    return store


def left(database: Database) -> set[str]:
    return {row[0] for row in database.raw().execute("SELECT key FROM states").fetchall()}


def test_what_has_expired_goes_and_nothing_else_at_any_age(database: Database) -> None:
    """states ST-30, maintenance OP-26, OP-29: plan, receipt and the rows that are gone are equal."""
    store = filled(database)
    before = counts(database)
    policy = PrunePolicy("states", batch_rows=1)
    plan, receipt = store.maintenance.prune.plan(policy), store.maintenance.prune.run(policy)
    assert plan.counts == receipt.counts == difference(before, counts(database)) == {"states": 2}
    assert (plan.records, left(database)) == (2, {"old", "expires", "young"})
    assert store.maintenance.prune.plan(policy).records == 0


def test_days_are_kept_after_the_expiry(database: Database) -> None:
    """states ST-30: and a number of the newest is refused."""
    store = filled(database)
    assert store.maintenance.prune.plan(PrunePolicy("states", keep_days=2)).records == 0
    database.clock.advance(seconds=1)
    with pytest.raises(InvalidValue):
        store.maintenance.prune.plan(PrunePolicy("states", keep_n=1))
    assert store.maintenance.prune.run(PrunePolicy("states", keep_days=1)).counts == {"states": 2}


def test_named_states_go_only_if_they_have_expired(database: Database) -> None:
    """states ST-30."""
    store = database.open()
    ids = [store.states.put(key, 1, ttl=ttl).id for key, ttl in (("a", HOUR), ("b", HOUR), ("c", None))]
    database.clock.advance(seconds=3600)
    policy = PrunePolicy("states", ids=ids[1:])
    assert store.maintenance.prune.plan(policy).counts == store.maintenance.prune.run(policy).counts == {"states": 1}
    assert left(database) == {"a", "c"}
    with pytest.raises(NotFound):
        store.maintenance.prune.plan(PrunePolicy("states", ids=["nobody"]))


def test_a_state_that_is_put_anew_between_the_look_and_the_removal_stays(database: Database) -> None:
    """states ST-30: what is removed is judged again under its lock."""
    store, rival = filled(database), database.open()
    with racing(store) as race:
        race.before_unit(4, lambda: rival.states.put("over", "again"))
        store.maintenance.prune.run(PrunePolicy("states"))
    assert (race.left, left(database)) == (0, {"old", "over", "expires", "young"})


def test_every_statement_about_expired_states_finds_its_rows_by_an_index(database: Database) -> None:
    """states ST-30, maintenance OP-28, OP-76."""
    store, now = database.open(), database.clock.now()
    for found in vars(STATES_SWEEP.statements).values():
        if isinstance(found, Family | Statement):
            statement = found.of(["a", "b"])[0] if isinstance(found, Family) else found
            plan = plan_of(database, store, statement, {"key_0": "a", "key_1": "b", "cutoff": now}, in_order=True)
            assert not plan.scans_the_table, plan
            assert not plan.sorts_the_table, plan


def test_the_states_of_a_person_go_and_no_others(store: Any, database: Database) -> None:
    """states ST-31: plan and receipt say how many rows."""
    for key, user in (("hers", "zoe"), ("also hers", "zoe"), ("his", "bob"), ("nobody's", None)):
        store.states.put(key, 1, user=user)
    store.states.put("was hers", 1, user="zoe", ttl=HOUR)
    database.clock.advance(seconds=3600)
    before = counts(database)
    plan, receipt = store.maintenance.erase.plan("zoe"), store.maintenance.erase.run("zoe")
    assert plan.counts == receipt.counts == difference(before, counts(database)) == {"states": 3}
    assert left(database) == {"his", "nobody's"}


def test_a_state_that_becomes_another_persons_meanwhile_stays(database: Database) -> None:
    """states ST-31: its user is looked at again."""
    store, rival = database.open(), database.open()
    store.states.put("k", 1, user="zoe")
    with racing(store) as race:
        race.before_unit(3, lambda: rival.states.put("k", 2, user="bob"))
        receipt = store.maintenance.erase.run("zoe")
    assert (race.left, receipt.counts, store.states.get("k").user) == (0, {}, "bob")


def test_states_are_listed_and_one_is_shown_with_its_value(database: Database) -> None:
    """states ST-32."""
    store = database.open()
    made = store.states.put("greeting", {"text": "hello"}, scope="app", user="ana")
    picture = store.states.put("picture", b"\0\xff", scope="app")
    listed = lastlight_state("ls", "states", "--url", database.url)
    assert (listed.code, "greeting" in listed.out, "ana" in listed.out) == (0, True, True)
    shown = lastlight_state("show", "state", made.id, "--url", database.url)
    assert (shown.code, "hello" in shown.out) == (0, True)
    assert lastlight_state("show", "state", picture.id, "--url", database.url, "--json").code == 0
    assert lastlight_state("show", "state", "nobody", "--url", database.url).code == 1
    assert lastlight_state("ls", "states", "--run", "r", "--url", database.url).code == 2


def test_states_from_coroutines(database: Database) -> None:
    """states ST-1, ST-4."""

    async def work() -> tuple[list[Any], int]:
        async with AsyncStateStore(database.open()) as store:
            await store.states.merge({"a": 1, "b": b"x"}, scope="s")
            async with store.transaction() as tx:
                await tx.states.put("a", 2, scope="s")
            found = [one.value for one in await store.states.items(scope="s")]
            return found, await store.states.clear("s")

    assert asyncio.run(work()) == ([2, b"x"], 2)
