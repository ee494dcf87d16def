"""Texts that stand beside the messages of a person: chunks, and the executions of agent sessions."""

from __future__ import annotations

from typing import Any

from support.maintenance.chunks import chunks_of, put_chunks, talk
from support.maintenance.rows import insert

from lastlight_state.conversations import NewBranch, NewSession
from lastlight_state.maintenance import RedactPolicy
from lastlight_state.messaging import ConversationKey, MessageDraft
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import ExecutionOptions, Failure, Usage


def test_chunks_of_a_person_go_with_what_they_are_of(store: Any, database: Database) -> None:
    """maintenance OP-77: of messages, also of one that is emptied already, of sessions and of branches."""
    talks = database.open().conversations
    talk(talks, "hers", "ana")
    talk(talks, "kept", "ana")
    talk(talks, "his", "bob")
    talks.branches.create("his", NewBranch(id="hers-there", user="ana"))
    store.maintenance.redact.run(RedactPolicy(message_ids=["m-hers"]))
    talks.sessions.hold("kept", reason="r")
    for namespace in ("texts", "others"):
        put_chunks(talks, "m-hers", "hers", "b-hers", "hers-there", "m-kept", "kept", "m-his", "his", at=namespace)
    plan, receipt = store.maintenance.erase.plan("ana"), store.maintenance.erase.run("ana")
    assert plan.counts == receipt.counts
    assert receipt.counts["vectors"] == 2 * 2 * 4
    assert (
        chunks_of(talks)
        == chunks_of(talks, "others")
        == sorted([*(kept := ("m-kept", "kept", "m-his", "his")), *(f"c-{one}" for one in kept)])
    )
    assert store.maintenance.erase.run("ana").counts == {}


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


def _execution(store: Any, key: str) -> None:
    executions = store.workflows.executions
    executions.start(
        "chat", session_id=key, trigger=Trigger("t"), options=ExecutionOptions(id=key, details={"asked": "classified"})
    )
    executions.save_output(key, "classified")
    failure = Failure("classified", {"why": "classified"})
    executions.finish(key, "failed", failure=failure, usage=Usage(input_tokens=7))
