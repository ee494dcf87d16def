"""Steps that tests of conversations share."""

from __future__ import annotations

from typing import Any

from lastlight_state import StateStore, iterate
from lastlight_state.conversations import Branch, BranchMessage, NewBranch, NewMessage, NewSession
from lastlight_state.testing import Database


def said(*texts: str, role: str = "user") -> list[NewMessage]:
    """Messages whose contents and ids are these texts."""
    return [NewMessage(role, {"text": text}, id=text) for text in texts]


def begun(store: Any, *texts: str, branch_id: str = "main") -> Branch:
    """A branch of a new session with these messages."""
    session = store.conversations.sessions.create()
    branch = store.conversations.branches.create(session.id, NewBranch(id=branch_id))
    if texts:
        store.conversations.branches.append(branch.id, said(*texts))
    return store.conversations.branches.get(branch.id)  # type: ignore[no-any-return]


def running_hours_apart(database: Database, *names: str) -> Any:
    """A store with running sessions of these names, an hour apart; an hour has passed since the last."""
    store = database.open()
    for name in names:
        store.conversations.sessions.create(NewSession(name))
        store.conversations.lifecycle.transition(name, "running")
        database.clock.advance(seconds=3_600)
    return store


def numbered(first: int, until: int) -> list[str]:
    """``m0``, ``m1`` … as ids."""
    return [f"m{i}" for i in range(first, until)]


def history(store: StateStore, branch_id: str, limit: int = 50) -> list[str]:
    """The ids of a whole history, page by page."""
    return [one.message_id for one in iterate(store.conversations.branches.order, branch_id, limit=limit)]


def places(items: Any) -> list[tuple[int, str, str]]:
    """Position, branch and message of each."""
    return [
        (one.ord, one.branch_id, one.message.id if isinstance(one, BranchMessage) else one.message_id) for one in items
    ]
