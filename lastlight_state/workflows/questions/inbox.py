"""The inboxes: all pending questions of live runs, one inbox for each kind of question.

Overdue questions are not shown, swept or not. Of the runs only columns are read that stand before the large ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.beside import Covering
from lastlight_state.db.indexes import through
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import Statement, bind, constant, prepared
from lastlight_state.workflows.kernel import questions
from lastlight_state.workflows.kernel.nodes import label_of
from lastlight_state.workflows.tables import RUNS
from lastlight_state.workflows.words import TERMINAL

#: Whether the run is live, which is true of nearly every pending question. The ``coalesce`` hides the column's
#: statistics, so that Postgres does not plan to sort the whole inbox.
_live = sa.func.coalesce(RUNS.c.status, constant("unknown")).not_in([constant(word) for word in TERMINAL])


class Inbox:
    """The lists of one kind of question, by name of the order: ``orders`` over all runs, ``of_run`` over one run.

    ``run_id`` is the column of the run, ``index`` the index of pending questions in the order of ``order``.
    ``covering`` is as in a `Listing`.
    """

    def __init__(
        self,
        name: str,
        shown: Sequence[sa.ColumnElement[Any]],
        *,
        run_id: sa.Column[str],
        order: tuple[sa.Column[Any], sa.Column[Any]],
        filters: Mapping[str, sa.ColumnElement[bool]],
        index: str,
        covering: Covering | None = None,
    ) -> None:
        table, expires_at = run_id.table, run_id.table.c.expires_at
        pending = table.c.status == constant("pending")
        is_open = (
            sa.or_(expires_at.is_(None), expires_at > bind("now", expires_at)),
            RUNS.c.id == run_id,
            _live,
        )
        columns = (
            *shown,
            RUNS.c.workflow_name,
            RUNS.c.status.label("run_status"),
            RUNS.c.trigger_id,
            label_of(run_id, table.c.node_id, table.c.iteration),
        )
        this_run = {"run_id": run_id == bind("run_id", run_id)}

        def lists(suffix: str, pending: sa.ColumnElement[bool], **given: Any) -> dict[str, Listing]:
            return {
                word: Listing(
                    f"{name}{suffix}{tail}",
                    columns,
                    order=order,
                    descending=word == "newest",
                    always=(pending, *is_open),
                    **given,
                )
                for word, tail in (("newest", ""), ("oldest", "_oldest"))
            }

        self.orders = lists("", pending, filters=filters, through=index, covering=covering)
        self.of_run = lists("_of_run", questions.pending(table), filters={**this_run, **filters}, covering=covering)
        counted = through(sa.select(sa.func.count().label("open")).select_from(table, RUNS), table, index)
        self.count: Statement = prepared(counted.where(pending, *is_open))
