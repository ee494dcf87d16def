"""Conversations: messages that are sent to the inboxes of others, and channels.

Brings exchange_inboxes, exchange_deliveries and exchange_members with their guards.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
TIME = sa.Text().with_variant(sa.DateTime(timezone=True), "postgresql")

_INBOXES, _DELIVERIES, _MEMBERS = "exchange_inboxes", "exchange_deliveries", "exchange_members"
_KEYS = {_INBOXES: ("owner",), _DELIVERIES: ("owner ord", "owner message_id"), _MEMBERS: ("channel member",)}

_PROBE = "INSERT OR IGNORE INTO maintenance_permits (receipt_id, probe) VALUES ('replace', NULL)"
_PROBED = "EXISTS (SELECT 1 FROM maintenance_permits WHERE receipt_id = 'replace')"


def _taken(table: str, columns: str) -> str:
    same = " AND ".join([*(f"{name} = NEW.{name}" for name in columns.split()), "rowid <> OLD.rowid"])
    return f"(EXISTS (SELECT 1 FROM {table} WHERE {same}))"


def _sqlite() -> Iterator[str]:
    for table, keys in _KEYS.items():
        refused = f"{_PROBE}; SELECT RAISE(ABORT, 'rows of {table} are never replaced') WHERE {_PROBED}"
        of = ", ".join(dict.fromkeys(["rowid", "_rowid_", "oid", *" ".join(keys).split()]))
        yield (
            f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} FOR EACH ROW "
            "WHEN NOT EXISTS (SELECT 1 FROM maintenance_permits) "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )
        yield f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} FOR EACH ROW BEGIN {refused}; END"
        yield (
            f"CREATE TRIGGER {table}_keys_stay BEFORE UPDATE OF {of} ON {table} FOR EACH ROW "
            f"WHEN {' OR '.join(['NEW.rowid <> OLD.rowid', *(_taken(table, key) for key in keys)])} "
            f"BEGIN {refused}; END"
        )


def _postgres() -> Iterator[str]:
    for table in _KEYS:
        for event, each in (("delete", "ROW"), ("truncate", "STATEMENT")):
            yield (
                f"CREATE TRIGGER {table}_no_{event} BEFORE {event.upper()} ON {table} FOR EACH {each} "
                f"EXECUTE FUNCTION lastlight_refuse_unless_permitted('{table} is append-only', 'any')"
            )


SQLITE = tuple(_sqlite())
POSTGRES = tuple(_postgres())
additive_sql = SQLITE + POSTGRES


def upgrade() -> None:
    _inboxes()
    _deliveries()
    _members()
    for statement in POSTGRES if op.get_context().dialect.name == "postgresql" else SQLITE:
        op.execute(statement)


def _inboxes() -> None:
    op.create_table(
        _INBOXES,
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("next_ord", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("owner", name=f"pk_{_INBOXES}"),
        comment="lastlight_state: inboxes of the exchange, and how many deliveries each has had",
    )


def _deliveries() -> None:
    op.create_table(
        _DELIVERIES,
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("ord", INTEGER, autoincrement=False, nullable=False),
        sa.Column("message_id", TEXT, nullable=False),
        sa.Column("sender", TEXT),
        sa.Column("channel", TEXT),
        sa.Column("delivered_at", TIME, nullable=False),
        sa.Column("taken_by", TEXT),
        sa.Column("taken_until", TIME),
        sa.Column("takes", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("acked_at", TIME),
        sa.Column("acked_by", TEXT),
        sa.ForeignKeyConstraint(["owner"], [f"{_INBOXES}.owner"], name=f"fk_{_DELIVERIES}_owner"),
        sa.ForeignKeyConstraint(["message_id"], ["messages.id"], name=f"fk_{_DELIVERIES}_message_id"),
        sa.PrimaryKeyConstraint("owner", "ord", name=f"pk_{_DELIVERIES}"),
        sa.UniqueConstraint("owner", "message_id", name=f"uq_{_DELIVERIES}_owner_message_id"),
        comment="lastlight_state: messages in inboxes of the exchange",
    )
    where = sa.text("acked_at IS NULL")
    op.create_index(f"ix_{_DELIVERIES}_open", _DELIVERIES, ["owner", "ord"], sqlite_where=where, postgresql_where=where)
    op.create_index(f"ix_{_DELIVERIES}_message", _DELIVERIES, ["message_id", "owner"])


def _members() -> None:
    op.create_table(
        _MEMBERS,
        sa.Column("channel", TEXT, nullable=False),
        sa.Column("member", TEXT, nullable=False),
        sa.Column("joined_at", TIME, nullable=False),
        sa.Column("left_at", TIME),
        sa.PrimaryKeyConstraint("channel", "member", name=f"pk_{_MEMBERS}"),
        comment="lastlight_state: members of channels of the exchange",
    )
