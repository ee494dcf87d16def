"""The SQL statements of `approvals`."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from lastlight_state.db.lists.covering import Covering, NarrowIndex
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import Statement, bind, constant, number, statement_of
from lastlight_state.workflows import words
from lastlight_state.workflows.approvals.records import Approval, ApprovalSummary, PendingApproval
from lastlight_state.workflows.checks import NodeColumns
from lastlight_state.workflows.questions.inbox import Inbox, InboxIndexes
from lastlight_state.workflows.questions.question_rows import QuestionRows, Shape
from lastlight_state.workflows.repos import preview, short
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, RUNS, columns_for, every_column_for

COLUMNS = every_column_for(Approval, APPROVALS)


class NewApproval(NodeColumns):
    """The row of a new gate. Its answer sets the other columns."""

    id: str
    workflow_run_id: str
    gate: str
    summary: str
    kind: str
    requested_by: str | None
    created_at: datetime
    artifact: str | None
    request_key: str
    on_reject: str
    blocks_run: bool
    expires_at: datetime | None
    action_digest: str | None
    action: str | None


_GIVEN = tuple(NewApproval.__annotations__)
_pending = APPROVALS.c.status == constant("pending")
_now = bind("now", APPROVALS.c.expires_at)

#: The statements that all questions share, for gates. Actions of two openings are compared by their digests.
QUESTIONS = QuestionRows(
    Approval,
    Shape(
        name="approval",
        prefix="approval",
        argument="gate",
        table=APPROVALS,
        kinds=words.APPROVAL_KINDS,
        run_id=APPROVALS.c.workflow_run_id,
        order=(APPROVALS.c.created_at, APPROVALS.c.id),
        given=_GIVEN,
        same=tuple(name for name in _GIVEN if name not in ("id", "created_at", "action")),
        end={
            "by": "responded_by",
            "at": "responded_at",
            "response": "response",
            "via": "answered_via",
            "closed_reason": "closed_reason",
        },
        answers=frozenset({"approved", "rejected"}),
        refusals=frozenset({"rejected", "expired"}),
        waiting="waiting_approval",
        policy=APPROVALS.c.on_reject,
        title=APPROVALS.c.gate,
        due_index="ix_approvals_due",
    ),
)

#: The pending gate of a run with ``:request_key``.
FIND_PENDING_KEY = statement_of(
    sa.select(*COLUMNS).where(
        APPROVALS.c.workflow_run_id == sa.bindparam("workflow_run_id"),
        APPROVALS.c.request_key == sa.bindparam("request_key"),
        _pending,
    ),
    Approval,
)

#: Marks an approved gate as used by an execution.
CONSUME = statement_of(
    sa.update(APPROVALS)
    .where(APPROVALS.c.id == sa.bindparam("approval_id"), APPROVALS.c.consumed_by.is_(None))
    .values(consumed_at=bind("at", APPROVALS.c.consumed_at), consumed_by=sa.bindparam("execution_id"))
    .returning(*COLUMNS),
    Approval,
)

RUN_OF_EXECUTION: Statement[tuple[str | None]] = statement_of(
    sa.select(EXECUTIONS.c.workflow_run_id).where(EXECUTIONS.c.id == sa.bindparam("execution_id")), tuple
)

_SUMMARY = "ix_approvals_summary"

#: What an `ApprovalSummary` shows.
_SHOWN = columns_for(
    ApprovalSummary, APPROVALS, summary=preview(APPROVALS.c.summary), response=preview(APPROVALS.c.response)
)


def _gate_covering(**found_by: NarrowIndex) -> Covering:
    """Return the covering index for lists of gates, for databases that keep large values inside the rows."""
    return Covering(_SUMMARY, ("created_at", "id"), {**found_by, "": None})


_of_run = APPROVALS.c.workflow_run_id == bind("run_id", APPROVALS.c.workflow_run_id)

OF_RUN = Listing(
    "approvals_of_run",
    _SHOWN,
    order=QUESTIONS.shape.order,
    descending=False,
    filters={"run_id": _of_run},
    covering=_gate_covering(run_id=NarrowIndex("ix_approvals_run", ("workflow_run_id",))),
    row=ApprovalSummary,
)

LIST = Listing(
    "approvals",
    _SHOWN,
    order=QUESTIONS.shape.order,
    spread={"statuses": APPROVALS.c.status},
    worded=("statuses",),
    filters={
        "overdue": sa.or_(~_pending, APPROVALS.c.expires_at <= _now),
        "not_overdue": sa.or_(~_pending, APPROVALS.c.expires_at.is_(None), APPROVALS.c.expires_at > _now),
        "trigger_id": APPROVALS.c.workflow_run_id.in_(
            sa.select(RUNS.c.id).where(RUNS.c.trigger_id == bind("trigger_id", RUNS.c.trigger_id))
        ),
        "artifact": APPROVALS.c.artifact == bind("artifact", APPROVALS.c.artifact),
        "gate": APPROVALS.c.gate == bind("gate", APPROVALS.c.gate),
        "kind": APPROVALS.c.kind == bind("kind", APPROVALS.c.kind),
    },
    walked=("statuses",),
    through=_SUMMARY,
    covering=_gate_covering(artifact=NarrowIndex("ix_approvals_artifact", ("artifact",))),
    row=ApprovalSummary,
)

_any_node = bind("node_id", APPROVALS.c.node_id).is_(None)
_this_node = sa.and_(
    APPROVALS.c.node_id == bind("node_id", APPROVALS.c.node_id),
    APPROVALS.c.iteration == bind("iteration", APPROVALS.c.iteration),
)
#: The newest gate of a run with a given name. A run has few gates, so all of them are read and sorted.
NEWEST_OF_GATE = statement_of(
    sa.select(*COLUMNS)
    .where(
        APPROVALS.c.workflow_run_id == bind("run_id", APPROVALS.c.workflow_run_id),
        APPROVALS.c.gate == bind("gate", APPROVALS.c.gate),
        sa.or_(_any_node, _this_node),
    )
    .order_by(APPROVALS.c.created_at.desc(), APPROVALS.c.id.desc())
    .limit(number(1)),
    Approval,
)

#: Gates of the runs of one workflow.
HISTORY = Listing(
    "approvals_history",
    _SHOWN,
    order=QUESTIONS.shape.order,
    spread={"statuses": APPROVALS.c.status},
    worded=("statuses",),
    filters={
        "workflow_name": sa.exists().where(
            RUNS.c.id == APPROVALS.c.workflow_run_id,
            RUNS.c.workflow_name == bind("workflow_name", RUNS.c.workflow_name),
        ),
        "gate": APPROVALS.c.gate == bind("gate", APPROVALS.c.gate),
        "node_id": APPROVALS.c.node_id == bind("node_id", APPROVALS.c.node_id),
    },
    walked=("statuses",),
    through=_SUMMARY,
    row=ApprovalSummary,
)

#: What the inbox shows of a gate.
_ASKED = columns_for(PendingApproval, APPROVALS, summary=preview(APPROVALS.c.summary), action=short(APPROVALS.c.action))

INBOX = Inbox(
    "inbox",
    _ASKED,
    PendingApproval,
    QUESTIONS.shape,
    InboxIndexes(
        "ix_approvals_asked",
        asked="ix_approvals_asked",
        of_run=NarrowIndex("ix_approvals_run", ("workflow_run_id", "status", "expires_at")),
    ),
)
