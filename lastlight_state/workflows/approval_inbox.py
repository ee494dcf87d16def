"""The inbox: every open question of every live run.

A gate past its expiry is not shown, whether a sweep has been there or not. Of the runs only columns are read that
stand before the large ones.
"""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.db.indexes import through
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import constant, prepared
from lastlight_state.workflows.approval_statements import APPROVALS, PENDING
from lastlight_state.workflows.node_rows import label_of
from lastlight_state.workflows.open_questions import PENDING_GATES
from lastlight_state.workflows.run_rows import RUNS
from lastlight_state.workflows.transitions import bind
from lastlight_state.workflows.words import TERMINAL

_INDEX = "ix_approvals_inbox"
_SHOWN = (
    *(
        APPROVALS.c[name]
        for name in (
            "id",
            "workflow_run_id",
            "gate",
            "summary",
            "kind",
            "requested_by",
            "created_at",
            "artifact",
            "node_id",
            "iteration",
            "on_reject",
            "blocks_run",
            "expires_at",
            "action_digest",
            "action",
        )
    ),
    RUNS.c.workflow_name,
    RUNS.c.status.label("run_status"),
    RUNS.c.trigger_id,
    label_of(APPROVALS.c.workflow_run_id, APPROVALS.c.node_id, APPROVALS.c.iteration),
)

_live = sa.func.coalesce(RUNS.c.status, constant("unknown")).not_in([constant(word) for word in TERMINAL])
"""As good as always true of a pending gate's run. Said so that Postgres, which would guess from the share of live runs
among all, does not expect to read the whole inbox for a page and sort it."""
_open = (
    sa.or_(APPROVALS.c.expires_at.is_(None), APPROVALS.c.expires_at > bind("now", APPROVALS.c.expires_at)),
    RUNS.c.id == APPROVALS.c.workflow_run_id,
    _live,
)
_filters = {"kind": APPROVALS.c.kind == bind("kind", APPROVALS.c.kind)}
_order = (APPROVALS.c.created_at, APPROVALS.c.id)


def _of_all(*, descending: bool) -> Listing:
    return Listing(
        "inbox" if descending else "inbox_oldest",
        _SHOWN,
        order=_order,
        descending=descending,
        always=(PENDING, *_open),
        filters=_filters,
        through=_INDEX,
    )


def _of_run(*, descending: bool) -> Listing:
    of_run, pending = PENDING_GATES
    return Listing(
        "inbox_of_run" if descending else "inbox_of_run_oldest",
        _SHOWN,
        order=_order,
        descending=descending,
        always=(pending, *_open),
        filters={"run_id": of_run, **_filters},
    )


ORDERS = {"newest": _of_all(descending=True), "oldest": _of_all(descending=False)}
OF_RUN = {"newest": _of_run(descending=True), "oldest": _of_run(descending=False)}

COUNT = prepared(
    through(sa.select(sa.func.count().label("open")).select_from(APPROVALS, RUNS), APPROVALS, _INDEX).where(
        PENDING, *_open
    )
)
