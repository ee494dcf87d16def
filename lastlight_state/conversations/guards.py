"""Guards and indexes of conversations' tables.

The database refuses deletes, and changes of a branch's origin or of the status history. Feeds have no guard: readers
must not rely on old entries, and `changes.trim` removes them. A link can be deleted only at a position below 0, to
which `progressions.replace` moves the links that leave an order. So a stray DELETE is refused, yet replacing an order
needs no permit.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import DDL, Index, event

from lastlight_state.conversations.tables import BRANCHES, DELIVERIES, LINKS, MESSAGES, SESSIONS, TRANSITIONS, VECTORS
from lastlight_state.db.schema.base import Base
from lastlight_state.db.schema.declarations import is_personal
from lastlight_state.db.schema.guards import (
    Guard,
    Key,
    Reaction,
    append_only,
    declare,
    declare_reaction,
    no_replacement,
    no_replacing_insert,
    no_update,
)
from lastlight_state.db.schema.indexes import where

# The indexes of conversations. Importing this module declares them.

_message = MESSAGES.c
_vector = VECTORS.c
_link = LINKS.c
_session = SESSIONS.c
_branch = BRANCHES.c
_transition = TRANSITIONS.c
_delivery = DELIVERIES.c


def _newest(column: Any) -> tuple[Any, ...]:
    return column, _message.created_at, _message.id


# Ascending, so that new messages come at the end of each index. Role and class have no index: they have few values.
Index("ix_messages_newest", _message.created_at, _message.id)
for _name in ("sender", "recipient", "channel"):
    Index(f"ix_messages_{_name}", *_newest(_message[_name]), **where(f"{_name} IS NOT NULL"))

Index("ix_messages_embedded", _message.id, **where("embedding IS NOT NULL"))

Index("ix_progression_links_message", _link.message_id, _link.progression_id)

Index("ix_sessions_newest", _session.updated_at, _session.id)
Index("ix_sessions_progression", _session.progression_id)
Index("ix_sessions_first_msg", _session.first_msg_id, **where("first_msg_id IS NOT NULL"))
Index("ix_sessions_last_msg", _session.last_msg_id, **where("last_msg_id IS NOT NULL"))
Index("ix_sessions_show", _session.show_topic, _session.show_play_name, **where("show_topic IS NOT NULL"))
Index("ix_sessions_playbook", _session.playbook_name, _session.updated_at, **where("playbook_name IS NOT NULL"))
Index("ix_sessions_status", _session.status, _session.updated_at, _session.id)
Index("ix_sessions_running", _session.last_message_at, **where("status = 'running'"))
Index("ix_sessions_project", _session.project, _session.updated_at, **where("project IS NOT NULL"))
#: In quotes, because an unquoted ``user`` means the current role on Postgres.
Index("ix_sessions_user", _session.user, _session.updated_at, **where('"user" IS NOT NULL'))
for _name in ("agent_session_id", "workflow_run_id"):
    Index(f"ix_sessions_{_name.removesuffix('_id')}", _session[_name], **where(f"{_name} IS NOT NULL"))
Index("ix_session_transitions_newest", _transition.created_at, _transition.id)

Index("ix_branches_session", _branch.session_id, _branch.created_at, _branch.id)
Index("ix_branches_progression", _branch.progression_id)
Index("ix_branches_system_msg", _branch.system_msg_id, **where("system_msg_id IS NOT NULL"))
Index("ix_branches_parent", _branch.parent_branch_id, **where("parent_branch_id IS NOT NULL"))

Index(
    "ix_vectors_document",
    _vector.namespace,
    _vector.document_id,
    _vector.chunk_index,
    _vector.id,
    **where("document_id IS NOT NULL"),
)
Index("ix_exchange_deliveries_open", _delivery.owner, _delivery.ord, **where("acked_at IS NULL"))
Index("ix_exchange_deliveries_message", _delivery.message_id, _delivery.owner)


# A view that shows each message order as one JSON array of ids. Declared here, created by a migration.
#
# SQLite reads from an ordered subquery, because its aggregates accept ORDER BY only since 3.44.

NAME = "progression_collections"

_SELECT = {
    "sqlite": (
        "SELECT id, created_at, (SELECT json_group_array(message_id) FROM "
        "(SELECT message_id FROM progression_links WHERE progression_id = progressions.id ORDER BY ord)) "
        "AS collection FROM progressions"
    ),
    "postgresql": (
        "SELECT id, created_at, coalesce((SELECT jsonb_agg(message_id ORDER BY ord) FROM progression_links "
        "WHERE progression_id = progressions.id), '[]'::jsonb) AS collection FROM progressions"
    ),
}

#: An existing view is no error, for users that create tables of their own beside these.
_CREATE = {"sqlite": "CREATE VIEW IF NOT EXISTS", "postgresql": "CREATE OR REPLACE VIEW"}

for _product, _select in _SELECT.items():
    _made: DDL = DDL(f"{_CREATE[_product]} {NAME} AS {_select}")  # type: ignore[no-untyped-call]
    event.listen(Base.metadata, "after_create", _made.execute_if(dialect=_product))


_WORDS = ("message_types", "invocation_kinds", "source_kinds")
_LINKS = "progression_links"
_TRANSITIONS = "session_transitions"
#: The tables of the exchange, each with its unique keys.
_EXCHANGE = {
    "exchange_inboxes": (Key(("owner",)),),
    "exchange_deliveries": (Key(("owner", "ord")), Key(("owner", "message_id"))),
    "exchange_members": (Key(("channel", "member")),),
}

APPEND_ONLY = declare(
    [
        *(guard for table in _WORDS for guard in (*append_only(table), *no_update(table))),
        *(guard for table in _WORDS for guard in no_replacing_insert(table)),
        *(guard for table in ("messages", "progressions", "sessions", "branches") for guard in append_only(table)),
        *(
            guard
            for table in ("messages", "progressions", "sessions", "branches")
            for guard in no_replacement(table, Key(("id",)))
        ),
        Guard(f"{_LINKS}_no_delete", _LINKS, "delete", f"{_LINKS} is append-only", when="OLD.ord >= 0", permit="any"),
        Guard(f"{_LINKS}_no_truncate", _LINKS, "truncate", f"{_LINKS} is append-only", permit="any", only="postgresql"),
        *no_replacement(_LINKS, Key(("progression_id", "ord"))),
        *append_only(_TRANSITIONS, permit="reset"),
        Guard(
            f"{_TRANSITIONS}_no_update",
            _TRANSITIONS,
            "update",
            f"rows of {_TRANSITIONS} never change",
            permit="any",
        ),
        *no_replacement(_TRANSITIONS, Key(("id",)), Key(("session_id", "seq"))),
        *(guard for table in _EXCHANGE for guard in append_only(table)),
        *(guard for table, keys in _EXCHANGE.items() for guard in no_replacement(table, *keys)),
    ]
)

_ORIGIN = ("session_id", "progression_id", "parent_branch_id", "forked_at_ord", "fork_depth")

ORIGIN = declare(
    [
        Guard(
            "branches_origin_stays",
            "branches",
            "update",
            "where a branch comes from never changes",
            when=" OR ".join(f"NEW.{name} IS DISTINCT FROM OLD.{name}" for name in _ORIGIN),
        )
    ]
)

_TOLD = [column.name for column in TRANSITIONS.columns if is_personal(column)]
_CHANGED = [column.name for column in TRANSITIONS.columns if not is_personal(column)]

#: Rows of the status history never change, but their personal columns can become NULL when a person is erased.
EMPTIED = declare(
    [
        Guard(
            f"{_TRANSITIONS}_only_emptied",
            _TRANSITIONS,
            "update",
            f"rows of {_TRANSITIONS} never change: only {', '.join(_TOLD[:-1])} and {_TOLD[-1]} can become NULL",
            when=" OR ".join(
                [
                    *(f"NEW.{name} IS DISTINCT FROM OLD.{name}" for name in _CHANGED),
                    *(f"(NEW.{name} IS NOT NULL AND NEW.{name} IS DISTINCT FROM OLD.{name})" for name in _TOLD),
                ]
            ),
        )
    ]
)


def _unknown(column: str, table: str) -> str:
    return f"NEW.{column} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {table} WHERE word = NEW.{column})"


#: Guards in place of foreign keys, which SQLite enforces only for clients that switch them on.
WORDS = declare(
    Guard(
        f"sessions_{column}_known_{event}",
        "sessions",
        event,
        f"unknown {column}",
        when=_unknown(column, table),
        of=(column,) if event == "update" else (),
        only="sqlite",
    )
    for column, table in (("invocation_kind", "invocation_kinds"), ("source_kind", "source_kinds"))
    for event in ("insert", "update")
)

#: Sets a random tag at each change, so that no later state of a namespace has the tag of an earlier state. A rollback,
#: or a backup restored over the file, restores the tag together with the chunks.
TAGGED = declare_reaction(
    Reaction(
        "vectors_tag",
        "vectors",
        "vector_namespaces",
        key="namespace",
        sets="content_tag = random()",
        when="",
        says="on SQLite, `content_tag` of the namespace becomes another random number",
        function="",
        only="sqlite",
    )
)
