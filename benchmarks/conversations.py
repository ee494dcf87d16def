"""Conversations: an append to a short and to a long order, a fork at a depth, and a page of a deep history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.databases import Side
from benchmarks.measure import Result, compare
from lastlight_state.conversations import NewMessage
from lastlight_state.ids import new_id

SHORT, LONG, DEPTH = 10, 100_000, 200
CONTENT = {"text": "The build is green again, and the colour is back. " * 20}


def results(side: Side) -> Iterator[Result]:
    """Appends at both lengths beside the bare driver's, forks and histories beside a bare look at the branch."""
    talks = side.store.conversations
    for length in (SHORT, LONG):
        branch = _branch(side, length)
        yield compare(
            f"append to {length:,} links",
            side.name,
            lambda branch=branch: talks.branches.append(branch.id, [NewMessage("user", CONTENT)]),  # type: ignore[misc]
            _raw_append(side, _branch(side, length)),
            goal=None,
        )
    deep = _branch(side, SHORT).id
    for _ in range(DEPTH):
        deep = talks.lineage.fork(deep).id
        talks.branches.append(deep, [NewMessage("user", CONTENT)])
    look = side.read("SELECT id, session_id, progression_id FROM branches WHERE id = ?", lambda: (deep,))
    yield compare(f"fork at depth {DEPTH}", side.name, lambda: talks.lineage.fork(deep), look, goal=None, calls=100)
    yield compare(
        f"history of 50 at depth {DEPTH}", side.name, lambda: talks.branches.tail(deep, 50), look, goal=None, calls=50
    )


def _branch(side: Side, length: int) -> Any:
    """A branch of so many links, all of one message."""
    talks = side.store.conversations
    branch = talks.branches.create(talks.sessions.create().id)
    talks.branches.append(branch.id, [NewMessage("user", CONTENT, id=f"first-{branch.id}")])
    with side.store.transaction() as tx:
        for _ in range(length // 1_000):
            ids = [f"first-{branch.id}"] * 1_000
            tx.conversations.progressions.append(branch.progression_id, ids, on_repeat="keep")
    return talks.branches.get(branch.id)


def _raw_append(side: Side, branch: Any) -> Callable[[], object]:
    """The same work by hand: the message, its two links, both orders, the session."""
    pool = side.store.conversations.sessions.get(branch.session_id).progression_id
    said: list[str] = []

    def message() -> tuple[Any, ...]:
        said[:] = [new_id()]
        return said[0], side.now(), "user", 0, '{"text": "x"}'

    link = (
        "INSERT INTO progression_links (progression_id, ord, message_id) "
        "SELECT id, next_ord, ? FROM progressions WHERE id = ?"
    )
    grow = "UPDATE progressions SET next_ord = next_ord + 1, version = version + 1 WHERE id = ?"
    update = "UPDATE sessions SET last_msg_id = ?, updated_at = ?, version = version + 1 WHERE id = ?"
    insert = "INSERT INTO messages (id, created_at, role, lion_class, content) VALUES (?, ?, ?, ?, ?)"
    orders = (branch.progression_id, pool)
    return side.unit(
        (insert, message),
        *((link, lambda order=order: (said[0], order)) for order in orders),
        *((grow, lambda order=order: (order,)) for order in orders),
        (update, lambda: (said[0], side.now(), branch.session_id)),
    )
