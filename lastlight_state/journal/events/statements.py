"""The SQL statements for events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.backends.sql.json import member_of
from lastlight_state.clock import iso_text
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.records import make_record
from lastlight_state.db.rows.statements import Row, Statement, Values, bind, every_column_of, number, statement_of
from lastlight_state.db.rows.writes import as_list, elements_table
from lastlight_state.db.schema.indexes import AmongFew
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists
from lastlight_state.journal.events.checks import EventDraft
from lastlight_state.journal.models import EVENT, EVENTS, TYPES
from lastlight_state.journal.records import Appended, Event
from lastlight_state.journal.shared import Stream

_c = EVENTS.c
_RUN = _c.run_id == bind("run_id", _c.run_id)

COLUMNS = every_column_of(Event, EVENTS)
GIVEN = ("type", "occurred_at", "node_id", "event_id", "payload")

STREAM = Stream("events", EVENTS)
APPEND = STREAM.chains(GIVEN)
INSERT = statement_of(sa.insert(EVENTS).values({name: bind(name, _c[name]) for name in ("run_id", "seq", *GIVEN)}))


def _among_runs() -> AmongFew:
    return AmongFew(_c.run_id, sa.select(member_of(elements_table("runs").c.value, "run_id")))


GET = statement_of(sa.select(*COLUMNS).where(_RUN, _c.seq == bind("seq", _c.seq)), Event)
_of_key = sa.select(*COLUMNS).where(_RUN, _c.event_id == bind("event_id", _c.event_id))
FIND, OF_KEY = statement_of(_of_key, Event), statement_of(_of_key)
OF_TIME = statement_of(sa.select(*COLUMNS).where(_RUN, _c.occurred_at == bind("occurred_at", _c.occurred_at)))
LATEST = statement_of(sa.select(_c.seq).where(_RUN).order_by(_c.seq.desc()).limit(number(1)))
FIRST_AFTER = statement_of(
    sa.select(_c.seq).where(_RUN, _c.seq > bind("after_seq", _c.seq)).order_by(_c.seq).limit(number(1))
)

_keys, _replays = elements_table("keys"), elements_table("replays")
_KEY = sa.select(member_of(_keys.c.value, "event_id"))

#: One lookup by the unique index for each key. Given an array of keys, Postgres 15 reads all keyed events of the run
#: and compares each with each key, if its statistics date from a time when events had no keys.
_one = (
    sa.select(*COLUMNS)
    .where(_c.run_id == member_of(_keys.c.value, "run_id"), _c.event_id == member_of(_keys.c.value, "event_id"))
    .limit(number(1))
    .lateral("known")
)
_BY_KEY = sa.select(*_one.c).select_from(_keys.join(_one, sa.true()))
#: SQLite has no LATERAL, and uses the index in any case.
_BY_KEY_ON_SQLITE = sa.select(*COLUMNS).where(_among_runs(), AmongFew(_c.event_id, _KEY))
_BY_CONTENT = sa.select(*COLUMNS).where(
    _among_runs(),
    AmongFew(_c.occurred_at, sa.select(sa.cast(member_of(_replays.c.value, "occurred_at"), _c.occurred_at.type))),
)

#: What is stored already of events with these keys, and of those told apart by their content, their time at least.
STORED: Statement = Statement(sa.union_all(_BY_KEY, _BY_CONTENT), beside=sa.union_all(_BY_KEY_ON_SQLITE, _BY_CONTENT))

_FILTERS = {
    "run_id": _RUN,
    "node_id": _c.node_id == bind("node_id", _c.node_id),
    "since": _c.occurred_at >= bind("since", _c.occurred_at),
    "until": _c.occurred_at < bind("until", _c.occurred_at),
    "after_seq": _c.seq > bind("after_seq", _c.seq),
}


def _listing(*, descending: bool) -> Listing[Event]:
    return Listing(
        "run_events" if descending else "run_events.oldest_first",
        COLUMNS,
        order=(_c.seq,),
        filters=_FILTERS,
        spread={"types": _c.type},
        walked=("types",),
        descending=descending,
        most=TYPES,
        row=Event,
    )


LISTS = {"oldest_first": _listing(descending=False), "newest_first": _listing(descending=True)}


# Appending events that may be stored already, of one or several runs, in a constant number of statements.
#
# A statement of its own locks the counters before earlier events are looked up. On Postgres a statement that waits for
# a lock continues with the snapshot from before the wait, and would miss the rows that the lock's holder stored.


class Draft(NamedTuple):
    """The columns of an event to append, and flags that say how to find an equal stored event."""

    row: EventDraft
    #: Its content identifies it.
    is_replay: bool = False
    #: It cannot be stored already: its key was generated just now.
    is_fresh: bool = False


def append(unit: Unit, drafts: Sequence[Draft]) -> list[Appended]:
    """Append the drafts in their order. A draft with a key, or a replay, is stored only once.

    A replay is an event that is identified by its content. Raises `AlreadyExists` for other content under a key, and
    `Conflict` ``foreign_key`` for an unknown run.
    """
    next_seqs = STREAM.locked_many(unit, [draft.row["run_id"] for draft in drafts])
    known = _Known(_stored_events(unit, drafts, next_seqs), by_content=any(draft.is_replay for draft in drafts))
    outcomes: list[Appended] = []
    fresh: list[Row] = []
    for draft in drafts:
        run_id = draft.row["run_id"]
        earlier = known.find(draft)
        if earlier is None:
            seq = next_seqs[run_id]
            next_seqs[run_id] = seq + 1
            row: Row = {**draft.row, "seq": seq}
            fresh.append(row)
            if not draft.is_fresh:
                known.add(row)
            outcomes.append(append_result(row, seq, created=True))
        else:
            outcomes.append(append_result(earlier, earlier["seq"], created=False))
    if fresh:
        STREAM.raise_all(unit, {row["run_id"]: next_seqs[row["run_id"]] for row in fresh})
        unit.insert(STREAM.table, INSERT, fresh)
    return outcomes


def append_one(unit: Unit, draft: Draft) -> Appended:
    """Append a single draft. Otherwise like `append`."""
    run_id = draft.row["run_id"]
    STREAM.lock_counter(unit, run_id)
    earlier = _Known(_stored_like(unit, draft), by_content=draft.is_replay).find(draft)
    if earlier is not None:
        return append_result(earlier, earlier["seq"], created=False)
    return append_result(draft.row, STREAM.insert_row(unit, APPEND, draft.row), created=True)


def append_plain(unit: Unit, run_id: str, rows: Sequence[EventDraft]) -> list[Appended]:
    """Append events without searching for equal stored events."""
    stream = STREAM
    taking = {"run_id": run_id, "taken": len(rows)}
    first = unit.value(stream.take, taking)
    if first is None:
        first = unit.value(stream.begin, taking)
    outcomes: list[Appended] = []

    def number_rows() -> Iterator[Row]:
        for seq, row in enumerate(rows, first):
            outcomes.append(append_result(row, seq, created=True))
            yield {**row, "seq": seq}

    unit.insert(stream.table, INSERT, number_rows())
    return outcomes


def append_result(row: Values, seq: int, *, created: bool) -> Appended:
    """Return what appending an event returns."""
    found = {"created": created, "seq": seq, "event_id": row["event_id"], "occurred_at": row["occurred_at"]}
    return make_record(Appended, found)


class _Known:
    """An index of events, stored or in this batch, by key and by content."""

    def __init__(self, rows: Iterable[Row], *, by_content: bool) -> None:
        self._knows_contents = by_content
        self._by_key: dict[Any, Row] = {}
        self._by_content: dict[Any, Row] = {}
        for row in sorted(rows, key=lambda row: row["seq"]):
            self.add(row)

    def add(self, row: Row) -> None:
        if row["event_id"] is not None:
            self._by_key.setdefault((row["run_id"], row["event_id"]), row)
        if self._knows_contents:
            self._by_content.setdefault(_content(row), row)

    def find(self, draft: Draft) -> Row | None:
        row = draft.row
        if draft.is_fresh:
            return None
        if row["event_id"] is None:
            return self._by_content.get(_content(row)) if draft.is_replay else None
        earlier = self._by_key.get((row["run_id"], row["event_id"]))
        if earlier is not None and _compared_values(earlier) != _compared_values(row):
            problem = "already exists with other content"
            raise AlreadyExists(EVENT, row["event_id"], problem=problem, seq=earlier["seq"])
        return earlier


def _stored_events(unit: Unit, drafts: Sequence[Draft], run_ids: Iterable[str]) -> list[Row]:
    """Return events of these runs that may be those of the drafts."""
    keys = list(_draft_keys(drafts))
    times = {iso_text(draft.row["occurred_at"]) for draft in drafts if draft.is_replay}
    if not keys and not times:
        return []
    values = {
        "runs": as_list([{"run_id": run_id} for run_id in run_ids]),
        "keys": as_list(keys),
        "replays": as_list([{"occurred_at": time} for time in sorted(times)]),
    }
    return unit.rows(STORED, values)


def _stored_like(unit: Unit, draft: Draft) -> list[Row]:
    """Return the same for one event. Compares with single values, for which Postgres always takes the index."""
    if draft.row["event_id"] is not None:
        return unit.rows(OF_KEY, draft.row)
    return unit.rows(OF_TIME, draft.row) if draft.is_replay else []


def _draft_keys(drafts: Sequence[Draft]) -> Iterator[dict[str, str]]:
    for draft in drafts:
        if draft.row["event_id"] is not None and not draft.is_fresh:
            yield {"run_id": draft.row["run_id"], "event_id": draft.row["event_id"]}


def _content(row: Values) -> Any:
    """Return what two events have in common that are the same by the rule for replays."""
    return row["run_id"], row["occurred_at"], row["type"], _canonical(row["payload"])


def _compared_values(row: Values) -> Any:
    """Return what two events of one key must have in common."""
    return row["type"], row["node_id"], _canonical(row["payload"])


def _canonical(payload: Any) -> bytes:
    """Return bytes that are equal for equal JSON.

    Numbers are compared by value, and booleans differ from numbers. The order of keys does not matter.
    """
    return codec.canonical(codec.decode(payload) if isinstance(payload, str) else payload)
