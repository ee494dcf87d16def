"""Counters that are behind the rows which they number are found and raised, and nothing else is touched."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.conversations.talk import begun, said
from support.maintenance.rows import insert

from lastlight_state import AsyncStateStore
from lastlight_state.conversations import Branch
from lastlight_state.errors import Conflict
from lastlight_state.maintenance import LateCounter
from lastlight_state.maintenance.upkeep import counters
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

ONE_EACH = {
    "run_sequences.next_seq of events": 1,
    "workflow_runs.transition_seq": 1,
    "sessions.transition_seq": 1,
    "sessions.change_seq": 1,
    "progressions.next_ord": 1,
    "exchange_inboxes.next_ord": 1,
}


@pytest.fixture
def talk(database: Database) -> Branch:
    """A branch, and a run with an event; counters of both are behind by a row that somebody brought in."""
    store, raw, now = database.open(), database.raw(), database.clock.now()
    branch = begun(store, "a", "b")
    create = store.workflows.runs.create
    run, ahead = (create(name, trigger=Trigger("t"), phase="p") for name in ("r", "ahead"))
    event = {"seq": 2, "type": "e", "occurred_at": now, "payload": "{}"}
    for one in (run, ahead):
        store.journal.events.append(one.id, "e")
        insert(raw, "run_events", {"run_id": one.id, **event})
    raw.execute(f"UPDATE run_sequences SET next_seq = 9 WHERE run_id = '{ahead.id}'")
    moved = {"to_status": "running", "reason": "x", "source": "engine", "at": now}
    insert(raw, "run_transitions", {"run_id": run.id, "seq": 3, **moved})
    store.conversations.lifecycle.transition(branch.session_id, "running")
    raw.execute(f"UPDATE sessions SET transition_seq = 0, change_seq = 1 WHERE id = '{branch.session_id}'")
    store.conversations.exchange.send(said("a")[0], to="ana")
    raw.execute("UPDATE exchange_inboxes SET next_ord = 0")
    raw.execute(f"UPDATE progressions SET next_ord = 1 WHERE id = '{branch.progression_id}'")
    return branch


def test_counters_behind_their_rows_are_raised_and_no_other(store: Any, database: Database, talk: Branch) -> None:
    """maintenance OP-67: what is written next gets new numbers; a second run raises nothing."""
    plan = store.maintenance.counters.plan()
    assert plan.counts == ONE_EACH
    late = {one.counter: one for one in plan.samples}
    wanted = LateCounter(counter="progressions.next_ord", key=talk.progression_id, value=1, needed=2)
    assert late["progressions.next_ord"] == wanted
    [run] = [run for run in database.open().workflows.runs.list() if run.workflow_name == "r"]
    assert late["run_sequences.next_seq of events"].model_dump() == {
        "counter": "run_sequences.next_seq of events",
        "key": run.id,
        "value": 1,
        "needed": 3,
    }
    receipt = store.maintenance.counters.run(actor="ops")
    assert (receipt.kind, receipt.scope, receipt.state, receipt.actor) == ("repair", "counters", "done", "ops")
    assert receipt.counts == ONE_EACH
    assert store.maintenance.counters.plan().counts == {}
    assert store.maintenance.counters.run().counts == {}
    again = database.open()
    assert again.journal.events.append(run.id, "e").seq == 3
    [ahead] = [run for run in again.workflows.runs.list() if run.workflow_name == "ahead"]
    assert again.journal.events.append(ahead.id, "e").seq == 9
    again.conversations.lifecycle.transition(talk.session_id, "completed")
    again.conversations.branches.append(talk.id, said("c"))
    assert [one.ord for one in again.conversations.branches.order(talk.id)] == [0, 1, 2]


@pytest.mark.usefixtures("talk")
def test_doctor_names_the_command_that_raises_counters(database: Database) -> None:
    """maintenance OP-15, OP-67: and has nothing to say of them afterwards."""
    store = database.open()
    findings = [one for one in store.maintenance.doctor.examine(only=["DOC-12"]).findings if one.remedy]
    assert {one.remedy for one in findings} == {store.backend.command("repair", "--counters")}
    assert len(findings) == len(ONE_EACH)
    store.maintenance.counters.run()
    assert [one for one in store.maintenance.doctor.examine(only=["DOC-12"]).findings if one.remedy] == []


@pytest.mark.usefixtures("talk")
def test_a_plan_counts_all_counters_that_are_behind_and_names_the_first(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-67."""
    monkeypatch.setattr(counters, "SAMPLES", 2)
    plan = database.open().maintenance.counters.plan()
    assert (plan.counts, len(plan.samples)) == (ONE_EACH, 2)


def test_a_counter_that_somebody_raised_meanwhile_is_left_alone(
    database: Database, talk: Branch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-67: it is compared again where it is raised. What was interrupted is gone on with."""
    store, look = database.open(), counters._look

    def interfered(unit: Any, counter: Any, after: str) -> Any:
        found = look(unit, counter, after)
        if counter.column.name == "next_ord" and found[1]:
            unit.change(counter.mend, {"key": talk.progression_id})
        if counter.column.name == "change_seq" and not found[1]:
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as patched:
        patched.setattr(counters, "_look", interfered)
        with pytest.raises(KeyboardInterrupt):
            store.maintenance.counters.run()
    [stopped] = store.receipts.list(state="interrupted").items
    assert stopped.counts == {name: 1 for name in ONE_EACH if name != "progressions.next_ord"}
    with monkeypatch.context() as patched:
        patched.setattr(
            counters, "_look", lambda *given: interfered(*given) if getattr(given[1], "ahead", 0) else look(*given)
        )
        assert store.maintenance.counters.run().counts == {}


@pytest.mark.usefixtures("talk")
def test_two_repairs_of_counters_are_one_conflict(database: Database) -> None:
    """maintenance OP-7, OP-67; coroutines have the same calls."""
    store = database.open()
    other = store.receipts.begin("repair", scope="counters", owner="other", policy={})
    with pytest.raises(Conflict, match="repair of counters is running") as refused:
        store.maintenance.counters.run()
    assert refused.value.code == "already_running"
    store.receipts.finish(other)

    async def work() -> Any:
        async with await AsyncStateStore.open(database.url, schema=store.settings.schema_name) as awaited:
            return await awaited.maintenance.counters.plan(), (await awaited.maintenance.counters.run()).counts

    plan, counts = asyncio.run(work())
    assert plan.counts == counts == ONE_EACH


def test_the_command_raises_counters_and_says_which(database: Database, talk: Branch) -> None:
    """maintenance OP-67, OP-72: the dry run writes nothing, and is exit code 1 while any is behind."""
    url = ("--url", database.url)
    said = lastlight_state("repair", "--counters", "--dry-run", *url, "--json")
    assert (said.code, said.error, said.data["counts"], said.data["receipt"]) == (1, "behind", ONE_EACH, None)
    told = lastlight_state("repair", "--counters", "--dry-run", *url)
    assert told.out.startswith("6 counters behind\n")
    assert talk.progression_id in told.out
    assert database.open().receipts.list().items == ()
    done = lastlight_state("repair", "--counters", *url, "--json")
    assert (done.code, done.data["counts"], done.data["receipt"]["state"]) == (0, ONE_EACH, "done")
    assert (lastlight_state("repair", "--counters", "--dry-run", *url).code) == 0
    assert " 0 counters raised" in lastlight_state("repair", "--counters", *url).out
    for more in (("somewhere",), ("--seal",), ("--out", "x"), ("--replace",)):
        assert lastlight_state("repair", "--counters", *more, *url).code == 2


@pytest.mark.parametrize(
    "harm", ["DELETE FROM run_leases", "UPDATE run_leases SET epoch = 9", "UPDATE run_leases SET workflow_name = 'x'"]
)
def test_a_running_run_without_its_lease_is_found_again(store: Any, database: Database, harm: str) -> None:
    """maintenance OP-67: where somebody removed or changed the row that claims look at."""
    runs, claims = store.workflows.runs, store.workflows.claims
    held = [runs.create("w", trigger=Trigger(f"t{n}"), phase="p").id for n in range(2)]
    for run_id in held:
        claims.take(run_id, owner="me")
    database.raw().execute(harm)
    [named] = [one for one in store.maintenance.doctor.examine().findings if "run_leases" in one.message]
    assert named.remedy == database.open(migrate=False).backend.command("repair", "--counters")
    assert store.maintenance.counters.plan().counts == {"run_leases of running runs": 2}
    assert store.maintenance.counters.run().counts == {"run_leases of running runs": 2}
    assert store.maintenance.counters.plan().counts == {}
    assert claims.take_next(owner="other", limit=5) == ()
    database.clock.advance(seconds=86_400)
    assert sorted(claim.run_id for claim in claims.take_next(owner="other", limit=5)) == sorted(held)
