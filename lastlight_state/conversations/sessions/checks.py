"""Checks of callers' arguments about sessions. Each returns the values to store, or raises `InvalidValue`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

from lastlight_state.conversations import checks, words
from lastlight_state.conversations.arguments import NewSession, Provenance, SessionFilter, SessionPatch, SessionTimes
from lastlight_state.conversations.shared.statuses import reason
from lastlight_state.conversations.tables import SESSIONS
from lastlight_state.db import valid
from lastlight_state.db.repository import UNSET
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.ids import new_id

_LIMITS = limits_of(SESSIONS)


#: The row of a new session, and as ``why`` the `StatusReason` of its status. Without a pool that the caller names, its
#: ``progression_id`` is None.
SessionDraft: TypeAlias = Row

PROVENANCE = {
    **checks.of(SESSIONS, "playbook_name", "agent_name"),
    "invocation_kind": checks.kind,
    **checks.of(SESSIONS, "show_topic", "show_play_name", "artifacts_path"),
    "source_kind": checks.source,
}


_USER = checks.of(SESSIONS, "user")
#: The checks of the fields for a session's project, agent session and workflow run.
BELONGS = checks.of(SESSIONS, "project", "agent_session_id", "workflow_run_id")
#: The checks of the artifact contract and of its verification's result.
_ARTIFACTS = checks.of(SESSIONS, "artifact_contract", "artifact_verification")
_CHANGED = {
    **checks.of(SESSIONS, "name", "user", "node_metadata", "extra"),
    **PROVENANCE,
    **BELONGS,
    "artifact_contract": _ARTIFACTS["artifact_contract"],
    "started_at": checks.optional_time,
    "ended_at": checks.optional_time,
    "updated_at": checks.optional_time,
}


def row(session: Any, now: datetime) -> SessionDraft:
    """Check a new session and return its row. ``progression_id`` is None if the caller names no pool.

    If a session is created as ended without an end time, the best guess is made from its other times.
    """
    given = valid.argument_group("session", session, NewSession)
    provenance = valid.argument_group("session.provenance", given.provenance, Provenance)
    times = valid.argument_group("session.times", given.times, SessionTimes)
    created, exact = checks.creation_time("session.times.created_at", times.created_at, now)
    known = {
        name: checks.optional_time(f"session.times.{name}", getattr(times, name))
        for name in ("updated_at", "started_at", "ended_at", "last_message_at")
    }
    status = None if given.status is None else valid.word("session.status", given.status, words.STATUSES)
    why = reason("session.reason", given.reason, status)
    return {
        "id": new_id() if given.id is None else valid.identifier("session.id", given.id, _LIMITS.id),
        "created_at": created,
        "created_at_unix": exact,
        "name": checks.name("session.name", given.name, _LIMITS.name),
        "user": checks.name("session.user", given.user, _LIMITS.user),
        "progression_id": checks.name("session.progression_id", given.progression_id, _LIMITS.progression_id),
        "first_msg_id": None,
        "last_msg_id": None,
        "updated_at": known["updated_at"] or created,
        "started_at": known["started_at"],
        "ended_at": known["ended_at"] or _end(known, status, created),
        "last_message_at": known["last_message_at"] or known["started_at"],
        **checks.fields("session.provenance", provenance, PROVENANCE),
        "version": 0,
        "node_metadata": checks.encode_object("session.node_metadata", given.node_metadata, _LIMITS.node_metadata),
        "extra": checks.encode_object("session.extra", given.extra, _LIMITS.extra),
        "status": status,
        "status_reason": why["reason_code"] if status else None,
        "transition_seq": 1 if status else 0,
        "change_seq": 1,
        "owner": None,
        "heartbeat_at": None,
        "ended_at_is_approximate": _is_rough(times, status),
        **checks.fields("session", given, {**BELONGS, **_ARTIFACTS}),
        "hold_reason": None,
        "why": why,
    }


def _end(known: Row, status: str | None, created: datetime) -> datetime | None:
    """Guess when a session ended: at its last message, start, update or creation. Return None if it has not ended."""
    if status not in words.TERMINAL:
        return None
    end: datetime = known["last_message_at"] or known["started_at"] or known["updated_at"] or created
    return end


def _is_rough(times: SessionTimes, status: str | None) -> bool:
    """True if a session's end time is a guess: the caller declares it so, or gives none for an ended session."""
    where = "session.times.ended_at_is_approximate"
    told = times.ended_at_is_approximate
    if told is not None and valid.flag(where, told):
        return True
    return status in words.TERMINAL and times.ended_at is None


def changes(patch: Any, now: datetime) -> Row:
    """Check a patch and return the columns that it sets. ``updated_at`` is now unless the patch gives a time."""
    given = valid.argument_group("patch", patch, SessionPatch)
    named = {name: check for name, check in _CHANGED.items() if getattr(given, name) is not UNSET}
    found = checks.fields("patch", given, named)
    if "updated_at" in found and found["updated_at"] is None:
        del found["updated_at"]
    if "ended_at" in found:
        found["ended_at_is_approximate"] = False
    return {"updated_at": now, **found} if named else {}


def filters(where: SessionFilter | None) -> Row:
    """Check a `SessionFilter`, and return its values by the names of the session list's filters."""
    asked = SessionFilter() if where is None else valid.argument_group("where", where, SessionFilter)
    given = checks.fields("where", asked, {name: PROVENANCE[name] for name in PROVENANCE if name != "artifacts_path"})
    return {
        "statuses": statuses("where.statuses", asked.statuses),
        **given,
        **checks.fields("where", asked, {**_USER, **BELONGS}),
        "updated_since": checks.optional_time("where.updated_since", asked.updated_since),
    }


def statuses(where: str, given: Any) -> list[str] | None:
    """Check a collection of session statuses, and return it as a list. None is allowed."""
    if given is None:
        return None
    return [valid.word(where, one, words.STATUSES) for one in valid.several(where, given)]
