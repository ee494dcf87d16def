"""The shipments."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None


def upgrade() -> None:
    """Make the table, which refers to the library's runs."""
    op.create_table(
        "shipments",
        sa.Column("pull", sa.String(), primary_key=True),
        sa.Column("repo", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("run_id", sa.Text(), sa.ForeignKey("workflow_runs.id", ondelete="CASCADE"), nullable=False),
    )
    op.create_index("ix_shipments_run_id", "shipments", ["run_id"])
