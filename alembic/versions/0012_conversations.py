"""Conversations: messages stored once, orders of them, sessions and branches.

Brings message_types, messages, progressions, progression_links, invocation_kinds, source_kinds, sessions and branches
with their guards, the view progression_collections, and the words and classes that are known from the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
REAL: sa.types.TypeEngine[float] = sa.REAL().with_variant(sa.Double(), "postgresql")
FLAG = sa.Integer().with_variant(sa.Boolean(), "postgresql")
TIME = sa.Text().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(postgresql.JSONB(), "postgresql")
BYTES = sa.LargeBinary()

_CLASSES = (
    "__unknown__",
    *(
        f"lionagi.protocols.messages.{name}"
        for name in (
            "system.System",
            "instruction.Instruction",
            "assistant_response.AssistantResponse",
            "action_request.ActionRequest",
            "action_response.ActionResponse",
        )
    ),
)
_INVOCATION_KINDS = ("agent", "play", "flow", "fanout", "show-play", "engine")
_SOURCE_KINDS = ("live", "imported_fs", "imported_codex")

# Tables whose rows never change, and the others, of which an update may change a key.
_FIXED = ("message_types", "invocation_kinds", "source_kinds")
_KEYS = {
    "messages": "id",
    "progressions": "id",
    "sessions": "id",
    "branches": "id",
    "progression_links": "progression_id ord",
}

_ORIGIN = " OR ".join(
    f"NEW.{name} IS DISTINCT FROM OLD.{name}"
    for name in ("session_id", "progression_id", "parent_branch_id", "forked_at_ord", "fork_depth")
)
_ORIGIN_STAYS = "where a branch comes from never changes"

_PROBE = "INSERT OR IGNORE INTO maintenance_permits (receipt_id, probe) VALUES ('replace', NULL)"
_PROBED = "EXISTS (SELECT 1 FROM maintenance_permits WHERE receipt_id = 'replace')"


def _refuse_replacing(table: str) -> str:
    return f"{_PROBE}; SELECT RAISE(ABORT, 'rows of {table} are never replaced') WHERE {_PROBED}"


def _keys_stay(table: str, columns: str) -> str:
    of = ", ".join(["rowid", "_rowid_", "oid", *columns.split()])
    same = " AND ".join([*(f"{name} = NEW.{name}" for name in columns.split()), "rowid <> OLD.rowid"])
    return (
        f"CREATE TRIGGER {table}_keys_stay BEFORE UPDATE OF {of} ON {table} FOR EACH ROW "
        f"WHEN NEW.rowid <> OLD.rowid OR (EXISTS (SELECT 1 FROM {table} WHERE {same})) "
        f"BEGIN {_refuse_replacing(table)}; END"
    )


def _sqlite() -> Iterator[str]:
    unless_permitted = "NOT EXISTS (SELECT 1 FROM maintenance_permits)"
    for table in (*_FIXED, *_KEYS):
        out_of_order = "(OLD.ord >= 0) AND " if table == "progression_links" else ""
        yield (
            f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} FOR EACH ROW "
            f"WHEN {out_of_order}{unless_permitted} BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )
        yield (
            f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} FOR EACH ROW "
            f"BEGIN {_refuse_replacing(table)}; END"
        )
    for table in _FIXED:
        yield (
            f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} FOR EACH ROW "
            f"BEGIN SELECT RAISE(ABORT, 'rows of {table} never change'); END"
        )
    for table, columns in _KEYS.items():
        yield _keys_stay(table, columns)
    yield (
        "CREATE TRIGGER branches_origin_stays BEFORE UPDATE ON branches FOR EACH ROW "
        f"WHEN {_ORIGIN.replace('IS DISTINCT FROM', 'IS NOT')} BEGIN SELECT RAISE(ABORT, '{_ORIGIN_STAYS}'); END"
    )
    for column, words in (("invocation_kind", "invocation_kinds"), ("source_kind", "source_kinds")):
        for name, event in (("insert", "INSERT"), ("update", f"UPDATE OF {column}")):
            yield (
                f"CREATE TRIGGER sessions_{column}_known_{name} BEFORE {event} ON sessions FOR EACH ROW "
                f"WHEN NEW.{column} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {words} WHERE word = NEW.{column}) "
                f"BEGIN SELECT RAISE(ABORT, 'unknown {column}'); END"
            )
    yield (
        "CREATE VIEW progression_collections AS SELECT id, created_at, (SELECT json_group_array(message_id) FROM "
        "(SELECT message_id FROM progression_links WHERE progression_id = progressions.id ORDER BY ord)) "
        "AS collection FROM progressions"
    )


def _postgres() -> Iterator[str]:
    for table in (*_FIXED, *_KEYS):
        when = " WHEN (OLD.ord >= 0)" if table == "progression_links" else ""
        for event, each in (("delete", f"ROW{when}"), ("truncate", "STATEMENT")):
            yield (
                f"CREATE TRIGGER {table}_no_{event} BEFORE {event.upper()} ON {table} FOR EACH {each} "
                f"EXECUTE FUNCTION lastlight_refuse_unless_permitted('{table} is append-only', 'any')"
            )
    for table in _FIXED:
        yield (
            f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} FOR EACH ROW "
            f"EXECUTE FUNCTION lastlight_refuse('rows of {table} never change')"
        )
    yield (
        f"CREATE TRIGGER branches_origin_stays BEFORE UPDATE ON branches FOR EACH ROW WHEN ({_ORIGIN}) "
        f"EXECUTE FUNCTION lastlight_refuse('{_ORIGIN_STAYS}')"
    )
    yield (
        "CREATE VIEW progression_collections AS SELECT id, created_at, coalesce((SELECT jsonb_agg(message_id "
        "ORDER BY ord) FROM progression_links WHERE progression_id = progressions.id), '[]'::jsonb) "
        "AS collection FROM progressions"
    )


SQLITE = tuple(_sqlite())
POSTGRES = tuple(_postgres())
additive_sql = SQLITE + POSTGRES


def upgrade() -> None:
    _words()
    _messages()
    _progressions()
    _sessions()
    _branches()
    for statement in POSTGRES if op.get_context().dialect.name == "postgresql" else SQLITE:
        op.execute(statement)


def _words() -> None:
    op.create_table(
        "message_types",
        sa.Column("type_id", INTEGER, autoincrement=False, nullable=False),
        sa.Column("lion_class", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("type_id", name="pk_message_types"),
        sa.UniqueConstraint("lion_class", name="uq_message_types_lion_class"),
        comment="lastlight_state: classes of messages, by number; 0 is unknown",
    )
    types = sa.table("message_types", sa.column("type_id", INTEGER), sa.column("lion_class", TEXT))
    op.bulk_insert(types, [{"type_id": i, "lion_class": name} for i, name in enumerate(_CLASSES)])
    for table, words, holds in (
        ("invocation_kinds", _INVOCATION_KINDS, "words for what a conversation session runs"),
        ("source_kinds", _SOURCE_KINDS, "words for where a conversation session comes from"),
    ):
        op.create_table(
            table,
            sa.Column("word", TEXT, nullable=False),
            sa.PrimaryKeyConstraint("word", name=f"pk_{table}"),
            comment=f"lastlight_state: {holds}",
        )
        op.bulk_insert(sa.table(table, sa.column("word", TEXT)), [{"word": word} for word in words])


def _messages() -> None:
    op.create_table(
        "messages",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_at_unix", REAL),
        sa.Column("sender", TEXT),
        sa.Column("recipient", TEXT),
        sa.Column("channel", TEXT),
        sa.Column("role", TEXT, nullable=False),
        sa.Column("lion_class", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("revision", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("revised_at", TIME),
        sa.Column("embedding_model", TEXT),
        sa.Column("node_metadata", JSON),
        sa.Column("extra", JSON),
        sa.Column("content", JSON, nullable=False),
        sa.Column("embedding", BYTES),
        _refers("messages", "lion_class", "message_types.type_id"),
        sa.PrimaryKeyConstraint("id", name="pk_messages"),
        comment="lastlight_state: messages of conversations, each stored once",
    )
    _index("ix_messages_class", "messages", "lion_class")
    _index("ix_messages_newest", "messages", "created_at DESC, id DESC")
    _index("ix_messages_role", "messages", "role, created_at DESC, id DESC")
    for name in ("sender", "recipient", "channel"):
        _index(f"ix_messages_{name}", "messages", f"{name}, created_at DESC, id DESC", f"{name} IS NOT NULL")


def _progressions() -> None:
    op.create_table(
        "progressions",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_at_unix", REAL),
        sa.Column("name", TEXT),
        sa.Column("start_ord", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("next_ord", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("version", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("node_metadata", JSON),
        sa.Column("extra", JSON),
        sa.PrimaryKeyConstraint("id", name="pk_progressions"),
        comment="lastlight_state: orders of messages, of sessions and branches",
    )
    op.create_table(
        "progression_links",
        sa.Column("progression_id", TEXT, nullable=False),
        sa.Column("ord", INTEGER, nullable=False),
        sa.Column("message_id", TEXT, nullable=False),
        _refers("progression_links", "progression_id", "progressions.id", ondelete="CASCADE"),
        _refers("progression_links", "message_id", "messages.id"),
        sa.PrimaryKeyConstraint("progression_id", "ord", name="pk_progression_links"),
        comment="lastlight_state: which message stands at which position of an order",
    )
    _index("ix_progression_links_message", "progression_links", "message_id, progression_id")


def _sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_at_unix", REAL),
        sa.Column("name", TEXT),
        sa.Column("user", TEXT),
        sa.Column("progression_id", TEXT, nullable=False),
        sa.Column("first_msg_id", TEXT),
        sa.Column("last_msg_id", TEXT),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("playbook_name", TEXT),
        sa.Column("agent_name", TEXT),
        sa.Column("invocation_kind", TEXT),
        sa.Column("show_topic", TEXT),
        sa.Column("show_play_name", TEXT),
        sa.Column("artifacts_path", TEXT),
        sa.Column("source_kind", TEXT, server_default=sa.text("'live'")),
        sa.Column("started_at", TIME),
        sa.Column("ended_at", TIME),
        sa.Column("last_message_at", TIME),
        sa.Column("version", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("status", TEXT),
        sa.Column("status_reason", TEXT),
        sa.Column("transition_seq", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("change_seq", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("owner", TEXT),
        sa.Column("heartbeat_at", TIME),
        sa.Column("ended_at_is_approximate", FLAG, server_default=sa.false(), nullable=False),
        sa.Column("project", TEXT),
        sa.Column("agent_session_id", TEXT),
        sa.Column("workflow_run_id", TEXT),
        sa.Column("hold_reason", TEXT),
        sa.Column("node_metadata", JSON),
        sa.Column("extra", JSON),
        sa.Column("artifact_contract", JSON),
        sa.Column("artifact_verification", JSON),
        _refers("sessions", "progression_id", "progressions.id"),
        _refers("sessions", "first_msg_id", "messages.id"),
        _refers("sessions", "last_msg_id", "messages.id"),
        _refers("sessions", "invocation_kind", "invocation_kinds.word"),
        _refers("sessions", "source_kind", "source_kinds.word"),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        comment="lastlight_state: conversation sessions, each with the pool of its messages",
    )
    _index("ix_sessions_agent_session", "sessions", "agent_session_id", "agent_session_id IS NOT NULL")
    _index("ix_sessions_first_msg", "sessions", "first_msg_id", "first_msg_id IS NOT NULL")
    _index("ix_sessions_last_msg", "sessions", "last_msg_id", "last_msg_id IS NOT NULL")
    _index("ix_sessions_newest", "sessions", "updated_at DESC, id DESC")
    _index("ix_sessions_playbook", "sessions", "playbook_name, updated_at DESC", "playbook_name IS NOT NULL")
    _index("ix_sessions_progression", "sessions", "progression_id")
    _index("ix_sessions_project", "sessions", "project, updated_at DESC", "project IS NOT NULL")
    _index("ix_sessions_running", "sessions", "last_message_at", "status = 'running'")
    _index("ix_sessions_show", "sessions", "show_topic, show_play_name", "show_topic IS NOT NULL")
    _index("ix_sessions_status", "sessions", "status, updated_at DESC, id DESC")
    _index("ix_sessions_workflow_run", "sessions", "workflow_run_id", "workflow_run_id IS NOT NULL")


def _branches() -> None:
    op.create_table(
        "branches",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_at_unix", REAL),
        sa.Column("user", TEXT),
        sa.Column("name", TEXT),
        sa.Column("session_id", TEXT, nullable=False),
        sa.Column("progression_id", TEXT, nullable=False),
        sa.Column("system_msg_id", TEXT),
        sa.Column("parent_branch_id", TEXT),
        sa.Column("forked_at_ord", INTEGER),
        sa.Column("fork_depth", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("status", TEXT),
        sa.Column("started_at", TIME),
        sa.Column("ended_at", TIME),
        sa.Column("provider", TEXT),
        sa.Column("model", TEXT),
        sa.Column("agent_name", TEXT),
        sa.Column("node_metadata", JSON),
        sa.Column("extra", JSON),
        _refers("branches", "session_id", "sessions.id", ondelete="CASCADE"),
        _refers("branches", "progression_id", "progressions.id"),
        _refers("branches", "system_msg_id", "messages.id"),
        _refers("branches", "parent_branch_id", "branches.id"),
        sa.PrimaryKeyConstraint("id", name="pk_branches"),
        comment="lastlight_state: branches of conversation sessions, forks among them",
    )
    _index("ix_branches_parent", "branches", "parent_branch_id", "parent_branch_id IS NOT NULL")
    _index("ix_branches_progression", "branches", "progression_id")
    _index("ix_branches_session", "branches", "session_id, created_at, id")
    _index("ix_branches_system_msg", "branches", "system_msg_id", "system_msg_id IS NOT NULL")


def _refers(table: str, column: str, to: str, **options: Any) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [to], name=f"fk_{table}_{column}", **options)


def _index(name: str, table: str, columns: str, where: str | None = None) -> None:
    """Columns are given as one text; a predicate is the same for both databases."""
    keys = [sa.text(column) if " " in column else column for column in columns.split(", ")]
    partial: dict[str, Any] = {"sqlite_where": sa.text(where), "postgresql_where": sa.text(where)} if where else {}
    op.create_index(name, table, keys, **partial)
