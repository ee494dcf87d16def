"""Waiting for what is new in runs: one look at the counters of all runs that anybody in the store waits for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import sqlalchemy as sa

from lastlight_state.backends.sql.json import member_of
from lastlight_state.db.indexes import AmongFew
from lastlight_state.db.listed import as_list, listed
from lastlight_state.db.scope import Scope
from lastlight_state.db.statements import prepared
from lastlight_state.db.watch import Watch, watch_of
from lastlight_state.journal.rows import RunSequenceRow
from lastlight_state.journal.tables import SEQUENCES

#: A run and a stream of it, or a run and `END`.
Key = tuple[str, str]
#: Which of some runs have ended. Those that are not there are left out.
Ended = Callable[[Collection[str]], Mapping[str, bool]]
#: In the place of a stream: whether the run has ended. Its value is 1 then, and before that 0.
END = "end"

_wanted = listed("runs")
COUNTERS = prepared(
    sa.select(SEQUENCES.c.run_id, SEQUENCES.c.stream, SEQUENCES.c.next_seq).where(
        AmongFew(SEQUENCES.c.run_id, sa.select(member_of(_wanted.c.value, "run_id")))
    ),
    RunSequenceRow,
)


def watch_for(scope: Scope, ended: Ended | None = None) -> Watch[Key]:
    """Return the store's watch over the counters of runs, and over ends of runs: ``ended`` is asked for them.

    Ends are read first, so that whoever hears of one finds all that was committed before it.
    """

    def read(keys: Collection[Key]) -> dict[Key, int]:
        ends = _ends(ended, [run_id for run_id, stream in keys if stream == END])
        runs = sorted({run_id for run_id, _ in keys})
        values = {"runs": as_list([{"run_id": run_id} for run_id in runs])}
        rows = scope.reading(lambda unit: unit.rows(COUNTERS, values))
        return {**ends, **{(row["run_id"], row["stream"]): row["next_seq"] for row in rows}}

    return watch_of(scope, "counters" if ended is None else "counters and ends", read)


def _ends(ended: Ended | None, run_ids: list[str]) -> dict[Key, int]:
    """Return whether each run has ended. One that is gone has."""
    if ended is None or not run_ids:
        return {}
    found = ended(sorted(run_ids))
    return {(run_id, END): int(found.get(run_id, True)) for run_id in run_ids}
