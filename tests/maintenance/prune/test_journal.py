"""What goes of the journals of runs that ended long ago, what stays, and how the run is read and used afterwards."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.maintenance.journals import journalled, left, tree
from support.maintenance.rows import counts, difference, insert, run_row
from support.refusal import refused
from support.workflows.plans import plan_of

from lastlight_state import Conflict, InvalidValue, NotFound, StateStore
from lastlight_state.ids import new_id
from lastlight_state.journal import LineFileMirror, NewEvent
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.maintenance.prune import candidates as sql
from lastlight_state.maintenance.prune.sweeps import journal
from lastlight_state.testing import Database, racing
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import RunOptions

DAY = 86_400
OLD = PrunePolicy("journal", keep_n=0)
#: What stays of a run with fewer than fifty frames: its last event, and its frames.
REST = {"run_events": [3], "run_frames": [0, 1, 2]}


@pytest.fixture
def pruned(database: Database) -> StateStore:
    """A store with a run ``old`` of 53 frames whose journal was pruned."""
    store = database.open()
    journalled(store, "old", frames=53)
    database.clock.advance(seconds=31 * DAY)
    store.maintenance.prune.run(OLD)
    assert left(database, "old") == {"run_events": [3], "run_frames": [50, 51, 52]}
    return store


def test_a_journal_goes_but_for_the_last_event_and_what_the_last_frame_is_rebuilt_from(
    store: Any, database: Database
) -> None:
    """maintenance OP-26, OP-29, OP-90: plan, receipt and the rows that are gone are equal; the run stays."""
    own = database.open()
    journalled(own, "old", frames=101)
    database.clock.advance(seconds=31 * DAY)
    journalled(own, "young")
    run, before = own.workflows.runs.get("old"), counts(database)
    plan = store.maintenance.prune.plan(OLD)
    receipt = store.maintenance.prune.run(OLD)
    assert (plan.records, plan.victims, plan.protected) == (1, ("old",), {})
    assert plan.counts == receipt.counts == difference(before, counts(database))
    assert plan.counts == {"run_events": 3, "run_frames": 100, "run_signals": 2, "scores": 2, "tool_calls": 2}
    assert left(database, "old") == {"run_events": [3], "run_frames": [100]}
    assert len(left(database, "young")) == 5
    assert own.workflows.runs.get("old") == run
    assert (store.maintenance.prune.plan(OLD).records, store.maintenance.prune.run(OLD).counts) == (0, {})
    assert counts(database)["tombstones"] == 0
    with refused():
        database.raw().execute("DELETE FROM run_events")


def test_journals_of_runs_that_live_wait_or_are_young_stay(database: Database) -> None:
    """maintenance OP-26, OP-90: counted by the reason, as runs are."""
    store = database.open()
    journalled(store, "live", end=False)
    store.workflows.runs.create("wf", trigger=Trigger("c"), phase="p", options=RunOptions(id="c", parent_run_id="live"))
    store.journal.events.append_many("c", [NewEvent("e")] * 2)
    store.workflows.runs.finish("c", "succeeded")
    journalled(store, "asks")
    gate = {"id": "g", "workflow_run_id": "asks", "gate": "g", "summary": "s", "created_at": database.clock.now()}
    insert(database.raw(), "workflow_approvals", gate)
    for key in ("a", "b"):
        journalled(store, key)
    database.clock.advance(seconds=30 * DAY)
    plan = store.maintenance.prune.plan(OLD)
    assert (plan.records, plan.protected) == (0, {}), "the cutoff itself is young"
    database.clock.advance(seconds=1)
    plan = store.maintenance.prune.plan(OLD)
    assert plan.protected == {"live_parent": 1, "not_ended": 1, "pending_approval": 1}
    assert plan.victims == ("a", "b")
    assert store.maintenance.prune.plan(PrunePolicy("journal", keep_n=2)).victims == ("a",)
    assert store.maintenance.prune.plan(PrunePolicy("journal")).records == 0
    store.maintenance.prune.run(PrunePolicy("journal", keep_n=0, ids=["b"]))
    assert [key for key in ("a", "b", "asks", "live") if len(left(database, key)) < 5] == ["b"]
    with pytest.raises(NotFound):
        store.maintenance.prune.plan(PrunePolicy("journal", ids=["nothing"]))
    with pytest.raises(InvalidValue):
        store.maintenance.prune.plan(PrunePolicy("journal", archive="."))


def test_the_journal_of_a_run_whose_output_a_live_run_reads_goes(database: Database) -> None:
    """maintenance OP-90: what is read is in an execution, and stays."""
    store, now = database.open(), database.clock.now()
    journalled(store, "old")
    row = {"id": "ex", "workflow_run_id": "old", "started_at": now, "trigger_type": "t", "trigger_id": "t"}
    insert(database.raw(), "executions", {**row, "skill": "s"})
    database.clock.advance(seconds=31 * DAY)
    scratch = '{"loop": {"lastOutputExecutionId": "ex"}}'
    insert(database.raw(), "workflow_runs", run_row("reads", database.clock.now(), "paused", scratch=scratch))
    assert store.maintenance.prune.plan(PrunePolicy("runs", keep_n=0)).protected == {"in_use": 1}
    store.maintenance.prune.run(OLD)
    assert left(database, "old") == REST


#: A run: days since it ended, its events, frames and which of these are whole, and its other rows.
RUN = st.tuples(
    st.none() | st.integers(25, 40),
    st.integers(0, 4),
    st.lists(st.booleans(), max_size=6),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 4),
)


@pytest.mark.slow
@settings(max_examples=8)
@given(
    runs=st.lists(RUN, max_size=4),
    keep_n=st.integers(0, 2),
    batch=st.sampled_from([1, 3, 20_000]),
    counted=st.sampled_from(["missing", "right", "behind"]),
)
def test_a_dry_run_tells_the_truth_about_any_journals(
    database: Database, runs: list[Any], keep_n: int, batch: int, counted: str
) -> None:
    """maintenance OP-26, OP-28, OP-29, OP-90: in batches of any size, and no number is given again."""
    store, raw, now = database.open(), database.raw(), database.clock.now()
    keys = [new_id() for _ in runs]
    for key, (days, events, frames, signals, calls, scores) in zip(keys, runs, strict=True):
        status = "succeeded" if days is not None else "running"
        insert(raw, "workflow_runs", run_row(key, now - timedelta(days=days or 90), status))
        _insert_journal(raw, key, now, events, frames, signals, calls, scores)
        if counted != "missing":
            streams = (("events", events), ("frames", len(frames)), ("signals", signals), ("tool_calls", calls))
            insert(
                raw,
                "run_sequences",
                *({"run_id": key, "stream": name, "next_seq": n if counted == "right" else 0} for name, n in streams),
            )
    policy = PrunePolicy("journal", keep_n=keep_n, batch_rows=batch)
    before = counts(database)
    plan = store.maintenance.prune.plan(policy)
    receipt = store.maintenance.prune.run(policy)
    gone = difference(before, counts(database))
    gone.pop("run_sequences", None)  # counters that were missing are there now
    assert plan.counts == receipt.counts == gone
    assert store.maintenance.prune.plan(policy).records == 0
    for key, (days, events, frames, signals, calls, scores) in zip(keys, runs, strict=True):
        found = left(database, key)
        first = max((n for n, whole in enumerate(frames) if whole), default=0)
        assert found.get("run_events", [])[-1:] == [events - 1][: events > 0]
        assert found.get("run_frames", [])[-1:] == [len(frames) - 1][: len(frames) > 0]
        if days is None or days <= 30:
            assert [len(found.get(name, ())) for name in ("run_events", "run_signals", "tool_calls", "scores")] == [
                events,
                signals,
                calls,
                scores,
            ]
        elif keep_n == 0:
            assert found.get("run_frames", []) == list(range(first, len(frames)))
            assert {"run_signals", "tool_calls", "scores"}.isdisjoint(found)
        assert store.journal.signals.send(key, "s").seq == signals
        assert store.journal.tool_calls.create(key, "t").seq == calls
        assert store.journal.events.append(key, "e").seq == events


def _insert_journal(
    raw: Any, key: str, now: Any, events: int, frames: list[bool], signals: int, calls: int, scores: int
) -> None:
    """Rows of a journal, written past the library and without counters."""
    rows: dict[str, list[dict[str, Any]]] = {
        "run_events": [{"seq": n, "type": "e", "occurred_at": now, "payload": "{}"} for n in range(events)],
        "run_signals": [{"seq": n, "signal_name": "s", "received_at": now, "payload": "{}"} for n in range(signals)],
        "run_frames": [
            {
                "frame_no": n,
                "created_at": now,
                "encoding": "full" if whole else "delta",
                "content_hash": "h",
                "full_bytes": 1,
                "body": "null",
            }
            for n, whole in enumerate(frames)
        ],
        "tool_calls": [{"seq": n, "tool_name": "t", "started_at": now} for n in range(calls)],
        "scores": [
            {
                "id": new_id(),
                "node_id": "n",
                "scorer_id": f"s{n}",
                "scorer_name": "s",
                "source": "live",
                "score": 1.0,
                "scored_at": now,
            }
            for n in range(scores)
        ],
    }
    for table, made in rows.items():
        if made:
            insert(raw, table, *({"run_id": key, **row} for row in made))


def test_readers_of_a_pruned_journal_are_told_and_nothing_is_made_up(pruned: StateStore, tmp_path: Path) -> None:
    """maintenance OP-90; journal E-5, E-6, R-4, R-7, F-7: lists show what is left."""
    events, frames = pruned.journal.events, pruned.journal.frames
    assert [event.seq for event in events.list("old").items] == [3]
    assert (events.count("old"), events.latest_seq("old")) == (1, 3)
    assert [event.seq for event in events.follow("old", idle_timeout=0)] == [3]
    with pytest.raises(NotFound) as behind:
        list(events.follow("old", after_seq=0, idle_timeout=0))
    assert behind.value.key == ("old", 3)
    for read in (events.get, frames.get, pruned.journal.signals.get, pruned.journal.tool_calls.get):
        with pytest.raises(NotFound):
            read("old", 1)
    assert [frame.tree for frame in frames.replay("old")] == [tree(n) for n in (50, 51, 52)]
    assert [frame.frame_no for frame in frames.replay("old", after=7)] == [50, 51, 52]
    last = frames.find_latest("old")
    assert last is not None
    assert last.tree == tree(52)
    assert (frames.verify("old").frames, frames.verify("old").broken) == (3, ())
    assert pruned.journal.scores.list().items == ()
    assert pruned.maintenance.timeline.list("old").items
    assert LineFileMirror(events, tmp_path).catch_up("old") == 1
    assert pruned.maintenance.doctor.examine(deep=True, skip=["DOC-03"]).findings == ()


def test_a_run_whose_journal_was_pruned_goes_on_with_numbers_that_were_never_given(pruned: StateStore) -> None:
    """maintenance OP-90; journal Q-4, D-1: keys that went with their rows are free again."""
    written = pruned.journal
    assert written.events.append("old", "more").seq == 4
    assert written.events.ensure_start("old", 0) == 5
    assert written.signals.send("old", "go").seq == 2
    assert (again := written.tool_calls.create("old", "grep", call_id="call-0")).seq == 2
    assert again.status == "running"
    assert written.frames.append("old", tree(53)).frame_no == 53
    assert written.frames.get("old", 53).tree == tree(53)
    assert pruned.maintenance.doctor.examine(deep=True, skip=["DOC-03"], only=["DOC-12"]).findings == ()


@pytest.mark.parametrize("counters", ["DELETE FROM run_sequences", "UPDATE run_sequences SET next_seq = 1"])
def test_numbers_go_on_also_where_the_counters_did_not_know_them(database: Database, counters: str) -> None:
    """maintenance OP-90; journal Q-2, Q-4: rows that another program wrote, with no counter or one behind them.

    The counters of another run know nothing of them.
    """
    store, raw = database.open(), database.raw()
    for key in ("another", "old"):
        journalled(store, key)
    for edit in (
        "INSERT INTO maintenance_permits (receipt_id) VALUES ('edit')",
        f"{counters} WHERE run_id = 'old'",
        "DELETE FROM maintenance_permits",
    ):
        raw.execute(edit)
    database.clock.advance(seconds=31 * DAY)
    store.maintenance.prune.run(OLD)
    assert left(database, "old") == REST
    written = store.journal
    assert written.events.append("old", "more").seq == 4
    assert written.signals.send("old", "go").seq == 2
    assert written.tool_calls.create("old", "grep").seq == 2
    assert written.frames.append("old", tree(3)).frame_no == 3


def test_a_bundle_from_before_the_prune_brings_the_journal_back(database: Database, tmp_path: Path) -> None:
    """maintenance OP-61, OP-90: its rows have the numbers that they had, and the next prune removes them again."""
    store = database.open()
    journalled(store, "old", frames=53)
    whole = left(database, "old")
    store.maintenance.bundles.export("run", "old", tmp_path / "whole.zip")
    database.clock.advance(seconds=31 * DAY)
    removed = store.maintenance.prune.run(OLD).counts
    assert store.maintenance.bundles.load(tmp_path / "whole.zip").rows == removed
    assert left(database, "old") == whole
    assert store.maintenance.prune.run(OLD).counts == removed


def test_a_bundle_of_what_is_left_loads_elsewhere_and_its_numbers_go_on(pruned: StateStore, tmp_path: Path) -> None:
    """maintenance OP-60, OP-61, OP-90."""
    exported = pruned.maintenance.bundles.export("run", "old", tmp_path / "rest.zip")
    assert {part.name: part.rows for part in exported.parts}["rows/run_events.jsonl"] == 1
    with StateStore.open(tmp_path / "elsewhere.db", state_dir=tmp_path) as elsewhere:
        elsewhere.maintenance.bundles.load(tmp_path / "rest.zip")
        assert elsewhere.journal.events.append("old", "more").seq == 4
        assert elsewhere.journal.signals.send("old", "go").seq == 2


def test_a_copy_of_a_pruned_journal_is_equal_and_its_numbers_go_on(pruned: StateStore, tmp_path: Path) -> None:
    """maintenance OP-53, OP-54, OP-90."""
    with StateStore.open(tmp_path / "copy.db"):
        pass
    pruned.maintenance.copy.run(str(tmp_path / "copy.db"))  # which compares all rows
    with StateStore.open(tmp_path / "copy.db") as copied:
        assert [event.seq for event in copied.journal.events.list("old").items] == [3]
        assert copied.journal.tool_calls.create("old", "grep").seq == 2


def test_a_run_that_is_restarted_between_the_look_and_its_batch_keeps_its_journal(database: Database) -> None:
    """maintenance OP-28, OP-90."""
    store, other = database.open(), database.open()
    journalled(store, "a", end=False)
    store.workflows.runs.finish("a", "failed")
    database.clock.advance(seconds=31 * DAY)
    with racing(store) as race:
        race.before_unit(4, lambda: other.workflows.runs.restart("a", by="ana", reason="again"))
        assert store.maintenance.prune.run(OLD).counts == {}
    assert race.left == 0
    assert len(left(database, "a")) == 5


def test_a_run_that_gets_a_live_child_between_the_look_and_its_batch_keeps_its_journal(database: Database) -> None:
    """maintenance OP-28, OP-90."""
    store, other = database.open(), database.open()
    journalled(store, "a")
    database.clock.advance(seconds=31 * DAY)
    options = RunOptions(id="child", parent_run_id="a")
    with racing(store) as race:
        race.before_unit(4, lambda: other.workflows.runs.create("wf", trigger=Trigger("c"), phase="p", options=options))
        assert store.maintenance.prune.run(OLD).counts == {}
    assert race.left == 0


@pytest.mark.parametrize("named", [False, True])
def test_journals_of_many_runs_go_in_one_prune(database: Database, named: bool) -> None:
    """maintenance OP-28, OP-90: those that have lost theirs are passed over."""
    store, raw, at = database.open(), database.raw(), database.clock.now() - timedelta(days=40)
    keys = [f"r{n:03}" for n in range(450)]
    insert(raw, "workflow_runs", *(run_row(key, at) for key in keys))
    event = {"type": "e", "occurred_at": at, "payload": "{}"}
    insert(raw, "run_events", *({"run_id": key, "seq": n, **event} for key in keys[210:] for n in range(2)))
    policy = PrunePolicy("journal", keep_n=0, ids=keys if named else None, batch_rows=150)
    assert store.maintenance.prune.plan(policy).counts == {"run_events": 240}
    assert store.maintenance.prune.run(policy).counts == {"run_events": 240}
    with racing(store) as race:
        store.maintenance.prune.run(policy)
    assert _permits(race.statements) == 0


def test_scores_go_in_batches_although_they_have_no_numbers(database: Database) -> None:
    """maintenance OP-28, OP-90."""
    store, raw, at = database.open(), database.raw(), database.clock.now() - timedelta(days=40)
    insert(raw, "workflow_runs", run_row("old", at))
    row = {"run_id": "old", "node_id": "n", "scorer_name": "s", "source": "live", "score": 1.0, "scored_at": at}
    insert(raw, "scores", *({"id": new_id(), "scorer_id": f"s{n}", **row} for n in range(45)))
    with racing(store) as race:
        receipt = store.maintenance.prune.run(PrunePolicy("journal", keep_n=0, batch_rows=20))
    assert (receipt.counts, _permits(race.statements)) == ({"scores": 45}, 3)


def test_a_batch_of_frames_ends_before_the_first_whole_one_that_does_not_fit(database: Database) -> None:
    """maintenance OP-28, OP-90: it begins what is left, and need not fit."""
    store, raw, at = database.open(), database.raw(), database.clock.now() - timedelta(days=40)
    insert(raw, "workflow_runs", run_row("old", at))
    _insert_journal(raw, "old", at, 0, [n % 20 == 0 for n in range(45)], 0, 0, 0)
    with racing(store) as race:
        receipt = store.maintenance.prune.run(PrunePolicy("journal", keep_n=0, batch_rows=20))
    assert (receipt.counts, _permits(race.statements)) == ({"run_frames": 40}, 2)


def _permits(statements: list[str]) -> int:
    """How many batches these statements are of."""
    return sum(text.startswith("INSERT INTO maintenance_permits") for text in statements)


def test_what_is_appended_between_the_look_and_its_batch_stays_whole(database: Database) -> None:
    """maintenance OP-28, OP-90: a frame is rebuilt from those that stay, and the last event is the new one."""
    store, other = database.open(), database.open()
    journalled(store, "a", frames=52)
    database.clock.advance(seconds=31 * DAY)

    def append() -> None:
        other.journal.events.append("a", "late")
        other.journal.frames.append("a", tree(52))

    with racing(store) as race:
        race.before_unit(4, append)
        store.maintenance.prune.run(OLD)
    assert race.left == 0
    assert left(database, "a") == {"run_events": [4], "run_frames": [50, 51, 52]}
    assert other.journal.frames.verify("a").broken == ()


def test_a_follower_is_told_of_what_is_pruned_between_its_pages(database: Database) -> None:
    """maintenance OP-90; journal F-7: no event is passed over in silence."""
    store, other = database.open(), database.open()
    run = run_row("a", database.clock.now() - timedelta(days=40))
    insert(database.raw(), "workflow_runs", run)
    store.journal.events.append_many("a", [NewEvent("e")] * 450)
    followed = store.journal.events.follow("a", idle_timeout=0)
    assert next(followed).seq == 0
    other.maintenance.prune.run(OLD)
    seen: list[int] = []
    with pytest.raises(NotFound) as missed:
        seen.extend(event.seq for event in followed)
    assert missed.value.key == ("a", 449)


def test_a_run_that_somebody_has_locked_keeps_its_journal_until_the_next_pass(shared_postgres: Database) -> None:
    """maintenance OP-28, OP-90."""
    store, raw = shared_postgres.open(), shared_postgres.raw()
    for key in "ab":
        journalled(store, key)
    shared_postgres.clock.advance(seconds=31 * DAY)
    raw.execute("BEGIN")
    raw.execute("UPDATE workflow_runs SET updated_at = updated_at WHERE id = 'a'")
    with racing(store) as race:
        race.before_unit(5, lambda: raw.execute("ROLLBACK"))
        store.maintenance.prune.run(OLD)
    assert race.left == 0
    assert left(shared_postgres, "a") == left(shared_postgres, "b") == REST


def test_batches_of_journals_are_bounded_and_a_stopped_prune_goes_on(store: Any, database: Database) -> None:
    """maintenance OP-28, OP-31, OP-90: between batches every frame that is left can be read."""
    own = database.open()
    for key in "ab":
        journalled(own, key, frames=103)
    database.clock.advance(seconds=31 * DAY)

    def interrupt() -> None:
        raise KeyboardInterrupt

    policy = PrunePolicy("journal", keep_n=0, batch_rows=20)
    with racing(own) as race:
        race.before_unit(8, interrupt)
        with pytest.raises(KeyboardInterrupt):
            own.maintenance.prune.run(policy)
    [stopped] = own.receipts.list(state="interrupted")
    assert 0 < stopped.counts["run_frames"] < 200
    assert own.journal.frames.verify("a").broken == ()
    done = store.maintenance.prune.resume(stopped.id)
    assert done.counts == {"run_events": 6, "run_frames": 200, "run_signals": 4, "scores": 4, "tool_calls": 4}
    with pytest.raises(Conflict):
        store.maintenance.prune.resume(stopped.id)


def test_two_prunes_of_journals_at_once_are_a_conflict(store: Any, database: Database) -> None:
    """maintenance OP-7, OP-31, OP-90: one of whole runs may run beside it."""
    other = database.open()
    other.receipts.begin("prune", scope="runs", policy={}, owner="other")
    assert store.maintenance.prune.run(OLD).state == "done"
    other.receipts.begin("prune", scope="journal", policy={}, owner="other")
    with pytest.raises(Conflict):
        store.maintenance.prune.run(OLD)


def test_every_statement_about_journals_finds_its_rows_by_an_index(database: Database) -> None:
    """maintenance OP-28, OP-76."""
    store, now = database.open(), database.clock.now()
    values = {"key_0": "a", "key_1": "b", "run_id": "a", "most": 5, "after_key": "", "until_age": now, "until_key": "k"}
    held = sql.STATEMENTS["runs"].hold_chosen
    families = [family.of(["a", "b"])[0] for family in (journal.SOME, journal.AMOUNTS, journal.LOOSE, held)]
    for statement in [*families, *(part.remove for part in journal.PARTS)]:
        plan = plan_of(database, store, statement, values, in_order=True)
        assert not plan.scans_the_table, plan


def test_runs_without_scores_cost_no_look_at_all_scores(postgres_database: Database) -> None:
    """maintenance OP-28, OP-76: statistics that know a single run with scores mislead nobody."""
    store, raw, now = postgres_database.open(), postgres_database.raw(), postgres_database.clock.now()
    insert(raw, "workflow_runs", run_row("a", now))
    _insert_journal(raw, "a", now, 0, [], 0, 0, 2_000)
    raw.execute("ANALYZE scores")
    for family in (journal.SOME, journal.AMOUNTS):
        statement, values = family.of(["b"])
        plan = plan_of(postgres_database, store, statement, values)
        assert "ix_scores_run" in plan.text, plan
