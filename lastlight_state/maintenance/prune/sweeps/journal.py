"""Sweeps the journals of runs that ended long ago. The run, its counters, and the rows that show its end stay.

The last event of a run stays, and so does its last frame with the frames from which it is rebuilt. If a caller adds
rows to the run later, they get numbers that were never used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.lists.filters import family, first_column, rows
from lastlight_state.db.rows.statements import Statement, bind, constant, number, statement_of
from lastlight_state.db.schema.indexes import AmongFew, Leading
from lastlight_state.db.units.unit import Unit
from lastlight_state.journal import tool_calls
from lastlight_state.journal.events import statements as events
from lastlight_state.journal.frames import statements as frames
from lastlight_state.journal.models import EVENTS, FRAMES, SCORES, SEQUENCES, SIGNALS, TOOL_CALLS
from lastlight_state.journal.shared import Stream
from lastlight_state.journal.signals import statements as signals
from lastlight_state.maintenance.prune import arguments, candidates
from lastlight_state.maintenance.prune.arguments import START
from lastlight_state.maintenance.prune.candidates import LOOK, STATEMENTS, Range
from lastlight_state.maintenance.prune.kinds import RUNS_KIND
from lastlight_state.maintenance.prune.sweeps.sweep import CandidatePage, OneStage, Removal, Tally, Terms, cutoff
from lastlight_state.workflows.tables import RUNS

_ALL = 2**62
_MOST = sa.bindparam("most", type_=sa.BigInteger())
_RUN = bind("run_id", RUNS.c.id)

#: Returns an expression for a row of one run: its first row, the first that stays, or the first beyond a batch.
Finds = Callable[[sa.ColumnElement[Any]], sa.ColumnElement[Any]]

_event, _signal, _call = EVENTS.alias("other"), SIGNALS.alias("other"), TOOL_CALLS.alias("other")
_frame, _anchor, _score = FRAMES.alias("other"), FRAMES.alias("anchor"), SCORES.alias("other")
_is_whole = _anchor.c.encoding != sa.literal_column("'delta'")


def _numbers(column: sa.Column[Any], run: sa.ColumnElement[Any], *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(column).where(column.table.c.run_id == run, *conditions).correlate(RUNS)


def _one_value(statement: sa.Select[Any]) -> sa.ColumnElement[Any]:
    return statement.limit(number(1)).scalar_subquery()


def _first(column: sa.Column[Any]) -> Finds:
    """Return an expression for the first number of a run's rows.

    It sorts by number. With EXISTS, Postgres 15 may read the whole table if its statistics know few runs with many
    rows.
    """
    return lambda run: _one_value(_numbers(column, run).order_by(column))


def _last(column: sa.Column[Any], *conditions: sa.ColumnElement[bool]) -> Finds:
    """Return an expression for the last number of a run's rows."""
    return lambda run: _one_value(_numbers(column, run, *conditions).order_by(column.desc()))


def _after_most(column: sa.Column[Any]) -> Finds:
    """Return an expression for the number of a run's first row that does not fit into the batch."""
    return lambda run: _one_value(_numbers(column, run).order_by(column).offset(_MOST))


def _whole_after_most(run: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return the first complete frame after a batch of a run's frames. Later frames can be rebuilt from it."""
    beyond = _anchor.c.frame_no >= _after_most(_frame.c.frame_no)(run)
    return _one_value(_numbers(_anchor.c.frame_no, run, _is_whole, beyond).order_by(_anchor.c.frame_no))


def _scores(run: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Return a SELECT of a run's scores, in the order of their index."""
    found = sa.select(_score.c.id).where(Leading(_score.c.run_id, run)).correlate(RUNS)
    return found.order_by(_score.c.run_id.desc(), _score.c.scored_at.desc(), _score.c.id.desc())


@dataclass(frozen=True)
class Part:
    """The rows of a run in one table. The first rows are removed.

    ``key``    the column that is unique among the rows of a run
    ``first``  the first row of a run
    ``stays``  the first row that stays; None if all rows may be removed
    ``cut``    the first row beyond a batch, at most the row that stays. None if rows have no number
    """

    key: sa.Column[Any]
    first: Finds
    cut: Finds | None = None
    stays: Finds | None = None

    @property
    def name(self) -> str:
        """Return the name of the table."""
        return str(self.key.table.name)

    @property
    def goes(self) -> sa.ColumnElement[bool]:
        """Return the condition that a run has rows to remove."""
        first = self.first(RUNS.c.id)
        return first.is_not(None) if self.stays is None else first < self.stays(RUNS.c.id)

    @property
    def amount(self) -> sa.ColumnElement[int]:
        """Return an expression for how many rows of a run are to be removed.

        If there are none, it does not count, because counting may read the whole table.
        """
        found = sa.select(sa.func.count()).select_from(self.key.table).where(self.key.table.c.run_id == RUNS.c.id)
        going = found if self.stays is None else found.where(self.key < self.stays(RUNS.c.id))
        return sa.case((self.goes, going.correlate(RUNS).scalar_subquery()), else_=number(0))

    @cached_property
    def remove(self) -> Statement:
        """Return a DELETE of the first removable rows of a run, about as many as fit into a batch."""
        of_run = self.key.table.c.run_id == _RUN
        if self.cut is None:
            return statement_of(sa.delete(self.key.table).where(of_run, AmongFew(self.key, _scores(_RUN).limit(_MOST))))
        end = number(_ALL) if self.stays is None else self.stays(_RUN)
        return statement_of(sa.delete(self.key.table).where(of_run, self.key < sa.func.coalesce(self.cut(_RUN), end)))


PARTS = (
    Part(EVENTS.c.seq, _first(_event.c.seq), _after_most(_event.c.seq), _last(_event.c.seq)),
    Part(SIGNALS.c.seq, _first(_signal.c.seq), _after_most(_signal.c.seq)),
    Part(FRAMES.c.frame_no, _first(_frame.c.frame_no), _whole_after_most, _last(_anchor.c.frame_no, _is_whole)),
    Part(TOOL_CALLS.c.seq, _first(_call.c.seq), _after_most(_call.c.seq)),
    Part(SCORES.c.id, lambda run: _one_value(_scores(run))),
)


def _of_runs(columns: Iterable[sa.ColumnElement[Any]]) -> Any:
    found = sa.select(RUNS.c.id.label("key"), *columns)
    return family(lambda keys: found.where(RUNS.c.id.in_(keys)).order_by(RUNS.c.id))


def _loose(stream: Stream, seq: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a run has numbers beyond its counter, because another program inserted rows."""
    here = (SEQUENCES.c.run_id == RUNS.c.id, SEQUENCES.c.stream == constant(stream.name))
    known = sa.select(SEQUENCES.c.next_seq).where(*here).correlate(RUNS).scalar_subquery()
    return _last(seq)(RUNS.c.id) >= sa.func.coalesce(known, number(0))


_LOOSE = {
    stream.name: (stream, _loose(stream, seq))
    for stream, seq in (
        (events.STREAM, _event.c.seq),
        (signals.STREAM, _signal.c.seq),
        (frames.STREAM, _frame.c.frame_no),
        (tool_calls.STREAM, _call.c.seq),
    )
}

SOME = _of_runs(part.goes.label(part.name) for part in PARTS)
AMOUNTS = _of_runs(part.amount.label(part.name) for part in PARTS)
LOOSE = _of_runs(loose.label(name) for name, (_, loose) in _LOOSE.items())


class Journal(OneStage):
    """The kind ``journal``. Its records are the runs that a prune of the kind ``runs`` would read."""

    name = "journal"
    record = RUNS_KIND.record
    tables = tuple(part.name for part in PARTS)
    keep_days = RUNS_KIND.keep_days
    keep_n = RUNS_KIND.keep_n

    def existing_keys(self, unit: Unit, keys: Iterable[str]) -> set[str]:
        """Return the runs among these that exist."""
        return set(first_column(unit, STATEMENTS[RUNS_KIND.name].known, keys))

    def bounded_terms(self, unit: Unit, terms: Terms) -> Terms:
        """Return the terms with ``until`` added.

        Runs that ended before this place are old enough, and not among the newest.
        """
        return candidates.bounded_terms(unit, RUNS_KIND, terms)

    def look(self, unit: Unit, terms: Terms, after: Any) -> CandidatePage:
        """Return the next runs whose journals have removable rows, in the order of their ends."""
        start = START if after is None else arguments.read(after)
        found = Range.of(RUNS_KIND, terms).next(unit, start, locked=False)
        free = _free(unit, [key for _, key in found], Counter())
        keys = [row["key"] for row in rows(unit, SOME, free) if any(row[name] for name in self.tables)]
        return CandidatePage(keys, arguments.encode_place(found[-1]) if len(found) == LOOK else None)

    def remove(self, unit: Unit, terms: Terms, keys: list[str], most: int) -> Removal:
        """Remove about ``most`` rows from the journals of these runs, the oldest first."""
        here = Range.of(RUNS_KIND, {**terms, "ids": keys}).hold_keys(unit)
        free = _free(unit, here, Counter())
        _settle(unit, free)
        counts: Counter[str] = Counter()
        for key, part in _removable_parts(unit, free):
            left = most - counts.total()
            if left <= 0:
                return Removal(counts, more=True)
            counts[part.name] += unit.change(part.remove, {"run_id": key, "most": left})
        return Removal(+counts)

    def tally(self, unit: Unit, terms: Terms) -> Tally:
        """Return the runs whose journals would lose rows, and counts by reason of equally old runs that lose none."""
        found = Tally(protected=Counter(not_ended=candidates.not_ended(unit, RUNS_KIND, cutoff(terms))))
        for some in candidates.walk(unit, Range.of(RUNS_KIND, terms)):
            for row in rows(unit, AMOUNTS, _free(unit, [key for _, key in some], found.protected)):
                key = row.pop("key")
                found.counts.update(row)
                found.add([key] if any(row.values()) else [])
        return found


def _free(unit: Unit, keys: Sequence[str], protected: Counter[str]) -> list[str]:
    """Return the runs among these that nothing protects. The others are counted by reason.

    A run whose output a live run reads is not protected here, because outputs are in executions, which stay.
    """
    kept = candidates.protected_records(unit, RUNS_KIND, keys, frozenset()) if keys else {}
    protected.update(kept.values())
    return [key for key in keys if key not in kept]


def _removable_parts(unit: Unit, keys: Sequence[str]) -> Iterator[tuple[str, Part]]:
    """Yield each run together with each part that has removable rows."""
    for row in rows(unit, SOME, keys):
        for part in PARTS:
            if row[part.name]:
                yield row["key"], part


def _settle(unit: Unit, keys: Sequence[str]) -> None:
    """Raise the counters of these runs above all their numbers, so that no removed row's number is used again."""
    for row in rows(unit, LOOSE, keys):
        for name, (stream, _) in _LOOSE.items():
            if row[name]:
                stream.settle(unit, row["key"])


JOURNAL = Journal()
