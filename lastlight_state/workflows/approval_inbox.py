"""The inbox of gates: every open one of every live run."""

from __future__ import annotations

from lastlight_state.workflows.approval_statements import APPROVALS
from lastlight_state.workflows.question_inbox import Inbox
from lastlight_state.workflows.transitions import bind

_SHOWN = (
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

INBOX = Inbox(
    "inbox",
    [APPROVALS.c[name] for name in _SHOWN],
    run_id=APPROVALS.c.workflow_run_id,
    order=(APPROVALS.c.created_at, APPROVALS.c.id),
    filters={"kind": APPROVALS.c.kind == bind("kind", APPROVALS.c.kind)},
    index="ix_approvals_inbox",
)
