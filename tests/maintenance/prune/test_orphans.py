"""Messages that nothing refers to and orders that nobody owns: what goes, and what stays."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.conversations.talk import begun, said
from support.maintenance.rows import counts, difference, insert
from support.workflows.plans import plan_of
from support.workflows.steps import Raw, wait_until_blocked

from lastlight_state import InvalidValue, NotFound
from lastlight_state.conversations import NewBranch, NewSession
from lastlight_state.db.rows.statements import Family, Statement
from lastlight_state.ids import new_id
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.maintenance.prune.checks import MOST_KEYS
from lastlight_state.maintenance.prune.sweeps import orphans as sql
from lastlight_state.testing import Database, racing

DAY = 86_400
ORPHANS, AT_ONCE = PrunePolicy("orphans"), PrunePolicy("orphans", keep_days=0)


def left(database: Database, table: str = "messages") -> set[str]:
    return {row[0] for row in database.raw().execute(f"SELECT id FROM {table}").fetchall()}


def strays(database: Database, *names: str, days: float = 40, table: str = "messages") -> None:
    """Messages or orders of this age that nothing refers to."""
    made = database.clock.now() - timedelta(days=days)
    insert(database.raw(), table, *(row_of(name, made, table) for name in names))


def row_of(name: str, made: datetime, table: str = "messages") -> dict[str, Any]:
    return {"id": name, "created_at": made, **({"role": "u", "content": "1"} if table == "messages" else {})}


def test_what_nobody_refers_to_goes_with_its_links_and_the_rest_stays(store: Any, database: Database) -> None:
    """maintenance OP-29, OP-91: then a deep examination finds nothing that nothing has."""
    talks = database.open().conversations
    pool = talks.sessions.get(begun(database.open(), "linked").session_id)
    talks.branches.create(pool.id, NewBranch(id="told", system=said("system")[0]))
    talks.exchange.send(said("open")[0], to="ana")
    talks.exchange.send(said("done")[0], to="bo")
    talks.exchange.ack("bo", 0, reader="r")
    strays(database, "stray")
    for one in said("freed", "shared"):
        talks.messages.put(one)
    talks.progressions.create("order", ["freed", "linked", "shared", "freed"])
    talks.progressions.create("other", ["shared"])
    strays(database, "pool", table="progressions")
    talks.sessions.create(NewSession("owner", progression_id="pool"))
    database.clock.advance(seconds=31 * DAY)
    before = counts(database)
    plan = store.maintenance.prune.plan(ORPHANS)
    receipt = store.maintenance.prune.run(ORPHANS)
    assert plan.counts == receipt.counts == difference(before, counts(database))
    assert plan.counts == {"messages": 3, "progression_links": 5, "progressions": 2}
    assert (plan.records, plan.victims, plan.protected) == (5, ("order", "other", "stray", "freed", "shared"), {})
    assert left(database) == {"linked", "system", "open", "done"}
    assert "pool" in left(database, "progressions")
    assert store.maintenance.prune.run(ORPHANS).counts == {}
    assert database.open().maintenance.doctor.examine(deep=True, skip=["DOC-03"]).findings == ()


def test_what_is_younger_than_a_day_stays_whatever_the_policy(store: Any, database: Database) -> None:
    """maintenance OP-91, case 6: a writer may refer to it yet; one that is a day old to the millisecond stays, too."""
    strays(database, "young", days=1)
    strays(database, "order", days=1, table="progressions")
    strays(database, "old", days=2)
    assert store.maintenance.prune.plan(ORPHANS).records == 0
    assert store.maintenance.prune.plan(AT_ONCE).victims == ("old",)
    assert store.maintenance.prune.run(AT_ONCE).counts == {"messages": 1}
    store.conversations.progressions.append("order", ["young"])
    database.clock.advance(seconds=1)
    assert store.maintenance.prune.run(AT_ONCE).counts == {"messages": 1, "progression_links": 1, "progressions": 1}


def test_what_doctor_finds_goes_by_the_command_that_it_names(store: Any, database: Database) -> None:
    """maintenance OP-15, OP-91."""
    strays(database, "stray", days=2)
    strays(database, "order", days=2, table="progressions")
    found = store.maintenance.doctor.examine(deep=True, only=["DOC-08"]).findings
    told = database.open(migrate=False).backend.command("prune", "--kind", "orphans", "--keep-days", "1")
    assert {finding.remedy for finding in found} == {told}
    assert store.maintenance.prune.run(PrunePolicy("orphans", keep_days=1)).counts == {
        "messages": 1,
        "progressions": 1,
    }
    assert store.maintenance.doctor.examine(deep=True, only=["DOC-08"]).findings == ()


def test_ids_are_of_messages_and_orders_and_nothing_else_goes(store: Any, database: Database) -> None:
    """maintenance OP-26, OP-91: not even what an order alone held."""
    strays(database, "a", "b", "freed", "kept")
    store.conversations.progressions.create("young", ["a"])
    strays(database, "order", "other", table="progressions")
    store.conversations.progressions.append("order", ["freed", "kept"])
    chosen = PrunePolicy("orphans", ids=["a", "b", "order", "freed"])
    plan = store.maintenance.prune.plan(chosen)
    assert store.maintenance.prune.run(chosen).counts == plan.counts
    assert plan.counts == {"messages": 2, "progression_links": 2, "progressions": 1}
    assert (left(database), left(database, "progressions")) == ({"a", "kept"}, {"young", "other"})
    with pytest.raises(NotFound, match="nobody"):
        store.maintenance.prune.plan(PrunePolicy("orphans", ids=["nobody"]))


@pytest.mark.parametrize("wrong", [{"keep_n": 1}, {"keep_days": -1}, {"archive": "."}])
def test_a_policy_that_makes_no_sense_for_orphans_is_refused(
    store: Any, database: Database, wrong: dict[str, Any]
) -> None:
    """maintenance OP-25: nothing goes, and there is no receipt."""
    strays(database, "stray")
    with pytest.raises(InvalidValue):
        store.maintenance.prune.run(PrunePolicy("orphans", **wrong))
    assert left(database) == {"stray"}
    assert store.receipts.list().items == ()


def test_damaged_json_neither_keeps_an_orphan_nor_makes_one(store: Any, database: Database) -> None:
    """maintenance OP-91, OP-27."""
    branch = begun(database.open(), "linked")
    strays(database, "stray")
    garbage = "'{'" if database.name == "sqlite" else "'null'"
    raw = database.raw()
    for table in ("messages", "progressions", "sessions", "branches"):
        raw.execute(f"UPDATE {table} SET node_metadata = {garbage}, extra = {garbage}")
    raw.execute(f"UPDATE messages SET content = {garbage}")
    database.clock.advance(seconds=31 * DAY)
    assert store.maintenance.prune.run(ORPHANS).counts == {"messages": 1}
    assert left(database) == {"linked"}
    assert left(database, "progressions") >= {branch.progression_id}


#: An order: its days, what owns it, and the numbers of the messages that it holds.
ORDER = st.tuples(st.integers(0, 60), st.sampled_from(["", "", "sessions", "branches"]), st.lists(st.integers(0, 5)))
#: The pool of sessions that have another order in a branch.
POOL = "pool"
#: What else refers to a message, by its number.
REFERENCE = st.tuples(st.integers(0, 5), st.sampled_from(["first", "last", "system", "open", "acked"]))


def refer(raw: Any, now: datetime, key: str, message: str, how: str) -> None:
    """Let a session, a branch or a delivery refer to a message."""
    common = {"progression_id": POOL, "created_at": now}
    if how in ("first", "last"):
        insert(raw, "sessions", {"id": key, f"{how}_msg_id": message, "updated_at": now, **common})
    elif how == "system":
        insert(raw, "sessions", {"id": key, "updated_at": now, **common})
        insert(raw, "branches", {"id": key, "session_id": key, "system_msg_id": message, **common})
    else:
        insert(raw, "exchange_inboxes", {"owner": key, "next_ord": 1, "created_at": now})
        row = {"owner": key, "ord": 0, "message_id": message, "delivered_at": now}
        insert(raw, "exchange_deliveries", {**row, "acked_at": now if how == "acked" else None})


def order(raw: Any, made: datetime, key: str, messages: list[str], owned: str = "") -> None:
    """An order with these messages, that a session or branch owns, or nobody."""
    insert(raw, "progressions", {"id": key, "next_ord": len(messages), "created_at": made})
    links = [{"progression_id": key, "ord": n, "message_id": name} for n, name in enumerate(messages)]
    insert(raw, "progression_links", *links)
    common = {"id": key, "progression_id": key, "created_at": made}
    if owned == "sessions":
        insert(raw, "sessions", {**common, "updated_at": made})
    elif owned == "branches":
        insert(raw, "sessions", {**common, "progression_id": POOL, "updated_at": made})
        insert(raw, "branches", {**common, "session_id": key})


@pytest.mark.slow
@settings(max_examples=12)
@given(
    ages=st.lists(st.integers(0, 60), max_size=6),
    orders=st.lists(ORDER, max_size=4),
    references=st.lists(REFERENCE, max_size=4),
    keep_days=st.sampled_from([0, 30]),
    rows=st.sampled_from([2, 20_000]),
    chosen=st.none() | st.sets(st.integers(0, 9)),
)
def test_a_dry_run_tells_the_truth_about_any_orphans(
    database: Database,
    ages: list[int],
    orders: list[tuple[int, str, list[int]]],
    references: list[tuple[int, str]],
    keep_days: int,
    rows: int,
    chosen: set[int] | None,
) -> None:
    """maintenance OP-29, OP-91: nothing young or referred to goes, and all the rest does."""
    store, raw, now, drawn = database.open(), database.raw(), database.clock.now(), new_id()
    limit, staying, held = max(keep_days, 1), set[str](), set[str]()
    messages = {f"m{n}-{drawn}": days for n, days in enumerate(ages)}
    names = [*messages]
    insert(raw, "messages", *(row_of(name, now - timedelta(days=days)) for name, days in messages.items()))
    if raw.execute("SELECT count(*) FROM progressions").fetchone() == (0,):
        order(raw, now, POOL, [], "sessions")
    for n, (days, owned, places) in enumerate(orders):
        inside = [names[at] for at in places if at < len(names)]
        order(raw, now - timedelta(days=days), f"o{n}-{drawn}", inside, owned)
        if owned or days <= limit:
            staying.add(f"o{n}-{drawn}")
            held.update(inside)
    for n, (at, how) in enumerate(references):
        if at < len(names):
            refer(raw, now, f"r{n}-{drawn}", names[at], how)
            held.add(names[at])
    every = names + [f"o{n}-{drawn}" for n in range(len(orders))]
    ids = None if chosen is None else [every[n] for n in chosen if n < len(every)]
    policy = PrunePolicy("orphans", keep_days=keep_days, batch_rows=rows, ids=ids)
    before = counts(database)
    plan = store.maintenance.prune.plan(policy)
    receipt = store.maintenance.prune.run(policy)
    assert plan.counts == receipt.counts == difference(before, counts(database))
    assert plan.records == sum(plan.counts.get(table, 0) for table in ("messages", "progressions"))
    if ids is None:
        assert store.maintenance.prune.plan(policy).records == 0
        assert left(database) & {*names} == held | {name for name, days in messages.items() if days <= limit}
        assert {key for key in left(database, "progressions") if drawn in key} == staying


def test_what_somebody_refers_to_between_the_look_and_its_batch_stays(database: Database) -> None:
    """maintenance OP-28, OP-91: an order that a session takes, and a message that an order takes."""
    store, other = database.open(), database.open().conversations
    strays(database, "linked", "gone")
    strays(database, "owned", "unowned", table="progressions")
    young = begun(database.open()).id
    with racing(store) as race:
        race.before_unit(4, lambda: other.sessions.create(NewSession("late", progression_id="owned")))
        race.before_unit(8, lambda: other.branches.append(young, ["linked"]))
        receipt = store.maintenance.prune.run(ORPHANS)
    assert race.left == 0
    assert receipt.counts == {"messages": 1, "progressions": 1}
    assert left(database) == {"linked"}
    assert left(database, "progressions") >= {"owned"}


def test_what_somebody_is_about_to_refer_to_is_passed_over(shared_postgres: Database) -> None:
    """maintenance OP-28, OP-91, case 6: a link that is not committed yet locks its message, and holds up nothing."""
    store, raw = shared_postgres.open(), shared_postgres.raw()
    strays(shared_postgres, "linked", "stray")
    branch = begun(store)
    raw.execute("BEGIN")
    insert(raw, "progression_links", {"progression_id": branch.progression_id, "ord": 99, "message_id": "linked"})
    receipt = store.maintenance.prune.run(ORPHANS)
    raw.execute("COMMIT")
    assert (receipt.counts, left(shared_postgres)) == ({"messages": 1}, {"linked"})


def test_who_refers_to_a_message_while_it_is_removed_is_told_that_it_is_gone(shared_postgres: Database) -> None:
    """maintenance OP-91, case 6: nothing refers to what is gone, and who has the message stores it again."""
    store, other = shared_postgres.open(), shared_postgres.open().conversations
    strays(shared_postgres, "stray")
    branch, late = begun(store).id, list[Future[Any]]()

    def come_late() -> None:
        late.append(pool.submit(other.branches.append, branch, ["stray"]))
        wait_until_blocked(Raw(shared_postgres))

    with ThreadPoolExecutor(1) as pool, racing(store) as race:
        race.before("DELETE FROM maintenance_permits", come_late)
        assert store.maintenance.prune.run(ORPHANS).counts == {"messages": 1}
        assert isinstance(late[0].exception(30), NotFound)
    assert other.branches.append(branch, said("stray")).appended == 1


def test_a_long_order_is_a_batch_of_its_own_and_a_stopped_prune_goes_on(store: Any, database: Database) -> None:
    """maintenance OP-28, OP-31: as many rows as a batch may have go in one, and none twice."""
    own, raw, old = database.open(), database.raw(), database.clock.now() - timedelta(days=40)
    for name, length in (("a", 30), ("b", 10), ("c", 10)):
        names = [f"{name}{n}" for n in range(length)]
        insert(raw, "messages", *(row_of(one, old) for one in names))
        order(raw, old, name, names)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with racing(own) as race:
        race.before_unit(6, interrupt)
        with pytest.raises(KeyboardInterrupt):
            own.maintenance.prune.run(PrunePolicy("orphans", batch_rows=22))
    [stopped] = own.receipts.list(state="interrupted")
    assert stopped.counts == {"progression_links": 30, "progressions": 1}
    with racing(store) as race:
        done = store.maintenance.prune.resume(stopped.id)
    assert done.counts == {"messages": 50, "progression_links": 50, "progressions": 3}
    assert sum(text.startswith("INSERT INTO maintenance_permits") for text in race.statements) == 1 + 3


def test_every_statement_about_orphans_finds_its_rows_by_an_index(database: Database) -> None:
    """maintenance OP-28, OP-76: however many messages and orders stay."""
    store, values = database.open(), {"key_0": "a", "key_1": "b", "after": "a", "cutoff": database.clock.now()}
    stages = [sql.ORDERS, sql.ALONE]
    found = [*(one for stage in stages for part in (stage, stage.keys) for one in vars(part).values()), sql.LOOSE]
    found += [one for stage in stages for part in (stage.measures, stage.removals) for one in part.values()]
    statements = [one.of(["a", "b"])[0] if isinstance(one, Family) else one for one in found]
    statements = [one for one in statements if isinstance(one, Statement)]
    assert len(statements) == 13
    for statement in statements:
        plan = plan_of(database, store, statement, values, in_order=True)
        assert not plan.scans_the_table, plan


def test_as_many_ids_as_a_policy_takes_fit_a_receipt_however_long_they_are(database: Database) -> None:
    """maintenance OP-29, OP-91: what a plan takes, a run does."""
    store = database.open()
    names = [f"{number:0256}" for number in range(MOST_KEYS)]
    strays(database, *names)
    policy = PrunePolicy("orphans", ids=names)
    assert store.maintenance.prune.plan(policy).counts == store.maintenance.prune.run(policy).counts
    assert left(database) == set()
