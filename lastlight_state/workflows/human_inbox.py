"""The inbox of requests to people: every open one of every live run."""

from __future__ import annotations

from lastlight_state.workflows.human_statements import REQUESTS
from lastlight_state.workflows.question_inbox import Inbox
from lastlight_state.workflows.transitions import bind

_SHOWN = (
    "id",
    "run_id",
    "node_id",
    "iteration",
    "kind",
    "blocks_run",
    "on_expiry",
    "requested_at",
    "expires_at",
    "closed_reason",
    "reopened",
    "prompt",
    "options",
)

INBOX = Inbox(
    "human_inbox",
    [REQUESTS.c[name] for name in _SHOWN],
    run_id=REQUESTS.c.run_id,
    order=(REQUESTS.c.requested_at, REQUESTS.c.id),
    filters={"kind": REQUESTS.c.kind == bind("kind", REQUESTS.c.kind)},
    index="ix_human_requests_inbox",
)
