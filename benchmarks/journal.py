"""The journal: one event in a short and in a long run, with a key and without; a batch, a frame, a score."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from benchmarks.databases import Side
from benchmarks.goals import goal
from benchmarks.measure import Result, compare
from lastlight_state.ids import new_id
from lastlight_state.journal import NewEvent, NewScore
from lastlight_state.workflows import Trigger

PAYLOAD = {"nodeId": "plan", "said": "The build is green again, and the colour is back. " * 4}
TEXT = '{"nodeId":"plan","said":"' + PAYLOAD["said"] + '"}'
LONG, BATCH = 100_000, 1_000

_TAKE = (
    "UPDATE run_sequences SET next_seq = next_seq + {many} WHERE run_id = ? AND stream = 'events' RETURNING next_seq"
)
_INSERT = (
    "INSERT INTO run_events (run_id, seq, type, occurred_at, node_id, event_id, payload) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_LOCK = "SELECT next_seq FROM run_sequences WHERE run_id = ? AND stream = 'events' {lock}"
_KNOWN = "SELECT seq FROM run_events WHERE run_id = ? AND event_id = ?"


def results(side: Side) -> Iterator[Result]:
    """Appends at 10 and at 100,000 events, and what else a run writes."""
    for many in (10, LONG):
        yield from _appends(side, f"{many:,}", *_pair(side, many))
    for keyed in (False, True):
        yield _batch(side, *_pair(side, 10), keyed=keyed)
    yield _frame(side, _run(side, 1))
    yield _score(side, _run(side, 1))


def _pair(side: Side, events: int) -> tuple[str, str]:
    """Two runs with so many events, for the library and for the bare driver, and a later one that fills some pages.

    On Postgres a row on the last page of an index costs a fifth less. Neither of the two has its rows there.
    """
    ours, theirs, _later = (_run(side, many) for many in (events, events, BATCH))
    return ours, theirs


def _run(side: Side, events: int) -> str:
    """A run with so many events."""
    store = side.store
    run_id: str = store.workflows.runs.create("audit", trigger=Trigger("t", type="cli"), phase="start").id
    for start in range(0, events, BATCH):
        many = min(BATCH, events - start)
        store.journal.events.append_many(run_id, [NewEvent("log", PAYLOAD, event_id=new_id()) for _ in range(many)])
    return run_id


def _appends(side: Side, at: str, ours: str, theirs: str) -> Iterator[Result]:
    events = side.store.journal.events
    next_seq: list[int] = []
    yield compare(
        f"append an event at {at}",
        side.name,
        lambda: events.append(ours, "log", PAYLOAD),
        _appending(side, theirs, [(_TAKE.format(many=1), lambda: (theirs,))], next_seq),
        goal=goal("append an event", side.name),
    )
    lock = "" if side.name == "sqlite" else "FOR UPDATE"
    looked = [
        (_LOCK.format(lock=lock), lambda: (theirs,)),
        (_KNOWN, lambda: (theirs, "none")),
        (_TAKE.format(many=1), lambda: (theirs,)),
    ]
    yield compare(
        f"append an event with a key at {at}",
        side.name,
        lambda: events.append(ours, "log", PAYLOAD, event_id=new_id()),
        _appending(side, theirs, looked, next_seq, keyed=True),
        goal=goal("append an event with a key", side.name),
    )


def _appending(
    side: Side, run_id: str, before: list[tuple[str, Callable[[], Any]]], found: list[int], *, keyed: bool = False
) -> Callable[[], object]:
    """Hand-written driver code that numbers an event and inserts it."""
    begin = "BEGIN IMMEDIATE" if side.name == "sqlite" else "BEGIN"
    statements = [(side.sql(text), values) for text, values in before]
    insert, execute = side.sql(_INSERT), side.driver.execute

    def run() -> object:
        execute(begin)
        for text, values in statements:
            found[:] = [row[0] for row in execute(text, values()).fetchall()]
        key = new_id() if keyed else None
        execute(insert, (run_id, found[0] - 1, "log", side.now(), "plan", key, TEXT))
        return execute("COMMIT")

    return run


def _batch(side: Side, ours: str, theirs: str, *, keyed: bool = False) -> Result:
    """A thousand events; with keys, those that are stored already are looked for first."""

    def batch() -> list[NewEvent]:
        return [NewEvent("log", PAYLOAD, event_id=new_id() if keyed else None) for _ in range(BATCH)]

    given = None if keyed else batch()
    append_many = side.store.journal.events.append_many
    path = "append 1,000 events with keys" if keyed else "append 1,000 events"
    return compare(
        path,
        side.name,
        lambda: append_many(ours, given or batch()),
        _batch_by_hand(side, theirs, keyed=keyed),
        goal=goal(path, side.name),
        calls=5,
        rounds=9,
    )


def _batch_by_hand(side: Side, run_id: str, *, keyed: bool) -> Callable[[], object]:
    begin = "BEGIN IMMEDIATE" if side.name == "sqlite" else "BEGIN"
    take = side.sql(_TAKE.format(many=BATCH))
    among = f"IN ({', '.join('?' * BATCH)})" if side.name == "sqlite" else "= ANY(?)"
    look = side.sql(f"SELECT event_id FROM run_events WHERE run_id = ? AND event_id {among}")
    driver = side.driver

    def by_hand() -> object:
        driver.execute(begin)
        [(after,)] = driver.execute(take, (run_id,)).fetchall()
        keys = [new_id() if keyed else None for _ in range(BATCH)]
        if keyed:
            driver.execute(look, (run_id, *keys) if side.name == "sqlite" else (run_id, keys)).fetchall()
        now = side.now()
        rows = [(run_id, after - BATCH + i, "log", now, "plan", key, TEXT) for i, key in enumerate(keys)]
        if side.name == "sqlite":
            driver.executemany(_INSERT, rows)
        else:
            names = _INSERT.partition("(")[2].partition(")")[0]
            with driver.cursor() as cursor, cursor.copy(f"COPY run_events ({names}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
        return driver.execute("COMMIT")

    return by_hand


def _frame(side: Side, run_id: str) -> Result:
    """A frame of a hundred elements of which one changed, against an insert of the delta's size."""
    frames, step, other = side.store.journal.frames, count(), count()
    values = (
        "INSERT INTO run_frames (run_id, frame_no, created_at, encoding, content_hash, full_bytes, body) "
        "VALUES (?, ?, ?, 'delta', ?, 9000, ?)"
    )
    theirs = _run(side, 1)
    return compare(
        "append a frame",
        side.name,
        lambda: frames.append(run_id, _tree(next(step))),
        side.unit((values, lambda: (theirs, next(other), side.now(), "0" * 64, "x" * 150))),
        goal=None,
        calls=60,
    )


def _tree(step: int) -> dict[str, Any]:
    said = {"kind": "text", "text": f"step {step}"}
    parts = [{"kind": "element", "tag": "part", "props": {"id": f"p{i}", "n": i}} for i in range(100)]
    return {"kind": "element", "tag": "plan", "children": [said, *parts]}


def _score(side: Side, run_id: str) -> Result:
    ours, theirs = count(), count()
    insert = (
        "INSERT INTO scores (id, run_id, iteration, scored_at, node_id, attempt, scorer_id, scorer_name, source, "
        "score) VALUES (?, ?, ?, ?, 'plan', 1, 'theirs', 'Judge', 'live', 0.5)"
    )
    return compare(
        "record a score",
        side.name,
        lambda: side.store.journal.scores.record(
            NewScore(run_id, "plan", "ours", "Judge", "live", 0.5, iteration=next(ours))
        ),
        side.unit((insert, lambda: (new_id(), run_id, next(theirs), side.now()))),
        goal=goal("record a score", side.name),
    )
