"""Which runs may be claimed, in which order, and what it costs to find them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.sent import recorded
from support.workflows.claim_steps import LEASE, MILLI
from support.workflows.plans import Plan, plan_of
from support.workflows.steps import Raw, all_pages, started

from lastlight_state import StateStore
from lastlight_state.clock import iso_text
from lastlight_state.db.rows.statements import Family, Statement
from lastlight_state.errors import InvalidValue, LostRace
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import ClaimableRun, Provenance
from lastlight_state.workflows.claims import lists, statements as sql
from lastlight_state.workflows.queue import statements as queue_statements


def ids(runs: Any) -> list[str]:
    return [run.run_id for run in runs]


def adopted(raw: Raw, run_id: str, at: Any, *, started_at: Any = None) -> None:
    """A running row of another program, which knows no claims."""
    raw(
        "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, status, started_at, updated_at) "
        "VALUES (?, 'deploy', 't-1', 'plan', 'running', ?, ?)",
        run_id,
        started_at or at,
        at,
    )


def test_a_lease_that_ends_now_is_alive(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-40: one millisecond later it is not."""
    run = started(store)
    claim = store.workflows.claims.take(run.id, owner="a")
    frozen_clock.set(claim.lease_expires_at)
    assert store.workflows.claims.list_claimable().items == ()
    with pytest.raises(LostRace):
        store.workflows.claims.take(run.id, owner="b")
    frozen_clock.advance(MILLI)
    assert [found.kind for found in store.workflows.claims.list_claimable()] == ["abandoned"]
    assert store.workflows.claims.take(run.id, owner="b").restart_count == 1


def test_grace_adds_slack_against_clocks_that_differ(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-40."""
    store.workflows.claims.take(started(store).id, owner="a")
    frozen_clock.advance(LEASE + timedelta(seconds=5))
    assert store.workflows.claims.list_claimable(grace=timedelta(seconds=5)).items == ()
    frozen_clock.advance(MILLI)
    assert len(store.workflows.claims.list_claimable(grace=timedelta(seconds=5))) == 1


def test_a_row_of_another_program_is_left_alone_while_it_is_updated(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """workflows W-49: by id neither; after half a minute of silence it is abandoned."""
    adopted(raw, "theirs", frozen_clock.now())
    for _ in range(6):
        frozen_clock.advance(seconds=10)
        assert store.workflows.claims.list_claimable().items == ()
        assert store.workflows.claims.try_take("theirs", owner="a") is None
        assert store.workflows.claims.take_next(owner="a") == ()
        raw("UPDATE workflow_runs SET updated_at = ? WHERE id = 'theirs'", frozen_clock.now())
    frozen_clock.advance(LEASE)
    assert store.workflows.claims.list_claimable().items == ()
    frozen_clock.advance(MILLI)
    assert store.workflows.claims.list_claimable(grace=MILLI).items == ()
    [found] = store.workflows.claims.list_claimable()
    assert (found.kind, found.heartbeat_at, found.epoch) == ("abandoned", None, 0)
    claim = store.workflows.claims.take("theirs", owner="a")
    assert (claim.restart_count, claim.epoch) == (1, 1)
    assert raw.transitions("theirs") == [("running", "running", "claim.taken_over")]


def test_a_run_without_heartbeat_counts_from_its_start(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-40: in its place among those that have one."""
    now = frozen_clock.now()
    adopted(raw, "b", now, started_at=now - timedelta(hours=2))
    adopted(raw, "c", now, started_at=now - timedelta(hours=1))
    adopted(raw, "d", now, started_at=now - timedelta(hours=1))
    for run_id, hours in (("a", 1), ("e", 3)):
        adopted(raw, run_id, now)
        raw(
            "UPDATE workflow_runs SET heartbeat_at = ?, lease_expires_at = ?, claim_owner = 'x' WHERE id = ?",
            now - timedelta(hours=hours),
            now,
            run_id,
        )
    frozen_clock.advance(LEASE + MILLI)
    assert ids(store.workflows.claims.list_claimable()) == ["e", "b", "a", "c", "d"]
    assert ids(store.workflows.claims.take_next(owner="s", limit=4)) == ["e", "b", "a", "c"]


def test_a_claimable_run_knows_what_it_was_started_from(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-40: whoever resumes it needs the same definition."""
    provenance = Provenance(workflow_path="flows/fix.yaml", workflow_hash="abc", vcs_revision="f00")
    started(store, provenance=provenance)
    frozen_clock.advance(LEASE + MILLI)
    [found] = store.workflows.claims.list_claimable()
    assert found.provenance == provenance
    assert ClaimableRun.model_validate_json(found.model_dump_json()) == found


@given(
    rows=st.lists(st.tuples(st.sampled_from("ohnd"), st.integers(0, 3), st.booleans()), max_size=9),
    limit=st.integers(1, 4),
)
@settings(max_examples=25)
def test_pages_repeat_and_miss_nothing(
    every_backend: StateStore, raw: Raw, database: Database, rows: list[tuple[str, int, bool]], limit: int
) -> None:
    """workflows W-20, W-40, W-101: the three ranges are one order, oldest first, id breaks ties."""
    raw("UPDATE workflow_runs SET status = 'succeeded' WHERE status IN ('running', 'paused')")
    now, expected = database.clock.now(), []
    [(done,)] = raw("SELECT count(*) FROM workflow_runs")
    for number, (kind, age, listed) in enumerate(rows):
        seen = now - timedelta(minutes=1 + age)
        run_id = f"r-{9 - number}-{done}"
        adopted(raw, run_id, seen)
        lease = None if kind in "od" else now - MILLI if listed else now
        raw(
            "UPDATE workflow_runs SET status = ?, heartbeat_at = ?, lease_expires_at = ?, wake_at = ?, "
            "transition_seq = 1 WHERE id = ?",
            "paused" if kind == "d" else "running",
            None if kind == "n" else seen,
            lease,
            None if listed and kind != "d" else now if listed else now + MILLI,
            run_id,
        )
        if listed:
            expected.append((seen, run_id))
    pages = all_pages(every_backend.workflows.claims.list_claimable, limit=limit)
    assert [(run.seen_at, run.run_id) for run in pages] == sorted(expected)


def test_a_token_of_something_else_is_refused(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-20."""
    for _ in range(2):
        started(store)
    token = store.workflows.runs.list(limit=1).next_page_token
    frozen_clock.advance(LEASE + MILLI)
    own = store.workflows.claims.list_claimable(limit=1).next_page_token
    assert own is not None
    for damaged in (token, own[:-4], "x"):
        with pytest.raises(InvalidValue):
            store.workflows.claims.list_claimable(page_token=damaged)
    with pytest.raises(InvalidValue):
        store.workflows.claims.list_claimable(grace=LEASE, page_token=own)


@pytest.mark.plain_postgres("counts statements, and a chain is two there")
def test_any_number_of_claims_takes_the_same_statements(database: Database) -> None:
    """workflows W-102: one deciding statement for a heartbeat, of one or of hundreds, and for a take."""
    with recorded(database) as (store, sent):
        claims = store.workflows.claims
        runs = [started(store) for _ in range(60)]

        def statements(call: Callable[[], object]) -> list[str]:
            sent.clear()
            call()
            return [text.split(None, 1)[0] for text in sent]

        assert statements(lambda: claims.take(runs[0].id, owner="a")) == ["UPDATE"]
        held = [claims.take(run.id, owner="a") for run in runs]
        assert statements(lambda: claims.heartbeat(held[0])) == ["UPDATE"]
        assert statements(lambda: claims.heartbeat_many(held[:2])) == ["WITH"]
        assert statements(lambda: claims.heartbeat_many(held)) == ["WITH"]
        chain = ["BEGIN", "UPDATE", "INSERT", "COMMIT"] if database.name == "sqlite" else ["WITH"]
        assert statements(lambda: claims.transfer(held[0], owner="b")) == chain
        database.clock.advance(LEASE + MILLI)
        one = statements(lambda: claims.take_next(owner="s", limit=1))
        assert statements(lambda: claims.take_next(owner="s", limit=40)) == one


@pytest.mark.plain_postgres("fills tables by a statement that Citus refuses")
def test_hundreds_of_heartbeats_in_one_statement_renew_every_claim(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-102."""
    claims = every_backend.workflows.claims
    run = started(every_backend)
    raw(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 700) "
        "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, started_at, updated_at, "
        "transition_seq) SELECT 'r-' || n.i, workflow_name, trigger_id, current_phase, started_at, updated_at, 1 "
        "FROM workflow_runs, n WHERE id = ?",
        run.id,
    )
    held = claims.take_next(owner="a", limit=500) + claims.take_next(owner="a", limit=500)
    assert len(held) == 700
    assert claims.heartbeat_many(held) == {claim.run_id: claim for claim in held}


def test_a_heartbeat_writes_one_narrow_row_and_its_index(fresh_database: Database) -> None:
    """workflows W-102, W-150: on SQLite, whatever the run's size. For Postgres see `test_heap_only`."""
    store, raw = fresh_database.open(), Raw(fresh_database)
    claim = store.workflows.claims.take(started(store, context={"body": "x" * 255_000}).id, owner="a")
    if raw.name == "postgresql":
        return
    assert indexes_written(raw, store, sql.HEARTBEAT) == {"run_leases", "ix_run_leases_due"}
    raw("PRAGMA wal_checkpoint(TRUNCATE)")
    fresh_database.clock.advance(seconds=1)
    store.workflows.claims.heartbeat(claim)
    [(_, frames, _)] = raw("PRAGMA wal_checkpoint(PASSIVE)")
    assert frames <= 4


def indexes_written(raw: Raw, store: StateStore, statement: Statement[Any]) -> set[str]:
    """The table and the indexes that SQLite writes for this statement."""
    compiled = statement.on(store.backend)
    code = raw(f"EXPLAIN {compiled.sql}", *[None] * compiled.sql.count("?"))
    names = dict(raw("SELECT rootpage, name FROM sqlite_master WHERE rootpage > 0"))
    opened = {step[2]: names[step[3]] for step in code if step[1] in ("OpenWrite", "OpenRead") and step[3] in names}
    return {opened[step[2]] for step in code if step[1] in ("IdxInsert", "Insert") and step[2] in opened}


@pytest.mark.parametrize("many", [4_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_every_statement_of_claims_goes_by_the_index_meant_for_it(
    every_backend: StateStore, database: Database, raw: Raw, many: int
) -> None:
    """workflows W-101, W-103: sweeps read what is live or due, by partial indexes; the others go by the run's id."""
    fill(raw, database.clock, many)
    now = database.clock.now()
    values = {
        **lists.moment(now),
        "at": now,
        "after_0": now,
        "after_1": "r1",
        "limit": 20,
        "run_id": "r20",
        "retry_at": None,
    }
    values |= {"claim_owner": "a", "lease_expires_at": now, "expected_epoch": None, "epoch": 1, "move_due_before": now}
    times = f'"lease_expires_at":"{iso_text(now)}","move_due_before":"{iso_text(now)}"'
    values["claims"] = f'[{{"run_id":"r20","epoch":1,{times}}}]'

    shown_by = {"ix_workflow_runs_live"} if raw.name == "sqlite" else {"pk_workflow_runs"}
    due = {"ix_run_leases_due", LEASE_KEY[raw.name]}
    for ranges, indexes in (
        (lists.LISTED, {"ix_workflow_runs_wake"}),
        (lists.TAKEN_NEXT, {"ix_workflow_runs_wake"}),
        (lists.SPENT, set()),
    ):
        for paged, names in ((False, None), (True, None), (True, ["deploy"])):
            look, given = ranges.of({"workflow_name": names}, paged, 51)
            found = plan_of(database, every_backend, look, {**values, **given}, in_order=True)
            assert not found.scans_the_table, found
            assert by_index(found) - due == indexes | shown_by, found
            assert "ix_run_leases_due" in by_index(found), found
    by_id: list[Statement[Any]] = [sql.TAKE_FREE, sql.RETAKE, sql.LOCK, sql.HEARTBEAT, sql.TRANSFER.head, sql.FIND]
    families: tuple[Family[Any], ...] = (sql.TAKE, sql.LOCK_FREE, queue_statements.TAKE)
    for family in families:
        for some in (2, 100):
            statement, run_ids = family.of(["r20", "r40"] * (some // 2))
            by_id.append(statement)
            values |= run_ids
    renewing = sql.HEARTBEAT_MANY if raw.name == "sqlite" else sql.HEARTBEAT_MANY_IN_CTE
    for statement in (*by_id, renewing, sql.LOOK):
        found = plan_of(database, every_backend, statement, values, in_order=True)
        assert not re.search(r"Seq Scan|SCAN (workflow_runs|run_leases)", found.text), found
        assert by_index(found) <= {KEY[raw.name], LEASE_KEY[raw.name], *shown_by}, found
    left, run_ids = sql.LEFT_IN_FLIGHT.of(["r20", "r40"])
    found = plan_of(database, every_backend, left, {**values, **run_ids}, in_order=True)
    assert ("(workflow_run_id=?" if raw.name == "sqlite" else "Index") in found.text, found


KEY = {"sqlite": "sqlite_autoindex_workflow_runs_1", "postgresql": "pk_workflow_runs"}
LEASE_KEY = {"sqlite": "sqlite_autoindex_run_leases_1", "postgresql": "pk_run_leases"}


def by_index(plan: Plan) -> set[str]:
    """The indexes of runs and their leases that a plan reads by."""
    return set(re.findall(r"\b(?:ix|idx|pk|uq|sqlite_autoindex)_(?:workflow_runs|run_leases)\w*", plan.text))


def fill(raw: Raw, clock: FrozenClock, many: int) -> None:
    """A history of runs with a question each, every tenth paused; some live ones: alive, silent, never claimed, due."""
    raw.many_runs(many)
    now = clock.now()
    live = "UPDATE workflow_runs SET transition_seq = 1, {} WHERE {}"
    held = "status = 'running', claim_owner = 'x', claim_epoch = 1, heartbeat_at = ?, lease_expires_at = ?"
    raw(live.format(held, "trigger_id = 't10' AND status = 'paused'"), now, now + LEASE)
    raw(live.format(held, "trigger_id = 't20' AND status = 'paused'"), now - LEASE - LEASE, now - LEASE)
    raw(live.format("status = 'running'", "trigger_id = 't30' AND status = 'paused'"))
    raw(live.format("wake_at = ?", "trigger_id = 't40' AND status = 'paused'"), now)
    raw(
        "INSERT INTO workflow_approvals (id, workflow_run_id, gate, summary, status, created_at, responded_at)"
        " SELECT 'g' || id, id, 'plan', 's', 'approved', started_at, started_at FROM workflow_runs"
    )
    raw(
        "INSERT INTO human_requests (id, run_id, node_id, kind, status, requested_at, answered_at, prompt)"
        " SELECT 'h' || id, id, 'n', 'ask', 'answered', started_at, started_at, 'p' FROM workflow_runs"
    )
    raw.analyze()
