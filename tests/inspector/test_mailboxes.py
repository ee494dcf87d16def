"""Mailboxes: folders with numbers, backlogs, stale claims and deliveries."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from inspector.test_pages import HOSTILE, JSON, Parsed
from starlette.testclient import TestClient
from support.each import with_each
from support.mailbox.files import inbound, reply, send

from lastlight_state import StateStore
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, When
from lastlight_state.inspector import inspector
from lastlight_state.testing import Database

AT = "/mailboxes/crew/s-1"
TOMORROW = datetime(2030, 1, 1, 9, tzinfo=UTC)


@pytest.fixture
def store(fresh_database: Database) -> StateStore:
    return fresh_database.open()


@pytest.fixture
def host(store: StateStore) -> HostMailbox:
    """Return a mailbox with three messages to the agent, of which one is claimed, and two from it."""
    made = store.mailbox.create("crew", "s-1")
    made.inbox.send("hostile", kind="chat", content={"text": HOSTILE})
    send(made, "m-1")
    made.tasks.create("daily", prompt="look <b>", when=When(recurrence="0 9 * * *", process_after=TOMORROW))
    agent: AgentMailbox = store.mailbox.agent("crew", "s-1")
    agent.inbox.claim("m-1")
    reply(agent, "out-1")
    reply(agent, "out-2", text="second")
    made.outbox.mark_failed("out-1", error="no <i>such</i> channel", permanent=True)
    made.outbox.mark_delivered("out-2", platform_message_id="p-2")
    return made


@pytest.fixture
def client(store: StateStore, host: HostMailbox, fresh_database: Database) -> TestClient:
    return TestClient(inspector(store, clock=fresh_database.clock))


def test_mailboxes_are_listed_with_what_waits_in_each(client: TestClient, store: StateStore) -> None:
    """inspector IN-63: by group; a damaged one has its error in its row."""
    store.mailbox.create("other", "s-2")
    inbound(store.mailbox.create("crew", "s-3")).write_bytes(b"no database" * 1_000)
    rows = client.get("/mailboxes?group=crew", headers=JSON).json()["mailboxes"]["items"]
    assert [(row["session"], row["numbers"] is None, row["problem"] is None) for row in rows] == [
        ("s-1", False, True),
        ("s-3", True, False),
    ]
    assert rows[0]["numbers"] == {
        "pending": 3, "due": 1, "claimed": 1, "paused": 0, "failed": 0, "undelivered": 0, "undeliverable": 1,
        "unknown_words": 0,
    }  # fmt: skip
    page = client.get("/mailboxes?limit=1")
    assert page.status_code == 200
    [following] = [attributes["href"] for _, attributes in Parsed(page.text).tags if attributes.get("rel") == "next"]
    assert client.get(f"/mailboxes{following}").status_code == 200


def test_a_claim_without_a_sign_of_life_is_stale(client: TestClient, fresh_database: Database) -> None:
    """inspector IN-64: by the judgement of the sweep, as if the agent had run since its oldest claim."""
    assert client.get(AT, headers=JSON).json()["stale"] is None
    fresh_database.clock.advance(seconds=300)
    data = client.get(AT, headers=JSON).json()
    assert data["stale"].startswith("no sign of life since a claim")
    [claim] = data["claims"]
    assert (claim["message_id"], claim["age_ms"]) == ("m-1", 300_000)
    assert "stale" in client.get("/mailboxes").text


def test_a_mailbox_shows_both_sides(client: TestClient) -> None:
    """inspector IN-65: messages, tasks and deliveries that failed, each with a link to its content."""
    data = client.get(AT, headers=JSON).json()
    assert {one["id"] for one in data["inbox"]["items"]} >= {"hostile", "m-1"}
    assert [one["message_out_id"] for one in data["undelivered"]["items"]] == ["out-1"]
    assert len(data["tasks"]["items"]) == 1
    page = Parsed(client.get(AT).text)
    assert f"{AT}/messages/hostile" in [attributes.get("href") for _, attributes in page.tags]
    assert [tag for tag, _ in page.tags if tag in ("i", "b")] == []
    assert client.get(f"{AT}?status=pending&kind=chat&limit=1", headers=JSON).json()["inbox"]["next_page_token"]


def test_a_message_is_shown_with_its_content_and_its_delivery(client: TestClient) -> None:
    """inspector IN-65: what is hostile does nothing."""
    page = Parsed(client.get(f"{AT}/messages/hostile").text)
    assert [tag for tag, _ in page.tags if tag == "img"] == []
    assert "<script>alert(1)</script>" in page.text
    data = client.get(f"{AT}/messages/out-2", headers=JSON).json()
    assert (data["reference"]["delivery"], data["reference"]["platform_message_id"]) == ("delivered", "p-2")


@with_each(
    ("address", "status"),
    [
        ("/mailboxes/crew/none", 404),
        (f"{AT}/messages/none", 404),
        ("/mailboxes/~2E~2E/x", 400),
        (f"{AT}?failed=x", 400),
    ],
)
def test_a_mailbox_that_is_not_there_is_an_error(client: TestClient, address: str, status: int) -> None:
    """inspector IN-3: and so is a name that leads out of the folder."""
    assert client.get(address).status_code == status


def test_what_messages_say_is_hidden(store: StateStore, host: HostMailbox) -> None:
    """inspector IN-7."""
    hidden = TestClient(inspector(store, hide_personal=True))
    assert host.inbox.get("hostile").content == {"text": HOSTILE}
    assert "alert" not in hidden.get(f"{AT}/messages/hostile").text
    assert hidden.get(f"{AT}/messages/hostile", headers=JSON).json()["message"]["content"] == "(hidden)"
    assert hidden.get(AT).status_code == 200
