"""The statements of events."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.backends.sql.json import member_of
from lastlight_state.db.indexes import AmongFew
from lastlight_state.db.listed import listed
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import Statement, bind, number, prepared
from lastlight_state.journal.kernel.streams import Stream
from lastlight_state.journal.rows import RunEventRow
from lastlight_state.journal.tables import EVENTS
from lastlight_state.journal.words import TYPES

_c = EVENTS.c
_RUN = _c.run_id == bind("run_id", _c.run_id)

COLUMNS = (_c.run_id, _c.seq, _c.type, _c.occurred_at, _c.node_id, _c.event_id, _c.payload)
GIVEN = ("type", "occurred_at", "node_id", "event_id", "payload")

STREAM = Stream("events", EVENTS)
APPEND = STREAM.chains(GIVEN)
INSERT = prepared(sa.insert(EVENTS).values({name: bind(name, _c[name]) for name in ("run_id", "seq", *GIVEN)}))


def _among_runs() -> AmongFew:
    return AmongFew(_c.run_id, sa.select(member_of(listed("runs").c.value, "run_id")))


GET = prepared(sa.select(*COLUMNS).where(_RUN, _c.seq == bind("seq", _c.seq)), RunEventRow)
FIND = prepared(sa.select(*COLUMNS).where(_RUN, _c.event_id == bind("event_id", _c.event_id)), RunEventRow)
OF_TIME = prepared(sa.select(*COLUMNS).where(_RUN, _c.occurred_at == bind("occurred_at", _c.occurred_at)), RunEventRow)
LATEST = prepared(sa.select(_c.seq).where(_RUN).order_by(_c.seq.desc()).limit(number(1)))
FIRST_AFTER = prepared(
    sa.select(_c.seq).where(_RUN, _c.seq > bind("after_seq", _c.seq)).order_by(_c.seq).limit(number(1))
)

_keys, _replays = listed("keys"), listed("replays")
_KEY = sa.select(member_of(_keys.c.value, "event_id"))

#: One look by the unique index for each key. Compared with an array of keys, Postgres 15 reads all keyed events of the
#: run and compares each with each key where its statistics are of a time when events had no keys.
_one = (
    sa.select(*COLUMNS)
    .where(_c.run_id == member_of(_keys.c.value, "run_id"), _c.event_id == member_of(_keys.c.value, "event_id"))
    .limit(number(1))
    .lateral("known")
)
_BY_KEY = sa.select(*_one.c).select_from(_keys.join(_one, sa.true()))
#: SQLite has no LATERAL, and takes the index in any case.
_BY_KEY_ON_SQLITE = sa.select(*COLUMNS).where(_among_runs(), AmongFew(_c.event_id, _KEY))
_BY_CONTENT = sa.select(*COLUMNS).where(
    _among_runs(),
    AmongFew(_c.occurred_at, sa.select(sa.cast(member_of(_replays.c.value, "occurred_at"), _c.occurred_at.type))),
)

#: What is stored already of events with these keys, and of those told apart by their content, their time at least.
STORED = Statement(
    sa.union_all(_BY_KEY, _BY_CONTENT), beside=sa.union_all(_BY_KEY_ON_SQLITE, _BY_CONTENT), row=RunEventRow
)

_FILTERS = {
    "run_id": _RUN,
    "node_id": _c.node_id == bind("node_id", _c.node_id),
    "since": _c.occurred_at >= bind("since", _c.occurred_at),
    "until": _c.occurred_at < bind("until", _c.occurred_at),
    "after_seq": _c.seq > bind("after_seq", _c.seq),
}


def _listing(*, descending: bool) -> Listing[RunEventRow]:
    return Listing(
        "run_events" if descending else "run_events.oldest_first",
        COLUMNS,
        order=(_c.seq,),
        filters=_FILTERS,
        spread={"types": _c.type},
        walked=("types",),
        descending=descending,
        most=TYPES,
        row=RunEventRow,
    )


LISTS = {"oldest_first": _listing(descending=False), "newest_first": _listing(descending=True)}
