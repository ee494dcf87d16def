from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.refusal import refused
from support.workflows.steps import Raw, all_pages, started, together, undone

from lastlight_state import StateStore
from lastlight_state.errors import AlreadyExists, InvalidValue, MisuseError, NotFound, PayloadTooLarge
from lastlight_state.journal import SignalFilter
from lastlight_state.testing import Database, FrozenClock

AT = datetime(2026, 2, 3, 12, 0, 0, 5000, UTC)


def seqs(store: Any, run_id: str, **given: Any) -> list[int]:
    return [signal.seq for signal in all_pages(store.journal.signals.list, run_id=run_id, **given)]


def test_signals_are_numbered_and_come_back_as_they_were(store: StateStore, frozen_clock: FrozenClock) -> None:
    """journal Q-1, G-3, J-6: of their own stream, beside events; any JSON is a payload."""
    run = started(store).id
    store.journal.events.append(run, "a")
    for i, payload in enumerate((None, {"by": "ana"}, [1, "x"], "text", 0, False)):
        sent = store.journal.signals.send(run, "merged", payload, received_by="webhook")
        assert (sent.seq, sent.created, sent.received_at) == (i, True, frozen_clock.now())
        assert store.journal.signals.get(run, i).payload == payload
    assert store.journal.signals.latest_seq(run) == 5
    assert store.journal.signals.count(run) == 6
    with pytest.raises(NotFound) as raised:
        store.journal.signals.get(run, 6)
    assert raised.value.kind == "run_signal"
    with pytest.raises(NotFound):
        store.journal.signals.send("nobody", "merged")
    assert (seqs(store, "nobody"), store.journal.signals.latest_seq("nobody")) == ([], None)


def test_names_and_correlation_ids_are_trimmed_everywhere(store: StateStore) -> None:
    """journal G-1, G-2: any, none and a text are three filters."""
    run = started(store).id
    signals = store.journal.signals
    signals.send(run, " go ", correlation_id=" k ")
    signals.send(run, "go", correlation_id="  ")
    signals.send(run, "go", correlation_id=None)
    signals.send(run, "stop", correlation_id="k")
    assert [(one.signal_name, one.correlation_id) for one in signals.list(run)][:2] == [("go", "k"), ("go", None)]
    for where, wanted in (
        (SignalFilter("go "), [0, 1, 2]),
        (SignalFilter("go", correlation_id=None), [1, 2]),
        (SignalFilter("go", correlation_id=" "), [1, 2]),
        (SignalFilter("go", correlation_id="k "), [0]),
        (SignalFilter(correlation_id="k"), [0, 3]),
    ):
        assert seqs(store, run, where=where) == seqs(store, run, where=where, limit=1) == wanted
        assert signals.count(run, where=where) == len(wanted)
    assert seqs(store, run, order="newest_first", limit=1) == [3, 2, 1, 0]
    assert [one.seq for one in signals.list(run, after_seq=2)] == [3]
    token = signals.list(run, limit=1).next_page_token
    with pytest.raises(InvalidValue, match="page_token: must not be given together with after_seq"):
        signals.list(run, after_seq=2, page_token=token)
    for name in ("", "  ", "x" * 257, None):
        with pytest.raises(InvalidValue):
            signals.send(run, name)  # type: ignore[arg-type]


def test_received_after_includes_the_time_itself(store: StateStore) -> None:
    """journal G-2."""
    run = started(store).id
    for i in range(3):
        store.journal.signals.send(run, "go", i, at=AT + timedelta(seconds=i))
    assert seqs(store, run, where=SignalFilter(received_after=AT + timedelta(seconds=1))) == [1, 2]
    assert seqs(store, run, where=SignalFilter(received_after=AT + timedelta(seconds=1, milliseconds=1))) == [2]


def test_a_replayed_signal_is_one_row(store: StateStore) -> None:
    """journal D-3, G-1: also with no correlation id; anything else makes it another signal."""
    run = started(store).id

    def send(**given: Any) -> tuple[int, bool]:
        sent = store.journal.signals.send(run, "go", **{"payload": {"n": 1}, "at": AT, "received_by": "w", **given})
        return sent.seq, sent.created

    assert send() == (0, True)
    assert send(payload={"n": 1.0}) == (0, False)
    assert send(correlation_id=" ") == (0, False)
    changes: list[dict[str, Any]] = [
        {"payload": {"n": True}},
        {"correlation_id": "k"},
        {"received_by": None},
        {"at": AT + timedelta(milliseconds=1)},
    ]
    for i, change in enumerate(changes, 1):
        assert (send(**change), send(**change)) == ((i, True), (i, False))
    stamped = store.journal.signals.send(run, "go")
    assert store.journal.signals.send(run, "go").seq == stamped.seq + 1


def test_a_key_is_sent_once(store: StateStore) -> None:
    """journal D-1, D-2: of all at once, one is stored."""
    run = started(store).id
    first = store.journal.signals.send(run, "go", {"n": 1}, signal_id="s")
    again = store.journal.signals.send(run, "go", {"n": 1.0}, signal_id="s", at=AT)
    assert (again.seq, again.created, again.received_at) == (0, False, first.received_at)
    with pytest.raises(AlreadyExists) as raised:
        store.journal.signals.send(run, "go", {"n": 2}, signal_id="s")
    assert raised.value.details["seq"] == 0
    assert store.journal.signals.find(run, "s") == store.journal.signals.get(run, 0)
    with pytest.raises(PayloadTooLarge):
        store.journal.signals.send(run, "go", "x" * 65_535)


def test_senders_at_once_never_collide(every_backend: StateStore, run_id: str) -> None:
    """journal G-1, Q-6."""
    send = every_backend.journal.signals.send
    told: list[Any] = together([lambda: send(run_id, "go"), lambda: send(run_id, "go", signal_id="s")] * 8)
    assert sorted({one.seq for one in told}) == list(range(9))
    assert sum(one.created for one in told) == 9


def test_a_signal_sent_before_the_wait_is_taken_once(store: StateStore, frozen_clock: FrozenClock) -> None:
    """journal G-4, G-5, G-7: and the same consumer gets it again."""
    run = started(store).id
    signals = store.journal.signals
    assert signals.try_take(run, "go", consumer="step-1") is None
    signals.send(run, "go", {"n": 1}, correlation_id="k")
    frozen_clock.advance(timedelta(seconds=1))
    taken = signals.try_take(run, " go", consumer="step-1")
    assert taken is not None
    assert (taken.seq, taken.consumed_by, taken.consumed_at) == (0, "step-1", frozen_clock.now())
    frozen_clock.advance(timedelta(seconds=1))
    assert signals.try_take(run, "go", consumer="step-1") == taken == signals.find_taken(run, "step-1")
    assert signals.try_take(run, "go", consumer="step-2") is None
    assert signals.find_taken(run, "step-2") is None
    with pytest.raises(AlreadyExists) as raised:
        signals.try_take(run, "stop", consumer="step-1")
    assert (raised.value.kind, raised.value.key) == ("consumer", "step-1")
    assert signals.try_take("nobody", "go", consumer="step-1") is None


def test_a_take_looks_for_what_it_waits_for(store: StateStore) -> None:
    """journal G-4: by name, correlation id and time, the oldest first."""
    run = started(store).id
    signals = store.journal.signals
    for i, key in enumerate(("a", None, "b", "a")):
        signals.send(run, "go", i, correlation_id=key, at=AT + timedelta(seconds=i))

    def take(consumer: str, **given: Any) -> int | None:
        taken = signals.try_take(run, "go", consumer=consumer, **given)
        return None if taken is None else taken.seq

    assert take("c1", correlation_id="b") == 2
    assert take("c2", correlation_id=None) == 1
    assert take("c3", correlation_id=None) is None
    assert take("c4", received_after=AT + timedelta(seconds=1)) == 3
    assert take("c5") == 0
    assert take("c6") is None


def test_every_taker_gets_a_signal_of_its_own(every_backend: StateStore, run_id: str) -> None:
    """journal G-6: ten takers and ten signals."""
    signals = every_backend.journal.signals
    for i in range(10):
        signals.send(run_id, "go", i)
    told: list[Any] = together([lambda i=i: signals.try_take(run_id, "go", consumer=f"c{i}") for i in range(10)])  # type: ignore[misc]
    assert sorted(one.seq for one in told) == list(range(10))
    assert signals.try_take(run_id, "go", consumer="late") is None


def test_a_rolled_back_take_frees_the_signal(every_backend: StateStore, run_id: str) -> None:
    """journal G-6: for the next who asks, who may ask under another name."""
    signals = every_backend.journal.signals
    signals.send(run_id, "go")
    with undone(every_backend) as tx:
        assert tx.journal.signals.try_take(run_id, "go", consumer="c1") is not None
    assert signals.find_taken(run_id, "c1") is None
    taken = signals.try_take(run_id, "go", consumer="c2")
    assert taken is not None
    assert taken.seq == 0


def test_a_taker_that_was_killed_gets_the_same_signal(fresh_database: Database) -> None:
    """journal G-5."""
    with fresh_database.open() as store:
        run = started(store).id
        store.journal.signals.send(run, "go", "first")
        store.journal.signals.send(run, "go", "second")
    child = os.fork()
    if not child:
        with fresh_database.open() as own:
            own.journal.signals.try_take(run, "go", consumer="step")
            os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    with fresh_database.open() as store:
        taken = store.journal.signals.try_take(run, "go", consumer="step")
        assert taken is not None
        assert taken.payload == "first"


def test_the_database_lets_a_signal_change_only_by_being_taken(
    every_backend: StateStore, run_id: str, raw: Raw
) -> None:
    """journal J-4."""
    signals = every_backend.journal.signals
    signals.send(run_id, "go", signal_id="s")
    signals.send(run_id, "go")
    bad = [
        "UPDATE run_signals SET signal_name = 'x'",
        "DELETE FROM run_signals",
        "UPDATE run_signals SET consumed_by = 'x' WHERE seq = 1",
    ]
    taken = signals.try_take(run_id, "go", consumer="c")
    assert taken is not None
    bad += [
        "UPDATE run_signals SET consumed_at = NULL, consumed_by = NULL WHERE seq = 0",
        "UPDATE run_signals SET consumed_by = 'd' WHERE seq = 0",
    ]
    if raw.name == "sqlite":
        columns = "run_id, seq, signal_name, received_at, signal_id, payload"
        bad += [
            "UPDATE OR REPLACE run_signals SET consumed_at = received_at, consumed_by = 'c' WHERE seq = 1",
            f"INSERT OR REPLACE INTO run_signals ({columns}) SELECT {columns.replace('seq', '9')} FROM run_signals",
        ]
    for sql in bad:
        with refused():
            raw(sql)
    assert signals.find_taken(run_id, "c") == taken


def test_a_damaged_signal_disturbs_nobody_who_means_another(sqlite_database: Database) -> None:
    """journal J-9, D-3: of another name, time, correlation id or key, or another consumer's."""
    store, raw = sqlite_database.open(), Raw(sqlite_database)
    run, signals = started(store).id, store.journal.signals
    for given in ({"signal_name": "other"}, {"at": AT + timedelta(milliseconds=1)}, {"correlation_id": "k"}):
        signals.send(run, **{"signal_name": "go", "at": AT, **given})  # type: ignore[arg-type]
    signals.send(run, "go", signal_id="damaged")
    assert signals.try_take(run, "other", consumer="of the damaged one")
    with raw.without_guard("run_signals_taken_once"), raw.without_guard("run_signals_one_each"):
        raw("UPDATE run_signals SET payload = '{'")
    assert [signals.send(run, "go", at=AT, signal_id=key).seq for key in (None, None, "sound", "sound")] == [4, 4, 5, 5]
    signals.send(run, "fresh")
    taken = signals.try_take(run, "fresh", consumer="c")
    assert [one and one.seq for one in (taken, signals.find_taken(run, "c"), signals.find(run, "sound"))] == [6, 6, 5]


def test_a_take_waits_for_a_signal_to_come(every_backend: StateStore, run_id: str) -> None:
    """journal G-4: sent by another store; without one it is None when the time is over."""
    signals, options = every_backend.journal.signals, {"consumer": "step", "wait": 3_600, "poll_interval": 0.01}
    sending = threading.Timer(0.05, lambda: signals.send(run_id, "go", 7))
    signals.send(run_id, "other")
    sending.start()
    taken = signals.try_take(run_id, "go", **options)  # type: ignore[arg-type]
    sending.join()
    assert taken is not None
    assert taken.payload == 7
    assert signals.try_take(run_id, "go", consumer="next", wait=0.03, poll_interval=0.01) is None
    with every_backend.transaction() as tx, pytest.raises(MisuseError):
        tx.journal.signals.try_take(run_id, "go", consumer="next", wait=1)
    for wait in (-1, "1", 86_401):
        with pytest.raises(InvalidValue):
            signals.try_take(run_id, "go", consumer="next", wait=wait)  # type: ignore[arg-type]
