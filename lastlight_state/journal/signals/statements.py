"""The SQL statements for signals."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import Statement, bind, every_column_of, number, statement_of
from lastlight_state.db.rows.writes import cache_statements
from lastlight_state.db.schema.indexes import through
from lastlight_state.journal.models import SIGNALS
from lastlight_state.journal.records import Signal
from lastlight_state.journal.shared import Stream

_c = SIGNALS.c
_RUN = _c.run_id == bind("run_id", _c.run_id)

COLUMNS = every_column_of(Signal, SIGNALS)
GIVEN = ("signal_name", "correlation_id", "received_at", "received_by", "signal_id", "payload")

STREAM = Stream("signals", SIGNALS)
SEND = STREAM.chains(GIVEN, returning=(_c.seq, _c.signal_id, _c.received_at))

GET = statement_of(sa.select(*COLUMNS).where(_RUN, _c.seq == bind("seq", _c.seq)), Signal)
FIND = statement_of(sa.select(*COLUMNS).where(_RUN, _c.signal_id == bind("signal_id", _c.signal_id)), Signal)
LATEST = statement_of(sa.select(_c.seq).where(_RUN).order_by(_c.seq.desc()).limit(number(1)))
TAKEN = statement_of(sa.select(*COLUMNS).where(_RUN, _c.consumed_by == bind("consumer", _c.consumed_by)), Signal)


def _replayed_signals(correlated: sa.ColumnElement[bool]) -> Statement[Signal]:
    """Return signals of this name, correlation id and time.

    The query names its index. Otherwise SQLite would read the run's signals one by one to avoid a sort.
    """
    same = (_RUN, _c.signal_name == bind("signal_name", _c.signal_name), correlated)
    found = through(sa.select(*COLUMNS), SIGNALS, "ix_run_signals_name")
    then = _c.received_at == bind("received_at", _c.received_at)
    return statement_of(found.where(*same, then).order_by(_c.seq), Signal)


#: By whether a correlation id is given. One condition for both cases would use no index.
REPLAYED = {
    True: _replayed_signals(_c.correlation_id == bind("correlation_id", _c.correlation_id)),
    False: _replayed_signals(_c.correlation_id.is_(None)),
}

FILTERS = {
    "run_id": _RUN,
    "signal_name": _c.signal_name == bind("signal_name", _c.signal_name),
    "correlation_id": _c.correlation_id == bind("correlation_id", _c.correlation_id),
    "uncorrelated": _c.correlation_id.is_(None),
    "received_after": _c.received_at >= bind("received_after", _c.received_at),
    "after_seq": _c.seq > bind("after_seq", _c.seq),
}


def _listing(*, descending: bool) -> Listing[Signal]:
    name = "run_signals" if descending else "run_signals.oldest_first"
    return Listing(name, COLUMNS, order=(_c.seq,), filters=FILTERS, descending=descending, row=Signal)


LISTS = {"oldest_first": _listing(descending=False), "newest_first": _listing(descending=True)}


@cache_statements
def oldest(given: frozenset[str]) -> Statement:
    """Return the query for the number of the oldest signal that is not taken yet and passes these filters."""
    return statement_of(_oldest(given))


@cache_statements
def take(given: frozenset[str]) -> Statement[Signal]:
    """Mark that signal as taken by ``:consumer``."""
    return statement_of(
        sa.update(SIGNALS)
        .where(_RUN, _c.seq == _oldest(given).scalar_subquery())
        .values(consumed_at=bind("consumed_at", _c.consumed_at), consumed_by=bind("consumer", _c.consumed_by))
        .returning(*COLUMNS),
        Signal,
    )


def _oldest(given: frozenset[str]) -> sa.Select[tuple[int]]:
    pending = SIGNALS.alias("pending")
    conditions = [FILTERS[name] for name in sorted(given)]
    replaced = [sa.sql.util.ClauseAdapter(pending).traverse(condition) for condition in conditions]
    return (
        sa.select(pending.c.seq)
        .where(*replaced, pending.c.consumed_at.is_(None))
        .order_by(pending.c.seq)
        .limit(number(1))
    )
