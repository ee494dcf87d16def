"""What belongs to a session beside its orders: inboxes, deliveries, memberships and chunks, which live on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.maintenance.rows import insert

from lastlight_state import StateStore
from lastlight_state.conversations import NewBranch, NewChunk, NewMessage, NewSession
from lastlight_state.errors import AlreadyExists
from lastlight_state.testing import Database


@pytest.fixture
def store(database: Database) -> StateStore:
    """Where the bundle is loaded."""
    return database.open()


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A session with its inboxes, as a file."""
    with StateStore.open(tmp_path / "source.db", state_dir=tmp_path / "source") as source:
        _fill(source.conversations)
        source.maintenance.bundles.export("session", "talk", tmp_path / "talk.zip")
    return tmp_path / "talk.zip"


def test_a_session_comes_with_what_was_delivered_to_it_and_of_it(bundle: Path, store: StateStore) -> None:
    """maintenance OP-60: its inboxes with messages that no order has, and who else got its messages; no other ones."""
    rows = store.maintenance.bundles.load(bundle).rows
    assert (rows["exchange_inboxes"], rows["exchange_deliveries"]) == (3, 4)
    c = store.conversations
    found = {owner: [(one.ord, one.message_id) for one in _inbox(c, owner)] for owner in ("ana", "ben", "branch")}
    assert found == {"ana": [(0, "said"), (1, "asked")], "ben": [(0, "said")], "branch": [(0, "asked")]}
    assert c.messages.get("asked").content == "asked"
    assert c.messages.find("other") is None
    assert [one.member for one in c.exchange.members("news").items] == ["branch", "talk"]
    assert [one.id for one in c.vectors.list("texts").items] == ["a", "b", "said"]
    assert [one.namespace for one in c.vectors.namespaces().items] == ["texts"]


def test_an_inbox_gives_no_number_that_a_delivery_of_the_bundle_has(
    bundle: Path, store: StateStore, database: Database
) -> None:
    """maintenance OP-61: neither a new inbox nor one that is there; one that has had more goes on behind them."""
    send = store.conversations.exchange.send
    for owner, more in (("ana", {}), ("ben", {"next_ord": 9})):
        insert(database.raw(), "exchange_inboxes", {"owner": owner, "created_at": database.clock.now(), **more})
    send(_letter("first"), to="zoe")
    store.maintenance.bundles.load(bundle)
    send(_letter("new"), to=["ana", "ben", "branch", "zoe"])
    new = store.conversations.exchange.deliveries("new").items
    assert {one.owner: one.ord for one in new} == {"ana": 3, "ben": 9, "branch": 1, "zoe": 1}


def test_what_lives_on_after_the_export_stays_as_it_is(bundle: Path, store: StateStore) -> None:
    """maintenance OP-61: deliveries, inboxes, memberships, and chunks with their namespaces."""
    c = store.conversations
    store.maintenance.bundles.load(bundle)
    c.exchange.take("branch", reader="r")
    c.exchange.ack("branch", 0, reader="r")
    c.exchange.send(_letter("next"), to="branch")
    c.exchange.leave("news", "branch")
    c.vectors.clear("texts", scope="namespace")
    c.vectors.put("texts", [NewChunk("said", "again", [3.0, 4.0])], model="m")
    loaded = store.maintenance.bundles.load(bundle)
    assert loaded.rows == {"vectors": 2}
    assert (c.vectors.get("texts", "said").content, c.exchange.deliveries("asked").items[1].acked_by) == ("again", "r")
    assert [one.member for one in c.exchange.members("news").items] == ["talk"]


def test_a_delivery_at_a_position_with_another_message_refuses_the_bundle_or_is_left_out(
    bundle: Path, store: StateStore
) -> None:
    """maintenance OP-61."""
    exchange, bundles = store.conversations.exchange, store.maintenance.bundles
    exchange.send(_letter("mine"), to="ben")
    with pytest.raises(AlreadyExists) as caught:
        bundles.load(bundle)
    assert (caught.value.kind, caught.value.key) == ("exchange_deliveries", ("ben", 0))
    loaded = bundles.load(bundle, on_conflict="skip")
    assert loaded.rows["exchange_deliveries"] == 3
    assert [one.message_id for one in _inbox(store.conversations, "ben")] == ["mine"]


def test_chunks_of_another_length_refuse_the_bundle_or_are_left_out(bundle: Path, store: StateStore) -> None:
    """maintenance OP-61."""
    vectors, bundles = store.conversations.vectors, store.maintenance.bundles
    vectors.put("texts", [NewChunk("mine", "mine", [1.0])])
    for refusing in (bundles.plan, bundles.load):
        with pytest.raises(AlreadyExists) as caught:
            refusing(bundle)
        assert (caught.value.kind, caught.value.key) == ("vector_namespaces", "texts")
    bundles.load(bundle, on_conflict="skip")
    assert [one.id for one in vectors.list("texts").items] == ["mine"]


def _fill(c: Any) -> None:
    c.sessions.create(NewSession("talk", "n"))
    c.branches.create("talk", NewBranch(id="branch"))
    c.branches.append("branch", [_letter("said")])
    c.exchange.send(_letter("said"), to=["ana", "ben"])
    c.exchange.send(_letter("asked"), to=["branch", "ana"])
    c.exchange.send(_letter("other"), to=["ana", "talk-2"])
    for member in ("talk", "branch", "ana"):
        c.exchange.join("news", member)
    chunks = [
        ("said", None),
        ("elsewhere", None),
        ("a", "talk"),
        ("b", "asked"),
        ("c", "elsewhere"),
        ("branch", "elsewhere"),
    ]
    c.vectors.put("texts", [NewChunk(key, key, [1.0, 2.0], document_id=of) for key, of in chunks])
    c.vectors.put("others", [NewChunk("elsewhere", "x", [1.0])])


def _letter(key: str) -> NewMessage:
    return NewMessage("user", key, id=key)


def _inbox(conversations: Any, owner: str) -> Any:
    return conversations.exchange.inbox(owner, state="all")
