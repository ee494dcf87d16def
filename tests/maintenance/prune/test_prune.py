"""What a prune removes and what it leaves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.between import before
from support.conversations.talk import said
from support.each import with_each
from support.maintenance.old_logs import old_log
from support.maintenance.rows import counts, difference, insert, run_row
from support.maintenance.whole_runs import Report, whole_run
from support.refusal import refused

from lastlight_state import Conflict, InvalidValue, NotFound, StateStore
from lastlight_state.ids import new_id
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.messaging import ConversationKey, MessageDraft
from lastlight_state.receipts import Receipts
from lastlight_state.schedules import CronSpec
from lastlight_state.testing import Database, racing
from lastlight_state.workflows.words import RUN_STATUSES

DAY = 86_400
ALL = PrunePolicy("runs", keep_days=30, keep_n=0)


def runs(database: Database) -> set[str]:
    return {row[0] for row in database.raw().execute("SELECT id FROM workflow_runs").fetchall()}


def ended(database: Database, *keys: str, days: float = 40, **more: Any) -> None:
    """Runs that ended so long ago."""
    at = database.clock.now() - timedelta(days=days)
    insert(database.raw(), "workflow_runs", *(run_row(key, at, **more) for key in keys))


def test_a_run_goes_whole_with_its_rows_in_every_table_and_the_others_stay(fresh_database: Database) -> None:
    """maintenance OP-26, OP-29, case 15: plan, receipt and the rows that are gone are equal."""
    database, store = fresh_database, fresh_database.open(migrate=True)
    store.outputs.define("report", Report)
    whole_run(store, "old")
    database.clock.advance(seconds=31 * DAY)
    whole_run(store, "young")
    before = counts(database, "report")
    assert min(before[name] for name in ("run_frames", "scores", "output_history", "report")) == 2
    plan = store.maintenance.prune.plan(ALL)
    receipt = store.maintenance.prune.run(ALL, actor="ana")
    after = counts(database, "report")
    assert (plan.records, plan.victims, plan.protected) == (1, ("old",), {})
    assert plan.counts == receipt.counts == difference(before, after)
    assert len(plan.counts) == 17
    assert (receipt.state, receipt.actor, runs(database)) == ("done", "ana", {"young"})
    assert database.raw().execute("SELECT kind, id, receipt_id FROM tombstones").fetchall() == [
        ("workflow_run", "old", receipt.id)
    ]
    assert after["maintenance_permits"] == 0
    assert store.maintenance.prune.run(ALL).counts == {}


#: A run of a random graph: its status, days since it ended, the number of its parent, and what waits for it.
NODE = st.tuples(
    st.sampled_from(sorted(RUN_STATUSES)),
    st.integers(0, 60),
    st.none() | st.integers(0, 5),
    st.sampled_from(["", "approval", "question", "pointer"]),
)


def test_a_dry_run_waits_for_no_writer_and_writes_no_byte(database: Database) -> None:
    """maintenance OP-2, OP-29: neither in the database nor beside it, and it leaves no receipt."""
    store, raw, now = database.open(), database.raw(), database.clock.now()
    insert(raw, "workflow_runs", run_row("old", now - timedelta(days=90), "succeeded"))
    before, files = counts(database), {path: path.read_bytes() for path in store.backend.files if path.is_file()}
    raw.execute("BEGIN")
    insert(raw, "workflow_runs", run_row("new", now, "running"))
    assert store.maintenance.prune.plan(PrunePolicy("runs", keep_days=30, keep_n=0)).records == 1
    raw.execute("ROLLBACK")
    assert counts(database) == before
    held = {path: path.read_bytes() for path in files if not path.name.endswith(("-shm", "-wal"))}
    assert held == {path: files[path] for path in held}
    assert store.receipts.list().items == ()


@settings(max_examples=12)
@given(graph=st.lists(NODE, max_size=6), keep_n=st.integers(0, 3), batch=st.sampled_from([1, 3, 20_000]))
def test_a_dry_run_tells_the_truth_about_any_graph(
    database: Database, graph: list[tuple[str, int, int | None, str]], keep_n: int, batch: int
) -> None:
    """maintenance OP-26, OP-27, OP-29: nothing that lives, waits or is read goes."""
    store, raw, now = database.open(), database.raw(), database.clock.now()
    keys = [new_id() for _ in graph]
    for key, (status, days, parent, waits) in zip(keys, graph, strict=True):
        related = {"parent_run_id": keys[parent] if parent is not None and parent < len(keys) else None}
        insert(raw, "workflow_runs", run_row(key, now - timedelta(days=days), status, **related))
        common = {"workflow_run_id": key, "started_at": now, "trigger_type": "t", "trigger_id": "t", "skill": "s"}
        insert(raw, "executions", {"id": f"ex-{key}", **common})
        if waits == "approval":
            gate = {"id": key, "workflow_run_id": key, "gate": "g", "summary": "s", "created_at": now}
            insert(raw, "workflow_approvals", gate)
        elif waits == "question":
            question = {"id": key, "run_id": key, "node_id": "n", "kind": "text", "requested_at": now, "prompt": "?"}
            insert(raw, "human_requests", question)
        elif waits == "pointer":
            scratch = f'{{"n": 1, "loop": {{"lastOutputExecutionId": "ex-{key}"}}}}'
            insert(raw, "workflow_runs", run_row(f"reads-{key}", now, "paused", scratch=scratch))
    policy = PrunePolicy("runs", keep_days=30, keep_n=keep_n, batch_rows=batch)
    before = counts(database)
    plan = store.maintenance.prune.plan(policy)
    receipt = store.maintenance.prune.run(policy)
    assert plan.counts == receipt.counts == difference(before, counts(database))
    assert store.maintenance.prune.plan(policy).records == 0
    left = runs(database)
    for key, (status, days, parent, waits) in zip(keys, graph, strict=True):
        if status in ("queued", "running", "paused") or days <= 30 or waits:
            assert key in left
        if parent is not None and parent < len(keys) and graph[parent][0] in ("queued", "running", "paused"):
            assert key in left
    if keep_n == 0:
        assert all(key in left or days > 30 for key, (_, days, *_) in zip(keys, graph, strict=True))


def test_protected_runs_are_counted_by_the_reason_why_they_stay(database: Database) -> None:
    """maintenance OP-26, OP-29."""
    store, raw = database.open(), database.raw()
    ended(database, "live", status="running")
    ended(database, "child", parent_run_id="live")
    ended(database, "old")
    at = database.clock.now()
    gate = {"id": "g", "workflow_run_id": "old", "gate": "g", "summary": "s", "created_at": at}
    insert(raw, "workflow_approvals", gate)
    plan = store.maintenance.prune.plan(ALL)
    assert (plan.records, plan.protected) == (0, {"live_parent": 1, "not_ended": 1, "pending_approval": 1})


def test_damage_elsewhere_holds_nothing_up(database: Database) -> None:
    """maintenance OP-27: a scratch that is no object, or cannot be read, names no execution."""
    ended(database, "old")
    ended(database, "live", days=0, status="running", scratch='["lastOutputExecutionId"]')
    if database.name == "sqlite":
        ended(database, "broken", days=0, status="paused", scratch='{"lastOutputExecutionId')
    assert database.open().maintenance.prune.run(ALL).counts == {"workflow_runs": 1}


def test_the_cutoff_stays_the_newest_stay_and_equal_times_are_decided_by_id(database: Database) -> None:
    """maintenance OP-26."""
    store = database.open()
    ended(database, "cutoff", days=30)
    ended(database, "a", "b", "c", days=31)
    ended(database, "nulls", days=32, finished_at=None)
    newest = PrunePolicy("runs", keep_days=30, keep_n=3)
    assert store.maintenance.prune.plan(newest).victims == ("nulls", "a")
    assert store.maintenance.prune.plan(PrunePolicy("runs", keep_days=30, keep_n=9)).records == 0
    store.maintenance.prune.run(newest)
    assert runs(database) == {"cutoff", "b", "c"}


def test_ids_narrow_and_never_widen(database: Database) -> None:
    """maintenance OP-26."""
    store = database.open()
    ended(database, "a", "b", "c")
    ended(database, "young", days=1)
    chosen = PrunePolicy("runs", keep_n=0, ids=["c", "young", "a"], batch_rows=1)
    assert store.maintenance.prune.plan(chosen).victims == ("a", "c")
    assert store.maintenance.prune.run(chosen).counts == {"workflow_runs": 2}
    assert runs(database) == {"b", "young"}
    assert store.maintenance.prune.run(PrunePolicy("runs", keep_n=0, ids=[])).counts == {}
    with pytest.raises(NotFound):
        store.maintenance.prune.plan(PrunePolicy("runs", ids=["none"]))


def test_named_runs_go_in_batches_whatever_their_ages(database: Database) -> None:
    """maintenance OP-26, OP-28: they go in the order of their names, and so not in that of their ends."""
    ended(database, "a", days=35)
    ended(database, "b", days=50)
    policy = PrunePolicy("runs", keep_n=0, ids=["a", "b"], batch_rows=1)
    assert database.open().maintenance.prune.run(policy).counts == {"workflow_runs": 2}


@with_each(
    "wrong",
    [
        {"kind": "everything"},
        {"keep_days": -1},
        {"keep_n": -1},
        {"keep_days": 40_000},
        {"ids": "one"},
        {"ids": ["x"] * 501},
        {"batch_rows": 0},
        {"time_limit": -1.0},
    ],
    ids=str,
)
def test_a_wrong_policy_is_refused_and_leaves_no_receipt(every_backend: StateStore, wrong: dict[str, Any]) -> None:
    """maintenance OP-25."""
    for call in (every_backend.maintenance.prune.plan, every_backend.maintenance.prune.run):
        with pytest.raises(InvalidValue):
            call(PrunePolicy(**{"kind": "runs", **wrong}))
    assert every_backend.receipts.list().items == ()


def test_chats_go_with_their_messages_unless_they_are_active(store: Any, database: Database) -> None:
    """maintenance OP-26, messaging M-70."""
    chats = database.open()
    sessions = [chats.messaging.sessions.create(ConversationKey("p", "c", user)).id for user in ("a", "b")]
    for session in sessions:
        chats.messaging.messages.append_many(session, [MessageDraft("user", "x")] * 3)
    chats.messaging.sessions.close(sessions[0])
    database.clock.advance(seconds=DAY)
    at_the_cutoff = chats.messaging.sessions.create(ConversationKey("p", "c", "c")).id
    database.clock.advance(seconds=7 * DAY)
    plan = store.maintenance.prune.plan(PrunePolicy("messaging"))
    receipt = store.maintenance.prune.run(PrunePolicy("messaging"))
    assert plan.counts == receipt.counts == {"messaging_messages": 3, "messaging_sessions": 1}
    assert plan.protected == {"not_ended": 1}
    assert [found.id for found in chats.messaging.sessions.list()] == [at_the_cutoff, sessions[1]]


def test_fires_go_but_for_the_last_of_each_cron(database: Database) -> None:
    """maintenance OP-26, schedules A-2."""
    raw, now = database.raw(), database.clock.now()
    for n in range(4):
        at = now - timedelta(days=60 - n)
        status = "running" if n == 0 else "ok"
        insert(
            raw, "cron_fires", {"id": f"f{n}", "cron_name": "c", "source": "manual", "status": status, "started_at": at}
        )
    plan = database.open().maintenance.prune.plan(PrunePolicy("fires"))
    assert (plan.victims, plan.protected) == (("f1", "f2"), {"newest_of_its_cron": 1, "not_ended": 1})
    assert database.open().maintenance.prune.run(PrunePolicy("fires")).counts == {"cron_fires": 2}


def test_a_fire_that_its_cron_names_as_its_last_stays(database: Database) -> None:
    """maintenance OP-26: although a later one is there, and no fire of another cron."""
    raw, now, store = database.raw(), database.clock.now(), database.open()
    for name in ("c", "other"):
        store.schedules.crons.put(name, CronSpec("0 3 * * *", "wf"))
        for n in range(3):
            fire = {"id": f"{name}{n}", "cron_name": name, "source": "manual", "status": "ok"}
            insert(raw, "cron_fires", {**fire, "started_at": now - timedelta(days=60 - n)})
    raw.execute("UPDATE cron_schedules SET last_fire_id = CASE name WHEN 'c' THEN 'c0' ELSE 'c1' END")
    plan = store.maintenance.prune.plan(PrunePolicy("fires"))
    assert sorted(plan.victims) == ["c1", "other0", "other1"]
    assert plan.protected == {"last_of_its_cron": 1, "newest_of_its_cron": 2}


def test_executions_without_a_run_go_unless_a_run_reads_their_output(database: Database) -> None:
    """maintenance OP-26: one has ended that has either of both, an end or a success."""
    store, at = database.open(), database.clock.now() - timedelta(days=40)
    ended(database, "live", days=0, status="running", scratch='{"l": {"lastOutputExecutionId": "b"}}')
    ended(database, "over", days=0, scratch='{"l": {"lastOutputExecutionId": "a"}}')
    for key, finished, success, run in (
        ("a", at, None, None),
        ("b", at, None, None),
        ("told", None, "1", None),
        ("open", None, None, None),
        ("of a run", at, "1", "live"),
        ("works", None, None, "live"),
    ):
        row = {"id": key, "trigger_type": "chat", "trigger_id": "t", "skill": "s", "started_at": at}
        end = {"finished_at": finished, "success": success, "workflow_run_id": run}
        insert(database.raw(), "executions", {**row, **end})
    policy = PrunePolicy("executions", keep_n=0)
    plan = store.maintenance.prune.plan(policy)
    assert (plan.victims, plan.protected) == (("a", "told"), {"in_use": 1, "not_ended": 1})
    assert store.maintenance.prune.run(policy).counts == {"executions": 2}


def test_batches_are_bounded_by_rows_and_a_large_run_is_one_alone(database: Database) -> None:
    """maintenance OP-28."""
    store, raw = database.open(), database.raw()
    ended(database, *"abcde")
    at = database.clock.now()
    event = {"type": "e", "occurred_at": at, "payload": "{}"}
    insert(raw, "run_events", *({"run_id": key, "seq": n, **event} for key in "ab" for n in range(60)))
    with racing(store) as race:
        receipt = store.maintenance.prune.run(PrunePolicy("runs", keep_n=0, batch_rows=3))
    assert receipt.counts == {"run_events": 120, "workflow_runs": 5}
    assert (
        sum("DELETE FROM workflow_runs" in text or 'DELETE FROM "workflow_runs"' in text for text in race.statements)
        == 3
    )


def test_a_time_limit_ends_a_prune_between_batches_and_it_can_go_on(store: Any, database: Database) -> None:
    """maintenance OP-31."""
    ended(database, *"abc")
    stopped = store.maintenance.prune.run(PrunePolicy("runs", keep_n=0, time_limit=0))
    assert (stopped.state, stopped.counts, runs(database)) == ("interrupted", {}, {*"abc"})
    with pytest.raises(InvalidValue):
        store.maintenance.prune.resume(stopped.id, time_limit=-1)
    done = store.maintenance.prune.resume(stopped.id, time_limit=60)
    assert (done.id, done.state, done.counts, done.epoch) == (stopped.id, "done", {"workflow_runs": 3}, 2)
    with pytest.raises(Conflict):
        store.maintenance.prune.resume(stopped.id)
    other = store.receipts.begin("copy", owner="a", policy={})
    with pytest.raises(InvalidValue):
        store.maintenance.prune.resume(other.id)


@pytest.mark.parametrize("kind", ["orphans", "agent-logs"])
def test_a_time_limit_ends_a_prune_of_what_no_record_names(store: Any, database: Database, kind: Any) -> None:
    """maintenance OP-31: before anything is removed."""
    log = old_log(database.open(), "s-1")
    store.conversations.messages.create(said("orphan")[0])
    database.clock.advance(seconds=40 * DAY)
    keep_n = 0 if kind == "agent-logs" else None
    stopped = store.maintenance.prune.run(PrunePolicy(kind, keep_n=keep_n, time_limit=0))
    assert (stopped.state, stopped.counts, log.exists()) == ("interrupted", {}, True)
    assert store.receipts.get(stopped.id).error is not None
    done = store.maintenance.prune.resume(stopped.id, time_limit=60)
    assert (done.id, done.state, done.counts != {}) == (stopped.id, "done", True)


def test_an_exception_in_mid_prune_leaves_whole_batches_and_a_receipt_that_says_how_to_go_on(
    database: Database,
) -> None:
    """maintenance OP-31, OP-72, case 50."""
    store = database.open()
    ended(database, *"abc")

    def interrupt() -> None:
        raise KeyboardInterrupt

    with racing(store) as race:
        race.before_unit(4, interrupt)
        with pytest.raises(KeyboardInterrupt) as raised:
            store.maintenance.prune.run(PrunePolicy("runs", keep_n=0, batch_rows=1))
    [receipt] = store.receipts.list(state="interrupted")
    assert (receipt.counts, runs(database)) == ({"workflow_runs": 1}, {*"bc"})
    assert raised.value.__notes__ == [
        f"interrupted; to go on: {store.backend.command('prune', '--resume', receipt.id)}"
    ]
    assert store.maintenance.prune.resume(receipt.id).counts == {"workflow_runs": 3}


def test_an_output_table_that_was_dropped_behind_the_registry_is_passed_over(fresh_database: Database) -> None:
    """maintenance OP-26."""
    store = fresh_database.open(migrate=True)
    store.outputs.define("report", Report)
    fresh_database.raw().execute("DROP TABLE report")
    ended(fresh_database, "a")
    assert store.maintenance.prune.run(ALL).counts == {"workflow_runs": 1}


def test_outside_a_prune_deletion_stays_refused(database: Database) -> None:
    """maintenance OP-8: no permit stays behind."""
    ended(database, "a", "b")
    database.open().maintenance.prune.run(PrunePolicy("runs", keep_n=0, ids=["a"]))
    with refused():
        database.raw().execute("DELETE FROM workflow_runs")


@pytest.mark.parametrize(
    "work",
    [
        lambda store: store.maintenance.prune.run(PrunePolicy("runs", keep_n=0)),
        lambda store: store.maintenance.erase.run("ana"),
    ],
    ids=["prune", "erase"],
)
def test_the_leave_of_other_work_stays(database: Database, work: Callable[[StateStore], object]) -> None:
    """maintenance OP-8: a batch takes back its own alone."""
    store = database.open()
    ended(database, "a")
    store.messaging.sessions.create(ConversationKey("p", "c", "ana"))
    insert(database.raw(), "maintenance_permits", {"receipt_id": "another"})
    work(store)
    assert database.raw().execute("SELECT receipt_id FROM maintenance_permits").fetchall() == [("another",)]


@pytest.mark.parametrize("kind", ["runs", "exchange"])
def test_a_prune_that_is_interrupted_while_it_ends_says_so(
    database: Database, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """maintenance OP-31: its receipt does not stay running, which would refuse the next prune for ten minutes."""
    store = database.open()

    def interrupt() -> None:
        raise KeyboardInterrupt

    happened = before(monkeypatch, Receipts, "finish", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.maintenance.prune.run(PrunePolicy(kind))
    (receipt,) = store.receipts.list().items
    assert (happened, receipt.state) == (["finish"], "interrupted")
    assert store.maintenance.prune.resume(receipt.id).state == "done"
