from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from support.refusal import refused
from support.sent import recorded
from support.workflows.steps import Raw, all_pages, started, undone

from lastlight_state import StateStore
from lastlight_state.errors import (
    AlreadyExists,
    Conflict,
    CorruptData,
    InvalidValue,
    NotFound,
    PayloadTooLarge,
    ReadOnlyTransaction,
)
from lastlight_state.journal import EventFilter, NewEvent
from lastlight_state.testing import Database, FrozenClock

AT = datetime(2026, 2, 3, 12, 0, 0, 5000, UTC)


def seqs(store: Any, run_id: str, **given: Any) -> list[int]:
    return [event.seq for event in all_pages(store.journal.events.list, run_id=run_id, **given)]


def test_events_are_numbered_from_zero_and_come_back_as_they_were(store: StateStore, frozen_clock: FrozenClock) -> None:
    """journal Q-1, J-6, E-5: the payload is in the row."""
    run = started(store).id
    first = store.journal.events.append(run, "run.started")
    second = store.journal.events.append(run, "node.finished", {"nodeId": "plan", "n": 1.5}, at=AT, event_id="e-1")
    assert [(one.seq, one.created) for one in (first, second)] == [(0, True), (1, True)]
    assert first.occurred_at == frozen_clock.now()
    event = store.journal.events.get(run, 1)
    assert event == store.journal.events.find(run, "e-1")
    assert event.model_dump() == {
        "run_id": run,
        "seq": 1,
        "type": "node.finished",
        "occurred_at": AT,
        "node_id": "plan",
        "event_id": "e-1",
        "payload": {"nodeId": "plan", "n": 1.5},
    }
    assert store.journal.events.get(run, 0).payload == {}
    assert store.journal.events.latest_seq(run) == 1
    assert store.journal.events.find(run, "none") is None
    with pytest.raises(NotFound) as raised:
        store.journal.events.get(run, 2)
    assert (raised.value.kind, raised.value.key) == ("run_event", (run, 2))


def test_an_unknown_run_gets_neither_events_nor_a_counter(store: StateStore, raw: Raw) -> None:
    """journal J-2."""
    events = store.journal.events
    for append in (
        lambda: events.append("nobody", "a"),
        lambda: events.append("nobody", "a", event_id="e"),
        lambda: events.append_many("nobody", [NewEvent("a"), NewEvent("b")]),
        lambda: events.append_many("nobody", [NewEvent("a", event_id="e")]),
        lambda: events.ensure_start("nobody", 3),
    ):
        with pytest.raises(NotFound) as raised:
            append()
        assert (raised.value.kind, raised.value.key) == ("workflow_run", "nobody")
    assert raw("SELECT count(*) FROM run_sequences") == raw("SELECT count(*) FROM run_events") == [(0,)]
    assert (seqs(store, "nobody"), events.count("nobody"), events.latest_seq("nobody")) == ([], 0, None)


def test_equal_events_that_the_store_stamps_are_two(store: StateStore) -> None:
    """journal D-4: also within one millisecond."""
    run = started(store).id
    assert [store.journal.events.append(run, "tick", {"n": 1}).seq for _ in range(3)] == [0, 1, 2]
    batch = store.journal.events.append_many(run, [NewEvent("tick", {"n": 1})] * 2)
    assert [(one.seq, one.created) for one in batch] == [(3, True), (4, True)]


def test_a_replay_finds_the_first_of_equal_content(store: StateStore) -> None:
    """journal D-3, D-5, J-8: times by the millisecond, numbers by value."""
    run = started(store).id

    def replay(payload: Any, at: datetime = AT) -> tuple[int, bool]:
        appended = store.journal.events.append(run, "seen", payload, at=at)
        return appended.seq, appended.created

    assert replay({"a": 1, "b": [0.0]}) == (0, True)
    assert replay({"b": [-0.0], "a": 1.0}) == (0, False)
    assert replay({"a": 1, "b": [0]}, AT + timedelta(microseconds=900)) == (0, False)
    assert replay({"a": True, "b": [0]}) == (1, True)
    assert replay({"a": 2, "b": [0]}) == (2, True)
    assert replay({"a": 1, "b": [0]}, AT + timedelta(milliseconds=1)) == (3, True)
    assert replay({"a": 10**16}) == (4, True)
    assert replay({"a": 1e16}) == (4, False)
    with pytest.raises(InvalidValue):
        replay({}, AT.replace(tzinfo=None))


def test_an_event_that_the_store_stamped_is_found_by_its_replay(store: StateStore) -> None:
    """journal D-3."""
    run = started(store).id
    stamped = store.journal.events.append(run, "seen", {"a": 1})
    replayed = store.journal.events.append(run, "seen", {"a": 1}, at=stamped.occurred_at)
    assert (replayed.seq, replayed.created) == (stamped.seq, False)


def test_a_key_is_stored_once_and_with_one_content(store: StateStore) -> None:
    """journal D-1, D-2: a difference in time alone is none, and the stored time stays."""
    run = started(store).id
    first = store.journal.events.append(run, "seen", {"a": 1}, event_id="e", at=AT)
    again = store.journal.events.append(run, "seen", {"a": 1.0}, event_id="e", at=AT + timedelta(days=1))
    assert (again.seq, again.created, again.occurred_at) == (0, False, first.occurred_at)
    for given in ({"payload": {"a": True}}, {"payload": {"a": 1}, "node_id": "plan"}):
        with pytest.raises(AlreadyExists) as raised:
            store.journal.events.append(run, "seen", event_id="e", **given)
        assert (raised.value.kind, raised.value.key, raised.value.details["seq"]) == ("run_event", "e", 0)
    assert store.journal.events.append(run, "seen").seq == 1


def test_a_batch_is_consecutive_and_knows_what_is_there(store: StateStore) -> None:
    """journal E-2, D-6: keys and replays of the batch itself as well."""
    run = started(store).id
    store.journal.events.append(run, "old", event_id="old")
    batch = [
        NewEvent("a", event_id="a"),
        NewEvent("old", event_id="old"),
        NewEvent("b"),
        NewEvent("a", event_id="a"),
        NewEvent("r", {"n": 1}, AT),
        NewEvent("r", {"n": 1.0}, AT),
        NewEvent("b"),
    ]
    stored = store.journal.events.append_many(run, batch)
    assert [(one.seq, one.created) for one in stored] == [
        (1, True),
        (0, False),
        (2, True),
        (1, False),
        (3, True),
        (3, False),
        (4, True),
    ]
    assert seqs(store, run) == [0, 1, 2, 3, 4]


def test_a_bad_event_of_a_batch_is_named_and_nothing_is_stored(store: StateStore) -> None:
    """journal E-2, D-6."""
    run = started(store).id
    events = store.journal.events
    bad: list[tuple[list[Any], str]] = [
        ([NewEvent("a"), NewEvent("")], "events[1].type"),
        ([NewEvent("a"), NewEvent("b", {"x": float("nan")})], "events[1].payload.x"),
        ([NewEvent("a"), "b"], "events[1]"),
        ([], "events"),
        ([NewEvent("a")] * 1001, "events"),
    ]
    for batch, where in bad:
        with pytest.raises(InvalidValue) as raised:
            events.append_many(run, batch)
        assert raised.value.where == where
    with pytest.raises(AlreadyExists):
        events.append_many(run, [NewEvent("a"), NewEvent("k", event_id="k"), NewEvent("other", event_id="k")])
    assert events.count(run) == 0
    assert events.append(run, "a").seq == 0


def test_a_thousand_events_are_one_batch(store: StateStore) -> None:
    """journal E-2."""
    run = started(store).id
    hostile = {"text": "tab\t newline\n back\\slash \\N ✓", "quote": '"'}
    stored = store.journal.events.append_many(run, [NewEvent("a", {"i": i, **hostile}) for i in range(1000)])
    assert [one.seq for one in stored] == list(range(1000))
    assert store.journal.events.get(run, 999).payload == {"i": 999, **hostile}


def test_batches_of_any_size_are_stored_in_order_and_whole(store: StateStore) -> None:
    """journal E-2: however many rows a statement of the database takes."""
    run = started(store).id
    sizes = (1, 49, 50, 51, 100, 123)
    for size in sizes:
        batch = [NewEvent("a", {"of": size, "i": i}) for i in range(size)]
        first, *_ = stored = store.journal.events.append_many(run, batch)
        assert [one.seq for one in stored] == list(range(first.seq, first.seq + size))
    found = all_pages(lambda **asked: store.journal.events.list(run, **asked))
    assert [event.payload for event in found] == [{"of": size, "i": i} for size in sizes for i in range(size)]


def test_a_rolled_back_append_leaves_neither_event_nor_number(every_backend: StateStore, run_id: str) -> None:
    """journal E-1."""
    with undone(every_backend) as tx:
        assert tx.journal.events.append(run_id, "a").seq == 0
        assert [one.seq for one in tx.journal.events.append_many(run_id, [NewEvent("b"), NewEvent("c")])] == [1, 2]
    assert every_backend.journal.events.append(run_id, "d").seq == 0


def test_a_refused_append_leaves_the_transaction_usable(every_backend: StateStore, run_id: str) -> None:
    """journal Q-6."""
    with every_backend.transaction() as tx:
        tx.journal.events.append(run_id, "a", event_id="k")
        with pytest.raises(AlreadyExists):
            tx.journal.events.append(run_id, "b", event_id="k")
        with pytest.raises(NotFound):
            tx.journal.events.append("nobody", "b")
        assert not tx.journal.events.append(run_id, "a", event_id="k").created
        assert tx.journal.events.append(run_id, "c").seq == 1
    assert seqs(every_backend, run_id) == [0, 1]


class Incomparable:
    """Stands for an array of another library, which has no single answer to a comparison."""

    def __ne__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


def test_the_node_is_the_argument_or_what_the_payload_says(store: StateStore, raw: Raw) -> None:
    """journal E-3: and a damaged payload of another row disturbs no filter."""
    run = started(store).id
    events = store.journal.events
    events.append(run, "a", {"nodeId": "plan"})
    events.append(run, "b", {"node_id": "plan"})
    events.append(run, "c", node_id="plan")
    events.append(run, "d", {"nodeId": 7})
    events.append(run, "e", {"nodeId": "x" * 257})
    events.append(run, "f", {"nodeId": "build", "node_id": "plan"})
    with pytest.raises(InvalidValue):
        events.append(run, "g", {"nodeId": "plan"}, node_id="build")
    with pytest.raises(InvalidValue, match=r"payload\.nodeId"):
        events.append(run, "h", {"nodeId": Incomparable()}, node_id="plan")
    assert [event.node_id for event in events.list(run)] == ["plan", "plan", "plan", None, None, "build"]
    if raw.name == "sqlite":
        raw("DROP TRIGGER run_events_no_update")
        raw("UPDATE run_events SET payload = '{' WHERE seq = 3")
        with pytest.raises(CorruptData) as raised:
            events.get(run, 3)
        assert (raised.value.table, raised.value.key, raised.value.column) == ("run_events", (run, 3), "payload")
    plan = EventFilter(node_id="plan")
    assert seqs(store, run, where=plan) == [0, 1, 2]
    assert (events.count(run, where=plan), events.count(run)) == (3, 6)


def test_a_count_is_the_length_of_the_list_for_every_filter(store: StateStore) -> None:
    """journal E-6, E-7: since is inclusive, until and after_seq are not, and no types at all are any."""
    run = started(store).id
    times = [AT + timedelta(seconds=i) for i in range(12)]
    batch = [NewEvent("abc"[i % 3], {"i": i}, at, node_id="xy"[i % 2]) for i, at in enumerate(times)]
    store.journal.events.append_many(run, batch)
    for types, node, since, until, after in product(
        ((), ("a",), ("a", "c", "none")), (None, "x"), (None, times[3]), (None, times[9]), (None, 4)
    ):
        where = EventFilter(types=types, node_id=node, since=since, until=until)
        wanted = [
            i
            for i, one in enumerate(batch)
            if (not types or one.type in types)
            and (node is None or one.node_id == node)
            and (since is None or times[i] >= since)
            and (until is None or times[i] < until)
            and (after is None or i > after)
        ]
        first = store.journal.events.list(run, where=where, after_seq=after, limit=500)
        assert [event.seq for event in first] == wanted
        assert store.journal.events.count(run, where=where, after_seq=after) == len(wanted)
        if after is None:
            assert seqs(store, run, where=where, limit=2) == wanted
            assert seqs(store, run, where=where, limit=2, order="newest_first") == wanted[::-1]


def test_a_page_holds_200_events_and_at_most_500(store: StateStore) -> None:
    """journal J-5: and a token belongs to its filter."""
    run = started(store).id
    events = store.journal.events
    events.append_many(run, [NewEvent("a")] * 250)
    page = events.list(run)
    assert (len(page), [event.seq for event in page][-1]) == (200, 199)
    token = page.next_page_token
    assert token is not None
    assert [event.seq for event in events.list(run, page_token=token)] == list(range(200, 250))
    others: list[dict[str, Any]] = [
        {"where": EventFilter(types=("a",))},
        {"after_seq": 3},
        {"order": "newest_first"},
        {"order": "sideways"},
    ]
    for given in others:
        with pytest.raises(InvalidValue):
            events.list(run, page_token=token, **given)
    limits: tuple[Any, ...] = (0, -1, 501, 2.5, True)
    for limit in limits:
        with pytest.raises(InvalidValue):
            events.list(run, limit=limit)
    for where in (EventFilter(types=["a"] * 101), EventFilter(types=("",)), EventFilter(node_id="")):
        with pytest.raises(InvalidValue):
            events.list(run, where=where)
    assert events.count(run, where=EventFilter(types=[f"t{i}" for i in range(99)] + ["a"])) == 250


def test_limits_are_exact(store: StateStore) -> None:
    """journal J-3."""
    run = started(store).id
    room = 65_536 - len('{"t":""}')
    assert store.journal.events.append(run, "a" * 128, {"t": "x" * room}, event_id="e" * 256).created
    with pytest.raises(PayloadTooLarge):
        store.journal.events.append(run, "a", {"t": "x" * (room + 1)})
    bad: list[dict[str, Any]] = [
        {"type": "a" * 129},
        {"type": "a\n"},
        {"type": "a", "event_id": "e" * 257},
        {"type": "a", "event_id": ""},
        {"type": "a", "node_id": "n" * 257},
        {"type": "a", "payload": [1]},
    ]
    for given in bad:
        with pytest.raises(InvalidValue):
            store.journal.events.append(run, **given)
    assert store.journal.events.count(run) == 1


def test_the_database_refuses_to_change_or_delete_events(every_backend: StateStore, run_id: str, raw: Raw) -> None:
    """journal J-4: also by replacing one, by its number or its key."""
    every_backend.journal.events.append(run_id, "a", {"n": 1}, event_id="k")
    for sql in (
        "UPDATE run_events SET type = 'b'",
        "DELETE FROM run_events",
        "DELETE FROM run_sequences",
        "UPDATE run_sequences SET next_seq = 0",
    ):
        with refused():
            raw(sql)
    if raw.name == "sqlite":
        columns = "(run_id, seq, type, occurred_at, event_id, payload)"
        for seq, key in ((0, "other"), (9, "k")):
            with refused():
                raw(
                    f"INSERT OR REPLACE INTO run_events {columns} VALUES (?, ?, 'b', ?, ?, '{{}}')",
                    run_id,
                    seq,
                    AT,
                    key,
                )
    [event] = every_backend.journal.events.list(run_id)
    assert (event.type, event.payload) == ("a", {"n": 1})


def test_numbering_goes_on_after_imported_rows_and_after_pruned_ones(
    every_backend: StateStore, run_id: str, raw: Raw
) -> None:
    """journal Q-2, Q-4."""
    for seq in range(10):
        raw(
            "INSERT INTO run_events (run_id, seq, type, occurred_at, payload) VALUES (?, ?, 'old', ?, '{}')",
            run_id,
            seq,
            AT,
        )
    assert every_backend.journal.events.append(run_id, "a", event_id="k").seq == 10
    raw("INSERT INTO maintenance_permits (receipt_id) VALUES ('prune')")
    raw("DELETE FROM run_events")
    raw("DELETE FROM maintenance_permits")
    assert every_backend.journal.events.latest_seq(run_id) is None
    assert every_backend.journal.events.append(run_id, "a").seq == 11


def test_a_counter_that_is_ahead_of_its_table_is_not_set_back(every_backend: StateStore, run_id: str, raw: Raw) -> None:
    """journal Q-3: the numbers of removed events are not used again."""
    events: Any = every_backend.journal.events
    events.append_many(run_id, [NewEvent("a")] * 3)
    raw("INSERT INTO maintenance_permits (receipt_id) VALUES ('prune')")
    raw("DELETE FROM run_events WHERE seq > 0")
    raw("DELETE FROM maintenance_permits")
    events._writing(lambda unit: events._stream.settle(unit, run_id))
    assert events.append(run_id, "a").seq == 3


def behind(raw: Raw, run_id: str) -> None:
    """Set the counter back, as a person could under a permit."""
    raw("INSERT INTO maintenance_permits (receipt_id) VALUES ('edit')")
    raw("UPDATE run_sequences SET next_seq = 1 WHERE run_id = ?", run_id)
    raw("DELETE FROM maintenance_permits")


def test_a_counter_that_was_set_back_overwrites_nothing(
    every_backend: StateStore, run_id: str, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    """journal Q-3."""
    events = every_backend.journal.events
    events.append_many(run_id, [NewEvent("a", {"i": i}) for i in range(5)])
    behind(raw, run_id)
    assert events.append(run_id, "b").seq == 5
    assert "behind its table" in caplog.text
    behind(raw, run_id)
    assert events.append(run_id, "c", event_id="k").seq == 6
    behind(raw, run_id)
    assert [one.seq for one in events.append_many(run_id, [NewEvent("d")] * 2)] == [7, 8]
    behind(raw, run_id)
    with every_backend.transaction() as tx, pytest.raises(CorruptData) as raised:
        tx.journal.events.append(run_id, "e")
    assert (raised.value.table, raised.value.key) == ("run_sequences", (run_id, "events"))
    assert events.count(run_id) == 9


def test_a_refusal_of_another_kind_moves_no_counter(sqlite_database: Database, caplog: Any) -> None:
    """journal Q-3: what a trigger of somebody else's refuses is refused, and nothing is repeated."""
    store = sqlite_database.open()
    run, other = started(store).id, started(store).id
    sqlite_database.raw().execute(
        "CREATE TRIGGER no_b BEFORE INSERT ON run_events WHEN NEW.type = 'b' BEGIN SELECT RAISE(ABORT, 'no b'); END"
    )
    store.journal.events.append(other, "a")
    store.journal.signals.send(run, "go")
    store.journal.events.append_many(run, [NewEvent("a")] * 3)
    with pytest.raises(Conflict):
        store.journal.events.append(run, "b")
    assert caplog.messages == []
    assert store.journal.events.append(run, "a").seq == 3


def test_a_counter_that_is_raised_is_the_only_one(every_backend: StateStore, run_id: str, raw: Raw) -> None:
    """journal Q-3: those of other runs, and of the other streams of this one, stay."""
    other = started(every_backend).id
    every_backend.journal.events.append_many(other, [NewEvent("a")] * 9)
    every_backend.journal.signals.send(run_id, "go")
    every_backend.journal.events.append_many(run_id, [NewEvent("a")] * 5)
    behind(raw, run_id)
    assert every_backend.journal.events.append(run_id, "b").seq == 5
    assert every_backend.journal.events.append(other, "b").seq == 9
    assert every_backend.journal.signals.send(run_id, "go").seq == 1


def test_an_event_that_is_damaged_disturbs_no_append_but_its_own(sqlite_database: Database) -> None:
    """journal J-9, Q-6: what is looked for is found by its key, or by its time, and nothing else is read."""
    store, raw = sqlite_database.open(), Raw(sqlite_database)
    run, events = started(store).id, store.journal.events
    events.append(run, "damaged", at=AT - timedelta(hours=1))
    events.append(run, "damaged", event_id="damaged")
    first = [NewEvent("a", {"n": 1}, AT), NewEvent("b", event_id="k")]
    assert [one.seq for one in events.append_many(run, first)] == [2, 3]
    with raw.without_guard("run_events_no_update"):
        raw("UPDATE run_events SET payload = '{' WHERE type = 'damaged'")
    assert [one.seq for one in events.append_many(run, [*first, NewEvent("c", event_id="l")])] == [2, 3, 4]
    assert events.append(run, "a", {"n": 1}, at=AT).seq == 2
    assert events.append(run, "b", event_id="k").seq == 3
    assert [events.get(run, 4).type, events.latest_seq(run)] == ["c", 4]
    for given in ({"event_id": "damaged"}, {"at": AT - timedelta(hours=1)}):
        with pytest.raises(CorruptData):
            events.append(run, "damaged", **given)
        assert events.append(started(store).id, "damaged", **given).created


def test_a_run_begins_at_the_number_that_its_engine_asks_for(store: StateStore) -> None:
    """journal E-4."""
    run, other = started(store).id, started(store).id
    events = store.journal.events
    assert events.ensure_start(run, 40) == 40
    assert [events.append(run, "a").seq for _ in range(2)] == [40, 41]
    events.append_many(other, [NewEvent("a")] * 10)
    assert [events.ensure_start(other, start) for start in (3, 10)] == [10, 10]
    with pytest.raises(InvalidValue):
        events.ensure_start(other, 99)
    empty = started(store).id
    for bad in (-1, 2**53 + 1):
        with pytest.raises(InvalidValue):
            events.ensure_start(empty, bad)
    assert events.ensure_start(empty, 2**53) == 2**53
    assert events.append(other, "a").seq == 10


def test_a_changed_dict_changes_nothing_that_is_stored(store: StateStore) -> None:
    """journal J-7."""
    run, payload = started(store).id, {"a": 1}
    store.journal.events.append(run, "a", payload)
    payload["a"] = 2
    assert store.journal.events.get(run, 0).payload == {"a": 1}


def test_a_store_that_only_reads_refuses_to_append(database: Database) -> None:
    """journal J-10."""
    with database.open() as writer:
        run = started(writer).id
        writer.journal.events.append(run, "a")
    with database.open(read_only=True) as reader:
        assert reader.journal.events.count(run) == 1
        with pytest.raises(ReadOnlyTransaction):
            reader.journal.events.append(run, "a")


def test_a_plain_append_is_one_round_trip(database: Database) -> None:
    """journal Q-5, P-3: on SQLite one transaction of two statements."""
    with recorded(database) as (store, sent):
        run = started(store).id
        events = store.journal.events
        events.append(run, "first")
        counts = []
        for call in (
            lambda: events.append(run, "a"),
            lambda: events.get(run, 0),
            lambda: events.find(run, "k"),
            lambda: events.latest_seq(run),
            lambda: events.list(run),
            lambda: events.count(run),
        ):
            sent.clear()
            call()
            counts.append([text.split()[0] for text in sent])
    append = ["WITH"] if database.name == "postgresql" else ["BEGIN", "UPDATE", "INSERT", "COMMIT"]
    assert counts == [append, *[["SELECT"]] * 5]


def test_a_batch_costs_a_constant_number_of_statements(database: Database) -> None:
    """journal Q-6, P-3: lock, look, raise, insert; one statement less for one event."""
    with recorded(database) as (store, sent):
        run = started(store).id
        store.journal.events.append(run, "first")
        counts = []
        for many in (1, 2, 300):
            sent.clear()
            store.journal.events.append_many(run, [NewEvent("a", event_id=f"{many}-{i}") for i in range(many)])
            counts.append(len(sent))
        sent.clear()
        store.journal.events.append(run, "a", event_id="k")
        alone = len([text for text in sent if not text.startswith(("BEGIN", "COMMIT"))])
    assert len(set(counts)) == 1
    assert alone == (3 if database.name == "postgresql" else 4)
