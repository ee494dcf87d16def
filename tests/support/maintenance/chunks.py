"""Sessions with a message, and chunks that belong to them."""

from __future__ import annotations

from typing import Any

from support.conversations.talk import said

from lastlight_state.conversations import NewBranch, NewChunk, NewMessage, NewSession


def talk(talks: Any, key: str, user: str) -> None:
    talks.sessions.create(NewSession(key, user=user))
    talks.branches.create(key, NewBranch(id=f"b-{key}"))
    talks.branches.append(f"b-{key}", [NewMessage("user", "text", id=f"m-{key}"), *said(f"empty-{key}")])


def put_chunks(talks: Any, *of: str, at: str = "texts") -> None:
    """Put for each of these a chunk with its id, and one whose document it is."""
    chunks = [NewChunk(one, "text", [1.0]) for one in of]
    talks.vectors.put(at, [*chunks, *(NewChunk(f"c-{one}", "text", [1.0], document_id=one) for one in of)])


def chunks_of(talks: Any, at: str = "texts") -> list[str]:
    return sorted(one.id for one in talks.vectors.list(at).items)
