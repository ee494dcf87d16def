"""Waiting for what is new in runs: one look at the counters of all runs that anybody in the store waits for."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from lastlight_state.backends.sql.json import member_of
from lastlight_state.db.indexes import AmongFew
from lastlight_state.db.listed import as_list, listed
from lastlight_state.db.scope import Scope
from lastlight_state.db.statements import prepared
from lastlight_state.db.watch import Watch, watch_of
from lastlight_state.journal.rows import RunSequenceRow
from lastlight_state.journal.tables import SEQUENCES

#: A run and a stream of it.
Key = tuple[str, str]

_wanted = listed("runs")
COUNTERS = prepared(
    sa.select(SEQUENCES.c.run_id, SEQUENCES.c.stream, SEQUENCES.c.next_seq).where(
        AmongFew(SEQUENCES.c.run_id, sa.select(member_of(_wanted.c.value, "run_id")))
    ),
    RunSequenceRow,
)


def watch_for(scope: Scope) -> Watch[Key]:
    """The store's watch over the counters of runs."""

    def read(keys: Collection[Key]) -> dict[Key, int]:
        runs = sorted({run_id for run_id, _ in keys})
        values = {"runs": as_list([{"run_id": run_id} for run_id in runs])}
        rows = scope.reading(lambda unit: unit.rows(COUNTERS, values))
        return {(row["run_id"], row["stream"]): row["next_seq"] for row in rows}

    return watch_of(scope, "counters", read)
