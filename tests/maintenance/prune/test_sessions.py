"""What a prune of conversations removes and what it leaves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.conversations.talk import begun, said
from support.maintenance.rows import counts, difference, insert
from support.workflows.plans import plan_of
from support.workflows.steps import Raw, wait_until_blocked

from lastlight_state.conversations import NewBranch, NewSession
from lastlight_state.conversations.shared import threads as sql
from lastlight_state.conversations.shared.references import LINKED
from lastlight_state.db.rows.statements import Family
from lastlight_state.ids import new_id
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database, racing

DAY = 86_400
ALL = PrunePolicy(keep_n=0)


def left(database: Database, table: str = "sessions") -> set[str]:
    return {row[0] for row in database.raw().execute(f"SELECT id FROM {table}").fetchall()}


def test_a_session_goes_whole_and_what_it_shares_with_a_survivor_stays(store: Any, database: Database) -> None:
    """maintenance OP-26, OP-27, OP-29, case 5: an order goes with its owner, a message with the last reference."""
    talks = database.open()
    old = begun(talks, "a", "shared", "pointed", branch_id="old")
    database.clock.advance(seconds=31 * DAY)
    begun(talks, branch_id="young")
    talks.conversations.branches.append("young", ["shared"])
    system = NewBranch(id="told", system="pointed")
    talks.conversations.branches.create(talks.conversations.branches.get("young").session_id, system)
    talks.conversations.messages.put(said("newborn")[0])
    talks.conversations.progressions.create("unowned")
    before = counts(database)
    plan = store.maintenance.prune.plan(ALL)
    receipt = store.maintenance.prune.run(ALL)
    assert (plan.victims, plan.protected) == ((old.session_id,), {})
    gone = {
        "branches": 1, "messages": 1, "progression_links": 6, "progressions": 2, "session_changes": 3, "sessions": 1
    }  # fmt: skip
    assert plan.counts == receipt.counts == difference(before, counts(database)) == gone
    assert left(database, "messages") == {"shared", "pointed", "newborn"}
    assert "unowned" in left(database, "progressions")
    buried = database.raw().execute("SELECT kind, id FROM tombstones").fetchall()
    assert [tuple(row) for row in buried] == [("session", old.session_id)]


def test_a_message_stays_while_a_delivery_of_it_is_open(store: Any, database: Database) -> None:
    """conversations CV-33: and goes with its deliveries."""
    talks = database.open()
    begun(talks, "a", "b", branch_id="old")
    exchange = talks.conversations.exchange
    for name in ("a", "b"):
        exchange.send(said(name)[0], to=["ana", "bo"])
    exchange.ack("ana", [0, 1], reader="r")
    exchange.ack("bo", 1, reader="r")
    database.clock.advance(seconds=31 * DAY)
    plan = store.maintenance.prune.plan(ALL)
    assert store.maintenance.prune.run(ALL).counts == plan.counts
    assert (plan.counts["messages"], plan.counts["exchange_deliveries"]) == (1, 2)
    assert left(database, "messages") == {"a"}
    assert [one.ord for one in exchange.inbox("ana", state="all")] == [0]


def test_sessions_that_run_wait_or_are_held_stay_however_old(store: Any, database: Database) -> None:
    """maintenance OP-26: each is counted by its reason, and goes when the reason is gone."""
    talks = database.open().conversations
    for status in ("running", "pending", "completed", "failed"):
        talks.sessions.create(NewSession(status, status=status))
    talks.sessions.create(NewSession("none"))
    talks.sessions.create(NewSession("held", status="completed"))
    talks.sessions.hold("held", "a lawsuit")
    database.clock.advance(seconds=400 * DAY)
    plan = store.maintenance.prune.plan(ALL)
    assert (plan.records, plan.protected) == (3, {"held": 1, "not_ended": 2})
    store.maintenance.prune.run(ALL)
    assert left(database) == {"running", "pending", "held"}
    talks.sessions.hold("held", None)
    talks.lifecycle.transition("running", "aborted")
    database.clock.advance(seconds=400 * DAY)
    store.maintenance.prune.run(ALL)
    assert left(database) == {"pending"}


def test_a_session_stays_while_another_one_has_a_fork_of_it_or_of_its_forks(database: Database) -> None:
    """maintenance OP-26, OP-29: and goes with them, whatever the size of a batch."""
    store = database.open()
    for name, parent in (("a", None), ("b", "a"), ("c", "b")):
        session = store.conversations.sessions.create().id
        if parent is None:
            store.conversations.branches.create(session, NewBranch(id=name))
        else:
            store.conversations.lineage.fork(parent, branch_id=name, session_id=session)
        store.conversations.branches.append(name, said(name))
        database.clock.advance(seconds=1)
    database.clock.advance(seconds=31 * DAY)
    last = store.conversations.branches.get("c").session_id
    store.conversations.branches.append("c", said("again"))
    assert (store.maintenance.prune.plan(ALL).records, store.maintenance.prune.plan(ALL).protected) == (
        0,
        {"forked": 2},
    )
    assert store.maintenance.prune.run(ALL).counts == {}
    database.clock.advance(seconds=31 * DAY)
    one_by_one = PrunePolicy(keep_n=0, batch_rows=1)
    plan = store.maintenance.prune.plan(one_by_one)
    assert (plan.records, plan.victims[-1], plan.protected) == (3, last, {})
    assert store.maintenance.prune.run(one_by_one).counts == plan.counts
    assert left(database) == left(database, "messages") == set()


def test_a_session_goes_that_has_a_fork_of_its_own_branch(store: Any, database: Database) -> None:
    """maintenance OP-26: it waits for others alone."""
    talks = database.open()
    old = begun(talks, "a", branch_id="old")
    talks.conversations.lineage.fork("old", branch_id="fork", session_id=old.session_id)
    database.clock.advance(seconds=31 * DAY)
    plan = store.maintenance.prune.plan(ALL)
    assert (plan.victims, plan.protected) == ((old.session_id,), {})
    assert store.maintenance.prune.run(ALL).counts == plan.counts
    assert left(database) == set()


#: A session of a random graph: days since it changed, the messages of its pool, those of its branch, the session whose
#: branch is its parent, the session whose pool it shares, and the message that it points to.
NODE = st.tuples(
    st.integers(0, 60),
    st.lists(st.integers(0, 4), max_size=3),
    st.lists(st.integers(0, 4), max_size=3),
    st.none() | st.integers(0, 4),
    st.none() | st.integers(0, 4),
    st.none() | st.integers(0, 4),
)


@pytest.mark.slow
@settings(max_examples=15)
@given(graph=st.lists(NODE, max_size=5), keep_n=st.integers(0, 2), batch=st.sampled_from([1, 5, 20_000]))
def test_a_dry_run_tells_the_truth_about_any_graph_of_sessions(
    database: Database, graph: list[tuple[Any, ...]], keep_n: int, batch: int
) -> None:
    """maintenance OP-26, OP-27, OP-29: shared messages, orders and forks, in circles too."""
    store, raw, now = database.open(), database.raw(), database.clock.now()
    drawn, messages = new_id(), [new_id() for _ in range(5)]
    common = {"created_at": now}
    insert(raw, "messages", *({"id": key, "role": "user", "content": '"x"', **common} for key in messages))
    keys = [f"{n}-{drawn}" for n in range(len(graph))]

    def order(key: str, ids: list[int]) -> None:
        insert(raw, "progressions", {"id": key, "next_ord": len(ids), **common})
        links = [{"progression_id": key, "ord": n, "message_id": messages[at]} for n, at in enumerate(ids)]
        insert(raw, "progression_links", *links)

    for key, (days, pool, own, _, shared, pointed) in zip(keys, graph, strict=True):
        order(f"pool-{key}", pool)
        order(f"own-{key}", own)
        pool_of = keys[shared] if shared is not None and shared < keys.index(key) else key
        row = {
            "id": key,
            "progression_id": f"pool-{pool_of}",
            "last_msg_id": None if pointed is None else messages[pointed],
            "updated_at": now - timedelta(days=days),
            **common,
        }
        insert(raw, "sessions", row)
    for n, (*_, parent, _, pointed) in enumerate(graph):
        above = f"br-{keys[parent]}" if parent is not None and parent < n else None
        row = {
            "id": f"br-{keys[n]}",
            "session_id": keys[(n * 2) % len(keys)],
            "progression_id": f"own-{keys[n]}",
            "parent_branch_id": above,
            "system_msg_id": None if pointed is None else messages[-pointed],
            **common,
        }
        insert(raw, "branches", row)
    policy = PrunePolicy(keep_n=keep_n, batch_rows=batch)
    before = counts(database)
    plan = store.maintenance.prune.plan(policy)
    receipt = store.maintenance.prune.run(policy)
    assert plan.counts == receipt.counts == difference(before, counts(database))
    assert store.maintenance.prune.plan(policy).records == 0
    assert {key for key, node in zip(keys, graph, strict=True) if node[0] <= 30} <= left(database)


def test_a_session_that_somebody_forks_or_touches_between_the_plan_and_its_batch_stays(database: Database) -> None:
    """maintenance OP-28."""
    store, other = database.open(), database.open()
    for name in ("forked", "touched", "old"):
        begun(store, name, branch_id=name)
    database.clock.advance(seconds=31 * DAY)
    young = other.conversations.sessions.create().id

    def come_between() -> None:
        other.conversations.lineage.fork("forked", branch_id="fork", session_id=young)
        other.conversations.branches.append("touched", said("more"))

    with racing(store) as race:
        race.before_unit(3, come_between)
        store.maintenance.prune.run(ALL)
    assert race.left == 0
    assert left(database, "branches") == {"forked", "touched", "fork"}


def test_a_prune_waits_for_whoever_is_forking_a_branch_and_leaves_its_session(shared_postgres: Database) -> None:
    """maintenance OP-28: the fork is in another session, and not yet committed."""
    store, other = shared_postgres.open(), shared_postgres.open()
    parent = begun(store, "a", branch_id="forked")
    shared_postgres.clock.advance(seconds=31 * DAY)
    young = store.conversations.sessions.create().id
    with ThreadPoolExecutor(1) as pool:
        with other.transaction() as tx:
            tx.conversations.lineage.fork("forked", branch_id="fork", session_id=young)
            pruning = pool.submit(store.maintenance.prune.run, ALL)
            wait_until_blocked(Raw(shared_postgres))
        assert pruning.result(60).counts == {}
    assert left(shared_postgres) == {parent.session_id, young}
    assert left(shared_postgres, "branches") == {"forked", "fork"}


def test_a_message_that_somebody_links_while_its_session_goes_stays(shared_postgres: Database) -> None:
    """maintenance OP-27, case 6."""
    store, other = shared_postgres.open(), shared_postgres.open()
    begun(store, "m", branch_id="old")
    shared_postgres.clock.advance(seconds=31 * DAY)
    store.conversations.progressions.create("order")
    with racing(store) as race:
        race.before("SELECT messages.id", lambda: other.conversations.progressions.append("order", ["m"]))
        receipt = store.maintenance.prune.run(ALL)
    assert race.left == 0
    assert (receipt.counts["sessions"], left(shared_postgres, "messages")) == (1, {"m"})


LENGTHS = [pytest.param(300, id="300"), pytest.param(100_000, id="100000", marks=pytest.mark.soak)]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_long_session_is_a_batch_of_its_own(fresh_database: Database, length: int) -> None:
    """maintenance OP-28."""
    store, raw, now = fresh_database.open(), fresh_database.raw(), fresh_database.clock.now()
    common = {"created_at": now - timedelta(days=40)}
    for name, size in (("a", 1), ("long", length), ("z", 1)):
        insert(raw, "messages", *({"id": f"{name}{n}", "role": "u", "content": "1", **common} for n in range(size)))
        insert(raw, "progressions", {"id": name, "next_ord": size, **common})
        links = ({"progression_id": name, "ord": n, "message_id": f"{name}{n}"} for n in range(size))
        insert(raw, "progression_links", *links)
        insert(raw, "sessions", {"id": name, "progression_id": name, "updated_at": common["created_at"], **common})
    with racing(store) as race:
        receipt = store.maintenance.prune.run(PrunePolicy(keep_n=0, batch_rows=100))
    assert receipt.counts["messages"] == receipt.counts["progression_links"] == length + 2
    assert sum(text.startswith("INSERT INTO maintenance_permits") for text in race.statements) == 3


def test_every_statement_about_what_sessions_share_finds_its_rows_by_an_index(database: Database) -> None:
    """maintenance OP-28, OP-76."""
    store = database.open()
    values = {"key_0": "a", "key_1": "b", "order_id": "a", "after": -1}
    found = [one.of(["a", "b"])[0] for one in vars(sql).values() if isinstance(one, Family)]
    assert len(found) == 18
    for statement in (LINKED, *found):
        plan = plan_of(database, store, statement, values, in_order=True)
        assert not plan.scans_the_table, plan
