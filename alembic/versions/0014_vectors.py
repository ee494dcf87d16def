"""Vectors: chunks of text with their embeddings, in namespaces of one length.

Brings vector_namespaces and vectors, and an index of the messages that have an embedding.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
REAL: sa.types.TypeEngine[float] = sa.REAL().with_variant(sa.Double(), "postgresql")
TIME = sa.Text().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "vector_namespaces",
        sa.Column("namespace", TEXT, nullable=False),
        sa.Column("dimensions", INTEGER, nullable=False),
        sa.Column("model", TEXT),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("namespace", name="pk_vector_namespaces"),
        comment="lastlight_state: sets of chunks whose embeddings have one length",
    )
    op.create_table(
        "vectors",
        sa.Column("namespace", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("document_id", TEXT),
        sa.Column("chunk_index", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("dimensions", INTEGER, nullable=False),
        sa.Column("norm", REAL, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("embedding", sa.LargeBinary(), nullable=False),
        sa.Column("chunk_metadata", JSON),
        sa.Column("content", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["namespace"], ["vector_namespaces.namespace"], name="fk_vectors_namespace"),
        sa.PrimaryKeyConstraint("namespace", "id", name="pk_vectors"),
        comment="lastlight_state: chunks of text with their embeddings",
    )
    _index("ix_vectors_document", "vectors", "namespace document_id chunk_index id", "document_id IS NOT NULL")
    _index("ix_messages_embedded", "messages", "id", "embedding IS NOT NULL")


def _index(name: str, table: str, columns: str, where: str) -> None:
    predicate = sa.text(where)
    op.create_index(name, table, columns.split(), sqlite_where=predicate, postgresql_where=predicate)
