"""Names and paths of an agent session's files. Touches no file.

::

    <root>/projects/<slug>/<session id>.jsonl                      the log
    <root>/projects/<slug>/<session id>/raw/<sha256>.txt           untruncated tool results
    <root>/projects/<slug>/<session id>/subagents/agent-*.jsonl    logs of sub-agents, read only

The slug is the agent's working directory with every ``/`` as ``-``; two directories may have the same slug.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from lastlight_state.errors import InvalidValue, ReservedName, UnsafePath
from lastlight_state.files.jsonl.files import component_problem
from lastlight_state.ids import SESSION_ID

Scope: TypeAlias = Literal["chat", "sandbox"]

CHAT_SLUG = "-app"
LOG_SUFFIX = ".jsonl"
AGENT_PREFIX = "agent-"
RAW, SUBAGENTS = "raw", "subagents"
_NO_SESSIONS = (".repaired", ".tmp")  # files that repairs and writers leave beside the logs


@dataclass(frozen=True, slots=True)
class Cwd:
    """The working directory of the agent, which decides the slug."""

    path: str


@dataclass(frozen=True, slots=True)
class Slug:
    """A project directory, given by its name."""

    name: str


Place: TypeAlias = Cwd | Slug


def slug_for_cwd(cwd: str) -> str:
    """Return the slug of a working directory: every ``/`` becomes ``-``, nothing else changes.

    ``/app`` gives ``-app``.
    """
    return cwd.replace("/", "-")


def slug_of(place: Place) -> str:
    """Return the slug of a place, checked to be one path component."""
    return checked_slug(slug_for_cwd(place.path) if isinstance(place, Cwd) else place.name)


def checked_slug(slug: str) -> str:
    """Return the slug. Raises `UnsafePath` unless it can be one component of a path."""
    if not isinstance(slug, str):
        raise InvalidValue("slug", f"expected text, got {type(slug).__name__}")
    problem = component_problem(slug)
    if problem:
        raise UnsafePath("slug", problem)
    return slug


def checked_session_id(session_id: str) -> str:
    """Return an id under which a log may be written.

    Raises `UnsafePath`, or `ReservedName` for the names of sub-agents' logs.
    """
    if not isinstance(session_id, str):
        raise InvalidValue("session_id", f"expected text, got {type(session_id).__name__}")
    if not is_safe_id(session_id):
        raise UnsafePath("session_id", "must be 1 to 200 of A-Z a-z 0-9 _ -")
    if session_id.startswith(AGENT_PREFIX):
        raise ReservedName("session_id", f"names that begin with {AGENT_PREFIX!r} are those of sub-agents' logs")
    return session_id


def is_safe_id(session_id: str) -> bool:
    """True if a log may be written under this id."""
    return SESSION_ID.fullmatch(session_id) is not None


def readable_id(session_id: str) -> str:
    """Return an id whose log can be read, even if this library would not write it. Raises `UnsafePath`."""
    problem = component_problem(session_id + LOG_SUFFIX)
    if problem or not session_id:
        raise UnsafePath("session_id", problem or "must not be empty")
    return session_id


def session_of(file_name: str) -> str | None:
    """Return the session id in a main log's file name; or None for other files."""
    if not file_name.endswith(LOG_SUFFIX) or file_name.startswith((AGENT_PREFIX, ".")):
        return None
    session_id = file_name.removesuffix(LOG_SUFFIX)
    return None if session_id.endswith(_NO_SESSIONS) else session_id or None


def scope_of(slug: str) -> Scope:
    """Return ``chat`` for the agents that work in ``/app``, ``sandbox`` for all others."""
    return "chat" if slug == CHAT_SLUG else "sandbox"
