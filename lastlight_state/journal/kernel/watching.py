"""Waiting for what is new in runs: one look at the counters of all runs that anybody in the store waits for."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

import sqlalchemy as sa

from lastlight_state.backends.sql.json import member_of
from lastlight_state.db.indexes import AmongFew
from lastlight_state.db.scope import Scope, TransactionScope
from lastlight_state.db.statements import prepared
from lastlight_state.db.watch import NOTHING_YET, Watch, watch_of
from lastlight_state.errors import MisuseError
from lastlight_state.journal.kernel.streams import as_list, listed
from lastlight_state.journal.tables import SEQUENCES
from lastlight_state.unwinding import block

#: A run and a stream of it.
Key = tuple[str, str]

_wanted = listed("runs")
COUNTERS = prepared(
    sa.select(SEQUENCES.c.run_id, SEQUENCES.c.stream, SEQUENCES.c.next_seq).where(
        AmongFew(SEQUENCES.c.run_id, sa.select(member_of(_wanted.c.value, "run_id")))
    )
)


def watch_for(scope: Scope) -> Watch[Key]:
    """The store's watch over the counters of runs."""

    def read(keys: Collection[Key]) -> dict[Key, int]:
        runs = sorted({run_id for run_id, _ in keys})
        values = {"runs": as_list([{"run_id": run_id} for run_id in runs])}
        rows = scope.reading(lambda unit: unit.rows(COUNTERS, values))
        return {(row["run_id"], row["stream"]): row["next_seq"] for row in rows}

    return watch_of(scope, read)


class Arrivals:
    """Tells whether rows may have come since it was asked last. The first answer is yes where there are any."""

    def __init__(self, watch: Watch[Key], key: Key, seconds: float) -> None:
        self._watch = watch
        self._known = {key: NOTHING_YET}
        self._end = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """How much of the time is left."""
        return max(0.0, self._end - time.monotonic())

    def wait(self, seconds: float) -> bool:
        """Wait until rows may have come, and return whether they have. Raises `StoreClosed`."""
        grown = self._watch.grown(self._known, seconds)
        self._known.update(grown)
        return bool(grown)


def refuse_in_transaction(scope: Scope) -> None:
    """Raise `MisuseError` in a transaction or view."""
    if isinstance(scope, TransactionScope):
        raise MisuseError("waiting takes longer than a transaction should: call it on the store")


@block
def arrivals(scope: Scope, key: Key, seconds: float, poll_interval: float) -> Iterator[Arrivals]:
    """Watch a stream of a run."""
    watch = watch_for(scope)
    with watch.waiting_for([key], poll_interval):
        yield Arrivals(watch, key, seconds)
