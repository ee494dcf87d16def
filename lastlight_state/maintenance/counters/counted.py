"""Which columns count which rows, and the statements that find and raise those that are behind.

Every counter is looked at through the primary key of its table, and its rows through an index that ends in their
number: one row is read for each counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypedDict

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
from lastlight_state.db.statements import Statement, bind, constant, number, prepared
from lastlight_state.journal.tables import EVENTS, FRAMES, SEQUENCES, SIGNALS, TOOL_CALLS
from lastlight_state.workflows.tables import RUNS, TRANSITIONS

#: How many counters one statement looks at.
LOOK = 500


class Counted(TypedDict):
    """A counter, and the value that it must have at least; None where no row is numbered."""

    key: str
    value: int
    needed: int | None


@dataclass(frozen=True)
class Counter:
    """A column that holds the next number of some rows, or the last one (``ahead`` is 1 or 0).

    ``key`` names the row of the counter; the rows that it numbers have the same in ``owner``. ``stream`` tells the
    counters of one table apart.
    """

    column: sa.Column[Any]
    key: sa.Column[Any]
    number: sa.Column[Any]
    owner: sa.Column[Any]
    ahead: int
    stream: str | None = None

    @property
    def name(self) -> str:
        """The column, and the stream if it has several."""
        name = f"{self.column.table.name}.{self.column.name}"
        return name if self.stream is None else f"{name} of {self.stream}"

    @property
    def own(self) -> sa.ColumnElement[bool]:
        """Which rows of the counter's table it is about."""
        return sa.true() if self.stream is None else self.column.table.c.stream == constant(self.stream)

    @property
    def needed(self) -> sa.ScalarSelect[Any]:
        """The value that the counter must have at least; NULL where no row is numbered."""
        numbered = sa.select(self.number + number(self.ahead)).where(self.owner == self.key)
        return numbered.order_by(self.number.desc()).limit(number(1)).scalar_subquery()

    @property
    def behind(self) -> sa.ColumnElement[bool]:
        """Whether the counter is behind."""
        return self.column < self.needed

    @cached_property
    def look(self) -> Statement[Counted]:
        """Return the next counters after a key, each with the value that it must have at least."""
        found = sa.select(self.key.label("key"), self.column.label("value"), self.needed.label("needed"))
        return prepared(
            found.where(self.own, self.key > bind("after", self.key)).order_by(self.key).limit(number(LOOK)), Counted
        )

    @cached_property
    def mend(self) -> Statement:
        """Raises one counter if it is behind, and only raises it: Postgres compares again after waiting for its row."""
        this = self.key == bind("key", self.key)
        return prepared(
            sa.update(self.column.table)
            .where(this, self.own, self.behind)
            .values({self.column.name: self.needed})
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
