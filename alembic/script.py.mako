"""${message}.

What it adds, and to which tables.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
FLAG = sa.Integer().with_variant(sa.Boolean(), "postgresql")
TIME = sa.Text().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(postgresql.JSONB(), "postgresql")

additive_sql: tuple[str, ...] = ()


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
