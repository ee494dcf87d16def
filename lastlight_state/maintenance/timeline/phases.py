"""Reads the phases of a run as a list for followers, numbered in the order in which they were appended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.lists.pages import KeyedRows
from lastlight_state.db.rows.statements import Row, statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import CorruptData
from lastlight_state.workflows.records import CompletedPhase
from lastlight_state.workflows.tables import RUNS

#: Reads the history of ``:run_id`` only if it has more than ``:known`` phases, because it may be long.
_GROWN = statement_of(
    sa.select(RUNS.c.phase_history).where(
        RUNS.c.id == sa.bindparam("run_id"), RUNS.c.phase_count > sa.bindparam("known", type_=sa.Integer)
    )
)


class Phases:
    """The phases of a run, by number from 1."""

    def key(self, row: Row) -> Sequence[Any]:
        """Return the number of a phase."""
        return (row["number"],)

    def rows_after(
        self, unit: Unit, given: Mapping[str, Any], after: Sequence[Any] | None, limit: int
    ) -> KeyedRows[Any]:
        """Return the phases after a number. If the history cannot be read, an error is returned in place of a row."""
        [known] = after or (0,)
        try:
            history = unit.value(_GROWN, {"run_id": given["run_id"], "known": known})
        except CorruptData as error:
            return KeyedRows([error], lambda _: None)
        entries = history[known : known + limit] if isinstance(history, list) else []
        rows = [
            {**vars(CompletedPhase.of_entry(entry)), "number": number}
            for number, entry in enumerate(entries, start=known + 1)
        ]
        return KeyedRows(rows, lambda index: [known + 1 + index])


def phase_text(row: Row) -> str:
    """Return the text of a phase: how the phase ended, and the first line of its summary."""
    ended = "failed" if row["success"] is False else "done"
    summary = (row["summary"] or "").strip().partition("\n")[0]
    return f"phase {row['phase']} {ended}" + (f": {summary}" if summary else "")
