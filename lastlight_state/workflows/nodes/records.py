"""The record of `nodes`."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from lastlight_state.db.records import Record
from lastlight_state.workflows.arguments import NodeRef
from lastlight_state.workflows.rows import RunNodeRow


class Node(Record):
    """A node of a run's graph in one iteration: its state, the number of its last attempt, and what it waits for.

    ``wake_at``, ``waiting_for`` and ``correlation_id`` are None unless the node waits for them.
    """

    run_id: str
    node_id: str
    iteration: int
    state: str
    last_attempt: int
    output_table: str | None
    label: str | None
    wake_at: datetime | None
    waiting_for: str | None
    correlation_id: str | None
    updated_at: datetime

    @classmethod
    def of(cls, values: RunNodeRow) -> Self:
        return super().of(values)

    @property
    def ref(self) -> NodeRef:
        """The node as an argument."""
        return NodeRef(self.node_id, self.iteration)
