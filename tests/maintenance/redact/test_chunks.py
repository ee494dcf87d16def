"""Chunks of messages that are emptied."""

from __future__ import annotations

from typing import Any

from support.conversations.talk import said
from support.maintenance.chunks import chunks_of, put_chunks, talk

from lastlight_state.conversations import NewChunk
from lastlight_state.maintenance import RedactPolicy
from lastlight_state.testing import Database


def test_chunks_of_emptied_messages_go(store: Any, database: Database) -> None:
    """maintenance OP-32: those of messages that stay stay, too, and one that is another's with its id."""
    talks = database.open().conversations
    talk(talks, "free", "ana")
    talk(talks, "held", "ana")
    talks.sessions.hold("held", reason="r")
    talks.branches.append("b-free", said("of-another"))
    put_chunks(talks, "m-free", "m-held", "free")
    talks.vectors.put("texts", [NewChunk("of-another", "text", [1.0], document_id="m-held")])
    policy = RedactPolicy(message_ids=["m-free", "m-held", "of-another"])
    plan = store.maintenance.redact.plan(policy)
    assert plan.counts == store.maintenance.redact.run(policy).counts == {"messages": 2, "vectors": 2}
    assert chunks_of(talks) == ["c-free", "c-m-held", "free", "m-held", "of-another"]
    assert store.maintenance.redact.run(policy).counts == {}


def test_chunks_of_others_that_have_the_same_id_elsewhere_stay(store: Any, database: Database) -> None:
    """maintenance OP-32: an id is one within its namespace."""
    talks = database.open().conversations
    talk(talks, "free", "ana")
    put_chunks(talks, "m-free")
    for space in ("a", "z"):
        talks.vectors.put(space, [NewChunk("c-m-free", "text", [1.0], document_id="d")])
    policy = RedactPolicy(message_ids=["m-free"])
    assert store.maintenance.redact.run(policy).counts == {"messages": 1, "vectors": 2}
    assert (chunks_of(talks), chunks_of(talks, "a"), chunks_of(talks, "z")) == ([], ["c-m-free"], ["c-m-free"])
