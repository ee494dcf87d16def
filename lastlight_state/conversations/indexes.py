"""The indexes of conversations. Importing this module declares them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Index

from lastlight_state.conversations.tables import BRANCHES, DELIVERIES, LINKS, MESSAGES, SESSIONS, TRANSITIONS, VECTORS
from lastlight_state.db.indexes import where

_message = MESSAGES.c
_vector = VECTORS.c
_link = LINKS.c
_session = SESSIONS.c
_branch = BRANCHES.c
_transition = TRANSITIONS.c
_delivery = DELIVERIES.c


def _newest(column: Any) -> tuple[Any, ...]:
    return column, _message.created_at, _message.id


# In ascending order, so that new messages come to the end of each. None by role or class: they have few words.
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
#: In quotes, because ``user`` is who asks on Postgres.
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
