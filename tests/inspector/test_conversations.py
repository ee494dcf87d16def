"""Conversations: branches as a tree with forks, each message once, and who shares it."""

from __future__ import annotations

import pytest
from inspector.test_pages import HOSTILE, JSON, Parsed
from starlette.testclient import TestClient
from support.each import with_each

from lastlight_state import StateStore
from lastlight_state.conversations import NewBranch, NewMessage, NewSession
from lastlight_state.inspector import inspector
from lastlight_state.testing import Database

SAYING = ("/conversations/talk", "/conversations/branches/main", "/conversations/messages/m-0")


@pytest.fixture
def store(fresh_database: Database) -> StateStore:
    """Return a store with a branch of three messages, and two forks, one from the other."""
    store = fresh_database.open()
    c = store.conversations
    c.sessions.create(NewSession("talk", "<b>name</b>"))
    c.branches.create("talk", NewBranch(id="main"))
    said = [NewMessage("user", HOSTILE.replace("\x1b", ""), id="m-0", sender="ana"), NewMessage("user", "1", id="m-1")]
    c.branches.append("main", said)
    c.lineage.fork("main", branch_id="fork/..", at=1)
    c.branches.append("fork/..", [NewMessage("assistant", "other", id="m-2")])
    c.lineage.fork("fork/..", branch_id="deeper")
    c.progressions.append(c.sessions.get("talk").progression_id, ["m-0", "m-0", "m-1"], on_repeat="keep")
    return store


@pytest.fixture
def client(store: StateStore, fresh_database: Database) -> TestClient:
    return TestClient(inspector(store, clock=fresh_database.clock))


def test_branches_are_a_tree_with_their_forks(client: TestClient) -> None:
    """inspector IN-66: each branch stands before what was forked from it."""
    outline = client.get("/conversations/talk", headers=JSON).json()["outline"]
    assert [(place["depth"], place["branch"]["id"]) for place in outline] == [
        (0, "main"),
        (1, "fork/.."),
        (2, "deeper"),
    ]
    links = [attributes.get("href") for _, attributes in Parsed(client.get("/conversations/talk").text).tags]
    assert "/conversations/branches/fork~2F.." in links


def test_a_message_that_a_session_repeats_is_shown_once(client: TestClient) -> None:
    """inspector IN-67."""
    pool = client.get("/conversations/talk", headers=JSON).json()["pool"]
    assert [one["id"] for one in pool] == ["m-0", "m-1", "m-2"]


def test_a_history_says_of_which_branch_each_message_is(client: TestClient) -> None:
    """inspector IN-67: what is inherited stands there with its branch."""
    data = client.get("/conversations/branches/fork~2F..", headers=JSON).json()
    assert [(one["message"]["id"], one["branch_id"]) for one in data["history"]["items"]] == [
        ("m-0", "main"),
        ("m-2", "fork/.."),
    ]
    assert [one["id"] for one in data["forks"]["items"]] == ["deeper"]
    first = client.get("/conversations/branches/fork~2F..?limit=1")
    [following] = [attributes["href"] for _, attributes in Parsed(first.text).tags if attributes.get("rel") == "next"]
    second = client.get(f"/conversations/branches/fork~2F..{following}", headers=JSON).json()
    assert [one["message"]["id"] for one in second["history"]["items"]] == ["m-2"]


def test_who_shares_a_message_is_listed(client: TestClient) -> None:
    """inspector IN-68."""
    data = client.get("/conversations/messages/m-0", headers=JSON).json()
    assert sorted(one["ord"] for one in data["uses"]["items"] if one["kind"] == "progression") == [0, 0, 3, 4]


@with_each("address", ["/conversations/talk", "/conversations/branches/main", "/conversations/messages/m-0"])
def test_hostile_messages_do_nothing(client: TestClient, address: str) -> None:
    """inspector IN-5."""
    page = Parsed(client.get(address).text)
    assert [tag for tag, _ in page.tags if tag in ("img", "b")] == []
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 1
    assert "<script>alert(1)</script>" in page.text


@with_each("address", ["/conversations/x", "/conversations/branches/x", "/conversations/messages/x"])
def test_what_is_not_there_is_not_found(client: TestClient, address: str) -> None:
    """inspector IN-3."""
    assert client.get(address).status_code == 404


def test_what_was_said_is_hidden(store: StateStore) -> None:
    """inspector IN-7."""
    hidden = TestClient(inspector(store, hide_personal=True))
    for address in SAYING:
        for text in (hidden.get(address).text, hidden.get(address, headers=JSON).text):
            assert "alert(1)" not in text
            assert "ana" not in Parsed(text).text.split()
