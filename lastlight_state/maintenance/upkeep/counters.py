"""Finds counters that are behind the rows that they number, and raises them.

A counter falls behind if another program inserted rows, or if a row was restored by hand. Then the counter's next
number is used already, and the call that takes it fails. No counter is ever lowered, and no row gets another number. If
running runs lack their rows in `run_leases`, these are written again, too: without them no worker finds the runs.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations.tables import (
    CHANGES,
    DELIVERIES,
    INBOXES,
    LINKS,
    PROGRESSIONS,
    SESSIONS,
    TRANSITIONS as MOVES,
)
from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.rows.records import Record
from lastlight_state.db.rows.statements import Statement, bind, constant, number, statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.journal.models import EVENTS, FRAMES, SEQUENCES, SIGNALS, TOOL_CALLS
from lastlight_state.maintenance.shared import jobs
from lastlight_state.maintenance.upkeep import run_leases
from lastlight_state.receipts import Receipt, Receipts, steps
from lastlight_state.workflows.tables import RUNS, TRANSITIONS

# Declares which columns count which rows, with statements that find and raise counters that are behind. A counter is
# found by the primary key of its table. Its rows are found by an index that ends in their number, so that one row is
# read for each counter.

#: How many counters one statement reads.
LOOK = 500


#: The key of a counter, its value, and the least value that it must have; None if it numbers no row.
Look = Statement[tuple[str, int, int | None]]


@dataclass(frozen=True)
class Counter:
    """A column that stores the next number for some rows, or the last one (``ahead`` is 1 or 0).

    ``key`` is the key column of the counter's row; the numbered rows have the same value in ``owner``. ``stream``
    distinguishes several counters of one table.
    """

    column: sa.Column[Any]
    key: sa.Column[Any]
    number: sa.Column[Any]
    owner: sa.Column[Any]
    ahead: int
    stream: str | None = None

    @property
    def name(self) -> str:
        """Return the name of the counter's column, followed by the stream if there are several."""
        name = f"{self.column.table.name}.{self.column.name}"
        return name if self.stream is None else f"{name} of {self.stream}"

    @property
    def own(self) -> sa.ColumnElement[bool]:
        """Return the condition that selects this counter's rows in its table."""
        return sa.true() if self.stream is None else self.column.table.c.stream == constant(self.stream)

    @property
    def needed_value(self) -> sa.ScalarSelect[Any]:
        """Return the least value that the counter must have, or NULL if it has numbered no row."""
        numbered = sa.select(self.number + number(self.ahead)).where(self.owner == self.key)
        return numbered.order_by(self.number.desc()).limit(number(1)).scalar_subquery()

    @property
    def behind(self) -> sa.ColumnElement[bool]:
        """Return the condition that the counter is below the value that it must have."""
        return self.column < self.needed_value

    @cached_property
    def look(self) -> Look:
        """Return a statement for the next counters after a key, each with the least value that it must have."""
        found = sa.select(self.key.label("key"), self.column.label("value"), self.needed_value.label("needed"))
        return statement_of(
            found.where(self.own, self.key > bind("after", self.key)).order_by(self.key).limit(number(LOOK)), tuple
        )

    @cached_property
    def mend(self) -> Statement:
        """Return a statement that raises one counter if it is behind.

        On Postgres, the statement compares again after waiting for the row's lock.
        """
        this = self.key == bind("key", self.key)
        return statement_of(
            sa.update(self.column.table)
            .where(this, self.own, self.behind)
            .values({self.column.name: self.needed_value})
            .returning(self.column.label("value"))
        )


_STREAMS = {
    "events": EVENTS.c.seq,
    "signals": SIGNALS.c.seq,
    "frames": FRAMES.c.frame_no,
    "tool_calls": TOOL_CALLS.c.seq,
}
_s, _r = SESSIONS.c, RUNS.c

INBOX_COUNTER = Counter(INBOXES.c.next_ord, INBOXES.c.owner, DELIVERIES.c.ord, DELIVERIES.c.owner, 1)
CHANGES_COUNTER = Counter(_s.change_seq, _s.id, CHANGES.c.seq, CHANGES.c.session_id, 0)
COUNTERS: tuple[Counter, ...] = (
    *(
        Counter(SEQUENCES.c.next_seq, SEQUENCES.c.run_id, numbered, numbered.table.c.run_id, 1, stream)
        for stream, numbered in _STREAMS.items()
    ),
    Counter(_r.transition_seq, _r.id, TRANSITIONS.c.seq, TRANSITIONS.c.run_id, 0),
    INBOX_COUNTER,
    Counter(_s.transition_seq, _s.id, MOVES.c.seq, MOVES.c.session_id, 0),
    CHANGES_COUNTER,
    Counter(PROGRESSIONS.c.next_ord, PROGRESSIONS.c.id, LINKS.c.ord, LINKS.c.progression_id, 1),
)


class LostLeases:
    """The missing rows of `run_leases` for running runs. They are found and written as if they were counters behind."""

    name = "run_leases of running runs"
    look: Look = statement_of(run_leases.LOOK.limit(number(LOOK)), tuple)
    mend = run_leases.MEND


#: The counters and leases that a repair mends, in this order.
MENDED: tuple[Counter | LostLeases, ...] = (*COUNTERS, LostLeases())


# Records of counters that are behind the rows that they number.


class LateCounter(Record):
    """A counter behind its rows: its column, the key of its row, its value, and the value that it must have."""

    counter: str
    key: str
    value: int
    needed: int


class CounterPlan(Record):
    """The counters that are behind at one moment. Nothing is written for a plan.

    ``counts`` has their number by column; ``samples`` are the first 20 of them.
    """

    counts: Mapping[str, int]
    samples: tuple[LateCounter, ...]


#: How many counters a plan names at most.
SAMPLES = 20

#: The position of a repair: it continues with the counters at this index in `MENDED`, after this key.
Place = tuple[int, str]
START: Place = (0, "")


class Counters(Repository):
    """Finds and raises counters that are behind: ``store.maintenance.counters``."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._receipts = Receipts(context)

    def plan(self) -> CounterPlan:
        """Return the counters that are behind, from one snapshot. Writes nothing, and holds no lock."""
        return self._viewing(_counter_plan)

    def run(self, *, actor: str | None = None) -> Receipt:
        """Raise every counter that is behind, in short transactions. Returns the receipt.

        If a running run's row in `run_leases` is missing or wrong, the row is written again. Writers may continue
        meanwhile, because each counter is compared again when it is raised. Running it again is harmless, and continues
        an interrupted repair. Raises `Conflict` ``already_running`` while another repair runs.
        """
        receipt = self._receipts.begin("repair", scope="counters", policy={}, owner=jobs.owner(), actor=actor)

        def step(receipt: Receipt) -> tuple[Receipt, bool]:
            return self._writing(lambda unit: self._batch(unit, receipt))

        return jobs.run_steps(self._receipts, receipt, step, again="the same command")

    def _batch(self, unit: Unit, receipt: Receipt) -> tuple[Receipt, bool]:
        steps.confirm(unit, receipt)
        at, after = receipt.cursor or START
        counter = MENDED[at]
        last, late = _look(unit, counter, after)
        raised = sum(unit.row(counter.mend, {"key": one.key}) is not None for one in late)
        counts = Tally(receipt.counts) + Tally({counter.name: raised})
        place = (at + 1, "") if last is None else (at, last)
        stepped = steps.step(unit, receipt, counts=counts, cursor=place, at=self._now())
        return stepped, place[0] < len(MENDED)


def _counter_plan(unit: Unit) -> CounterPlan:
    counts: Tally[str] = Tally()
    samples: list[LateCounter] = []
    for late in _late_counters(unit):
        counts[late.counter] += 1
        if len(samples) < SAMPLES:
            samples.append(late)
    return CounterPlan(counts=counts, samples=tuple(samples))


def _late_counters(unit: Unit) -> Iterator[LateCounter]:
    for counter in MENDED:
        after: str | None = ""
        while after is not None:
            after, late = _look(unit, counter, after)
            yield from late


def _look(unit: Unit, counter: Counter | LostLeases, after: str) -> tuple[str | None, list[LateCounter]]:
    """Return the last key of the next counters, or None if none are left, and those counters that are behind."""
    rows = unit.rows(counter.look, {"after": after})
    late = [
        LateCounter(counter=counter.name, key=key, value=value, needed=needed)
        for key, value, needed in rows
        if needed is not None and value < needed
    ]
    return (rows[-1][0] if rows else None), late
