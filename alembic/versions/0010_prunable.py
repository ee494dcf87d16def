"""Indexes by which prune finds what has ended, in the order of its end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_ENDED_AT = sa.text("coalesce(finished_at, started_at)")
_INDEXES = (
    ("ix_workflow_runs_ended", "workflow_runs", "status IN ('succeeded', 'failed', 'cancelled')"),
    (
        "ix_executions_alone",
        "executions",
        "workflow_run_id IS NULL AND (finished_at IS NOT NULL OR success IS NOT NULL)",
    ),
)


def upgrade() -> None:
    for name, table, predicate in _INDEXES:
        where = sa.text(predicate)
        op.create_index(name, table, [_ENDED_AT, "id"], sqlite_where=where, postgresql_where=where)
