"""Finds rows of a run that its source has and the store lacks. They are either new, or were removed in the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.rows.statements import Statement, bind, statement_of
from lastlight_state.journal.models import SEQUENCES, TOOL_CALLS
from lastlight_state.maintenance.copy import row_merge
from lastlight_state.maintenance.imports import brought, pieces
from lastlight_state.maintenance.imports.pieces import ImportUnit, UnitLookup

Row = Mapping[str, Any]
Given = Mapping[str, Sequence[Row]]


_s, _c = SEQUENCES.c, TOOL_CALLS.c
_ENDS: Statement[tuple[str, int]] = statement_of(
    sa.select(_s.stream, _s.next_seq).where(_s.run_id == bind("run_id", _s.run_id)), tuple
)
_CALLS = statement_of(sa.select(_c.call_id).where(_c.run_id == bind("run_id", _c.run_id)))
#: The streams whose rows keep the source's numbers, each with its table and the column of the number.
_STREAMS = (("events", "run_events", "seq"), ("signals", "run_signals", "seq"), ("frames", "run_frames", "frame_no"))
#: The key columns of other rows that can be removed here without their run. Rows of output tables have their own key.
_KEYS = {"tool_calls": ("call_id",), "scores": ("id",)}
_OUTPUT_KEY = ("node_id", "iteration")


class AbsentRows:
    """A search for the rows of a run that the store lacks. ``before`` is the ledger's record of the last import.

    ``ends`` has the store's next number of each stream, and ``removed`` counts the rows that were removed in the store.
    ``told`` is the ledger's record for the next import. It includes rows that the source lacks now and may have again.
    With ``keeps_all``, no row counts as removed.
    """

    def __init__(self, look: UnitLookup, piece: ImportUnit, before: Mapping[str, Any], *, keeps_all: bool) -> None:
        self._look, self._piece, self._before = look, piece, {} if keeps_all else before
        self._this = {"run_id": piece.target[1]}
        self.ends = dict(look.view.rows(_ENDS, self._this))
        self.removed = 0
        self.told: dict[str, Any] = dict(before)

    def left_out(self, given: Given, outputs: Collection[str]) -> Given:
        """Return the rows without rows that were removed in the store.

        Raises `AlreadyExists` for a new row of the source whose number the store gave to a row that was removed since.
        """
        found = dict(given)
        for stream, table, number in _STREAMS:
            rows = given.get(table, ())
            self.told[table] = brought.extend_ranges(self.told.get(table, ()), (row[number] for row in rows))
            found[table] = self._drop_gone_numbers(stream, table, number, rows)
        for table, names in (_KEYS | dict.fromkeys(outputs, _OUTPUT_KEY)).items():
            rows = given.get(table, ())
            marks = (brought.mark(*(row[name] for name in names)) for row in rows)
            self.told[table] = sorted({*self.told.get(table, ()), *marks})
            found[table] = self._drop_gone_rows(table, names, rows)
        return {table: rows for table, rows in found.items() if rows}

    def _drop_gone_numbers(self, stream: str, table: str, number: str, rows: Sequence[Row]) -> Sequence[Row]:
        known = self._before.get(table)
        if known is None or not rows:
            return rows
        absent = row_merge.missing_rows(self._look.view, {table: rows}, keeps=True).get(table, ())
        gone = {row[number] for row in absent if brought.within(row[number], known)}
        end = self.ends.get(stream, 0)
        if taken := sorted(row[number] for row in absent if row[number] < end and row[number] not in gone):
            problem = f"went on here, and in its source: number {taken[0]} of {table} was given to a row that is gone"
            pieces.refuse_other(self._piece, problem)
        self.removed += len(gone)
        return [row for row in rows if row[number] not in gone]

    def _drop_gone_rows(self, table: str, names: Sequence[str], rows: Sequence[Row]) -> Sequence[Row]:
        """Return the rows without those that the last import had and that are missing in the store."""
        known = set(self._before.get(table, ()))
        if not known or not rows:
            return rows

        def key(row: Row) -> tuple[Any, ...]:
            return tuple(row[name] for name in names)

        absent = self._absent_calls(rows) if table == str(TOOL_CALLS.name) else self._absent(table, rows)
        gone = {key(row) for row in absent if brought.mark(*key(row)) in known}
        self.removed += len(gone)
        return [row for row in rows if key(row) not in gone]

    def _absent(self, table: str, rows: Sequence[Row]) -> Sequence[Row]:
        return row_merge.missing_rows(self._look.view, {table: rows}, keeps=True).get(table, ())

    def _absent_calls(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return the tool calls that are not here, by their ids: their numbers here are not known yet."""
        here = set(self._look.view.values(_CALLS, self._this))
        return [row for row in rows if row["call_id"] not in here]
