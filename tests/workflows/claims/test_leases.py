"""The narrow row of each running run: what writes it, what a look reads of it, and that plain SQL leaves it right."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings, strategies as st
from support.preloaded import Program
from support.workflows.claim_steps import LEASE, MILLI, abandoned, offered, sleeping
from support.workflows.steps import Raw, started, together, wait_until_blocked

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, Conflict, LostRace, StateError
from lastlight_state.testing import Database
from lastlight_state.workflows import Claim
from lastlight_state.workflows.claims import lists

ODD = (
    "SELECT id FROM workflow_runs AS r WHERE (status = 'running') <> EXISTS (SELECT 1 FROM run_leases AS l "
    "WHERE l.run_id = r.id AND l.workflow_name = r.workflow_name AND coalesce(l.epoch, -1) = "
    "CASE WHEN r.claim_owner IS NULL THEN -1 ELSE r.claim_epoch END "
    "AND l.due_at <= coalesce(l.lease_expires_at, l.due_at) "
    "AND coalesce(l.lease_expires_at, l.due_at) >= coalesce(r.lease_expires_at, l.due_at))"
)
SET_BACK = timedelta(hours=-1)


def lease_of(raw: Raw, run_id: str) -> tuple[Any, ...]:
    """The epoch, end and due time of a run's lease; times as texts."""
    [row] = raw("SELECT epoch, lease_expires_at, due_at FROM run_leases WHERE run_id = ?", run_id)
    return row


def moment(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def test_a_heartbeat_writes_no_byte_of_the_run(store: StateStore, database: Database, raw: Raw) -> None:
    """workflows W-150: neither one alone nor many at once. `test_list` and `test_heap_only` say what it writes."""
    held = [store.workflows.claims.take(started(store).id, owner="a") for _ in range(3)]
    version = "xmin::text, ctid::text, " if database.name == "postgresql" else ""
    before = raw(f"SELECT {version}* FROM workflow_runs ORDER BY id")
    database.clock.advance(seconds=20)
    renewed = store.workflows.claims.heartbeat(held[0])
    assert set(store.workflows.claims.heartbeat_many(held)) == {claim.run_id for claim in held}
    assert raw(f"SELECT {version}* FROM workflow_runs ORDER BY id") == before
    run, now = store.workflows.runs.get(held[0].run_id), database.clock.now()
    assert (run.heartbeat_at, run.lease_expires_at) == (now, now + LEASE) == (now, renewed.lease_expires_at)
    assert store.workflows.claims.find(run.id).heartbeat_at == now  # type: ignore[union-attr]


def test_a_heartbeat_moves_what_is_due_when_it_has_come_near(store: StateStore, database: Database, raw: Raw) -> None:
    """workflows W-153: with less than a third of the lease left. Until then no indexed column changes."""
    claims = store.workflows.claims
    claim = claims.take(started(store, offered=True).id, owner="a")
    first = moment(lease_of(raw, claim.run_id)[2])
    assert first == claim.lease_expires_at
    for seconds, moved in ((20, False), (0.001, True), (19, False), (2, True)):
        database.clock.advance(seconds=seconds)
        before = lease_of(raw, claim.run_id)[2]
        [renewed] = claims.heartbeat_many([claim]).values()
        assert isinstance(renewed, Claim)
        _, end, due = lease_of(raw, claim.run_id)
        assert moment(end) == renewed.lease_expires_at == database.clock.now() + LEASE
        assert (due != before) == moved
        assert due == (end if moved else before)


def test_a_take_in_the_grace_of_a_start_leaves_the_place_in_the_index(
    store: StateStore, database: Database, raw: Raw
) -> None:
    """workflows W-153: the grace ends before the lease does, and then the run is looked at, and found to be held."""
    run = started(store)
    before = lease_of(raw, run.id)
    database.clock.advance(seconds=10)
    claim = store.workflows.claims.take(run.id, owner="a")
    epoch, end, due = lease_of(raw, run.id)
    assert (epoch, moment(end), due) == (1, claim.lease_expires_at, before[2])
    database.clock.advance(seconds=25)
    assert store.workflows.claims.list_claimable().items == ()
    assert store.workflows.claims.take_next(owner="b") == ()


@pytest.mark.parametrize("many", [3_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_held_runs_cost_a_take_and_a_look_nothing(fresh_database: Database, many: int) -> None:
    """workflows W-151: Postgres reads as many pages, and SQLite makes as many steps, whatever the statistics say."""
    store, raw = fresh_database.open(), Raw(fresh_database)
    for _ in range(5):
        started(store, offered=True)
    hold(raw, 300, "few", fresh_database)  # fewer make tables so small that Postgres reads them whole
    raw.analyze()
    before = [cost(fresh_database, store, *call) for call in looks()]
    hold(raw, many, "many", fresh_database)
    stale = [cost(fresh_database, store, *call) for call in looks()]
    raw.analyze()
    fresh = [cost(fresh_database, store, *call) for call in looks()]
    for few, *found in zip(before, stale, fresh, strict=True):
        assert max(found) <= 2 * few + 10, (before, stale, fresh)
    [claim] = store.workflows.claims.take_next(owner="b")
    assert claim.restart_count == 0


def hold(raw: Raw, many: int, name: str, database: Database) -> None:
    """Running runs that are held for another hour, each a millisecond longer than the last."""
    now = database.clock.now()
    later = "? + i * interval '1 ms'"
    if raw.name == "sqlite":
        later = "strftime('%Y-%m-%dT%H:%M:%fZ', ?, '+' || (i / 1000.0) || ' seconds')"
    raw(
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {many}) "
        "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, started_at, updated_at, "
        "transition_seq, claim_owner, claim_epoch, claimed_at, heartbeat_at, lease_expires_at) "
        f"SELECT '{name}-' || i, 'deploy', 't', 'p', ?, ?, 1, 'w', 1, ?, ?, {later} FROM n",
        *[now] * 4,
        now + timedelta(hours=1),
    )


def looks() -> Iterator[tuple[lists.Ranges[Any], list[str] | None]]:
    for ranges in (lists.TAKEN_NEXT, lists.SOUND_NEXT, lists.LISTED, lists.SPENT):
        yield ranges, None
        yield ranges, ["deploy"]


def cost(database: Database, store: StateStore, ranges: lists.Ranges[Any], names: list[str] | None) -> int:
    """The pages that Postgres reads for the statement, or the steps of SQLite's machine, in hundreds."""
    now = database.clock.now()
    statement, values = ranges.of({"workflow_name": names}, False, 51)
    compiled = statement.on(store.backend)
    parameters = compiled.parameters({**lists.moment(now), **values})
    raw = database.raw()
    if database.name == "postgresql":
        [[plan]] = raw.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {compiled.sql}", parameters).fetchall()
        top = plan[0]["Plan"]
        return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    raw.set_progress_handler(count, 100)
    raw.execute(compiled.sql, parameters).fetchall()
    return steps


#: Statements of programs that know nothing of this library, or of an operator, by what they do.
PLAIN = {
    "fail": "UPDATE workflow_runs SET status = 'failed' WHERE id = ?",
    "pause": "UPDATE workflow_runs SET status = 'paused' WHERE id = ?",
    "queue": "UPDATE workflow_runs SET status = 'queued' WHERE id = ?",
    "run": "UPDATE workflow_runs SET status = 'running', restart_count = restart_count + "
    "CASE WHEN status = 'failed' THEN 1 ELSE 0 END WHERE id = ? AND status <> 'succeeded' AND restart_count < 3",
    "take": "UPDATE workflow_runs SET claim_owner = 'by hand', claim_epoch = claim_epoch + 1, lease_expires_at = ? "
    "WHERE id = ?",
    "free": "UPDATE workflow_runs SET claim_owner = NULL, lease_expires_at = NULL WHERE id = ?",
    "touch": "UPDATE workflow_runs SET current_phase = 'x', status = status, claim_epoch = claim_epoch WHERE id = ?",
}


@pytest.mark.parametrize("what", PLAIN)
def test_plain_sql_leaves_no_run_stuck_and_none_taken_that_is_held(
    store: StateStore, database: Database, raw: Raw, what: str
) -> None:
    """workflows W-152."""
    claims = store.workflows.claims
    claim = claims.take(started(store).id, owner="a")
    database.clock.advance(seconds=25)
    claims.heartbeat(claim)
    plain(raw, database, what, claim.run_id)
    assert raw(ODD) == []
    database.clock.advance(seconds=10)  # past the lease of the take, and not past that of the heartbeat
    found = [run.run_id for run in claims.list_claimable()]
    assert found == ([claim.run_id] if what == "free" else [])
    if what in ("run", "touch"):
        assert claims.heartbeat(claim).epoch == claim.epoch
    else:
        with pytest.raises(ClaimLost):
            claims.heartbeat(claim)
    if what == "take":
        database.clock.advance(LEASE)
        assert [taken.run_id for taken in claims.take_next(owner="b")] == [claim.run_id]


def plain(raw: Raw, database: Database, what: str, run_id: str) -> None:
    lease_end = [database.clock.now() + LEASE] if what == "take" else []
    raw(PLAIN[what], *lease_end, run_id)


def test_a_role_that_knows_the_seed_alone_ends_a_run(postgres_database: Database) -> None:
    """workflows W-152: the original program needs no right on what it does not know."""
    store, raw = postgres_database.open(), postgres_database.raw()
    run = started(store)
    raw.execute("BEGIN")
    raw.execute("CREATE ROLE original")
    [(schema,)] = raw.execute("SELECT quote_ident(current_schema())").fetchall()
    raw.execute(f"GRANT USAGE ON SCHEMA {schema} TO original")
    raw.execute("GRANT SELECT, UPDATE ON workflow_runs TO original")
    raw.execute("SET LOCAL ROLE original")
    with pytest.raises(Exception, match="permission denied"), raw.transaction():
        raw.execute("SELECT 1 FROM run_leases")
    raw.execute("UPDATE workflow_runs SET status = 'failed' WHERE id = %s", [run.id])
    raw.execute("RESET ROLE")
    assert raw.execute("SELECT count(*) FROM run_leases").fetchone() == (0,)
    raw.execute("ROLLBACK")


Verb = Callable[[Any, str, list[Claim]], Any]

#: The verbs, on a run and the claims so far, the newest last. Those that give claims add them.
VERBS: dict[str, Verb] = {
    "take": lambda work, run_id, held: held.append(work.claims.take(run_id, owner="a")),
    "take next": lambda work, _, held: held.extend(work.claims.take_next(owner="b")),
    "beat": lambda work, _, held: work.claims.heartbeat(held[-1]),
    "beats": lambda work, _, held: work.claims.heartbeat_many(held),
    "transfer": lambda work, _, held: held.append(work.claims.transfer(held[-1], owner="c")),
    "release": lambda work, _, held: work.claims.release(held.pop()),
    "put off": lambda work, _, held: work.claims.release(held.pop(), retry_after=LEASE),
    "pause": lambda work, run_id, held: work.waits.pause(run_id, claim=held[-1]),
    "resume": lambda work, run_id, _: work.waits.resume(run_id, by="ana", reason="r"),
    "requeue": lambda work, run_id, held: work.queue.requeue(run_id, reason="r", claim=held[-1]),
    "admit next": lambda work, _, held: held.extend(work.queue.admit_next(cap=5, owner="d")),
    "admit": lambda work, run_id, _: work.queue.admit(run_id),
    "finish": lambda work, run_id, held: work.runs.finish(run_id, "failed", claim=held[-1]),
    "restart": lambda work, run_id, _: work.runs.restart(run_id, by="ana", reason="r"),
    "cancel": lambda work, run_id, _: work.runs.cancel(run_id, by="ana", reason="r"),
    "give up": lambda work, *_: work.claims.give_up(),
}


@given(
    steps=st.lists(
        st.one_of(
            st.sampled_from(sorted(VERBS)),
            st.sampled_from(sorted(PLAIN)).map(lambda what: f"sql {what}"),
            st.sampled_from([1, 9, 21, 31, -3_600]),
        ),
        max_size=16,
    )
)
@settings(max_examples=20)
def test_whatever_is_done_the_leases_are_those_of_the_running_runs(
    every_backend: StateStore, database: Database, raw: Raw, steps: list[str | int]
) -> None:
    """workflows W-152, W-153: by verbs and by plain SQL, with clocks that are set back."""
    run, held = started(every_backend), list[Claim]()
    for step in steps:
        if isinstance(step, int):
            database.clock.advance(seconds=step)
        elif step.startswith("sql "):
            with suppress(sqlite3.IntegrityError, psycopg.DatabaseError):  # a guard refuses it
                plain(raw, database, step[4:], run.id)
        else:
            with suppress(StateError, IndexError):
                VERBS[step](every_backend.workflows, run.id, held)
        assert raw(ODD) == [], step
        [(listed,)] = raw("SELECT count(*) FROM run_leases WHERE run_id = ?", run.id)
        stored = every_backend.workflows.runs.get(run.id)
        assert listed == (stored.status == "running"), step
        if stored.status == "running" and stored.claim_owner and stored.lease_expires_at:
            is_over = stored.lease_expires_at < database.clock.now()
            awake = stored.wake_at is None or stored.wake_at <= database.clock.now()
            found = run.id in {each.run_id for each in every_backend.workflows.claims.list_claimable(limit=500)}
            assert found == (is_over and awake), step


@pytest.mark.parametrize("taking", ["by id", "the next", "give up"])
def test_a_lease_that_is_renewed_at_the_last_moment_is_not_taken(
    every_backend: StateStore, database: Database, raw: Raw, taking: str
) -> None:
    """workflows W-154: of a heartbeat and whoever takes or ends the run at the same time, one wins."""
    claims = every_backend.workflows.claims
    for _ in range(12):
        claim = abandoned(every_backend, database.clock, max_restarts=0 if taking == "give up" else 3)
        calls: dict[str, Callable[[], Any]] = {
            "by id": partial(claims.try_take, claim.run_id, owner="b"),
            "the next": partial(claims.take_next, owner="b", limit=500),
            "give up": partial(claims.give_up),
        }
        works: list[Callable[[], Any]] = [partial(claims.heartbeat, claim), calls[taking]]
        beaten, taken = together(works)
        assert isinstance(beaten, Claim | ClaimLost), beaten
        assert not isinstance(taken, BaseException), taken
        assert isinstance(beaten, Claim) != bool(taken)
        assert raw(ODD) == []
        raw(PLAIN["fail"] + " AND status = 'running'", claim.run_id)


@pytest.mark.parametrize("taking", ["by id", "the next", "give up"])
def test_whoever_takes_a_run_waits_for_its_heartbeat_and_judges_it_then(
    postgres_database: Database, taking: str
) -> None:
    """workflows W-154: a renewal that has not committed counts as soon as it has."""
    store, other, watch = postgres_database.open(), postgres_database.open(), Raw(postgres_database)
    claim = abandoned(store, postgres_database.clock, max_restarts=0 if taking == "give up" else 3)
    calls: dict[str, Callable[[], Any]] = {
        "by id": partial(other.workflows.claims.try_take, claim.run_id, owner="b"),
        "the next": partial(other.workflows.claims.take_next, owner="b"),
        "give up": partial(other.workflows.claims.give_up),
    }
    with ThreadPoolExecutor(1) as pool:
        with store.transaction() as tx:
            tx.workflows.claims.heartbeat(claim)
            taken = pool.submit(calls[taking])
            wait_until_blocked(watch)
        assert not taken.result(timeout=30)
    assert store.workflows.claims.heartbeat(claim).epoch == claim.epoch


@pytest.mark.slow
def test_a_holder_that_is_killed_is_replaced_when_its_last_lease_is_over(fresh_database: Database) -> None:
    """workflows W-152, W-154: by ``kill -9``, between two heartbeats."""
    store = fresh_database.open()
    run = started(store, offered=True)
    script = (
        "import sys, time\n"
        "from datetime import timedelta\n"
        "from lastlight_state import StateStore\n"
        "claims = StateStore.open(sys.argv[1], migrate=False).workflows.claims\n"
        "claim = claims.take(sys.argv[2], owner='gone', lease=timedelta(seconds=1))\n"
        "while True:\n"
        "    claim = claims.heartbeat(claim)\n"
        "    print(claim.lease_expires_at.isoformat(), flush=True)\n"
        "    time.sleep(0.1)\n"
    )
    holder = Program(
        [sys.executable, "-c", script, fresh_database.url, run.id],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert holder.stdout is not None
    with holder.stdout as told:
        first = [told.readline() for _ in range(5)]
        holder.send_signal(signal.SIGKILL)
        last = [*first, *told.read().splitlines()][-1].strip()
    holder.wait()
    with StateStore.open(fresh_database.url, migrate=False) as today:
        lease_end = today.workflows.runs.get(run.id).lease_expires_at
        assert lease_end is not None
        assert lease_end >= datetime.fromisoformat(last)
        assert today.workflows.claims.wait(timeout=10, poll_interval=0.05)
        [claim] = today.workflows.claims.take_next(owner="b")
        assert (claim.run_id, claim.restart_count) == (run.id, 1)
        assert claim.taken_at > lease_end


def test_a_clock_that_is_set_back_hides_no_run_and_ends_no_lease(
    every_backend: StateStore, database: Database, raw: Raw
) -> None:
    """workflows W-153: what is offered is found, what is held stays held, and a heartbeat shortens nothing."""
    claims = every_backend.workflows.claims
    free = offered(every_backend).id
    claim = claims.take(started(every_backend).id, owner="a")
    asleep = sleeping(every_backend, database.clock.now() + timedelta(minutes=1)).id
    database.clock.advance(SET_BACK)
    assert claims.heartbeat(claim).lease_expires_at == claim.lease_expires_at
    assert [each.run_id for each in claims.take_next(owner="b", limit=5)] == [free]
    assert raw(ODD) == []
    database.clock.advance(-SET_BACK + LEASE + MILLI)
    found = {each.run_id for each in claims.take_next(owner="c", limit=5)}
    assert found == {free, claim.run_id}
    database.clock.advance(timedelta(minutes=1))
    assert asleep in {each.run_id for each in claims.list_claimable()}
    with pytest.raises((LostRace, Conflict)):
        claims.take(free, owner="d", expected_epoch=99)
