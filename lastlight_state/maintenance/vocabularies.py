"""The columns that hold words of a vocabulary, with the words that this version knows.

No constraint keeps other words out: other programs, and later versions, may store them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations.tables import BRANCHES, SESSIONS as TALKS, TRANSITIONS
from lastlight_state.conversations.words import SOURCES, STATUSES
from lastlight_state.journal.tables import SANDBOXES, TOOL_CALLS
from lastlight_state.journal.words import RUNNING, SANDBOX_STATUSES, TOOL_STATUSES
from lastlight_state.messaging.tables import MESSAGES
from lastlight_state.messaging.words import ROLES
from lastlight_state.schedules.tables import FIRES
from lastlight_state.schedules.words import FIRE_STATUSES
from lastlight_state.workflows.tables import APPROVALS, NODES, REQUESTS, RUNS
from lastlight_state.workflows.words import APPROVAL_STATUSES, HUMAN_STATUSES, NODE_STATES, RUN_STATUSES

VOCABULARIES: tuple[tuple[sa.Column[Any], Collection[str]], ...] = (
    (RUNS.c.status, RUN_STATUSES),
    (APPROVALS.c.status, APPROVAL_STATUSES),
    (REQUESTS.c.status, HUMAN_STATUSES),
    (NODES.c.state, NODE_STATES),
    (TOOL_CALLS.c.status, {RUNNING, *TOOL_STATUSES}),
    (SANDBOXES.c.status, SANDBOX_STATUSES),
    (FIRES.c.status, FIRE_STATUSES),
    (MESSAGES.c.role, ROLES),
    (TALKS.c.status, STATUSES),
    (BRANCHES.c.status, STATUSES),
    (TRANSITIONS.c.source, SOURCES),
)
