"""What callers say about sessions, checked and as statements name it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lastlight_state.conversations import checks
from lastlight_state.conversations.arguments import NewSession, Provenance, SessionFilter, SessionPatch, SessionTimes
from lastlight_state.db import valid
from lastlight_state.db.repository import UNSET
from lastlight_state.ids import new_id

Row = dict[str, Any]

PROVENANCE = {
    "playbook_name": checks.name,
    "agent_name": checks.name,
    "invocation_kind": checks.kind,
    "show_topic": checks.name,
    "show_play_name": checks.name,
    "artifacts_path": checks.path,
    "source_kind": checks.source,
}
_CHANGED = {
    "name": checks.name,
    "user": checks.name,
    "node_metadata": checks.metadata,
    "extra": checks.others,
    **PROVENANCE,
    "started_at": checks.optional_time,
    "ended_at": checks.optional_time,
    "updated_at": checks.optional_time,
}


def row(session: Any, now: datetime) -> Row:
    """The parameters of a new session. Without ``progression_id`` it has none yet."""
    given = valid.group("session", session, NewSession)
    provenance = valid.group("session.provenance", given.provenance, Provenance)
    times = valid.group("session.times", given.times, SessionTimes)
    created, exact = checks.created("session.times.created_at", times.created_at, now)
    known = {
        name: checks.optional_time(f"session.times.{name}", getattr(times, name))
        for name in ("updated_at", "started_at", "ended_at", "last_message_at")
    }
    return {
        "id": new_id() if given.id is None else valid.identifier("session.id", given.id),
        "created_at": created,
        "created_at_unix": exact,
        "name": checks.name("session.name", given.name),
        "user": checks.name("session.user", given.user),
        "progression_id": checks.name("session.progression_id", given.progression_id),
        "first_msg_id": None,
        "last_msg_id": None,
        **known,
        "updated_at": known["updated_at"] or created,
        "last_message_at": known["last_message_at"] or known["started_at"],
        **checks.fields("session.provenance", provenance, PROVENANCE),
        "version": 0,
        "node_metadata": checks.metadata("session.node_metadata", given.node_metadata),
        "extra": checks.others("session.extra", given.extra),
    }


def changes(patch: Any, now: datetime) -> Row:
    """The columns that a patch sets; ``updated_at`` is now unless it says another time."""
    given = valid.group("patch", patch, SessionPatch)
    named = {name: check for name, check in _CHANGED.items() if getattr(given, name) is not UNSET}
    found = checks.fields("patch", given, named)
    if "updated_at" in found and found["updated_at"] is None:
        del found["updated_at"]
    return {"updated_at": now, **found} if named else {}


def filters(where: SessionFilter | None) -> Row:
    """The filters of a list, by name."""
    asked = SessionFilter() if where is None else valid.group("where", where, SessionFilter)
    given = checks.fields("where", asked, {name: PROVENANCE[name] for name in PROVENANCE if name != "artifacts_path"})
    return {**given, "updated_since": checks.optional_time("where.updated_since", asked.updated_since)}
