"""What is done to one session, inbox or namespace leaves all others alone."""

from __future__ import annotations

from typing import Any

from support.conversations.talk import begun, history, said

from lastlight_state import StateStore
from lastlight_state.conversations import (
    BranchPatch,
    BranchTree,
    NewBranch,
    NewChunk,
    NewMessage,
    NewSession,
    SessionPatch,
    SessionTree,
    Within,
)
from lastlight_state.testing import FrozenClock


def _talk(store: Any, name: str) -> str:
    """A running session with a running branch of two messages; the id of the session."""
    c = store.conversations
    branch = begun(store, f"{name}0", f"{name}1", branch_id=name)
    c.lifecycle.transition(branch.session_id, "running")
    c.lifecycle.transition(branch.session_id, "running", branch_id=name)
    return str(branch.session_id)


def _seen(store: Any, session_id: str, name: str) -> list[Any]:
    """All that a reader sees of a session with its one branch."""
    c = store.conversations
    session, branch = c.sessions.get(session_id), c.branches.get(name)
    return [
        session,
        branch,
        *(c.progressions.get(one.progression_id) for one in (session, branch)),
        *(c.progressions.collection(one.progression_id) for one in (session, branch)),
        *(c.messages.get(one) for one in history(store, name)),
        c.changes.after(session_id).items,
        c.lifecycle.history(session_id).items,
        c.lifecycle.state(session_id),
        c.branches.list(session_id).items,
    ]


def test_what_is_said_in_one_session_is_no_concern_of_others(
    every_backend: StateStore, frozen_clock: FrozenClock
) -> None:
    """conversations CV-10, CV-17: neither in its orders, nor in its fields, nor in its feed."""
    c = every_backend.conversations
    other = _talk(every_backend, "other")
    c.lineage.fork("other", branch_id="other-fork", at=2)
    frozen_clock.advance(seconds=30)
    before = _seen(every_backend, other, "other")
    own = _talk(every_backend, "own")
    c.branches.append("own", ["own1", *said("new")], on_repeat="keep")
    c.branches.update("own", BranchPatch(name="x"))
    c.branches.replace_system("own", said("system")[0])
    c.branches.replace_system("own", "own0")
    c.branches.replace_system("own", said("kinder")[0])
    assert history(every_backend, "own") == ["kinder", "own1", "own1", "new"]
    c.lineage.fork("own", branch_id="fork", at=1)
    order = c.branches.get("own").progression_id
    c.progressions.append(order, ["own0"])
    version = c.progressions.get(order).version
    c.progressions.replace(order, ["kinder", "own1", "new"], expect_version=version)
    c.messages.put(NewMessage("user", "grown", id="new"))
    c.messages.set_embedding("new", [1, 0])
    c.sessions.update(own, SessionPatch(name="n"), expect_version=c.sessions.get(own).version)
    c.sessions.merge_metadata(own, {"a": 1})
    c.sessions.hold(own, "audit")
    c.sessions.touch(own)
    c.trees.save(
        SessionTree(NewSession(own, "again"), [BranchTree(NewBranch("own", name="y"), said("kinder"))]), mode="replace"
    )
    c.changes.trim(own, below=4)
    assert _seen(every_backend, other, "other") == before
    c.messages.set_embedding("other0", [1, 0])
    for within in (Within(session_id=own), Within(branch_id="own"), Within(progression_id=order)):
        assert "other0" not in [one.message.id for one in c.messages.similar([1, 0], within=within)]
    assert [one.message.id for one in c.messages.similar([1, 0], within=Within(session_id=own))] == ["new"]


def test_how_one_session_goes_on_is_no_concern_of_others(every_backend: StateStore) -> None:
    """conversations CV-14, CV-15, CV-26."""
    lifecycle = every_backend.conversations.lifecycle
    other = _talk(every_backend, "other")
    before = _seen(every_backend, other, "other")
    own = _talk(every_backend, "own")
    lifecycle.heartbeat(own, "w")
    lifecycle.record_verification(own, {"status": "passed"})
    lifecycle.transition(own, "failed", branch_id="own")
    lifecycle.transition(own, "failed")
    lifecycle.reopen(own, actor="ana")
    lifecycle.transition(own, "completed")
    assert _seen(every_backend, other, "other") == before
    states = {one: lifecycle.state(one).reason for one in (own, other)}
    assert {key: reason and (reason.session_id, reason.status) for key, reason in states.items()} == {
        own: (own, "completed"),
        other: (other, "running"),
    }


def test_what_happens_in_one_inbox_is_no_concern_of_others(every_backend: StateStore) -> None:
    """conversations CV-33, CV-34: nor in one channel."""
    exchange = every_backend.conversations.exchange
    for member in ("bo", "cy"):
        exchange.join("other", member)
        exchange.join("own", member)
    for n in range(2):
        exchange.send(NewMessage("user", n, id=f"m{n}", sender="ana"), to=["bo", "cy"])
    exchange.take("bo", reader="r1", limit=2)

    def seen() -> list[Any]:
        return [exchange.inbox("bo", state="all").items, exchange.members("other").items]

    before = seen()
    assert [one.owner for one in exchange.take("cy", reader="r2", limit=5)] == ["cy", "cy"]
    assert exchange.release("cy", [0, 1], reader="r2") == 2
    exchange.take("cy", reader="r2", sender="ana")
    assert exchange.ack("cy", 0, reader="r2") == 1
    exchange.leave("own", "bo")
    assert exchange.publish(NewMessage("user", "x", id="p"), channel="own").delivered == ("cy",)
    assert seen() == before
    assert [one.ord for one in exchange.inbox("cy")] == [1, 2]


def test_what_happens_in_one_namespace_is_no_concern_of_others(every_backend: StateStore) -> None:
    """conversations CV-37: nor to one document of it."""
    vectors = every_backend.conversations.vectors
    for namespace in ("other", "own"):
        vectors.put(namespace, [NewChunk(f"{n}", f"{n}", [1, n], None, f"d{n}", n) for n in range(4)])

    def seen(namespace: str) -> list[Any]:
        return [vectors.get(namespace, one.id) for one in vectors.list(namespace)]

    before = seen("other")
    vectors.put("own", [NewChunk("0", "again", [2, 2], None, "d0", 0)])
    assert [one.chunk.id for one in vectors.search("own", [1, 0], document_id="d1")] == ["1"]
    for namespace, text in (("own", "again"), ("other", "0")):
        assert [one.chunk.content for one in vectors.search(namespace, [1, 0], document_id="d0")] == [text]
    assert vectors.clear("own", document_id="d1") == 1
    assert vectors.clear("own", ids=["2"]) == 1
    assert [one.id for one in seen("own")] == ["0", "3"]
    assert vectors.clear("own", scope="namespace") == 2
    assert (vectors.count("own"), seen("other")) == (0, before)
