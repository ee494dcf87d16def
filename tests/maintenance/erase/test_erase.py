"""People who are erased from conversations, chats and inboxes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.cli.calls import lastlight_state
from support.conversations.talk import history, said
from support.maintenance.people import emptied, shared_place
from support.maintenance.rows import counts, difference

from lastlight_state.conversations import NewBranch, NewMessage, NewSession, Reason
from lastlight_state.maintenance import RedactPolicy
from lastlight_state.testing import Database


def test_a_message_that_is_held_and_shared_stays_because_it_is_held(store: Any, database: Database) -> None:
    """maintenance OP-77."""
    talks = database.open().conversations
    for name, user in (("hers", "ana"), ("his", "bob")):
        talks.sessions.create(NewSession(name, user=user))
        talks.branches.create(name, NewBranch(id=name))
        talks.branches.append(name, said("both") if name == "hers" else ["both"])
    talks.sessions.hold("his", "a lawsuit")
    assert store.maintenance.erase.plan("ana").protected == {"held": 1}


def test_a_person_is_erased_from_conversations_and_chats_and_others_stay(store: Any, database: Database) -> None:
    """maintenance OP-77: the plan is the truth, and the receipt has neither name nor contents."""
    talks = database.open()
    own, chat = shared_place(talks)
    version = talks.conversations.sessions.get(own).version
    before, plan = counts(database), store.maintenance.erase.plan("ana")
    receipt = store.maintenance.erase.run("ana")
    gone = {"messaging_messages": 3, "messaging_sessions": 1}
    assert plan.counts == receipt.counts == {"branches": 1, "messages": 3, "sessions": 1, **gone}
    assert (plan.protected, plan.agent_sessions) == ({"shared": 1}, ("agent-1",))
    assert difference(before, counts(database)) == gone
    assert emptied(talks, "a", "sender", "recipient", "both", "bobs") == [True, True, True, False, False]
    told = [talks.conversations.messages.get(key) for key in ("sender", "recipient")]
    assert [(one.sender, one.recipient, one.node_metadata) for one in told] == [(None, None, None)] * 2
    session, branch = talks.conversations.sessions.get(own), talks.conversations.branches.get("own")
    assert (session.user, session.name, session.node_metadata) == (None, None, None)
    assert session.version == version + 1
    assert (branch.user, branch.node_metadata, history(talks, "own")) == (None, {"k": 1}, ["a", "both"])
    assert talks.messaging.sessions.find(chat) is None
    assert len(talks.messaging.sessions.list().items) == 1
    assert "ana" not in str(receipt)
    buried = database.raw().execute("SELECT kind, id FROM tombstones").fetchall()
    assert [tuple(row) for row in buried] == [("messaging_session", chat)]
    assert store.maintenance.erase.run("ana").counts == {}


def test_the_inbox_of_a_person_goes_and_those_of_others_stay(store: Any, database: Database) -> None:
    """maintenance OP-77, conversations CV-33: what the person alone got is emptied, and names are forgotten."""
    talks = database.open()
    exchange = talks.conversations.exchange
    exchange.send(NewMessage("user", "x", id="own", sender="ana"), to="bo")
    exchange.send(NewMessage("user", "x", id="shared"), to=["ana", "bo"])
    exchange.join("news", "ana")
    exchange.publish(NewMessage("user", "x", id="alone"), channel="news")
    exchange.ack("bo", 0, reader="ana")
    plan = store.maintenance.erase.plan("ana")
    gone = {"exchange_deliveries": 2, "exchange_inboxes": 1, "exchange_members": 1}
    assert store.maintenance.erase.run("ana").counts == plan.counts == {**gone, "messages": 2}
    assert emptied(talks, "own", "shared", "alone") == [True, False, True]
    assert [(one.sender, one.acked_by) for one in exchange.inbox("bo", state="all")] == [(None, None)] * 2
    assert (exchange.inbox("ana", state="all").items, exchange.members("news").items) == ((), ())
    assert store.maintenance.erase.run("ana").counts == {}


def test_what_was_said_of_changes_of_status_goes_with_the_person(store: Any, database: Database) -> None:
    """maintenance OP-77: of the person's sessions and branches, and of what the person changed; the changes stay."""
    talks = database.open().conversations
    said = Reason("run.failed.exit_code", summary="Ana gave up", actor="bob", evidence={"who": "ana"})
    for name, user in (("own", "ana"), ("others", "bob"), ("kept", "ana")):
        talks.sessions.create(NewSession(name, user=user, status="running"))
        talks.branches.create(name, NewBranch(id=name, user="ana" if name == "others" else None))
        talks.lifecycle.transition(name, "failed", reason=said)
    talks.lifecycle.transition("others", "failed", branch_id="others", reason=said)
    talks.branches.create("others", NewBranch(id="bobs", user="bob"))
    talks.lifecycle.transition("others", "failed", branch_id="bobs", reason=said)
    talks.sessions.create(NewSession("acted", user="bob", status="running"))
    talks.lifecycle.transition("acted", "failed", reason=replace(said, actor="ana"))
    talks.sessions.hold("kept", reason="inquiry")
    before = counts(database)
    plan = store.maintenance.erase.plan("ana")
    done = store.maintenance.erase.run("ana").counts
    assert done == plan.counts == {"branches": 1, "session_transitions": 3, "sessions": 1}
    assert difference(before, counts(database)) == {}
    spoken = {(one.session_id, one.branch_id) for one in _failed(talks) if one.reason_summary is not None}
    assert spoken == {("others", None), ("others", "bobs"), ("kept", None)}
    emptied = [one for one in _failed(talks) if one.reason_summary is None]
    assert {(one.actor, one.evidence, one.reason_code) for one in emptied} == {(None, None, "run.failed.exit_code")}
    assert store.maintenance.erase.run("ana").counts == {}


def _failed(talks: Any) -> list[Any]:
    sessions = ("own", "others", "kept", "acted")
    return [one for name in sessions for one in talks.lifecycle.history(name).items if one.status == "failed"]


def test_metadata_of_a_redacted_message_go_with_the_person(store: Any, database: Database) -> None:
    """maintenance OP-77: also if the person neither sent nor received it; one that has none is left alone."""
    talks = database.open()
    talks.conversations.sessions.create(NewSession("s", user="ana"))
    talks.conversations.branches.create("s", NewBranch(id="s"))
    told = NewMessage("assistant", "x", id="m", node_metadata={"to": "ana"})
    talks.conversations.branches.append("s", [told, *said("bare")])
    store.maintenance.redact.run(RedactPolicy(message_ids=["m", "bare"]))
    plan = store.maintenance.erase.plan("ana")
    assert store.maintenance.erase.run("ana").counts == plan.counts == {"messages": 1, "sessions": 1}
    assert talks.conversations.messages.get("m").node_metadata is None


def test_the_commands_ask_say_and_leave_a_receipt(database: Database) -> None:
    """maintenance OP-32, OP-77, OP-70, OP-71."""
    store = database.open()
    shared_place(store)

    def run(*words: object) -> Any:
        return lastlight_state(*words, "--url", database.url)

    assert run("redact", "--role", "user").code == 2
    planned = run("redact", "--message", "a", "--message", "bobs", "--dry-run", "--json")
    assert (planned.data["counts"], planned.data["receipt"]) == ({"messages": 2}, None)
    assert "would change 2 rows" in run("redact", "--message", "a", "--message", "bobs", "--dry-run").out
    assert run("redact", "--message", "bobs", "--json").error == "not_confirmed"
    assert run("redact", "--message", "bobs", "--older-than", 0, "-y", "--json").data["receipt"]["state"] == "done"
    told = run("erase", "ana", "--dry-run").out
    assert ("agent-1" in told, "shared" in told) == (True, True)
    done = run("erase", "ana", "-y")
    assert (done.code, "messaging_messages" in done.out) == (0, True)
    assert run("erase", "ana", "-y", "--json").data["counts"] == {}
