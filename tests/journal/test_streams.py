"""What all streams of the journal have in common: their tables, their counters, and what an append costs."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import fields
from typing import Any

import pytest
from support.sent import recorded
from support.workflows.steps import Raw, started, together

from lastlight_state import StateStore
from lastlight_state.errors import CorruptData, FrameChainBroken, UnsavedEvents
from lastlight_state.journal import EventFilter, NewEvent, SandboxChanges, WriterOptions
from lastlight_state.journal.events import Events
from lastlight_state.journal.signals import Signals
from lastlight_state.migrations import scripts
from lastlight_state.testing import Database

TABLES = {"run_events", "run_signals", "run_frames", "tool_calls", "sandboxes", "scores", "run_sequences"}
_UNGUARD = "SET session_replication_role = replica"


def test_the_tables_of_the_journal_came_with_one_revision() -> None:
    """journal J-1: with the same columns on both databases."""
    made = {}
    for product in ("sqlite", "postgresql"):
        text = (scripts.folder() / "shapes" / f"{product}.txt").read_text("utf-8")
        lines = [line.split("\t") for line in text.splitlines()]
        made[product] = {(line[1], line[2], line[-1]) for line in lines if line[0] == "column" and line[1] in TABLES}
    assert made["sqlite"] == made["postgresql"]
    assert {table for table, _, _ in made["sqlite"]} == TABLES
    assert {revision for _, _, revision in made["sqlite"]} == {scripts.revisions()[1]}


@pytest.mark.logs("a follower passed over an event that cannot be read")
def test_a_damaged_payload_is_named_where_it_is_needed_and_disturbs_nothing_else(database: Database) -> None:
    """journal J-9: no filter, no count and no other row. The errors can be pickled."""
    store = database.open()
    run_id, events = started(store).id, store.journal.events
    events.append_many(run_id, [NewEvent("a", {"nodeId": "plan", "n": n}) for n in range(3)])
    raw = database.raw()
    unguard = "DROP TRIGGER run_events_no_update" if database.name == "sqlite" else _UNGUARD
    for sql in (unguard, "UPDATE run_events SET payload = '[1]' WHERE seq = 1"):
        raw.execute(sql)
    with pytest.raises(CorruptData) as raised:
        events.get(run_id, 1)
    assert (raised.value.table, raised.value.key, raised.value.column) == ("run_events", (run_id, 1), "payload")
    page = events.list(run_id, where=EventFilter(types=("a",), node_id="plan"))
    assert ([event.seq for event in page], [row.key for row in page.damaged]) == ([0, 2], [(run_id, 1)])
    assert events.count(run_id, where=EventFilter(node_id="plan")) == 3
    assert [event.seq for event in events.follow(run_id, idle_timeout=0.01)] == [0, 2]
    broken = FrameChainBroken("r", 7, "no_anchor")
    unsaved = UnsavedEvents("1 event was not saved", failures=(), waiting=(), listener_errors=())
    for error in (raised.value, broken, unsaved):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))


def test_batches_of_several_runs_lock_their_counters_in_one_order(every_backend: StateStore) -> None:
    """journal Q-7: two writers whose events come in opposite orders never wait for one another in a circle."""
    runs = [started(every_backend).id for _ in range(8)]

    def work(ordered: list[str]) -> None:
        with every_backend.journal.writer(WriterOptions(linger=0)) as writer:
            for _ in range(5):
                for run_id in ordered:
                    writer.append(run_id, "a")
                writer.flush(30)

    together([lambda: work(runs), lambda: work(runs[::-1])])
    assert [every_backend.journal.events.count(run_id) for run_id in runs] == [10] * len(runs)
    assert every_backend.metrics.retries == 0


def test_a_batch_of_several_runs_asks_for_its_counters_in_order(postgres_database: Database) -> None:
    """journal Q-7: by ascending run id, whatever the order of its events."""
    with recorded(postgres_database) as (store, sent):
        runs = [started(store).id for _ in range(3)]
        sent.clear()
        with store.journal.writer() as writer:
            for run_id in reversed(runs):
                writer.append(run_id, "a")
        locks = [sql for sql in sent if "FOR UPDATE" in sql]
        assert locks
        assert all(sql.index("ORDER BY run_sequences.run_id") < sql.index("FOR UPDATE") for sql in locks)


def test_a_counter_that_is_missing_begins_after_the_last_event_of_its_run(every_backend: StateStore, raw: Raw) -> None:
    """journal Q-3: those of several runs, which a batch makes at once."""
    runs = [started(every_backend).id for _ in range(3)]
    for many, run_id in enumerate(runs):
        for _ in range(many):
            every_backend.journal.events.append(run_id, "before")
    raw("INSERT INTO maintenance_permits (receipt_id) VALUES ('edit')")
    raw("DELETE FROM run_sequences")
    raw("DELETE FROM maintenance_permits")
    with every_backend.journal.writer(WriterOptions(linger=60)) as writer:
        queued = [writer.append(run_id, "a") for run_id in runs]
        writer.flush()
    assert [one.seq for one in queued] == [0, 1, 2]


def test_no_caller_gives_an_event_or_a_signal_its_number() -> None:
    """journal Q-8: numbers are read, and never said when something is stored."""
    for face in (Events.append, Events.append_many, Signals.send):
        assert not {"seq", "number", "next_seq"} & set(inspect.signature(face).parameters)
    assert "seq" not in {field.name for field in fields(NewEvent)}


def test_an_append_sends_the_same_statements_however_long_the_journal_is(database: Database) -> None:
    """journal P-1, F-4: of events, signals and tool calls; nothing is notified, and nothing read but by a key."""
    with recorded(database) as (store, sent):
        run_id, journal = started(store).id, store.journal

        def append(key: str) -> list[str]:
            sent.clear()
            journal.events.append(run_id, "a")
            journal.events.append(run_id, "a", event_id=key)
            journal.signals.send(run_id, "go", signal_id=key)
            journal.tool_calls.create(run_id, "grep", call_id=key)
            return list(sent)

        append("first")
        short = append("second")
        journal.events.append_many(run_id, [NewEvent("b")] * 300)
        assert append("third") == short
        assert not any("notify" in sql.lower() for sql in short)


def test_what_has_a_number_is_one_run_s(every_backend: StateStore) -> None:
    """journal J-2: two runs have the same numbers, and each gets its own."""
    journal, runs = every_backend.journal, [started(every_backend).id for _ in range(2)]
    for run in runs:
        journal.events.append(run, "said", {"of": run})
        journal.signals.send(run, "sent", run)
        journal.frames.append(run, {"kind": "text", "text": run})
        journal.tool_calls.create(run, "read", input=run)
        journal.sandboxes.put(run, "box", SandboxChanges(runtime="docker"))
    for run in runs:
        found: list[Any] = [one.get(run, 0) for one in (journal.events, journal.signals, journal.tool_calls)]
        found += [journal.frames.get(run, 0), journal.sandboxes.get(run, "box")]
        assert [one.run_id for one in found] == [run] * 5
        assert (found[0].payload, found[1].payload, found[3].tree["text"]) == ({"of": run}, run, run)
