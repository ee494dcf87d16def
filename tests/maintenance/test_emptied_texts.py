"""Texts that stand beside the messages that are emptied: chunks, and the executions of agent sessions."""

from __future__ import annotations

from typing import Any

from support.conversations.talk import said
from support.maintenance.rows import insert

from lastlight_state.conversations import NewBranch, NewChunk, NewMessage, NewSession
from lastlight_state.maintenance import RedactPolicy
from lastlight_state.messaging import ConversationKey, MessageDraft
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import ExecutionOptions, Failure, Usage


def test_chunks_of_emptied_messages_go(store: Any, database: Database) -> None:
    """maintenance OP-32: those of messages that stay stay, too, and one that is another's with its id."""
    talks = database.open().conversations
    _talk(talks, "free", "ana")
    _talk(talks, "held", "ana")
    talks.sessions.hold("held", reason="r")
    talks.branches.append("b-free", said("of-another"))
    _put_chunks(talks, "m-free", "m-held", "free")
    talks.vectors.put("texts", [NewChunk("of-another", "text", [1.0], document_id="m-held")])
    policy = RedactPolicy(message_ids=["m-free", "m-held", "of-another"])
    plan = store.maintenance.redact.plan(policy)
    assert plan.counts == store.maintenance.redact.run(policy).counts == {"messages": 2, "vectors": 2}
    assert _chunks(talks) == ["c-free", "c-m-held", "free", "m-held", "of-another"]
    assert store.maintenance.redact.run(policy).counts == {}


def test_chunks_of_a_person_go_with_what_they_are_of(store: Any, database: Database) -> None:
    """maintenance OP-77: of messages, also of one that is emptied already, of sessions and of branches."""
    talks = database.open().conversations
    _talk(talks, "hers", "ana")
    _talk(talks, "kept", "ana")
    _talk(talks, "his", "bob")
    talks.branches.create("his", NewBranch(id="hers-there", user="ana"))
    store.maintenance.redact.run(RedactPolicy(message_ids=["m-hers"]))
    talks.sessions.hold("kept", reason="r")
    for namespace in ("texts", "others"):
        _put_chunks(talks, "m-hers", "hers", "b-hers", "hers-there", "m-kept", "kept", "m-his", "his", at=namespace)
    plan, receipt = store.maintenance.erase.plan("ana"), store.maintenance.erase.run("ana")
    assert plan.counts == receipt.counts
    assert receipt.counts["vectors"] == 2 * 2 * 4
    assert (
        _chunks(talks)
        == _chunks(talks, "others")
        == sorted([*(kept := ("m-kept", "kept", "m-his", "his")), *(f"c-{one}" for one in kept)])
    )
    assert store.maintenance.erase.run("ana").counts == {}


def test_chunks_of_others_that_have_the_same_id_elsewhere_stay(store: Any, database: Database) -> None:
    """maintenance OP-32: an id is one within its namespace."""
    talks = database.open().conversations
    _talk(talks, "free", "ana")
    _put_chunks(talks, "m-free")
    for space in ("a", "z"):
        talks.vectors.put(space, [NewChunk("c-m-free", "text", [1.0], document_id="d")])
    policy = RedactPolicy(message_ids=["m-free"])
    assert store.maintenance.redact.run(policy).counts == {"messages": 1, "vectors": 2}
    assert (_chunks(talks), _chunks(talks, "a"), _chunks(talks, "z")) == ([], ["c-m-free"], ["c-m-free"])


def test_executions_behind_a_person_s_chats_and_sessions_lose_their_texts(store: Any, database: Database) -> None:
    """maintenance OP-77: usage and times stay, and so does an agent session that another user has, too."""
    opened = database.open()
    for key, user, agent in (("1", "ana", "hers"), ("2", "ana", "both"), ("3", "bob", "both"), ("4", "bob", "his")):
        chat = opened.messaging.sessions.create(ConversationKey("p", key, user)).id
        opened.messaging.messages.append_many(chat, [MessageDraft("user", "x")])
        opened.messaging.sessions.ensure_agent_session(chat, agent)
    for name, user in (("talk", "ana"), ("kept", "ana"), ("other", "bob")):
        opened.conversations.sessions.create(NewSession(name, user=user, agent_session_id=name))
    opened.conversations.sessions.hold("kept", reason="r")
    for agent in ("hers", "both", "his", "talk", "kept", "other"):
        _execution(opened, agent)
    at = database.clock.now()
    silent = {"id": "silent", "trigger_type": "t", "trigger_id": "t", "skill": "s", "started_at": at}
    insert(database.raw(), "executions", {**silent, "session_id": "hers"})
    was = opened.workflows.executions.get("hers")
    plan, receipt = store.maintenance.erase.plan("ana"), store.maintenance.erase.run("ana")
    assert (plan.counts, receipt.counts["executions"]) == (receipt.counts, 2)
    assert plan.agent_sessions == ("both", "hers", "talk")
    found = {key: opened.workflows.executions.get(key) for key in ("hers", "both", "his", "talk", "kept", "other")}
    assert {key for key, one in found.items() if one.error is None} == {"hers", "talk"}
    assert {key for key in found if opened.workflows.executions.find_output(key) is None} == {"hers", "talk"}
    gone = dict.fromkeys(("error", "error_detail", "details"))
    assert found["hers"] == was.model_copy(update=gone)
    assert (was.input_tokens, was.error) == (7, "classified")
    assert store.maintenance.erase.run("ana").counts == {}


def _talk(talks: Any, key: str, user: str) -> None:
    talks.sessions.create(NewSession(key, user=user))
    talks.branches.create(key, NewBranch(id=f"b-{key}"))
    talks.branches.append(f"b-{key}", [NewMessage("user", "text", id=f"m-{key}"), *said(f"empty-{key}")])


def _put_chunks(talks: Any, *of: str, at: str = "texts") -> None:
    """For each of these a chunk with its id, and one whose document it is."""
    chunks = [NewChunk(one, "text", [1.0]) for one in of]
    talks.vectors.put(at, [*chunks, *(NewChunk(f"c-{one}", "text", [1.0], document_id=one) for one in of)])


def _chunks(talks: Any, at: str = "texts") -> list[str]:
    return sorted(one.id for one in talks.vectors.list(at).items)


def _execution(store: Any, key: str) -> None:
    executions = store.workflows.executions
    executions.start(
        "chat", session_id=key, trigger=Trigger("t"), options=ExecutionOptions(id=key, details={"asked": "classified"})
    )
    executions.save_output(key, "classified")
    failure = Failure("classified", {"why": "classified"})
    executions.finish(key, "failed", failure=failure, usage=Usage(input_tokens=7))
