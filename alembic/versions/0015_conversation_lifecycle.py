"""Conversations: the history of the statuses of sessions and branches, and a feed for each session.

Brings session_transitions with its guards, and session_changes.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
TIME = sa.Text().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(postgresql.JSONB(), "postgresql")

_HISTORY = "session_transitions"
_PROBE = "INSERT OR IGNORE INTO maintenance_permits (receipt_id, probe) VALUES ('replace', NULL)"
_REPLACED = (
    f"{_PROBE}; SELECT RAISE(ABORT, 'rows of {_HISTORY} are never replaced') "
    "WHERE EXISTS (SELECT 1 FROM maintenance_permits WHERE receipt_id = 'replace')"
)
_STAYS = f"rows of {_HISTORY} never change"
_EMPTIED = f"{_STAYS}: only actor, reason_summary and evidence can become NULL"


def _changes_more(differs: str) -> str:
    """Whether an update does more than to empty what was said of a change. ``differs`` is how NULL is compared."""
    fixed = "id session_id branch_id seq previous_status status reason_code source created_at".split()
    told = "actor reason_summary evidence".split()
    return " OR ".join(
        [
            *(f"NEW.{name} {differs} OLD.{name}" for name in fixed),
            *(f"(NEW.{name} IS NOT NULL AND NEW.{name} {differs} OLD.{name})" for name in told),
        ]
    )


SQLITE = (
    (
        f"CREATE TRIGGER {_HISTORY}_no_delete BEFORE DELETE ON {_HISTORY} FOR EACH ROW "
        "WHEN NOT EXISTS (SELECT 1 FROM maintenance_permits WHERE receipt_id = 'reset') "
        f"BEGIN SELECT RAISE(ABORT, '{_HISTORY} is append-only'); END"
    ),
    (
        f"CREATE TRIGGER {_HISTORY}_no_update BEFORE UPDATE ON {_HISTORY} FOR EACH ROW "
        f"WHEN NOT EXISTS (SELECT 1 FROM maintenance_permits) BEGIN SELECT RAISE(ABORT, '{_STAYS}'); END"
    ),
    (
        f"CREATE TRIGGER {_HISTORY}_only_emptied BEFORE UPDATE ON {_HISTORY} FOR EACH ROW "
        f"WHEN {_changes_more('IS NOT')} BEGIN SELECT RAISE(ABORT, '{_EMPTIED}'); END"
    ),
    f"CREATE TRIGGER {_HISTORY}_no_replace BEFORE INSERT ON {_HISTORY} FOR EACH ROW BEGIN {_REPLACED}; END",
    (
        f"CREATE TRIGGER {_HISTORY}_keys_stay BEFORE UPDATE OF rowid, _rowid_, oid, id, session_id, seq ON {_HISTORY} "
        "FOR EACH ROW WHEN NEW.rowid <> OLD.rowid "
        f"OR (EXISTS (SELECT 1 FROM {_HISTORY} WHERE id = NEW.id AND rowid <> OLD.rowid)) "
        f"OR (EXISTS (SELECT 1 FROM {_HISTORY} WHERE session_id = NEW.session_id AND seq = NEW.seq "
        f"AND rowid <> OLD.rowid)) BEGIN {_REPLACED}; END"
    ),
)
POSTGRES = (
    (
        f"CREATE TRIGGER {_HISTORY}_no_delete BEFORE DELETE ON {_HISTORY} FOR EACH ROW "
        f"EXECUTE FUNCTION lastlight_refuse_unless_permitted('{_HISTORY} is append-only', 'reset')"
    ),
    (
        f"CREATE TRIGGER {_HISTORY}_no_truncate BEFORE TRUNCATE ON {_HISTORY} FOR EACH STATEMENT "
        f"EXECUTE FUNCTION lastlight_refuse_unless_permitted('{_HISTORY} is append-only', 'reset')"
    ),
    (
        f"CREATE TRIGGER {_HISTORY}_no_update BEFORE UPDATE ON {_HISTORY} FOR EACH ROW "
        f"EXECUTE FUNCTION lastlight_refuse_unless_permitted('{_STAYS}', 'any')"
    ),
    (
        f"CREATE TRIGGER {_HISTORY}_only_emptied BEFORE UPDATE ON {_HISTORY} FOR EACH ROW "
        f"WHEN ({_changes_more('IS DISTINCT FROM')}) EXECUTE FUNCTION lastlight_refuse('{_EMPTIED}')"
    ),
)
additive_sql = SQLITE + POSTGRES


def upgrade() -> None:
    _transitions()
    _changes()
    for statement in POSTGRES if op.get_context().dialect.name == "postgresql" else SQLITE:
        op.execute(statement)


def _transitions() -> None:
    op.create_table(
        _HISTORY,
        sa.Column("id", TEXT, nullable=False),
        sa.Column("session_id", TEXT, nullable=False),
        sa.Column("branch_id", TEXT),
        sa.Column("seq", INTEGER, nullable=False),
        sa.Column("previous_status", TEXT),
        sa.Column("status", TEXT, nullable=False),
        sa.Column("reason_code", TEXT, nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("actor", TEXT),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("reason_summary", TEXT),
        sa.Column("evidence", JSON),
        sa.PrimaryKeyConstraint("id", name=f"pk_{_HISTORY}"),
        sa.UniqueConstraint("session_id", "seq", name=f"uq_{_HISTORY}_session_id_seq"),
        comment="lastlight_state: changes of status of conversation sessions",
    )
    _index(f"ix_{_HISTORY}_newest", _HISTORY, "created_at DESC, id DESC")


def _changes() -> None:
    op.create_table(
        "session_changes",
        sa.Column("session_id", TEXT, nullable=False),
        sa.Column("seq", INTEGER, autoincrement=False, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("branch_id", TEXT),
        sa.Column("progression_id", TEXT),
        sa.Column("message_id", TEXT),
        sa.Column("ord", INTEGER),
        sa.Column("count", INTEGER),
        sa.Column("at", TIME, nullable=False),
        sa.Column("details", JSON),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name="fk_session_changes_session_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_id", "seq", name="pk_session_changes"),
        comment="lastlight_state: feeds of conversation sessions: what changed, by number",
    )


def _index(name: str, table: str, columns: str, where: str | None = None) -> None:
    """Columns are given as one text; a predicate is the same for both databases."""
    keys = [sa.text(column) if " " in column else column for column in columns.split(", ")]
    partial: dict[str, Any] = {"sqlite_where": sa.text(where), "postgresql_where": sa.text(where)} if where else {}
    op.create_index(name, table, keys, **partial)
