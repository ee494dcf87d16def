"""The inboxes: all pending questions of live runs, one inbox for each kind of question.

Overdue questions are never shown, even if no sweep has expired them yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic

import sqlalchemy as sa

from lastlight_state.db.lists.covering import Covering, NarrowIndex
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import RowT, Statement, bind, constant, statement_of
from lastlight_state.db.schema.indexes import through
from lastlight_state.workflows.questions.question_rows import Shape
from lastlight_state.workflows.shared import questions, run_rows
from lastlight_state.workflows.shared.executions import label_of
from lastlight_state.workflows.tables import RUNS
from lastlight_state.workflows.words import TERMINAL

#: The condition that a question's run is live, which holds for nearly every pending question. The ``coalesce`` hides
#: the column's statistics, so that Postgres does not plan to sort the whole inbox.
_live = sa.func.coalesce(RUNS.c.status, constant("unknown")).not_in([constant(word) for word in TERMINAL])


@dataclass(frozen=True)
class InboxIndexes:
    """The indexes of an inbox. ``pending`` holds the pending questions in the order of the inbox.

    ``asked`` and ``of_run`` are for databases that store large values inside the rows: ``asked`` holds every column
    shown, and ``of_run`` finds the questions of a run.
    """

    pending: str
    asked: str
    of_run: NarrowIndex

    def list_covering(self, order: Sequence[sa.Column[Any]], pending: sa.ColumnElement[bool]) -> Covering:
        """Return the `Covering` that reads a list of questions through these indexes."""
        found_by = {"run_id": self.of_run, "": NarrowIndex(self.pending, only=pending)}
        key = tuple(column.name for column in order)
        return Covering(self.asked, key, found_by, only=pending, other=run_rows.OF_OTHERS)


class Inbox(Generic[RowT]):
    """The lists of one kind of question: ``orders`` for all runs and ``of_run`` for one run.

    Both map an order's name to a list. ``count`` is the statement that counts the inbox.
    """

    def __init__(
        self,
        name: str,
        shown: Sequence[sa.ColumnElement[Any]],
        row: type[RowT],
        shape: Shape,
        by: InboxIndexes,
    ) -> None:
        table, run_id, order, expires_at = shape.table, shape.run_id, shape.order, shape.table.c.expires_at
        filters = {"kind": table.c.kind == bind("kind", table.c.kind)}
        pending = table.c.status == constant("pending")
        is_open = (
            sa.or_(expires_at.is_(None), expires_at > bind("now", expires_at)),
            RUNS.c.id == run_id,
            run_rows.NOT_ENDED,
            _live,
        )
        columns = (*shown, *_of_run(run_id))
        this_run = {"run_id": run_id == bind("run_id", run_id)}
        covering = by.list_covering(order, pending)

        def lists(suffix: str, pending: sa.ColumnElement[bool], **given: Any) -> dict[str, Listing[RowT]]:
            return {
                word: Listing(
                    f"{name}{suffix}{tail}",
                    columns,
                    order=order,
                    descending=word == "newest",
                    always=(pending, *is_open),
                    row=row,
                    **given,
                )
                for word, tail in (("newest", ""), ("oldest", "_oldest"))
            }

        self.orders = lists("", pending, filters=filters, through=by.pending, covering=covering)
        self.of_run = lists("_of_run", questions.is_pending(table), filters={**this_run, **filters}, covering=covering)
        counted = through(sa.select(sa.func.count().label("open")).select_from(table, RUNS), table, by.asked)
        self.count: Statement = statement_of(through(counted, RUNS, run_rows.LIVE_INDEX).where(pending, *is_open))


def _of_run(run_id: sa.Column[str]) -> tuple[sa.ColumnElement[Any], ...]:
    """Return the columns of a question's run and node that an inbox shows."""
    label = label_of(run_id, run_id.table.c.node_id, run_id.table.c.iteration)
    return RUNS.c.workflow_name, RUNS.c.status.label("run_status"), RUNS.c.trigger_id, label
