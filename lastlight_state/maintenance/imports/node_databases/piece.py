"""A run that was read: how it is compared with what is stored, and stored. Its tool calls get their numbers here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import sqlalchemy as sa

from lastlight_state.db.statements import bind, constant, prepared
from lastlight_state.journal.tables import SEQUENCES, TOOL_CALLS
from lastlight_state.maintenance.imports.foreign import digest
from lastlight_state.maintenance.imports.node_databases import outputs
from lastlight_state.maintenance.imports.node_databases.growth import GROWTHS
from lastlight_state.maintenance.imports.node_databases.outputs import Outputs
from lastlight_state.maintenance.imports.pieces import STORED, Into, Look
from lastlight_state.maintenance.imports.row_pieces import Row, RowDraft, RowPiece

_c, _s = TOOL_CALLS.c, SEQUENCES.c
_STREAM = "tool_calls"
_CALLS = prepared(sa.select(_c.seq, _c.call_id).where(_c.run_id == bind("run_id", _c.run_id)))
_NEXT = prepared(sa.select(_s.next_seq).where(_s.run_id == bind("run_id", _s.run_id), _s.stream == constant(_STREAM)))


class RunPiece(RowPiece):
    """A run. A tool call that is stored keeps its number; the others get the next ones, as they began."""

    def __init__(self, draft: RowDraft, calls: Sequence[Row], produced: Outputs, into: Into) -> None:
        super().__init__(draft, GROWTHS | dict.fromkeys(produced, outputs.STAYS), into)
        self._produced = produced
        self._calls = sorted(calls, key=lambda row: (row["started_at"], row["call_id"]))

    def compared(self, look: Look) -> tuple[str, Counter[str], Counter[str]]:
        """Its outcome, the rows that are added, and what is noticed."""
        numbered = self._numbered(look) if self._calls else {}
        held = outputs.fitting(look.view, self._produced)
        run = self.draft.given["workflow_runs"][0]
        rows = {name: outputs.made(table, self._produced[name], run) for name, table in held.items()}
        self._given = {**self.draft.given, **numbered, **rows}
        # a table that is defined later has its rows brought in by the next import
        self.digest = digest([self.draft.digest, sorted(held)]) if held else self.draft.digest
        found, added, noticed = super().compared(look)
        if found in STORED:
            left = self._produced.keys() - held.keys()
            noticed.update({f"{name}_left": len(self._produced[name]) for name in left})
        return found, added, noticed

    def _numbered(self, look: Look) -> dict[str, Sequence[Row]]:
        this = {"run_id": self.target[1]}
        stored = {row["call_id"]: row["seq"] for row in look.view.rows(_CALLS, this)}
        following = max((look.view.value(_NEXT, this) or 0, *(seq + 1 for seq in stored.values())))
        calls = []
        for call in self._calls:
            if call["call_id"] not in stored:
                stored[call["call_id"]] = following
                following += 1
            calls.append({**call, "seq": stored[call["call_id"]]})
        counter = {**this, "stream": _STREAM, "next_seq": following}
        return {"tool_calls": calls, "run_sequences": [*self.draft.given.get("run_sequences", ()), counter]}
