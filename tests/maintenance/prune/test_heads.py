"""What goes from the beginnings of inboxes and of feeds, and what stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.conversations.talk import begun, said
from support.each import with_each
from support.maintenance.rows import counts, difference, insert
from support.refusal import refused
from support.workflows.plans import plan_of

from lastlight_state import Conflict, NotFound
from lastlight_state.conversations import NewSession, SessionPatch
from lastlight_state.db.rows.statements import Family, Statement
from lastlight_state.ids import new_id
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.maintenance.prune import sweeping
from lastlight_state.maintenance.prune.sweeps import prefixes, sweep as sweeps_sweep
from lastlight_state.maintenance.prune.sweeps.prefixes import CHANGES_SWEEP, EXCHANGE
from lastlight_state.testing import Database, racing

DAY = 86_400
EXCHANGED, FED = PrunePolicy("exchange"), PrunePolicy("changes")


def numbers(database: Database, table: str, owner: str) -> list[int]:
    key, at = ("owner", "ord") if table == "exchange_deliveries" else ("session_id", "seq")
    found = database.raw().execute(f"SELECT {at} FROM {table} WHERE {key} = '{owner}' ORDER BY {at}").fetchall()
    return [row[0] for row in found]


def sent(store: Any, owner: str, *texts: str, acked: bool = True) -> None:
    """Messages in an inbox, acknowledged or not."""
    for text in texts:
        store.conversations.exchange.send(said(text)[0], to=owner)
    if acked:
        for delivery in store.conversations.exchange.inbox(owner):
            store.conversations.exchange.ack(owner, delivery.ord, reader="r")


def looking_at(owners: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many inboxes in one look, also in the statement, which is made once."""
    monkeypatch.setattr(sweeps_sweep, "LOOK", owners)
    monkeypatch.setitem(vars(EXCHANGE), "keys", sweeps_sweep.Keys(EXCHANGE.key))


def test_a_prune_that_finds_nothing_for_long_shows_life(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-31: in its receipt, after some looks and not after each; or else it could be taken over."""
    store = sqlite_database.open()
    owners = [f"o{number}" for number in range(8)]
    for owner in owners:
        sent(store, owner, f"to {owner}")
    looking_at(1, monkeypatch)
    monkeypatch.setattr(sweeping, "QUIET", 2)
    with racing(store) as race:
        assert store.maintenance.prune.run(PrunePolicy("exchange", ids=owners)).counts == {}
    steps = sum(text.startswith("UPDATE maintenance_receipts") for text in race.statements)
    assert steps == 2 + 1 + 1, "two in between, one at the end of the walk, and the last"


def test_acknowledged_deliveries_go_from_the_beginning_and_the_last_one_stays(store: Any, database: Database) -> None:
    """maintenance OP-26, OP-79: the numbers that went are not given again, and who waits still hears."""
    talks = database.open()
    sent(talks, "ana", "a", "b", "c")
    database.clock.advance(seconds=31 * DAY)
    before = counts(database)
    plan = store.maintenance.prune.plan(EXCHANGED)
    receipt = store.maintenance.prune.run(EXCHANGED)
    assert (plan.records, plan.victims, plan.protected) == (1, ("ana",), {})
    assert plan.counts == receipt.counts == difference(before, counts(database))
    assert plan.counts == {"exchange_deliveries": 2, "messages": 2}
    assert store.maintenance.prune.run(EXCHANGED).counts == {}
    sent(talks, "ana", "d", acked=False)
    assert numbers(database, "exchange_deliveries", "ana") == [2, 3]
    assert [one.ord for one in talks.conversations.exchange.wait("ana", 0, timeout=0)] == [2, 3]
    assert talks.maintenance.doctor.examine(deep=True, skip=["DOC-03"]).findings == ()


def test_an_open_delivery_ends_what_goes_from_its_inbox(store: Any, database: Database) -> None:
    """maintenance OP-26, OP-79: what is acknowledged after it stays, too, until it is done."""
    talks = database.open()
    sent(talks, "ana", "a")
    sent(talks, "ana", "b", acked=False)
    for name in "cd":
        talks.conversations.exchange.send(said(name)[0], to="ana")
    talks.conversations.exchange.ack("ana", [2, 3], reader="r")
    sent(talks, "bo", "e", "f", acked=False)
    database.clock.advance(seconds=31 * DAY)
    plan = store.maintenance.prune.plan(EXCHANGED)
    assert (plan.counts, plan.protected) == ({"exchange_deliveries": 1, "messages": 1}, {"not_ended": 1})
    store.maintenance.prune.run(EXCHANGED)
    assert numbers(database, "exchange_deliveries", "ana") == [1, 2, 3]
    assert numbers(database, "exchange_deliveries", "bo") == [0, 1]


def test_a_message_goes_with_its_last_delivery_unless_something_refers_to_it(store: Any, database: Database) -> None:
    """maintenance OP-27: an order, a pointer of a session, or another delivery, acknowledged or not."""
    talks = database.open()
    begun(talks, "linked")
    talks.conversations.exchange.send(said("linked")[0], to="ana")
    talks.conversations.exchange.send(said("shared")[0], to=["ana", "bo"])
    talks.conversations.exchange.send(said("alone")[0], to="ana")
    sent(talks, "ana", "last")
    sent(talks, "bo", "more")
    database.clock.advance(seconds=31 * DAY)
    only_ana = PrunePolicy("exchange", ids=["ana"])
    assert store.maintenance.prune.plan(only_ana).counts == {"exchange_deliveries": 3, "messages": 1}
    assert store.maintenance.prune.run(only_ana).counts == {"exchange_deliveries": 3, "messages": 1}
    assert store.maintenance.prune.run(EXCHANGED).counts == {"exchange_deliveries": 1, "messages": 1}
    found = {row[0] for row in database.raw().execute("SELECT id FROM messages").fetchall()}
    assert found == {"linked", "last", "more"}


def test_the_newest_deliveries_of_each_inbox_stay(store: Any, database: Database) -> None:
    """maintenance OP-26, OP-79: `keep_n` counts in each inbox; one acknowledged at the cutoff stays."""
    talks = database.open()
    sent(talks, "ana", "a", "b", "c", "d")
    sent(talks, "bo", "e", "f")
    sent(talks, "cy", "g", acked=False)
    database.clock.advance(seconds=30 * DAY)
    plan = store.maintenance.prune.plan(EXCHANGED)
    assert (plan.records, plan.protected) == (0, {}), "nor is an open one as old that was delivered then"
    database.clock.advance(seconds=1)
    three = PrunePolicy("exchange", keep_n=3)
    assert store.maintenance.prune.plan(three).victims == ("ana",)
    store.maintenance.prune.run(three)
    assert numbers(database, "exchange_deliveries", "ana") == [1, 2, 3]
    assert numbers(database, "exchange_deliveries", "bo") == [0, 1]
    with pytest.raises(NotFound):
        store.maintenance.prune.plan(PrunePolicy("exchange", ids=["nobody"]))


#: An inbox: for each delivery the number of its message, and days since it was acknowledged, None while it is open.
INBOX = st.lists(
    st.tuples(st.integers(0, 6), st.none() | st.integers(20, 60)), max_size=6, unique_by=lambda one: one[0]
)


@settings(max_examples=15)
@given(
    inboxes=st.lists(INBOX, max_size=4),
    linked=st.sets(st.integers(0, 6)),
    keep_n=st.integers(0, 2),
    rows=st.sampled_from([1, 3, 20_000]),
)
def test_a_dry_run_tells_the_truth_about_any_inboxes(
    database: Database, inboxes: list[list[tuple[int, int | None]]], linked: set[int], keep_n: int, rows: int
) -> None:
    """maintenance OP-26, OP-27, OP-29: prefixes alone go, nothing open or young, and a second run is zero."""
    store, raw, now, drawn = database.open(), database.raw(), database.clock.now(), new_id()
    common = {"created_at": now - timedelta(days=90)}
    insert(raw, "messages", *({"id": f"{n}-{drawn}", "role": "u", "content": "1", **common} for n in range(7)))
    insert(raw, "progressions", {"id": drawn, "next_ord": len(linked), **common})
    links = [{"progression_id": drawn, "ord": at, "message_id": f"{n}-{drawn}"} for at, n in enumerate(sorted(linked))]
    insert(raw, "progression_links", *links) if links else None
    for at, inbox in enumerate(inboxes):
        owner = f"{at}-{drawn}"
        insert(raw, "exchange_inboxes", {"owner": owner, "next_ord": len(inbox), **common})
        for number, (message, days) in enumerate(inbox):
            acked = None if days is None else now - timedelta(days=days)
            row = {"owner": owner, "ord": number, "message_id": f"{message}-{drawn}", "acked_at": acked}
            insert(raw, "exchange_deliveries", {**row, "delivered_at": common["created_at"]})
    policy = PrunePolicy("exchange", keep_n=keep_n, batch_rows=rows)
    before = counts(database)
    plan = store.maintenance.prune.plan(policy)
    receipt = store.maintenance.prune.run(policy)
    assert plan.counts == receipt.counts == difference(before, counts(database))
    assert store.maintenance.prune.plan(policy).records == 0
    for at, inbox in enumerate(inboxes):
        left = numbers(database, "exchange_deliveries", f"{at}-{drawn}")
        first = left[0] if left else 0
        assert left == list(range(first, len(inbox)))
        assert all(days is not None and days > 30 for _, days in inbox[:first])
        assert len(left) >= min(len(inbox), max(keep_n, 1))


def test_entries_of_feeds_go_from_the_beginning_and_the_last_one_stays(store: Any, database: Database) -> None:
    """maintenance OP-26, OP-79; conversations CV-32: who is behind is told where the feed begins."""
    talks = database.open()
    branch = begun(talks, "a", "b")
    database.clock.advance(seconds=31 * DAY)
    before = counts(database)
    last = talks.conversations.changes.head(branch.session_id)
    plan = store.maintenance.prune.plan(FED)
    assert store.maintenance.prune.run(FED).counts == plan.counts == difference(before, counts(database))
    assert plan.counts == {"session_changes": last - 1}
    assert numbers(database, "session_changes", branch.session_id) == [last]
    with pytest.raises(Conflict) as behind:
        talks.conversations.changes.after(branch.session_id, 0)
    assert (behind.value.code, behind.value.details["lowest"]) == ("feed_trimmed", last)
    assert store.maintenance.prune.run(FED).counts == {}
    talks.conversations.branches.append(branch.id, said("c"))
    assert [one.seq for one in talks.conversations.changes.after(branch.session_id, last)] == [last + 1]
    assert talks.maintenance.doctor.examine(deep=True, skip=["DOC-03"]).findings == ()


def test_the_feed_of_a_session_that_runs_waits_or_is_held_stays(store: Any, database: Database) -> None:
    """maintenance OP-26, OP-79: it is counted by the reason, and goes when the reason is gone."""
    talks = database.open().conversations
    talks.sessions.create(NewSession("running", status="running"))
    talks.sessions.create(NewSession("pending", status="pending"))
    talks.sessions.create(NewSession("held"))
    talks.sessions.create(NewSession("none"))
    for name in ("running", "pending", "held", "none"):
        talks.sessions.update(name, SessionPatch(name="x"))
    talks.sessions.hold("held", "a lawsuit")
    database.clock.advance(seconds=31 * DAY)
    plan = store.maintenance.prune.plan(FED)
    assert (plan.victims, plan.protected) == (("none",), {"held": 1, "not_ended": 2})
    store.maintenance.prune.run(FED)
    assert numbers(database, "session_changes", "running")[0] == 1
    talks.sessions.hold("held", None)
    assert store.maintenance.prune.plan(FED).victims == ("held",)


def test_only_what_is_old_counts_as_staying(store: Any, database: Database) -> None:
    """maintenance OP-26, OP-79: an open delivery that is young, one acknowledged lately, and a young feed are not."""
    talks = database.open()
    sent(talks, "late", "a", acked=False)
    database.clock.advance(seconds=31 * DAY)
    talks.conversations.exchange.ack("late", 0, reader="r")
    sent(talks, "young", "b", acked=False)
    for name in ("running", "held"):
        talks.conversations.sessions.create(NewSession(name, status="running" if name == "running" else None))
    talks.conversations.sessions.hold("held", "a lawsuit")
    for days in (0, 30):  # at the cutoff, to the moment
        database.clock.advance(seconds=days * DAY)
        for policy in (EXCHANGED, FED):
            plan = store.maintenance.prune.plan(policy)
            assert (plan.records, plan.protected) == (0, {})


def test_what_was_acknowledged_at_the_cutoff_ends_what_goes(store: Any, database: Database) -> None:
    """maintenance OP-26, OP-79: to the moment."""
    talks = database.open()
    sent(talks, "ana", "a")
    database.clock.advance(seconds=1)
    sent(talks, "ana", "b", "c")
    database.clock.advance(seconds=30 * DAY)
    assert store.maintenance.prune.run(EXCHANGED).counts == {"exchange_deliveries": 1, "messages": 1}
    assert numbers(database, "exchange_deliveries", "ana") == [1, 2]


def test_a_counter_that_is_behind_its_rows_gives_no_number_again(store: Any, database: Database) -> None:
    """maintenance OP-79: of an inbox and of a feed; one that is ahead is left alone."""
    talks, raw = database.open(), database.raw()
    sent(talks, "ana", "a", "b", "c")
    sent(talks, "bo", "d", "e")
    branch = begun(talks, "f", "g")
    last = talks.conversations.changes.head(branch.session_id)
    raw.execute("UPDATE exchange_inboxes SET next_ord = CASE owner WHEN 'ana' THEN 1 ELSE 9 END")
    raw.execute("UPDATE sessions SET change_seq = 0")
    database.clock.advance(seconds=31 * DAY)
    for policy in (EXCHANGED, FED):
        assert store.maintenance.prune.run(policy).counts
    for owner, kept in (("ana", [2, 3]), ("bo", [1, 9])):
        sent(talks, owner, f"late to {owner}", acked=False)
        assert numbers(database, "exchange_deliveries", owner) == kept
    talks.conversations.branches.append(branch.id, said("h"))
    assert numbers(database, "session_changes", branch.session_id) == [last, last + 1]


def test_all_inboxes_are_looked_at_however_few_at_once(
    store: Any, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-26, OP-28."""
    talks, owners = database.open(), ["a", "b", "c"]
    for owner in owners:
        sent(talks, owner, f"to {owner}", f"more to {owner}")
    database.clock.advance(seconds=31 * DAY)
    looking_at(1, monkeypatch)
    assert store.maintenance.prune.run(EXCHANGED).counts == {"exchange_deliveries": 3, "messages": 3}


def test_named_inboxes_are_looked_at_once_each_however_many(
    store: Any, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-26, OP-28."""
    talks, owners = database.open(), [f"o{n}" for n in range(5)]
    for owner in owners:
        sent(talks, owner, f"to {owner}", f"more to {owner}", acked=owner != "o1")
    database.clock.advance(seconds=31 * DAY)
    looking_at(2, monkeypatch)
    plan = store.maintenance.prune.plan(PrunePolicy("exchange", ids=owners))
    assert (plan.victims, plan.protected) == (("o0", "o2", "o3", "o4"), {"not_ended": 1})
    assert store.maintenance.prune.run(PrunePolicy("exchange", ids=owners)).counts == plan.counts


@pytest.mark.timeout(60)
def test_what_rows_free_is_read_in_portions(sqlite_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-28: each of them once."""
    store = sqlite_database.open()
    sent(store, "ana", *"abcde")
    sqlite_database.clock.advance(seconds=40 * DAY)
    monkeypatch.setattr(prefixes, "_READ", 2)
    counted = store.maintenance.prune.run(EXCHANGED).counts
    assert counted == {"exchange_deliveries": 4, "messages": 4}


def test_batches_of_inboxes_are_bounded_by_rows_and_a_stopped_one_goes_on(store: Any, database: Database) -> None:
    """maintenance OP-28, OP-31: the totals are those of an undisturbed prune."""
    raw, old = database.raw(), database.clock.now() - timedelta(days=40)
    for owner in ("a", "b"):
        insert(raw, "exchange_inboxes", {"owner": owner, "next_ord": 30, "created_at": old})
        insert(
            raw, "messages", *({"id": f"{owner}{n}", "role": "u", "content": "1", "created_at": old} for n in range(30))
        )
        row = {"owner": owner, "delivered_at": old, "acked_at": old}
        insert(raw, "exchange_deliveries", *({**row, "ord": n, "message_id": f"{owner}{n}"} for n in range(30)))
    own = database.open()

    def interrupt() -> None:
        raise KeyboardInterrupt

    policy = PrunePolicy("exchange", batch_rows=20)
    with racing(own) as race:
        race.before_unit(6, interrupt)
        with pytest.raises(KeyboardInterrupt):
            own.maintenance.prune.run(policy)
    [stopped] = own.receipts.list(state="interrupted")
    assert 0 < stopped.counts["exchange_deliveries"] < 58
    assert store.maintenance.prune.resume(stopped.id).counts == {"exchange_deliveries": 58, "messages": 58}
    with refused():
        raw.execute("DELETE FROM exchange_deliveries")


@with_each("sweep", [EXCHANGE, CHANGES_SWEEP], ids=lambda sweep: sweep.name)
def test_every_statement_about_beginnings_finds_its_rows_by_an_index(database: Database, sweep: Any) -> None:
    """maintenance OP-28, OP-76."""
    store, now = database.open(), database.clock.now()
    values = {"key_0": "a", "key_1": "b", "owner": "a", "cutoff": now, "kept": 0, "most": 5, "limit": 5}
    for name, found in {**vars(sweep.statements), **vars(sweep.keys)}.items():
        statement = found.of(["a", "b"])[0] if isinstance(found, Family) else found
        assert isinstance(statement, Statement)
        after = "a" if name == "walk" else 5
        plan = plan_of(database, store, statement, {**values, "after": after}, in_order=True)
        assert not plan.scans_the_table, plan
